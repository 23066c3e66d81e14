"""The TypeScript client as people install it: its tarball in a fresh folder, against a real server with keys."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_client import Client as PythonClient
from myria_server.api.memtrace.openapi import document
from scripts import typescript_client
from tests.clients import toolchain
from tests.server.wire import serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

SOURCE = typescript_client.CLIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """A folder that has the package and nothing else, and a server to ask."""

    folder: Path
    environment: dict[str, str]
    url: str

    async def node(self, *arguments: str | Path) -> tuple[int, str]:
        """Run Node.js there; return the exit status and what it printed."""
        process = await asyncio.create_subprocess_exec(
            toolchain.node(),
            *arguments,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), 300)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, said.decode()

    async def run(self, code: str) -> str:
        """Run a module there; return what it printed."""
        place = self.folder / "code.mjs"
        place.write_text(code.replace("http://127.0.0.1:8321", self.url), encoding="utf-8")
        status, said = await self.node(place)
        assert status == 0, said
        return said


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh npm folder, into which the tarball was installed."""
    place = tmp_path_factory.mktemp("npm")
    tarball = typescript_client.pack(place / "packed")
    folder = place / "fresh"
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}', encoding="utf-8")
    command = [*toolchain.npm(), "install", "--offline", "--no-audit", "--no-fund", tarball]
    subprocess.run([*map(str, command)], cwd=folder, check=True, capture_output=True, timeout=300)
    shutil.copytree(SOURCE / "test", folder / "test")
    return folder


@pytest.fixture
async def fresh(memory: Memory, database: Database, installed: Path) -> AsyncIterator[Fresh]:
    """The folder, with a server that has the faces of the client and asks for keys."""
    guarded = Settings(auth=AuthSettings(mode="keys"), turns=TurnsSettings(enabled=True))
    async with access_store(database) as store, serving(memory, guarded) as served:
        url = f"http://127.0.0.1:{served.port}"
        key = await make_key(store, "ada", faces=("rest", "turns"))
        own = {"PATH": os.environ["PATH"], "MYRIA_URL": url, "MYRIA_KEY": key, "NO_COLOR": "1"}
        yield Fresh(folder=installed, environment=own, url=url)


def programs_of(page: Path) -> list[str]:
    """Return what a page prints in JavaScript."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```js\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


async def test_the_tests_of_the_package(fresh: Fresh) -> None:
    """Memories, agents, sessions, turns, retries, paging, errors and aborts hold for what was installed."""
    status, said = await fresh.node(
        "--test", "--test-reporter=spec", *sorted((fresh.folder / "test").glob("*.test.mjs"))
    )
    assert status == 0, said
    assert re.search(r"^\S* ?tests [1-9][0-9]+$", said, re.MULTILINE), said


async def test_the_programs_of_its_pages(fresh: Fresh) -> None:
    """Each runs as it is printed; a model is told what it said before, in both styles."""
    (short,) = programs_of(SOURCE.parents[1] / "docs" / "clients.md")
    assert await fresh.run(short) == "Ada prefers tea.\n"
    first, listed, openai, anthropic = programs_of(SOURCE / "README.md")
    assert await fresh.run(first) == "Ada takes her tea with lemon.\n"
    said = await fresh.run(listed)
    assert re.sub(r"^\S+Z ", "", said, flags=re.MULTILINE).splitlines() == [
        "Crawled the second page",
        "Crawled the first page",
        "duplicate_memory",
    ]
    asked = """
        await ask(() => "Hello.", "My name is Ada.");
        console.log(await ask((messages) => JSON.stringify(messages), "Who am I?"));
    """
    told = await fresh.run(openai + asked)
    assert "You are brief." in told
    assert "ada" in told
    told = await fresh.run(anthropic + "console.log(await askClaude((asked) => JSON.stringify(asked), 'Who am I?'));")
    assert "You are brief." in told
    assert "ada" in told


def test_messages_of_the_providers_sdks_fit(installed: Path) -> None:
    """The declarations that are installed take and give what the SDKs of OpenAI and Anthropic take."""
    compiler = toolchain.node_folder(SOURCE) / "node_modules" / "typescript" / "bin" / "tsc"
    options = [
        "--noEmit",
        "--strict",
        "--skipDefaultLibCheck",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--lib",
        "es2022,dom",
    ]
    done = subprocess.run(
        [*map(str, (toolchain.node(), compiler)), *options, "test/types.ts"],
        cwd=installed,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "")


PYTHONS_ALONE = {"Client.close", "Client.run", "Client.send", "Client.draft"}
"""There is no connection in TypeScript, so nothing is closed; the rest is what modules share in Python."""

METHODS = """
import { Client } from "@myria/client";
const client = new Client();
const kinds = { Client: client, Memories: client.memories, Agents: client.agents, Sessions: client.sessions };
kinds.Turns = client.turns;
kinds.Session = client.turns.session("s");
for (const [kind, one] of Object.entries(kinds)) {
  for (const name of Object.getOwnPropertyNames(Object.getPrototypeOf(one))) {
    if (name !== "constructor") console.log(`${kind}.${name}`);
  }
}
"""


async def test_it_offers_what_python_offers(fresh: Fresh) -> None:
    """Method by method, in camel case; what either has alone is named here."""
    with PythonClient() as client:
        kinds = (client, client.memories, client.agents, client.sessions, client.turns, client.turns.session("s"))
        names = {
            f"{type(one).__name__}.{re.sub('_([a-z])', lambda found: found[1].upper(), name)}"
            for one in kinds
            for name in dir(one)
            if not name.startswith("_") and callable(getattr(one, name))
        }
    assert set((await fresh.run(METHODS)).split()) == names - PYTHONS_ALONE


def test_its_types_are_those_of_the_document(installed: Path) -> None:
    """The package declares every path, operation and schema of the server's OpenAPI document."""
    declared = (installed / "node_modules/@myria/client/dist/openapi.d.ts").read_text(encoding="utf-8")
    described = document("")
    operations = {operation["operationId"] for path in described["paths"].values() for operation in path.values()}
    for name in (*described["paths"], *operations, *described["components"]["schemas"]):
        assert re.search(rf'^ +"?{re.escape(name)}"?: ', declared, re.MULTILINE), name


def test_its_version_is_the_server_s_and_it_needs_nothing() -> None:
    """In its package and its lock, which names digests and no registry."""
    package = json.loads((SOURCE / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((SOURCE / "package-lock.json").read_text(encoding="utf-8"))
    assert package["version"] == lock["version"] == version("myria")
    assert "dependencies" not in package
    others = {name: entry for name, entry in lock["packages"].items() if name}
    assert all("integrity" in entry and "resolved" not in entry for entry in others.values())
