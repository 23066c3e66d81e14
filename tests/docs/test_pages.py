"""The pages: every command, option, file, value and setting that they name exists, and their YAML is what it says."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cel
import pytest
import typer
import yaml

from myria.settings import RESERVED_VARIABLES, Settings
from myria_cli.app import app
from myria_server.api.tools import TOOLS
from tests.chart.rendering import render

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "charts/myria/README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/integrations/*.md"),
        *ROOT.glob("examples/*.md"),
    ]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FOLDERS = sorted(folder.name for folder in ROOT.iterdir() if folder.is_dir() and folder.name[0] != ".")
MADE_BY_HAND = {"benchmarks/out"}
"""Where programs write."""
CODE = {".py", ".sql", ".toml", ".yaml", ".yml", ".ts", ".tpl", ".sh", ".svg"}
FOREIGN_VARIABLES = {"MYRIA_URL"}
"""What the requests of docs/integrations/http.md read."""
FOREIGN_FLAGS = {"--set", "--reuse-values", "--reset-then-reuse-values", "--shm-size", "--volumes"} | {
    "--dangerously-bypass-hook-trust"
}
"""Of Helm, Docker and Codex, where the sentence names the program."""
MEMENTOS = {"utility_score"}
"""Fields of Memento that Myria reads as nothing."""


def text_of(name: str) -> str:
    """Return a page."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, *kinds: str) -> Iterator[str]:
    """Yield the fenced blocks of some languages."""
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if kind in kinds:
            yield block


def spoken(text: str) -> list[str]:
    """Return what stands in backticks within sentences."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def lines(text: str) -> list[str]:
    """Return lines to type: of shell blocks, of indented blocks, and those in sentences."""
    typed = [line for block in blocks(text, "sh", "bash") for line in block.replace("\\\n", " ").splitlines()]
    typed += re.findall(r"^ {4}(make .*|\.venv/.*|myria .*)$", text, re.MULTILINE)
    return typed + spoken(text)


def commands(text: str) -> list[list[str]]:
    """Return the words after `myria` of each command of the command line."""
    found = []
    for line in lines(text):
        words = re.split(r"\s#\s|\s\| |(?<!-)>|&&|;", line)[0]
        match = re.search(r"(?:^|-- |\(|/bin/|\| )myria ([a-z].*)$", words)
        if match:
            try:
                found.append(shlex.split(match[1].rstrip(" .,:")))
            except ValueError:
                continue
    return found


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name: str) -> None:
    """`myria ...` names a command, and options that it has."""
    known = typer.main.get_group(app).commands
    for words in commands(text_of(name)):
        assert words[0] in known, " ".join(words)
        named = known[words[0]]
        if isinstance(named, typer.core.TyperGroup):
            alternatives = words[1].split("|") if len(words) > 1 else []
            assert set(alternatives) <= set(named.commands), " ".join(words)
            if not alternatives:
                continue
            named = named.commands[alternatives[0]]
        options = {option for parameter in named.params for option in (*parameter.opts, *parameter.secondary_opts)}
        asked = {word.partition("=")[0] for word in words if word.startswith("--") and len(word) > 2}
        assert asked <= {*options, "--help"}, " ".join(words)


@pytest.mark.parametrize("name", NAMES)
def test_targets_exist(name: str) -> None:
    """`make ...` names a target."""
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in lines(text_of(name)):
        for target in re.findall(r"(?:^|\w=\S+ )make ([a-z][a-z-]*)", line):
            assert target in targets, line


@pytest.mark.parametrize("name", NAMES)
def test_files_exist(name: str) -> None:
    """Paths of this repository lead somewhere."""
    folders = "|".join(FOLDERS)
    for path in re.findall(rf"(?<![\w/.:-])((?:{folders})/[\w./-]*\w)", text_of(name)):
        if path not in MADE_BY_HAND and not path.startswith("scripts/image_steps/"):
            assert (ROOT / path).exists() or (ROOT / f"{path}.py").exists(), path


@pytest.mark.parametrize("name", NAMES)
def test_values_and_settings_exist(name: str) -> None:
    """A dotted name in backticks that begins like a value of the chart or a setting is one."""
    values: Any = yaml.safe_load((ROOT / "charts/myria/values.yaml").read_text(encoding="utf-8"))
    settings = {
        f"{section.name}.{field.name}"
        for section in dataclasses.fields(Settings)
        if dataclasses.is_dataclass(getattr(Settings(), section.name))
        for field in dataclasses.fields(getattr(Settings(), section.name))
    }
    sections = {one.partition(".")[0] for one in settings}
    for word in spoken(text_of(name)):
        match = re.fullmatch(r"([a-z][A-Za-z_]*(?:\.[A-Za-z_]+)+)(?:=\S*)?", word)
        if match is None or match[1].partition(".")[0] not in {*values, *sections, "settings"}:
            continue
        dotted = match[1].removeprefix("settings.")
        if dotted in settings or dotted.endswith((".py", ".md", ".yaml", ".sql", ".svg", ".jsonl")):
            continue
        here = values
        for part in dotted.split("."):
            assert isinstance(here, dict), word
            assert part in here or not here, word
            here = here.get(part)


@pytest.mark.parametrize("name", NAMES)
def test_variables_exist(name: str) -> None:
    """A variable that begins with MYRIA_ is a setting's, one that programs read, or one of the tests."""
    known = {setting.variable for setting in Settings.describe()} | RESERVED_VARIABLES | FOREIGN_VARIABLES
    text = text_of(name)
    for variable in set(re.findall(r"\bMYRIA_[A-Z0-9_]+\b", text)):
        assert variable in known or variable.startswith("MYRIA_TEST_"), variable


