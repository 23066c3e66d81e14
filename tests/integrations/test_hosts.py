"""`myria connect` and the hosts' own programs: each lists the server, calls its tools and runs its hooks.

The programs are Claude Code, Codex and Gemini CLI as npm has them, installed once per machine into the user's cache
(`make integrations`), against a real server with keys. The model is scripted; nothing leaves this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from tests.clients import toolchain
from tests.integrations.scripted_model import ANSWER, KEPT, ScriptedModel, scripted_model
from tests.integrations.test_frameworks import HERE, WANTED
from tests.server.wire import serving
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.turns.hosts import rows

HOSTS = HERE / "hosts"
CHOSEN = WANTED == "all"

FIRST, SECOND = "Remember how hot the kiln is.", "How hot is the kiln?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a host is run: where it is within node_modules, its file as a user may have it, and its arguments.

    `listed` is what its list of servers says of one that it takes.
    """

    path: str
    file: str
    before: Callable[[str], str]
    ask: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    listed: str


CODEX = """# how I like it
model = "gpt-5"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
supports_websockets = false
"""
GEMINI = """{
  // how I like it
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "privacy": {"usageStatisticsEnabled": false}
}
"""

PROGRAMS = {
    "claude-code": Program(
        path="@anthropic-ai/claude-code-linux-*/claude",
        file=".claude.json",
        before=lambda _: '{"theme":"dark"}',
        ask=("--print", "--allowedTools", "mcp__myria__remember", "--"),
        environment={
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",  # else a model must look for tools first
        },
        listed="Connected",
    ),
    "codex": Program(
        path="@openai/codex/bin/codex.js",
        file=".codex/config.toml",
        before=lambda url: CODEX.replace("{url}", url),
        ask=(
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "--dangerously-bypass-hook-trust",
        ),
        environment={"MODEL_KEY": "none"},
        listed="enabled",
    ),
    "gemini": Program(
        path="@google/gemini-cli/bundle/gemini.js",
        file=".gemini/settings.json",
        before=lambda _: GEMINI,
        ask=("--approval-mode", "yolo", "--prompt"),
        environment={"GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        listed="Connected",
    ),
}


class Desk:
    """Somebody's home folder with a host in it, and the environment in which programs run there."""

    def __init__(self, home: Path, name: str, model: ScriptedModel, key: str) -> None:
        self.host = name
        self.program = PROGRAMS[name]
        self._home = home
        self._project = home / "project"
        self._project.mkdir()
        addresses = {"ANTHROPIC_BASE_URL": model.url, "GOOGLE_GEMINI_BASE_URL": model.url}
        own = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1", "MYRIA_TEST_KEY": key}
        self._environment = {**own, **addresses, **self.program.environment}

    async def run(self, *command: str | Path) -> str:
        """Run a program; return what it printed."""
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=self._project,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, said.decode()
        return said.decode()

    async def ask_host(self, *arguments: str) -> str:
        """Run the host; return what it printed."""
        path = await asyncio.to_thread(toolchain.node_folder, HOSTS)
        (program,) = (path / "node_modules").glob(self.program.path)
        return await self.run(*((toolchain.node(),) if program.suffix == ".js" else ()), program, *arguments)

    async def connect(self, *arguments: str) -> None:
        """Run `myria connect`."""
        await self.run(sys.executable, "-m", "myria_cli.main", "connect", self.host, *arguments)

    def files(self) -> dict[str, str]:
        """Return the files of the home folder."""
        return {
            str(path.relative_to(self._home)): path.read_text(encoding="utf-8")
            for path in self._home.rglob("*")
            if path.is_file()
        }

    def write(self, text: str) -> None:
        """Write the host's file."""
        path = self._home / self.program.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if CHOSEN:

    @pytest.mark.processes
    @pytest.mark.parametrize("name", PROGRAMS)
    async def test_a_host(name: str, memory: Memory, database: Database, tmp_path: Path) -> None:
        """It lists the server, keeps what its model calls for, keeps each turn, and begins the next with what is kept.

        `--undo` leaves every file as it was to the byte, and once the host has run, no server of that name.
        """
        guarded = Settings(auth=AuthSettings(mode="keys"))
        async with access_store(database) as store, serving(memory, guarded) as served:
            key = await make_key(store, "ada", faces=("agent", "core"))
            with scripted_model() as model:
                desk = Desk(tmp_path, name, model, key)
                desk.write(desk.program.before(model.url))
                before = desk.files()
                connect = ("--hooks", "--key-env", "MYRIA_TEST_KEY", "--url", f"http://127.0.0.1:{served.port}")
                await desk.connect(*connect)
                assert desk.files() != before
                await desk.connect("--undo")
                assert desk.files() == before

                await desk.connect(*connect)
                assert key not in "".join(desk.files().values())
                (listed,) = [line for line in (await desk.ask_host("mcp", "list")).splitlines() if "myria" in line]
                assert desk.program.listed in listed
                assert ANSWER in await desk.ask_host(*desk.program.ask, FIRST)
                model.asked.clear()
                assert ANSWER in await desk.ask_host(*desk.program.ask, SECOND)
                (told, *_) = [json.dumps(body) for body in model.asked if body.get("tools")]
                assert re.search(rf"- \d{{4}}-\d\d-\d\d {re.escape(str(KEPT['content']))}", told)
                assert told.count(KEPT["content"]) == 1

                await desk.connect("--undo")
                assert "myria" not in await desk.ask_host("mcp", "list")
        said = [("user", FIRST), ("assistant", ANSWER), ("user", SECOND), ("assistant", ANSWER)]
        assert await kept(memory, name) == said


async def kept(memory: Memory, channel: str) -> list[tuple[str, str]]:
    """Return who said what in a channel, in the order of the log."""
    found = await rows(
        memory,
        "SELECT channel, payload->>'speaker' AS speaker, payload->>'text' AS text FROM myria.events ORDER BY event_seq",
    )
    return [(row["speaker"], row["text"]) for row in found if row["channel"] == channel]
