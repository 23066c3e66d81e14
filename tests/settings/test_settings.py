from __future__ import annotations

import ast
import copy
import dataclasses
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.errors import ConfigurationError
from myria.settings import (
    BuilderSettings,
    IngestSettings,
    McpSettings,
    PlannerSettings,
    PostgresSettings,
    Settings,
    TopicsSettings,
    variable_of,
)
from myria.settings.sections import nearest

KEYS = [setting.key for setting in Settings.describe()]


def config_file(folder: Path, text: str) -> Path:
    path = folder / "myria.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_means_the_defaults() -> None:
    """Without file, environment and overrides, loading gives the written defaults."""
    assert Settings.load(environ={}) == Settings()


def test_later_sources_win(tmp_path: Path) -> None:
    """A file overrides a default, the environment the file, and an override the environment."""
    path = config_file(tmp_path, "mcp: {port: 1, host: file}\nbuilder: {processes: 3}\n")
    settings = Settings.load(path, {"MYRIA_MCP_PORT": "2", "MYRIA_MCP_HOST": "env"}, {"mcp.port": 3})
    assert (settings.mcp.port, settings.mcp.host, settings.builder.processes) == (3, "env", 3)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    """`MYRIA_CONFIG` names the file; an explicit path wins over it."""
    named = config_file(tmp_path, "service: {name: from-variable}\n")
    other = tmp_path / "other.yaml"
    other.write_text("service: {name: from-option}\n")
    environ = {"MYRIA_CONFIG": str(named)}
    assert Settings.load(environ=environ).service.name == "from-variable"
    assert Settings.load(other, environ).service.name == "from-option"


def test_an_option_that_was_not_given_changes_nothing() -> None:
    """An override of None leaves the value of the source below."""
    assert Settings.load(environ={"MYRIA_MCP_PORT": "7"}, overrides={"mcp.port": None}).mcp.port == 7


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("mcp.profiles", "core, observe", ("core", "observe")),
        ("mcp.profiles", '["core"]', ("core",)),
        ("ingest.internal_types", "", ()),
        ("ingest.future_limit_s", "60", 60.0),
        ("ingest.future_limit_s", "", None),
        ("builder.auto_publish", "No", False),
        ("builder.poll_s", "0.25", 0.25),
        ("postgres.dsn", "postgresql://h/d", "postgresql://h/d"),
    ],
)
def test_environment_text_becomes_a_typed_value(key: str, text: str, expected: object) -> None:
    """Lists, booleans, numbers and unset values can all be written as environment text."""
    settings = Settings.load(environ={variable_of(key): text})
    section, name = key.split(".")
    assert getattr(getattr(settings, section), name) == expected


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"MYRIA_MCP_PRT": "1"}, "MYRIA_MCP_PORT"),
        ({"MYRIA_BUILDER_AUTOPUBLISH": "1"}, "MYRIA_BUILDER_AUTO_PUBLISH"),
        ({"MYRIA_CONFG": "x"}, "MYRIA_CONFIG"),
    ],
)
def test_an_unknown_variable_names_the_nearest_known_one(environ: dict[str, str], named: str) -> None:
    """A misspelt variable is refused, and the message says which one was meant."""
    with pytest.raises(ConfigurationError, match=named) as caught:
        Settings.load(environ=environ)
    assert caught.value.details["nearest"] == named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("mpc: {port: 1}", "'mcp'"),
        ("mcp: {prot: 1}", "'mcp.port'"),
        ("builder: {max_unindexed: 1}", "'builder.max_unindexed_events'"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(tmp_path: Path, text: str, named: str) -> None:
    """A misspelt section or field of the file is refused, and the message says which one was meant."""
    with pytest.raises(ConfigurationError, match=named):
        Settings.load(config_file(tmp_path, text), {})


def test_an_unknown_override_is_refused() -> None:
    """A program cannot set what does not exist."""
    with pytest.raises(ConfigurationError, match=r"mcp\.port"):
        Settings.load(environ={}, overrides={"mcp.ports": 1})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("mcp.port", "eight"),
        ("mcp.port", "70000"),
        ("mcp.port", "-1"),
        ("mcp.port", "1.5"),
        ("mcp.request_deadline_s", "nan"),
        ("mcp.request_deadline_s", "inf"),
        ("mcp.profiles", "core,root"),
        ("mcp.profiles", '["core", 3]'),
        ("mcp.profiles", "[core"),
        ("mcp.tool_names", "Dotted"),
        ("builder.auto_publish", "maybe"),
        ("builder.auto_publish", ""),
        ("planner.leaf_min", "1"),
        ("service.name", "a\x00b"),
    ],
)
def test_a_bad_environment_value_names_the_field_and_the_variable(key: str, text: str) -> None:
    """A value of a wrong type or out of range says which field, and which variable, is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(environ={variable_of(key): text})
    assert key in caught.value.message
    assert variable_of(key) in caught.value.message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("mcp: {port: '8321'}", "mcp.port"),
        ("mcp: {port: true}", "mcp.port"),
        ("mcp: {profiles: core}", "mcp.profiles"),
        ("service: {name: }", "service.name"),
        ("builder: {auto_publish: 1}", "builder.auto_publish"),
        ("builder: {poll_s: .nan}", "builder.poll_s"),
        ("ingest: {payload_depth: 1000}", "ingest.payload_depth"),
    ],
)
def test_a_bad_file_value_names_the_field_and_the_file(tmp_path: Path, text: str, field: str) -> None:
    """The file is as strict about types as the contract: no text for numbers, no number for truth."""
    path = config_file(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(path, {})
    assert field in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "mcp:\n", "{}"])
def test_an_empty_file_or_section_means_the_defaults(tmp_path: Path, text: str) -> None:
    """A file with nothing in it, or with an empty section, is valid."""
    assert Settings.load(config_file(tmp_path, text), {}) == Settings()


@pytest.mark.parametrize("text", ["- a\n", "mcp: 3\n", "just text", "3"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    """The file holds sections, and a section holds fields."""
    with pytest.raises(ConfigurationError, match="mapping"):
        Settings.load(config_file(tmp_path, text), {})


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """The second of two equal keys does not silently win."""
    with pytest.raises(ConfigurationError, match="twice"):
        Settings.load(config_file(tmp_path, "mcp: {port: 1}\nmcp: {port: 2}\n"), {})


def test_broken_yaml_is_named_without_quoting_the_file(tmp_path: Path) -> None:
    """The message gives file and line, but no text of the file: it may hold a password."""
    path = config_file(tmp_path, 'postgres:\n  dsn: "postgresql://u:hunter2@h/d\n')
    with pytest.raises(ConfigurationError, match="line") as caught:
        Settings.load(path, {})
    assert str(path) in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that cannot be read is an error, not an empty file."""
    with pytest.raises(ConfigurationError, match=r"absent\.yaml"):
        Settings.load(tmp_path / "absent.yaml", {})


