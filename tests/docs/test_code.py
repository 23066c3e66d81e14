"""The code that the pages print: it is read by the program it is for, and what needs no cluster runs as printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from myria_cli.app import app
from myria_embedded.account import server_account
from myria_embedded.find import find_binaries
from tests.docs.test_pages import NAMES, blocks, text_of
from tests.support.postgres import Database, Databases
from tests.support.processes import Spawner, free_port

pytestmark = pytest.mark.processes

PROGRAMS = Path(sys.executable).parent
"""Where `myria` is."""


def run(script: str, folder: Path, **environment: str) -> str:
    """Run a block as a person would who pastes it into a shell; return what it prints."""
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def block(page: str, words: str) -> str:
    """Return the one shell block of a page that holds some words."""
    (found,) = [text for text in blocks(text_of(page), "sh") if words in text]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_shell_blocks_are_shell(name: str) -> None:
    """The shell reads each block to its end: no quote is left open, no line continues into nothing."""
    for text in blocks(text_of(name), "sh", "bash"):
        done = subprocess.run(["/bin/sh", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + text
        assert not text.endswith("\\\n"), text


@pytest.mark.parametrize("name", NAMES)
def test_json_is_json_and_python_is_python(name: str) -> None:
    """Each block can be read."""
    for text in blocks(text_of(name), "json"):
        json.loads(text)
    for text in blocks(text_of(name), "python", "py"):
        compile(text, name, "exec")


def _without_names(text: str) -> str:
    """Return what an agent's tools print, without what differs from run to run: ids, handles, marks and dates."""
    return re.sub(r"note_[0-9a-f]{32}|\[n:[0-9]{9}\]|(?m:^--- [0-9a-f]{6}$)|20\d\d-\d\d-\d\d", "*", text)


def test_the_page_on_agents_prints_what_happens(database: Database, spawn: Spawner, tmp_path: Path) -> None:
    """Its program runs as printed, and prints what the page says."""
    page, port = text_of("docs/agents.md"), free_port()
    (program,), (expected,) = blocks(page, "python"), blocks(page, "text")
    server = spawn.myria("serve", "--dsn", database.server_dsn, "--port", str(port))
    server.wait_for(f":{port}")
    (tmp_path / "program.py").write_text(program.replace("127.0.0.1:8321", f"127.0.0.1:{port}"), encoding="utf-8")
    printed = run(f"{shlex.quote(sys.executable)} program.py", tmp_path)
    assert _without_names(printed) == _without_names(expected)


def test_a_memory_moves_as_the_page_on_backups_says(
    database: Database, databases: Databases, spawn: Spawner, tmp_path: Path
) -> None:
    """Dumped and restored, then exported and imported, every event is there and indexed."""
    line = {
        "timestamp": "2026-03-19T20:00:00Z",
        "channel": "notes",
        "participants": ["ada"],
        "payload": {"text": "key"},
    }
    (tmp_path / "one.jsonl").write_text(json.dumps(line), encoding="utf-8")
    restored = databases.create_empty()
    with databases.fresh() as other:
        names = {
            "OWNER_DSN": database.tcp.owner,
            "OPERATOR_DSN": restored.tcp.operator,
            "OTHER_OWNER_DSN": other.tcp.owner,
            "PATH": os.pathsep.join(
                [str(PROGRAMS), str(find_binaries(server_account(tmp_path)).folder), os.environ["PATH"]]
            ),
        }
        run('myria import one.jsonl --dsn "$OWNER_DSN"', tmp_path, **names)

        run(block("docs/backup.md", "pg_dump"), tmp_path, **names)
        run(block("docs/backup.md", "pg_restore"), tmp_path, **{**names, "OWNER_DSN": restored.tcp.owner})
        run(block("docs/backup.md", "myria export"), tmp_path, **names)

        for dsn in (restored.tcp.owner, other.tcp.owner):
            exported = run('myria export --dsn "$DSN"', tmp_path, DSN=dsn)
            assert [json.loads(text)["payload"] for text in exported.splitlines()] == [line["payload"]]
    databases.drop(restored)


def test_a_secret_is_kept_as_the_page_on_security_says(tmp_path: Path) -> None:
    """The block makes a master key and keeps a secret under it; what is printed does not show it."""
    said = run(block("docs/security.md", "myria secret set"), tmp_path)
    assert "openrouter" in said
    assert "sk-or" not in said + (tmp_path / "secrets.json").read_text(encoding="utf-8")


def test_the_page_on_access_is_true_command_by_command(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each command that it prints runs in its place, with the ids that the commands before it gave."""
    monkeypatch.setenv("MYRIA_POSTGRES_DSN", database.dsn)
    monkeypatch.chdir(tmp_path)
    scripts = list(blocks(text_of("docs/access.md"), "sh"))
    lines = [line for script in scripts for line in script.splitlines()]
    made: dict[str, str] = {}
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        assert program == "myria"
        if words[0] == "up":
            continue  # tests/cli starts it
        wanted = made["web-host" if "rotate" in words else "ada"] if "KEY_ID" in words else ""
        named = [wanted if word == "KEY_ID" else word for word in words]
        is_made = words[:2] == ["key", "create"]
        result = CliRunner().invoke(app, [*named, "--json"] if is_made else named)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        if is_made:
            made[words[2]] = json.loads(result.stdout)["key_id"]
    assert (tmp_path / "team-a.jsonl").exists()
    assert set(made) == {"ada", "web-host", "old-client", "ops"}
