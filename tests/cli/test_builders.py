"""The builders of `myria up`: they have its settings, and why one dies stands in `status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import call
from tests.support.postgres import Database
from tests.support.processes import Spawned, Spawner, wait_until

pytestmark = pytest.mark.processes

EVENT = {
    "timestamp": "2026-03-01T10:00:00Z",
    "channel": "up",
    "participants": ["ana"],
    "source_event_key": "1",
    "payload": {"text": "sourdough bread"},
}

ISSUERS = """
issuers:
  - name: login
    issuer: https://login.example.com/realms/a
    algorithms: [RS256]
    tenant: {always: [team-a]}
    participants: {claim: sub}
    roles: {always: [read]}
"""


def started(spawn: Spawner, database: Database, folder: Path, text: str, *arguments: str) -> Spawned:
    """Start `myria up` with a settings file; return it once it serves."""
    (folder / "myria.yaml").write_text(text, encoding="utf-8")
    program = spawn.myria(
        *("up", "--port", "0", "--json", "--dsn", database.dsn),
        *("--config", str(folder / "myria.yaml"), *arguments),
    )
    program.wait_for(r'^\{"url".*\}$')
    return program


def rebuilt(database: Database, folder: Path) -> dict[str, Any]:
    """Append an event, have the running `up` build it, and return the build."""
    (folder / "one.jsonl").write_text(json.dumps(EVENT), encoding="utf-8")
    assert call("import", folder / "one.jsonl", "--dsn", database.dsn).status == 0
    build: dict[str, Any] = call("rebuild", "--wait", "--json", "--dsn", database.dsn).json
    return build


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("auth: {server: true, issuers_file: ISSUERS, public_url: 'http://127.0.0.1:8321'}", ["--auth"]),
        (
            "{mcp: {host: 192.0.2.1, port: 1}, auth: {local_participants: []}}",
            ["--host", "127.0.0.1", "--as", "ana, b"],
        ),
    ],
)
def test_builders_have_the_settings_in_force(
    database: Database, spawn: Spawner, tmp_path: Path, text: str, arguments: list[str]
) -> None:
    """What an option adds to the file counts for the builders too, whatever the file by itself would mean.

    The file is read once: half of a change, or a broken one, reaches no builder.
    """
    issuers = tmp_path / "issuers.yaml"
    issuers.write_text(ISSUERS, encoding="utf-8")
    text = text.replace("ISSUERS", str(issuers))
    started(spawn, database, tmp_path, text, *arguments)
    (tmp_path / "myria.yaml").write_text("builder: {pol", encoding="utf-8")
    assert rebuilt(database, tmp_path)["status"] == "succeeded"
    (tmp_path / "myria.yaml").write_text(text, encoding="utf-8")
    told = call("status", "--dsn", database.dsn, "--config", tmp_path / "myria.yaml")
    assert (told.status, "succeeded" in told.out) == (0, True)


def test_a_server_that_cannot_start_is_quoted(database: Database, spawn: Spawner, tmp_path: Path) -> None:
    """`myria up` ends as its server did: with the server's own words and status."""
    program = spawn.myria(
        *("up", "--port", "0", "--dsn", database.dsn),
        env={"MYRIA_LLM_TEMPLATE": str(tmp_path / "nowhere.json")},
    )
    assert program.wait() == 6
    assert program.output().splitlines()[-1].startswith("error[configuration_error]: The request template ")


def test_why_builders_die_stands_in_status(database: Database, spawn: Spawner, tmp_path: Path) -> None:
    """What a person must mend fails the build at once, in the builder's own words; mended, it is built."""
    template = tmp_path / "model.json"
    template.write_text('{"model": "small"}', encoding="utf-8")
    program = started(spawn, database, tmp_path, f"llm: {{template: {template}, base_url: 'http://127.0.0.1:1/v1'}}")
    template.unlink()
    build = rebuilt(database, tmp_path)
    assert (build["status"], build["error"]["code"]) == ("failed", "configuration_error")
    last = call("status", "--json", "--dsn", database.dsn).json["last_build"]
    assert (last["build_id"], last["error"]) == (build["build_id"], build["error"])
    assert str(template) in last["error"]["message"]
    assert "configuration_error: " in call("status", "--dsn", database.dsn).out
    wait_until(lambda: str(template) in program.output(), 60.0, "the same words in the log of `up`")
