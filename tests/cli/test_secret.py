"""`myria secret`: from standard input into a template of requests, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import orjson
import pytest

from myria.access.vault import opened_secrets
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError
from myria.llm.model import LanguageModel
from myria.memory import Memory
from myria.settings import LlmSettings, SecretsSettings, Settings
from tests.cli.conftest import call
from tests.support.postgres import Database

VALUE = "sk-or-v1-Zq8!secret/key+7f3a"
OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of secrets that the environment names, which holds one."""
    path = tmp_path / "secrets.json"
    monkeypatch.setenv("MYRIA_SECRETS_FILE", str(path))
    monkeypatch.setenv("MYRIA_MASTER_KEY", OLD)
    assert call("secret", "set", "openrouter", stdin=f"{VALUE}\n".encode()).status == 0
    return path


@pytest.fixture
def settings(kept: Path, tmp_path: Path) -> Settings:
    """A template that names the secret."""
    template = tmp_path / "template.json"
    template.write_bytes(orjson.dumps({"model": "m", "headers": {"Authorization": "Bearer ${secret:openrouter}"}}))
    return Settings(llm=LlmSettings(template=str(template)), secrets=SecretsSettings(file=str(kept)))


def listed() -> list[dict[str, str]]:
    shown = call("secret", "list", "--json")
    assert shown.status == 0, shown.err
    found: list[dict[str, str]] = json.loads(shown.out)["secrets"]
    return found


def test_a_secret_goes_into_the_header_that_is_sent(settings: Settings) -> None:
    """The template's header holds it; the template, shown, does not, and takes it out of other texts."""
    model = LanguageModel.configured(settings.llm, secrets=opened_secrets(settings.secrets))
    assert model is not None
    template = model.provider.template
    assert template.headers["Authorization"].reveal() == f"Bearer {VALUE}"
    assert VALUE not in repr(template)
    assert template.redactor.text(f"it said {VALUE}") == "it said ***"


def test_a_secret_that_is_not_kept_is_named(settings: Settings) -> None:
    """The start ends with the name that the template asks for."""
    assert call("secret", "rm", "openrouter").status == 0
    with pytest.raises(ConfigurationError, match="needs the secret openrouter, which is not there"):
        LanguageModel.configured(settings.llm, secrets=opened_secrets(settings.secrets))
    assert call("secret", "rm", "openrouter").status == 3


@pytest.fixture
def tampered(kept: Path) -> Path:
    """The file after somebody made its secret one of another tenant."""
    document = json.loads(kept.read_text(encoding="utf-8"))
    document["secrets"][0]["tenant"] = "team-a"
    kept.write_text(json.dumps(document), encoding="utf-8")
    return kept


async def test_nothing_starts_with_a_secret_that_was_changed(
    settings: Settings, tampered: Path, database: Database
) -> None:
    """Neither serving nor the control plane, whether or not a model is configured; the message names the secret."""
    for started in (settings, Settings(secrets=SecretsSettings(file=str(tampered)))):
        with pytest.raises(ConfigurationError, match="The secret openrouter of the tenant team-a"):
            Memory(database.server_dsn, started)
        async with Pool(database.operator_dsn) as pool:
            with pytest.raises(ConfigurationError, match="The secret openrouter of the tenant team-a"):
                ControlLoop(pool, started, lambda *_: asyncio.sleep(0, 0))


def test_a_server_says_why_it_does_not_start(tampered: Path, database: Database) -> None:
    """Its exit status is that of a set-up that needs a person."""
    refused = call("serve", "--stdio", "--dsn", database.server_dsn)
    assert refused.status == 6
    assert "The secret openrouter of the tenant team-a" in refused.err
    assert VALUE not in refused.err
    assert tampered.exists()


def test_secrets_are_listed_without_their_values(kept: Path) -> None:
    """For people and for programs; of every tenant."""
    assert call("secret", "set", "other", "--tenant", "team-a", "--from-env", "MYRIA_MASTER_KEY").status == 0
    assert [(each["tenant"], each["name"]) for each in listed()] == [("default", "openrouter"), ("team-a", "other")]
    said = call("secret", "list").out + json.dumps(listed()) + kept.read_text(encoding="utf-8")
    assert "openrouter" in said
    assert VALUE not in said
    assert OLD not in said


def test_a_new_master_key_takes_over(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands: with both keys `rekey`, then the new one alone lists what was kept."""
    (before,) = listed()
    monkeypatch.setenv("MYRIA_MASTER_KEY", f"{NEW},{OLD}")
    assert json.loads(call("secret", "rekey", "--json").out) == {"rekeyed": 1}
    monkeypatch.setenv("MYRIA_MASTER_KEY", NEW)
    (after,) = listed()
    assert after["key_id"] != before["key_id"]
    monkeypatch.setenv("MYRIA_MASTER_KEY", OLD)
    refused = call("secret", "list")
    assert refused.status == 6
    assert "The secret openrouter of the tenant default" in refused.err


def test_a_value_comes_from_one_place(kept: Path, tmp_path: Path) -> None:
    """From a file, a variable, or standard input; never from two, and never from nowhere."""
    (tmp_path / "value").write_text("from a file\n", encoding="utf-8")
    assert call("secret", "set", "filed", "--from-file", tmp_path / "value").status == 0
    assert opened_secrets(SecretsSettings(file=str(kept))).get("filed") == "from a file"
    both = call("secret", "set", "x", "--from-file", tmp_path / "value", "--from-env", "HOME")
    assert (both.status, "leave one out" in both.err) == (2, True)
    assert call("secret", "set", "x", "--from-env", "NOT_THERE").status == 2
    assert call("secret", "set", "x", "--from-file", tmp_path / "none").status == 2
    assert call("secret", "set", "x", stdin=b"").status == 2
    assert call("secret", "set", "x", stdin=b"\xff\xfe").status == 2
    assert [each["name"] for each in listed()] == ["filed", "openrouter"]
