"""At level debug each request has a line in the log: whose, which tool, how long, how it ended; never what was said."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from myria.memory import Memory
from myria.settings import Settings, TurnsSettings
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import BASE_HEADERS, call, event, headers, serving

SAID = "zanzibarian marmalade"
FIELDS = ("request_id", "tenant", "face", "tool", "session", "turn", "ms", "code")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the lines so far, and forget them."""
    found = [vars(record) for record in caplog.records if record.name == "myria.requests"]
    caplog.clear()
    return [{name: line[name] for name in FIELDS} | {"message": line["message"]} for line in found]


@pytest.fixture
def settings() -> Settings:
    """With every face."""
    return Settings(turns=TurnsSettings(enabled=True))


async def test_each_request_has_a_line(memory: Memory, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """On each face, with its session and turn; also those that reach no tool, and those that are refused."""
    caplog.set_level(logging.DEBUG)
    turn = {"session_id": "s7", "turn_id": "t1", "conversation_items": [{"role": "user", "content": SAID}]}
    remembered = {"content": SAID, "sessionId": "s8"}
    async with serving(memory, settings) as served:
        sent = [
            ("/mcp", call("append_event", event("k1", text=SAID)), headers("append_event"), "core append_event - - ok"),
            (
                "/mcp",
                call("get_event", {"event_id": SAID}),
                headers("get_event"),
                "core get_event - - event_not_found",
            ),
            ("/mcp/agent", call("remember", remembered), headers("remember"), "agent remember s8 - ok"),
            ("/v1/turns:before", turn, BASE_HEADERS, "turns memory_before_turn s7 t1 ok"),
            (
                PREFIX + "/memories",
                {"agent_id": "a", "content": SAID, "session_id": "s9"},
                {},
                "rest keep_memories s9 - ok",
            ),
            (PREFIX + "/nowhere", {"content": SAID}, {}, "rest - - - path_not_found"),
            ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, BASE_HEADERS, "core tools/list - - ok"),
            ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": SAID}, BASE_HEADERS, "core - - - "),
            ("/mcp", call("nowhere", {}), headers("nowhere"), "core tools/call - - unknown_tool"),
            ("/mcp", [1], BASE_HEADERS, "core - - - ok"),
            ("/mcp", {"a": "x" * 20_000_000}, BASE_HEADERS, "core - - - body_too_large"),
        ]
        for path, body, lots, wanted in sent:
            caplog.clear()
            await served.client.post(path, json=body, headers=lots)
            (line,) = lines(caplog)
            told = " ".join(str(line[name] or "-") for name in ("face", "tool", "session", "turn", "code"))
            assert told.startswith(wanted), (told, wanted)
            assert line["request_id"]
            assert line["ms"] >= 0
            assert line["tenant"] == "default"
            assert all(f"{name}=" in line["message"] for name in FIELDS)
    assert SAID not in caplog.text


async def test_calls_of_one_request_share_its_id(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """A batch has a line for each call, under the id that the client gave; one that is no name is not repeated."""
    caplog.set_level(logging.DEBUG)
    version = "2025-03-26"
    batch = [call("append_event", event(f"k{n}"), version=version, request_id=n) for n in range(2)]
    async with serving(memory, Settings()) as served:
        for given, kept in (("trace-17", True), ("a\tb", False)):
            caplog.clear()
            await served.client.post("/mcp", json=batch, headers=headers(version=version) | {"X-Request-ID": given})
            ids = [line["request_id"] for line in lines(caplog)]
            assert (len(ids), len(set(ids)), ids[0] == given) == (2, 1, kept)


async def test_a_refused_host_and_a_refused_key_have_a_line(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """Whose request it is is not known then, and the key is not shown."""
    from myria.settings import AuthSettings

    caplog.set_level(logging.DEBUG)
    guarded = Settings(auth=AuthSettings(mode="keys"))
    key = "myr_" + "0" * 40
    async with serving(memory, guarded) as served:
        for more, code in (
            ({"host": "evil.example.com"}, "host_not_allowed"),
            ({"authorization": f"Bearer {key}"}, "credential_invalid"),
            ({}, "credential_missing"),
        ):
            caplog.clear()
            await served.client.post("/mcp", json=call("append_event", event()), headers=headers("append_event") | more)
            (line,) = lines(caplog)
            assert (line["code"], line["tenant"]) == (code, None)
    assert key not in caplog.text


async def test_above_debug_there_is_none(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    """The usual level costs nothing and tells nothing of requests."""
    caplog.set_level(logging.INFO)
    async with serving(memory, Settings()) as served:
        await served.call("append_event", event())
    assert lines(caplog) == []
