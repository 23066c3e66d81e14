"""The face of turns: its contract over MCP and plain HTTP, its limits, and that it is off unless switched on."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import zlib
from functools import partial
from typing import Any

import jsonschema
import orjson
import pytest

from myria.access import journal
from myria.db.database import Database as Pool
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_server.api.tools import TOOLS, input_schema, output_schema
from myria_server.paths import PATH_OF, TURNS_OVER_HTTP
from tests.server import turn_rows
from tests.server.turn_rows import MOST_ITEMS, PART_BYTES, said, texts
from tests.server.wire import BASE_HEADERS, MODERN, Served, call, headers, listed, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

TURNS = PATH_OF["turns"]
OF_FACE = {tool.name: tool for tool in TOOLS if "turns" in tool.apis}
PLAIN = {tool: path for path, tool in TURNS_OVER_HTTP.items()}


@pytest.fixture
def settings() -> Settings:
    """The face is on, with small limits."""
    return Settings(turns=TurnsSettings(enabled=True, max_items=MOST_ITEMS, part_bytes=PART_BYTES))


async def ask(served: Served, tool: str, arguments: Any, *, key: str | None = None) -> Any:
    """Return the structured content of a call over MCP; it fits the tool's schema."""
    sent = headers(tool, version=MODERN) | ({} if key is None else {"authorization": f"Bearer {key}"})
    response = await served.post(call(tool, arguments, version=MODERN), sent, path=TURNS)
    assert response.status_code == 200, response.text
    result = response.json()["result"]
    content = result["structuredContent"]
    assert orjson.loads(result["content"][0]["text"]) == content
    jsonschema.Draft202012Validator(output_schema(OF_FACE[tool])).validate(content)
    assert result["isError"] == ("retryable" in content)
    return content