def test_the_variables_of_kubernetes_service_links_are_no_settings() -> None:
    """What Kubernetes sets for a Service named `myria` or `myria-mcp` beside the pod is passed over."""
    environ = {
        "MYRIA_SERVICE_HOST": "10.0.0.7",
        "MYRIA_SERVICE_PORT": "8321",
        "MYRIA_SERVICE_PORT_HTTP": "8321",
        "MYRIA_PORT": "tcp://10.0.0.7:8321",
        "MYRIA_PORT_8321_TCP": "tcp://10.0.0.7:8321",
        "MYRIA_PORT_8321_TCP_ADDR": "10.0.0.7",
        "MYRIA_MCP_SERVICE_HOST": "10.0.0.8",
        "MYRIA_MCP_PORT": "tcp://10.0.0.8:8321",
    }
    assert Settings.load(environ=environ) == Settings()
    with pytest.raises(ConfigurationError):
        Settings.load(environ={"MYRIA_PORT": "8321"})


def test_the_password_is_never_shown() -> None:
    """What is printed of the settings does not hold the connection string."""
    settings = Settings(postgres=PostgresSettings(dsn="postgresql://u:hunter2@h/d"))
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BuilderSettings(backoff_base_s=10, backoff_max_s=5),
        lambda: PlannerSettings(leaf_target=20),
        lambda: PlannerSettings(leaf_min=5, leaf_target=5, leaf_max=8),
        lambda: TopicsSettings(dormant_after_s=2, archived_after_s=1),
        lambda: Settings(mcp=McpSettings(body_bytes=2000)),
        lambda: IngestSettings(batch_events=501),
        lambda: McpSettings(port="8321"),  # type: ignore[arg-type]
    ],
)
def test_settings_made_in_code_are_checked_too(make: object) -> None:
    """A contradiction cannot be made, wherever the values come from."""
    with pytest.raises(ConfigurationError):
        make()  # type: ignore[operator]


def test_describing_the_settings_reads_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The docstrings of fields are read when a section is made, not again for every setting that is described."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the source was parsed again")

    monkeypatch.setattr(ast, "parse", refuse)
    assert [setting.key for setting in Settings.describe()] == KEYS


