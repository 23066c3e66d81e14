"""Calls of a scenario over real HTTP, and what is written down of them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from types import ModuleType
from typing import Any

import httpx
import pytest

from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.erasure.carrying import ErasureCarrier
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.settings import Settings, TurnsSettings
from myria_server.api.tools import TOOLS
from myria_server.paths import PATH_OF
from tests.cli.conftest import Called
from tests.cli.conftest import call as call_command
from tests.golden.stillness import Stillness, still
from tests.server.wire import META, MODERN, Served, call, headers, serving
from tests.support import builds
from tests.support.postgres import Database, Databases

Json = dict[str, Any]

ALL_FACES = Settings(turns=TurnsSettings(enabled=True))
PATHS = {tool.plain(): PATH_OF[tool.apis[0]] for tool in TOOLS}
_MADE = re.compile(r"\b([a-z]+)_([0-9a-f]{32}|[0-9a-f]{24})\b")
_CURSOR = re.compile(r"(?<=\"next_cursor\": \")[^\"<]+|(?<=\"nextCursor\": \")[^\"<]+|(?<=follow with cursor )[\w-]+")
_WIDTH, _DEEPEST, _LONGEST = 200, 8, 2_000
_SECONDS = re.compile(r"\b[0-9]+\.[0-9]{2} s$", re.MULTILINE)
_DURATION = re.compile(r"ms|ms_.*|.*_ms|.*Ms|seconds|uptime")


class Golden:
    """One scenario's memory: call tools and routes, build, run commands; all of it is written down in order."""

    def __init__(self, database: Database, memory: Memory, served: Served, settings: Settings, stillness: Stillness):
        self.database = database
        self.stillness = stillness
        self.entries: list[Json] = []
        self.keys: dict[str, str] = {}
        self._memory = memory
        self._served = served
        self._settings = settings

    async def at(self, moment: str) -> None:
        """Let the next call be made a minute after this."""
        await self.stillness.move_to(datetime.fromisoformat(moment))

    async def wait(self, **time: float) -> None:
        """Let so much time pass."""
        await self.stillness.move_to(self.stillness.moment + timedelta(**time))

    async def tool(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool and return its structured content.

        Args:
            arguments: those of the tool; `_path` is another endpoint than its first, `_key` the name of a key to send.
        """
        path, key = arguments.pop("_path", PATHS[name]), arguments.pop("_key", None)
        response = await self._post(path, call(name, arguments), headers(name) | self._bearer(key))
        shown: Json = {"tool": name} if path == PATHS.get(name) else {"tool": name, "path": path}
        shown |= {} if key is None else {"key": key}
        result = response.json().get("result") if response.status_code == 200 else None
        if result is None:
            self.entries.append(
                shown | {"arguments": arguments, "status": response.status_code, "body": _body(response)}
            )
            return None
        content = result.get("structuredContent")
        entry = shown | {"arguments": arguments, "answer": content}
        texts = [part["text"] for part in result["content"]]
        if texts != [""] and (len(texts) != 1 or not _same(texts[0], content)):
            entry["text"] = [text.split("\n") for text in texts] if len(texts) != 1 else texts[0].split("\n")
        if result["isError"]:
            entry["is_error"] = True
        self.entries.append(entry)
        return content

    async def method(self, method: str, /, *, path: str = "/mcp", version: str = MODERN, **params: Any) -> Any:
        """Call another method of MCP, and return its result."""
        modern = {"_meta": META} if version == MODERN else {}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**modern, **params}}
        named = params.get("name") or params.get("uri")
        response = await self._post(path, message, headers(named, method=method, version=version))
        body = _body(response)
        result = body.get("result") if isinstance(body, dict) else None
        shown = {"status": response.status_code, "body": body} if result is None else {"result": result}
        shown = {"path": path, "version": version, **({"params": params} if params else {}), **shown}
        self.entries.append({"method": method, **shown})
        return result

    async def http(self, method: str, path: str, body: Any = None, /, **sent: str) -> Any:
        """Send a request as it is, and return the body of its answer."""
        given = {name.replace("_", "-"): value for name, value in sent.items()}
        await self.stillness.next_call()
        content = body if isinstance(body, bytes) else None
        response = await self._served.client.request(
            method, path, headers=given, content=content, json=None if isinstance(body, bytes) else body
        )
        await self._settle()
        shown: Json = {"request": f"{method} {path}"}
        shown |= {"headers": given} if given else {}
        if body is not None:
            shown["body"] = body.decode(errors="replace") if isinstance(body, bytes) else body
        answered = _body(response)
        self.entries.append(shown | {"status": response.status_code, "answer": answered})
        return answered

    async def build(self, **flags: Any) -> builds.Built:
        """Build, and write down how it ended, and what a reader of the snapshot can reach."""
        await self.stillness.next_call()
        built = await builds.build(self.database, configured=self._settings, **flags)
        entry: Json = {"build": flags, "outcome": built.outcome, "snapshot_id": built.snapshot_id}
        entry["counts"] = dict(sorted(built.counts.items()))
        if built.error:
            entry["error"] = built.error
        if built.snapshot_id is not None:
            entry["trees"] = await self._trees(built.snapshot_id)
        self.entries.append(entry)
        return built

    async def _trees(self, snapshot_id: str) -> Json:
        """Return of each scope its renderings, each with its parent's and how many events it names, and its blocks."""
        found = await builds.contents(self.database, snapshot_id)
        trees = {}
        for participants, (root, under, blocks, _) in sorted(found.items()):
            trees[" ".join(participants)[:80]] = {
                "root": root.hex(),
                "renderings": [
                    f"{rendering.hex()[:16]} {parent.hex()[:16] or '-'} {' '.join(map(str, seqs))}"
                    for rendering, parent, seqs in under
                ],
                "blocks": [f"{rendering.hex()[:16]} {digest.hex()[:16]}" for rendering, digest in blocks],
            }
        return trees

    async def embed(self) -> None:
        """Let the control plane give vectors to what has none."""
        await self.stillness.next_call()
        async with Pool(self.database.operator_dsn) as pool:
            control = ControlLoop(pool, self._settings, _no_build)
            self.entries.append({"embedded": await control.embed()})
            await control.close()

    async def erasures(self) -> None:
        """Let the control plane carry out the erasures that wait."""
        await self.stillness.next_call()
        async with Pool(self.database.operator_dsn) as pool:
            carrier = ErasureCarrier(
                pool,
                Registry(pool, self._settings),
                event_log(pool),
                self._settings.erasure,
                unproved=True,
            )
            await carrier.look()
            await carrier.settle()
        self.entries.append({"erasures": "carried out"})

    def ran(self, words: Sequence[str], called: Called) -> None:
        """Write down what a command printed, and how it ended."""
        entry: Json = {"command": " ".join(words), "status": called.status}
        try:
            entry["out"] = called.json
        except ValueError:
            entry["out"] = _SECONDS.sub("<s>", called.out).splitlines()
        if called.err:
            entry["err"] = called.err.splitlines()
        self.entries.append(entry)

    async def _post(self, path: str, message: Json, sent: Mapping[str, str]) -> httpx.Response:
        await self.stillness.next_call()
        response = await self._served.post(message, sent, path=path)
        await self._settle()
        return response

    def _bearer(self, key: str | None) -> dict[str, str]:
        """Return the header of a key by its name, or of a text that is none."""
        return {} if key is None else {"authorization": f"Bearer {self.keys.get(key, key)}"}

    async def _settle(self) -> None:
        """Write now what is written beside requests, some seconds after them."""
        await self._memory.usage.write()

    def text(self) -> str:
        """Return what is written down, made identifiers and cursors as numbers in their order."""
        text = _numbered(json.dumps(_comparable(self.entries), ensure_ascii=False))
        for name, key in self.keys.items():
            text = text.replace(key, f"<key of {name}>").replace(key.split("_")[1], f"<id of {name}>")
        for name, kind in ((version("myria"), "version"), (platform.python_version(), "python")):
            text = text.replace(f'"{name}"', f'"<{kind}>"')
        return _written(json.loads(text), 0) + "\n"


async def _no_build(_tenant: str, _build_id: str) -> int:
    raise AssertionError("no build is due")


def _written(value: Any, depth: int) -> str:
    """Return a value as JSON: on one line where it fits or lies deep, else a line for each part."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + depth <= _WIDTH or depth == _DEEPEST or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {_written(item, depth + 1)}" for name, item in value.items()]
    else:
        parts = [_written(item, depth + 1) for item in value]
    inner = ",\n".join(" " * (depth + 1) + part for part in parts)
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opening}\n{inner}\n{' ' * depth}{closing}"


def _comparable(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        digest = hashlib.sha256(value.encode()).hexdigest()
        return f"{value[:100]} ... {value[-100:]} <{len(value)} characters, sha256 {digest}>"
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "nextCursor" in value and isinstance(value.get("totalTokens"), int):
        # A cursor names transactions of the server, and its tokens are counted too.
        value = {**value, "totalTokens": "<tokens>"}
    return {
        name: "<ms>" if _DURATION.fullmatch(name) and isinstance(item, int | float) else _comparable(item)
        for name, item in value.items()
    }


def _numbered(text: str) -> str:
    """Return the text with identifiers of chance, or of time, as `<evt:1>`, and cursors as `<cursor:1>`."""
    known: dict[str, str] = {}
    counts: dict[str, int] = {}

    def numbered(kind: str, one: str) -> str:
        if one not in known:
            counts[kind] = counts.get(kind, 0) + 1
            known[one] = f"<{kind}:{counts[kind]}>"
        return known[one]

    def made(match: re.Match[str]) -> str:
        # Identifiers that are digests of what they name have no run of zeros.
        return numbered(match[1], match[0]) if "00000" in match[2][:-5] else match[0]

    text = _MADE.sub(made, text)
    for cursor in dict.fromkeys(_CURSOR.findall(text)):
        text = text.replace(cursor, numbered("cursor", cursor))
    return text


def _same(text: str, content: Any) -> bool:
    try:
        return bool(json.loads(text) == content)
    except ValueError:
        return False


def _body(response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        return response.text.split("\n")


def replay(scenario: ModuleType, databases: Databases, patch: pytest.MonkeyPatch) -> str:
    """Play a scenario on a database of its own, and return what is written down of it.

    Args:
        scenario: has `play`, and may have `SETTINGS`, and `COMMANDS` to run in the end.
    """
    settings = getattr(scenario, "SETTINGS", ALL_FACES)
    with databases.fresh() as database, asyncio.Runner() as runner:
        stillness = runner.run(still(database, patch))
        golden = runner.run(_play(scenario, database, settings, stillness, patch))
        for words in getattr(scenario, "COMMANDS", ()):
            runner.run(stillness.next_call())
            golden.ran(words, call_command(*words, "--dsn", database.dsn))
        runner.run(stillness.close())
    return golden.text()


async def _play(
    scenario: ModuleType, database: Database, settings: Settings, stillness: Stillness, patch: pytest.MonkeyPatch
) -> Golden:
    async with Memory(database.server_dsn, settings) as memory:
        patch.setattr(sys.modules[type(memory.usage).__module__], "WRITTEN_EVERY_S", 3_600.0)
        async with serving(memory, settings) as served:
            golden = Golden(database, memory, served, settings, stillness)
            await scenario.play(golden)
    return golden
