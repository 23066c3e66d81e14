"""README.md, block by block: what runs on this machine runs as printed, without keys and with the key of a cluster."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.chart.rendering import render
from tests.cli.conftest import call
from tests.docs.test_code import PROGRAMS, block, run
from tests.docs.test_pages import ROOT, blocks, text_of
from tests.support.postgres import Database
from tests.support.processes import Spawner, free_port
from tests.support.skips import missing

pytestmark = pytest.mark.processes

README = text_of("README.md")
SHELL = list(blocks(README, "sh"))
JSON = [json.loads(found) for found in blocks(README, "json")]
WORDS = ("make demo", "pip install", "call() {", "helm install", "kubectl")
"""Each shell block by words of its own, in order: a block that is added needs a test here."""


@dataclass(frozen=True, slots=True)
class Place:
    """A server on a port of its own, and the key of its administrator where it asks for keys."""

    port: int
    key: str | None

    def here(self, text: str) -> str:
        """Return what README.md prints with this server's port."""
        return text.replace("127.0.0.1:8321", f"127.0.0.1:{self.port}")


@pytest.fixture(params=["no keys", "the key of a cluster"])
def place(request: pytest.FixtureRequest, database: Database, spawn: Spawner) -> Place:
    """As `make up` serves, and as the chart does: its first key is that of the participant `admin`."""
    port, key, mode = free_port(), None, {"MYRIA_AUTH_MODE": "none"}
    if request.param != "no keys":
        mode = {"MYRIA_AUTH_MODE": "keys"}
        values = yaml.safe_load((ROOT / "charts/myria/values.yaml").read_text(encoding="utf-8"))["auth"]["adminKey"]
        words = [word for name in values["participants"] for word in ("--as", name)]
        made = call("key", "create", "admin", *words, *ALL, "--dsn", database.dsn, "--json")
        assert made.status == 0, made.err
        key = made.json["key"]
    server = spawn.myria("serve", "--dsn", database.server_dsn, "--port", str(port), env=mode)
    server.wait_for(f":{port}")
    return Place(port, key)


ALL = ("--role", "append", "--role", "read", "--role", "admin", "--face", "core", "--face", "agent", "--face", "admin")


def test_no_block_is_untried() -> None:
    """The blocks are those that the tests here know."""
    assert len(SHELL) == len(WORDS)
    for text, words in zip(SHELL, WORDS, strict=True):
        assert words in text


def test_make_knows_what_is_printed(tmp_path: Path) -> None:
    """Each target is there and what it would run is; `tests/cli` runs `up` and `demo` themselves."""
    assert "myria demo" in run(SHELL[0], ROOT, MAKEFLAGS="n", CI="")


def test_the_wheel_is_called_so() -> None:
    """`make wheel` builds the file that is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = f"dist/{project['name']}-{project['version']}-py3-none-any.whl"
    assert SHELL[1].count(wheel) == 2


def test_helm_is_given_what_the_chart_takes() -> None:
    """The values of `helm install` render; all that the next block looks at and forwards is among what they make."""
    values = {"image": {"repository": "REGISTRY/myria"}, "postgres": {"mode": "trial"}}
    words = shlex.split(SHELL[3].splitlines()[0])
    assert words[:3] == ["helm", "install", "myria"]
    assert (ROOT / words[3]).is_dir()
    given = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    assert given == ["postgres.mode=trial", "image.repository=REGISTRY/myria"]
    made = {(one["kind"], one["metadata"]["name"].removeprefix("memory-")) for one in render(values).objects}
    script = SHELL[3] + SHELL[4]
    for name in re.findall(r"deployment/([\w-]+)", script):
        assert ("Deployment", name) in made, (name, made)
    for name in re.findall(r"service/([\w-]+) ", script):
        assert ("Service", name) in made
    assert "get secret myria-admin-key" in script


def test_the_first_calls_work(place: Place, tmp_path: Path) -> None:
    """Pasted into a shell they append an event and find it again."""
    if shutil.which("curl") is None:
        missing("curl, which README.md uses, is not installed")
    own = {} if place.key is None else {"MYRIA_KEY": place.key}

    printed = run(place.here(block("README.md", "call() {")), tmp_path, **own)

    appended, answer = (json.loads(line)["result"] for line in printed.splitlines())
    assert not appended["isError"], appended
    (found,) = [node for node in _nodes(answer["structuredContent"]["root"]) if "event_id" in node]
    assert found["event_id"] == appended["structuredContent"]["event_id"]


def test_the_configurations_of_hosts_work(place: Place, database: Database) -> None:
    """Each entry leads to `remember` and `recall`: by address, by address with a key, and as a command."""
    plain, keyed, command = (one["mcpServers"]["memory"] for one in JSON)

    async def offers(client: Any) -> None:
        async with client as opened:
            names = {tool.name for tool in (await opened.list_tools()).tools}
            assert {"remember", "recall", "amend", "forget"} <= names
            kept = await opened.call_tool("remember", {"content": "The kiln opens on Friday"})
            assert not kept.is_error, kept

    async def all_of_them() -> None:
        entry = plain if place.key is None else keyed
        assert entry["type"] == "http"
        headers = {name: text.replace("KEY", place.key or "") for name, text in entry.get("headers", {}).items()}
        async with create_mcp_http_client(headers=headers) as http:
            await offers(Client(streamable_http_client(place.here(entry["url"]), http_client=http)))
        assert command["command"].endswith("/.venv/bin/myria")
        started = StdioServerParameters(
            command=str(PROGRAMS / "myria"), args=command["args"], env={"MYRIA_POSTGRES_DSN": database.dsn}
        )
        await offers(Client(started))

    asyncio.run(all_of_them())


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(deeper for child in node.get("children", []) for deeper in _nodes(child))]