async def post(served: Served, tool: str, arguments: Any, *, key: str | None = None) -> Any:
    """Return the body of a call without MCP; its status says whether it is a refusal."""
    sent = {"content-type": "application/json"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    response = await served.post(arguments, sent, path=PLAIN[tool])
    content = response.json()
    assert (response.status_code == 200) == ("retryable" not in content), response.text
    return content


@pytest.mark.parametrize("over", ["mcp", "http"])
async def test_every_row_of_the_contract(served: Served, over: str) -> None:
    """Each default, order, limit and error; over plain HTTP those tools that are offered there."""
    ask_over = ask if over == "mcp" else post
    rows = [row for row in turn_rows.ROWS if over == "mcp" or row.tool in PLAIN]
    assert await turn_rows.run(partial(ask_over, served), f"row-{over}", rows) == {}


def test_nothing_is_required() -> None:
    """Every tool can be called without arguments, and says the contract's defaults."""
    defaults = {"project": "default", "session_id": "default", "max_input_tok": 120_000, "depth": 8, "limit": 200}
    for tool in OF_FACE.values():
        schema = input_schema(tool, Limits())
        assert "required" not in schema
        said_there = {name: field["default"] for name, field in schema["properties"].items() if "default" in field}
        assert said_there == {name: value for name, value in defaults.items() if name in schema["properties"]}


async def test_the_hints_are_the_contract_s(served: Served) -> None:
    """Two tools only read, and all may be repeated."""
    shown = {tool["name"]: tool["annotations"] for tool in await listed(served, path=TURNS)}
    assert set(shown) == set(OF_FACE)
    reads = {name for name, hints in shown.items() if hints["readOnlyHint"]}
    assert reads == {"memory_before_turn", "memory_list_dir_with_abstract"}
    assert all(hints["idempotentHint"] for hints in shown.values())


async def test_the_face_is_off_unless_switched_on(memory: Memory) -> None:
    """Without turns.enabled nothing answers there."""
    async with serving(memory, Settings()) as served:
        for path in (TURNS, *PLAIN.values()):
            response = await served.post({}, BASE_HEADERS, path=path)
            assert (response.status_code, response.json()["error"]["code"]) == (404, "path_not_found")


async def test_a_turn_in_two_calls_of_one_tool(served: Served) -> None:
    """The second call names the turn by the token of the first, and keeps what went into it; a repeat does nothing."""
    begun = await ask(served, "memory_run_turn", {"session_id": "run", "current_input": "My name is Ada"})
    assert texts(begun) == ["My name is Ada"]
    done = {"operation_token": begun["operation_token"], "output_items": [said("Hello", "assistant")]}
    for _ in range(2):
        assert await ask(served, "memory_run_turn", done) == {"ok": True, "turn_id": begun["turn_id"]}
    after = await ask(served, "memory_before_turn", {"session_id": "run", "current_input": "hi"})
    assert texts(after)[2:] == ["My name is Ada", "Hello", "hi"]


@pytest.mark.parametrize(
    "changed",
    [
        {"turn_id": 7},
        {"turn_id": ""},
        {"project": ["p"]},
        {"session_id": {}},
        {"session_id": "a\x00b"},
        {"user_id": 1},
        {"current": [{"type": "message", "content": 5}]},
        {"owner": None},
        {"owner": "00"},
    ],
)
async def test_a_token_of_ones_own_making_is_refused(changed: dict[str, Any], served: Served) -> None:
    """As a token, whatever is changed in it, so that a host knows what to send again."""
    begun = await ask(served, "memory_run_turn", {"session_id": "forged", "current_input": "My name is Ada"})
    token = begun["operation_token"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    held = json.loads(zlib.decompress(raw[16:]))
    body = zlib.compress(json.dumps(held | changed).encode())
    for forged in (raw[:16] + body, body, b"", raw[:16]):
        text = base64.urlsafe_b64encode(forged).rstrip(b"=").decode() or "x"
        answer = await ask(served, "memory_run_turn", {"operation_token": text, "output_items": []})
        assert (answer["code"], answer["retryable"]) == ("INVALID_ARGUMENT", False)
        assert "operation_token" in answer["message"]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_token_is_checked_before_it_is_opened(
    whole: bool, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes that would open to many megabytes cost nothing."""

    def open_it() -> None:
        raise AssertionError("it was opened")

    monkeypatch.setattr(zlib, "decompressobj", open_it)
    bomb = zlib.compress(b'{"turn_id":"t","current":[' + b"{}," * 2_000_000 + b"{}]}", 9)
    token = base64.urlsafe_b64encode(bytes(16) + bomb if whole else bomb).decode()
    answer = await ask(served, "memory_run_turn", {"operation_token": token, "output_items": []})
    assert answer["code"] == "INVALID_ARGUMENT"


async def test_a_token_is_of_one_tenant(database: Database, memory: Memory, settings: Settings) -> None:
    """Another tenant's key of the same name begins a turn of its own."""
    guarded = Settings(turns=settings.turns, auth=AuthSettings(mode="keys"))
    async with access_store(database, "other") as store, serving(memory, guarded) as served:
        ours = await make_key(store, "ana", faces=("turns",))
        theirs = await make_key(store, "ana", tenant="other", faces=("turns",))
        begun = await ask(served, "memory_run_turn", {"current_input": "My name is Ada"}, key=ours)
        done = {"operation_token": begun["operation_token"], "output_items": []}
        assert (await ask(served, "memory_run_turn", done, key=theirs))["code"] == "INVALID_ARGUMENT"
        assert (await ask(served, "memory_run_turn", done, key=ours))["ok"] is True


async def test_a_session_belongs_to_its_key(database: Database, memory: Memory, settings: Settings) -> None:
    """Two keys with the same names of project, session and turn know nothing of each other; a user must be allowed."""
    guarded = Settings(turns=settings.turns, auth=AuthSettings(mode="keys"))
    async with access_store(database) as store, serving(memory, guarded) as served:
        ana = await make_key(store, "ana", faces=("turns",))
        eve = await make_key(store, "eve", faces=("turns",))
        host = await make_key(store, "host", may_ask=("user:*",), faces=("turns",))
        other = await make_key(store, "ana", faces=("agent",))
        kept = {"turn_id": "t", "input_items": [said("My name is Ada")]}
        for ask_over in (ask, post):
            assert await ask_over(served, "memory_after_turn", kept, key=ana) == {"ok": True}
            eves = await ask_over(served, "memory_before_turn", {"current_input": "Who am I?"}, key=eve)
            assert texts(eves) == ["Who am I?"]
        assert await ask(served, "memory_after_turn", {**kept, "input_items": [said("I am Eve")]}, key=eve) == {
            "ok": True
        }
        assert "I am Eve" in texts(await ask(served, "memory_before_turn", {"current_input": "?"}, key=eve))
        refused = await ask(served, "memory_before_turn", {"current_input": "?", "user_id": "ana"}, key=eve)
        assert (refused["code"], refused["retryable"]) == ("PERMISSION_DENIED", False)
        named = {"current_input": "?", "user_id": "user:1"}
        assert texts(await ask(served, "memory_before_turn", named, key=host)) == ["?"]
        denied = await served.post({}, {"authorization": f"Bearer {other}"}, path=PLAIN["memory_before_turn"])
        assert (denied.status_code, denied.json()["code"]) == (403, "PERMISSION_DENIED")
        missing = await served.post({}, {}, path=PLAIN["memory_before_turn"])
        assert (missing.status_code, missing.json()["code"]) == (401, "PERMISSION_DENIED")


async def test_records_say_which_session_and_nothing_of_what_was_said(
    database: Database, memory: Memory, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Each call by tool, session and outcome; in no record, refused attempt or log line stands a word of it."""
    word = "zyxwv"
    guarded = Settings(turns=settings.turns, auth=AuthSettings(mode="keys"))
    with caplog.at_level(logging.DEBUG):
        async with access_store(database) as store, serving(memory, guarded) as served:
            key = await make_key(store, "ana", faces=("turns",))
            told = {"project": "shop", "session_id": "s1", "client_result": {"input_items": [word]}}
            for arguments in ({**told, "current_input": word}, {**told, "current_input": [{"content": [word]}]}):
                await ask(served, "memory_before_turn", arguments, key=key)
            kept = {**told, "input_items": [f"My name is {word}"], "output_items": [said(word, "assistant")]}
            await post(served, "memory_after_turn", kept, key=key)
            await ask(served, "memory_before_turn", {"current_input": word, "user_id": word}, key=key)
            await ask(served, "memory_run_turn", {"current_input": word, "base_instructions": word}, key=key)
    async with Pool(database.operator_dsn) as pool:
        calls = await journal.calls(pool, "default", 20)
        attempts = await journal.entries(pool, "default", 20)
    assert sorted((call["tool"], call["context"], call["outcome"]) for call in calls) == [
        ("memory_after_turn", "shop/s1", "ok"),
        ("memory_before_turn", "default/default", "participants_not_allowed"),
        ("memory_before_turn", "shop/s1", "invalid_argument"),
        ("memory_before_turn", "shop/s1", "ok"),
        ("memory_run_turn", "default/default", "ok"),
    ]
    assert word not in str(calls)
    assert word not in str(attempts)
    assert word not in caplog.text


async def test_plain_http_refuses_in_the_contract_s_form(served: Served) -> None:
    """Bad JSON, a list, and other methods."""
    path = PLAIN["memory_before_turn"]
    for body, status in ((b"{", 400), (b"[]", 400), (b'{"a":1,"a":2}', 400)):
        response = await served.post(body, BASE_HEADERS, path=path)
        assert (response.status_code, response.json()["code"]) == (status, "INVALID_ARGUMENT"), response.text
    response = await served.client.get(path)
    assert (response.status_code, response.json()["code"], response.headers["allow"]) == (
        405,
        "INVALID_ARGUMENT",
        "POST",
    )
    assert "JSON object" in response.json()["message"]


async def test_sixteen_clients_of_one_session(served: Served, memory: Memory) -> None:
    """Retried until they are kept, also the same turns by several: each once, whole, and only refused to try again."""
    refusals: set[tuple[str, bool]] = set()

    async def client(number: int) -> None:
        for turn in range(3):
            turn_id = f"t{number % 8}-{turn}"
            arguments = {"turn_id": turn_id, "input_items": [said(f"in {turn_id}")], "output_items": [f"out {turn_id}"]}
            for _ in range(200):
                answer = await ask(served, "memory_after_turn", arguments)
                if answer == {"ok": True}:
                    break
                refusals.add((answer["code"], answer["retryable"]))
                await asyncio.sleep(0.01)
            else:
                raise AssertionError(f"{turn_id} was never kept")

    await asyncio.gather(*(client(number) for number in range(16)))
    assert refusals <= {("RESOURCE_BUSY", True)}
    async with memory.appending.read("default") as connection:
        rows = await connection.fetch(
            "SELECT payload->>'text' AS text FROM myria.events "
            "WHERE type IN ('input_item', 'output_item') ORDER BY event_seq"
        )
    kept = [row["text"] for row in rows]
    turns = [f"t{number}-{turn}" for number in range(8) for turn in range(3)]
    assert sorted(kept) == sorted(f"{end} {turn}" for turn in turns for end in ("in", "out"))
    assert all(out == f"out {given[3:]}" for given, out in zip(kept[::2], kept[1::2], strict=True))