def test_settings_cannot_be_changed() -> None:
    """One object serves a whole process: it is frozen at every level."""
    settings = Settings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.mcp.port = 1  # type: ignore[misc]


def test_every_setting_is_documented_with_a_default_and_its_own_variable() -> None:
    """Each field has a docstring, and no two settings share an environment variable."""
    described = Settings.describe()
    assert all(setting.doc.endswith(".") for setting in described)
    assert len({setting.variable for setting in described}) == len(described)


@pytest.mark.parametrize("text", ["embeddings: {model: off}", "embeddings:\n  model: 'off'"])
def test_a_bare_off_in_a_file_is_the_word(tmp_path: Path, text: str) -> None:
    """YAML reads it as false, and people write it."""
    path = tmp_path / "myria.yaml"
    path.write_text(text, encoding="utf-8")
    assert Settings.load(path, environ={}).embeddings.model == "off"


@pytest.mark.parametrize("key", [key for key in KEYS if key.endswith(("_s", "_bytes")) and not key.endswith("_per_s")])
def test_the_page_says_the_unit_of_times_and_sizes(key: str) -> None:
    """A field whose name ends in a unit shows that unit in docs/settings.md."""
    section, name = key.split(".")
    page = (Path(__file__).resolve().parents[2] / "docs/settings.md").read_text(encoding="utf-8")
    lines = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0].splitlines()
    (line,) = [line for line in lines if line.startswith(f"- `{name}` (")]
    unit = "seconds" if name.endswith("_s") else "bytes"
    assert line.startswith(f"- `{name}` ({unit}")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_the_nearest_name_of_a_known_name_is_itself(name: str) -> None:
    """The suggestion is stable, and exact when the name is known."""
    assert nearest(name, [*KEYS, name]) == name
    assert nearest(name, KEYS) == nearest(name, list(reversed(KEYS)))


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an explicit environment, the process's own is read."""
    for variable in [name for name in os.environ if name.startswith("MYRIA_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("MYRIA_SERVICE_NAME", "mine")
    assert Settings.load().service.name == "mine"


def test_settings_are_copied_and_sent_whole() -> None:
    """A builder's further processes get them as they are, and what is made of copies is equal."""
    settings = Settings(mcp=McpSettings(port=1), postgres=PostgresSettings(dsn="postgresql://h/d"))
    for made in (copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):  # noqa: S301 - our own
        assert made == settings
        assert hash(made) == hash(settings)
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.mcp.port = 2  # type: ignore[misc]
    assert settings != Settings()
    assert dataclasses.replace(settings, mcp=McpSettings()) != settings


def test_a_section_is_no_other_one() -> None:
    """Where one section belongs, another is refused, and so is a mapping."""
    for wrong in (PostgresSettings(), {"port": 1}, None):
        with pytest.raises(ConfigurationError, match=r"settings\.mcp"):
            Settings(mcp=wrong)  # type: ignore[arg-type]


def test_a_number_is_kept_as_its_field_holds_it() -> None:
    """A whole number for a field of seconds is a float, however it is given."""
    assert isinstance(BuilderSettings(poll_s=1).poll_s, float)
    assert isinstance(Settings.load(environ={}, overrides={"builder.poll_s": 1}).builder.poll_s, float)


def test_a_builder_that_is_told_where_its_database_is_starts_without_pydantic() -> None:
    """Its validators cost a quarter of a second, and a build may take less."""
    program = """
import sys
from myria.settings import Settings
import myria_builder.process
settings = Settings.load(environ={"MYRIA_POSTGRES_DSN": "postgresql://h/d", "MYRIA_SERVICE_NAME": "mine"})
assert settings.postgres.dsn == "postgresql://h/d"
print("pydantic" in sys.modules, "yaml" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]


def test_a_child_gets_the_same_settings_by_its_environment() -> None:
    """Whatever they hold: an empty list beside a default that is none, a comma in a name, nothing beside a number."""
    overrides = {
        "auth.local_participants": ["ana, b", 'c "d"'],
        "auth.concurrency": None,
        "auth.mode": "keys",
        "agent.enabled": False,
        "builder.time_share": 0.25,
        "mcp.profiles": [],
        "postgres.dsn": "postgresql://a:b%20c@h/d",
        "postgres.migrate_on_start": False,
        "ingest.future_limit_s": None,
    }
    settings = Settings.load(environ={}, overrides=overrides)
    given = replace(settings, ingest=replace(settings.ingest, future_limit_s=None))
    for wanted in (Settings(), settings, given):
        assert Settings.load(environ=wanted.variables()) == wanted