@pytest.mark.parametrize("name", NAMES)
def test_flags_exist(name: str) -> None:
    """An option that sentences name without its command is one of the command's, or of a program of this repository."""
    for phrase in spoken(text_of(name)):
        for flag in re.findall(r"(?:^|\s)(--[a-z][\w-]*)", phrase):
            if not phrase.startswith(("--", "myria ")):
                continue  # of another program, which the phrase names
            assert flag in {*options_of(), *FOREIGN_FLAGS} or f'"{flag}"' in source(), phrase


@pytest.mark.parametrize("name", NAMES)
def test_tools_exist(name: str) -> None:
    """A name in backticks that begins as tools' names do is a tool, or a name in the source."""
    tools = {tool_name for tool in TOOLS for tool_name in (tool.name, tool.plain())}
    for word in spoken(text_of(name)):
        if re.fullmatch(r"(?:myria|memory)_[a-z_]+", word):
            assert word in tools or word in words_of_source(), word


@pytest.mark.parametrize("name", ["docs/development.md", "docs/architecture.md", "docs/moving-in.md"])
def test_names_of_the_source_exist(name: str) -> None:
    """Modules, classes, methods and functions that these pages name are there, under these names."""
    files = ["/" + path.relative_to(ROOT).as_posix() for path in tracked()]
    for word in spoken(text_of(name)):
        if re.fullmatch(r"(?:[\w-]+/)*[\w-]+\.(?:py|sql|toml|ts|svg)", word):
            assert "what_it_does" in word or any(path.endswith(f"/{word}") for path in files), word
        elif method := re.fullmatch(r"([A-Z][a-z]\w*)\.(\w+)", word):
            assert re.search(rf"^class {method[1]}\b", source(), re.MULTILINE), word
            assert re.search(rf"\bdef {method[2]}\b", source()), word
        elif re.fullmatch(r"@?(?:[A-Z][a-z]+(?:[A-Z][a-z]+)+|[a-z]+(?:_[a-z0-9]+)+)", word):
            assert word.lstrip("@") in words_of_source() or word in MEMENTOS, word


@cache
def tracked() -> list[Path]:
    """Return the source: what git keeps, or would, of the folders that hold code."""
    return [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in CODE
        and not {"node_modules", "__pycache__"} & set(path.parts)
        and path.stat().st_size < 1 << 20
    ]


@cache
def source() -> str:
    """Return all of it as one text."""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in tracked())


@cache
def words_of_source() -> frozenset[str]:
    """Return every word of it: letters, digits and underscores."""
    return frozenset(re.findall(r"\w+", source()))


@cache
def options_of() -> frozenset[str]:
    """Return every option of every command."""

    def below(group: Any) -> Iterator[str]:
        for one in group.commands.values():
            if isinstance(one, typer.core.TyperGroup):
                yield from below(one)
            else:
                yield from (option for found in one.params for option in (*found.opts, *found.secondary_opts))

    return frozenset({*below(typer.main.get_group(app)), "--help", "--version"})


@pytest.mark.parametrize("name", NAMES)
def test_yaml_is_yaml_and_values_are_values(name: str) -> None:
    """Each block can be read; what calls itself values.yaml is taken by the chart."""
    for block in blocks(text_of(name), "yaml"):
        documents = list(yaml.safe_load_all(block))
        assert documents
        if block.startswith("# values.yaml\n"):
            render(documents[0])


def test_a_recovery_replaces_the_charts_bootstrap() -> None:
    """The values of docs/backup.md leave one way to bootstrap: the API server drops what is null."""
    [values] = [yaml.safe_load(one) for one in blocks(text_of("docs/backup.md"), "yaml") if "recoveryTarget" in one]
    [cluster] = render(values).of("Cluster")
    assert cluster["metadata"]["name"] == "myria-db-2"
    assert {name for name, how in cluster["spec"]["bootstrap"].items() if how} == {"recovery"}


def test_the_operators_reasons_reach_argo_cd_and_flux() -> None:
    """The health checks look at the one condition that sums up, and tell its three states apart."""
    text = text_of("docs/gitops.md")
    [flux] = [one for one in map(yaml.safe_load, blocks(text, "yaml")) if "healthCheckExprs" in one.get("spec", {})]
    [check] = flux["spec"]["healthCheckExprs"]
    [argo] = [one for one in map(yaml.safe_load, blocks(text, "yaml")) if one["kind"] == "ConfigMap"]
    lua = argo["data"]["resource.customizations.health.myria.dev_MyriaRebuild"]
    assert all(f'"{status}"' in lua for status in ("Healthy", "Degraded", "Progressing", "Suspended"))

    def verdicts(status: str | None) -> list[str]:
        conditions = [{"type": "Published", "status": "False"}]
        resource: dict[str, Any] = (
            {} if status is None else {"conditions": [*conditions, {"type": "Succeeded", "status": status}]}
        )
        return [name for name in ("inProgress", "failed", "current") if holds(check[name], resource)]

    assert verdicts(None) == verdicts("Unknown") == ["inProgress"]
    assert verdicts("False") == ["failed"]
    assert verdicts("True") == ["current"]


def holds(expression: str, status: dict[str, Any]) -> bool:
    """Return what an expression in CEL says of a resource's status."""
    return bool(cel.evaluate(expression, {"status": status}))
