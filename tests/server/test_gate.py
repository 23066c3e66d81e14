"""What stands before MCP: hosts, bodies, strict JSON, batches, limits, deadlines."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from typing import Any

import asyncpg
import pytest

from myria.access.principal import ApiName
from myria.memory import Memory
from myria.settings import PostgresSettings, Settings
from myria_server import serving as http_module
from myria_server.api.tools import TOOLS
from myria_server.http import body as body_module
from myria_server.http.hosts import HostList
from myria_server.paths import PATH_OF
from tests.server.wire import LEGACY, META, MODERN, Served, call, event, headers, listed, serving
from tests.support.patience import PATIENCE_S, until
from tests.support.postgres import Database

ASKED = {"participants": ["user_42"]}
NAME = "myria.query_event_nodes"

CORE_TOOLS = [tool for tool in TOOLS if "core" in tool.apis]


def with_mcp(**changes: Any) -> Settings:
    """Return default settings with some of section mcp changed."""
    settings = Settings()
    return dataclasses.replace(settings, mcp=dataclasses.replace(settings.mcp, **changes))


def request(body: bytes, *, extra: bytes = b"", length: int | None = None) -> bytes:
    """Return a modern tool call as raw HTTP, closing the connection."""
    size = len(body) if length is None else length
    return (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        b"accept: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n"
        b"mcp-name: %s\r\n%scontent-length: %d\r\n\r\n" % (NAME.encode(), extra, size)
    ) + body


BODY = json.dumps(call(NAME, ASKED)).encode()


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_only_post_is_taken(served: Served, method: str, path: str) -> None:
    """There are no streams to open and no sessions to delete."""
    response = await served.client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_both_spellings_of_the_path_answer(served: Served) -> None:
    """A slash at the end is served, not redirected."""
    for path in ("/mcp", "/mcp/"):
        response = await served.client.post(path, json=call(NAME, ASKED), headers=headers(NAME))
        assert response.json()["result"]["isError"] is False
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        response = await served.client.post(path, json=listing, headers=headers(version="2025-06-18"))
        assert len(response.json()["result"]["tools"]) == len(CORE_TOOLS)
    assert (await served.client.get("/elsewhere")).status_code == 404


async def test_white_space_around_header_values_does_not_matter(served: Served) -> None:
    """RFC 9110 allows it; neither a call nor the SDK stumbles."""
    spaced = (
        b"POST /mcp HTTP/1.1\r\nhost: \t localhost \r\nconnection: close\r\ncontent-type:   application/json \t\r\n"
        b"accept:  application/json  \r\nmcp-protocol-version:  2026-07-28 \r\nmcp-method: \ttools/call \r\n"
        b"mcp-name:  myria.query_event_nodes\t\r\ncontent-length: %d \r\n\r\n"
    )
    answer = await served.raw(spaced % len(BODY) + BODY)
    assert b'"isError":false' in answer
    listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}).encode()
    nameless = spaced.replace(b"mcp-name:  myria.query_event_nodes\t\r\n", b"")
    listed = nameless.replace(b"tools/call", b"tools/list") % len(listing) + listing
    assert b'"inputSchema"' in await served.raw(listed)


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8321", "[::1]", "[::1]:8321", "LOCALHOST:1"])
async def test_loopback_names_are_answered(served: Served, host: str) -> None:
    """Under any port and spelling."""
    response = await served.post(call(NAME, ASKED), headers(NAME) | {"host": host})
    assert response.status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "localhost:80@evil", "::1"]
)
async def test_foreign_hosts_are_turned_away(served: Served, host: str) -> None:
    """A page that rebinds its own name to this address gets nothing, on no path into MCP."""
    for message, sent in (
        (call(NAME, ASKED), headers(NAME)),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers(version=None)),
    ):
        response = await served.post(message, sent | {"host": host})
        assert response.status_code == 421


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://localhost.evil.example", 403),
        ("file://", 403),
    ],
)
async def test_foreign_origins_are_turned_away(served: Served, origin: str, status: int) -> None:
    """A browser on another site may not call."""
    response = await served.post(call(NAME, ASKED), headers(NAME) | {"origin": origin})
    assert response.status_code == status


async def test_probes_and_metrics_answer_under_any_address(served: Served) -> None:
    """A kubelet and Prometheus ask by pod address."""
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await served.client.get(path, headers={"host": "10.0.0.7:8321"})).status_code == 200


@pytest.mark.parametrize(
    ("names", "host", "allowed"),
    [
        (("memory.example",), "memory.example:443", True),
        (("memory.example",), "Memory.Example", True),
        (("memory.example:8443",), "memory.example:8443", True),
        (("memory.example:8443",), "memory.example:1", False),
        (("memory.example:*",), "memory.example:1", True),
        (("*.example",), "a.b.example", True),
        (("*.example",), "example", False),
        (("*",), "anything.at.all", True),
        ((), "memory.example", False),
    ],
)
def test_more_hosts_by_setting(names: tuple[str, ...], host: str, allowed: bool) -> None:
    """A name with any port, with one port, every subdomain, or everything."""
    assert (HostList(names).refusal(host.encode(), None) is None) == allowed


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", None])
@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (b"{", "malformed_json"),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}', "malformed_json"),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}', "malformed_json"),
        (b'{"jsonrpc":"2.0","id":1,"method":"x\\ud800"}', "invalid_text"),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', "malformed_json"),
        (b"\xef\xbb\xbf{}", "malformed_json"),
        (b"[" * 100_000, "payload_too_deep"),
        (b"", "malformed_json"),
    ],
)
async def test_text_that_is_not_strict_json_is_a_parse_error(
    served: Served, broken: bytes, code: str, version: str | None
) -> None:
    """-32700 with HTTP 400, our code in its data."""
    response = await served.post(broken, headers(NAME, version=version))
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["data"]["code"]) == (-32700, code)


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", None])
@pytest.mark.parametrize(
    ("payload", "code", "field"),
    [
        (b'{"a":1,"a":2}', "malformed_json", "payload.a"),
        (b'{"a":[NaN]}', "malformed_json", "payload.a[0]"),
        (b'{"a":1e999}', "malformed_json", "payload.a"),
        (b'{"a":"\\ud800"}', "invalid_text", "payload.a"),
        (b'{"a":"\\u0000"}', "invalid_text", "payload.a"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "payload_too_deep", None),
    ],
    ids=["duplicate", "nan", "infinite", "surrogate", "nul", "deep"],
)
async def test_bad_json_in_arguments_is_told_to_the_tools_caller(
    served: Served, payload: bytes, code: str, field: str | None, version: str | None
) -> None:
    """A tool refusal with the request's id, its field relative to the arguments."""
    whole = json.dumps(call("myria.append_event", event(payload={}), version=version, request_id="r1")).encode()
    body = whole.replace(b'"payload": {}', b'"payload": ' + payload)
    response = await served.post(body, headers("myria.append_event", version=version))
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["id"], answer["result"]["isError"]) == ("r1", True)
    assert answer["result"].get("resultType") == ("complete" if version == MODERN else None)
    error = answer["result"]["structuredContent"]["error"]
    assert error["code"] == code
    if field:
        assert error["details"]["field"] == field


async def test_large_bodies_are_refused_unread(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their declared length, or as soon as they grow too large; the limit itself fits."""
    async with serving(memory, with_mcp(body_bytes=300_000)) as served:
        fits = BODY + b" " * (300_000 - len(BODY))
        assert (await served.post(fits, headers(NAME))).status_code == 200
        refused = await served.post(fits + b" ", headers(NAME))
        assert refused.status_code == 413
        assert refused.json()["error"]["data"]["code"] == "body_too_large"
        monkeypatch.setattr(http_module, "LINGER_S", 0.1)
        declared = await served.raw(request(b"", length=10**12))
        assert declared.startswith(b"HTTP/1.1 413")
        chunked = request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
        grown = await served.raw(chunked + b"493e1\r\n" + b" " * 300_001 + b"\r\n0\r\n\r\n")
        assert grown.startswith(b"HTTP/1.1 413")


async def test_a_body_in_pieces_is_read_whole(served: Served) -> None:
    """Chunks of any size make one request."""
    message = request(BODY)
    cut = len(message) - 40
    assert b'"isError":false' in await served.raw(
        message[:cut], message[cut : cut + 20], message[cut + 20 :], pause=0.05
    )


async def test_a_slow_body_is_given_up(memory: Memory) -> None:
    """A client that stops in the middle of a body is answered 408 and disconnected."""
    async with serving(memory, body_timeout=0.2) as served:
        message = request(BODY)
        answer = await served.raw(message[:-10], pause=0)
        assert answer.startswith(b"HTTP/1.1 408") or b"deadline_exceeded" in answer
        served.server.app.reader._timeout_s = PATIENCE_S
        assert (await served.call("query_event_nodes", ASKED)).is_error is False


async def test_slow_headers_are_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that never finishes its headers, or never says anything, is closed."""
    monkeypatch.setattr(http_module, "HEADER_TIMEOUT_S", 0.1)
    assert (await served.raw(b"POST /mcp HT")).startswith(b"HTTP/1.1 408")
    assert (await served.raw(b"")).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("sent", [b"", request(BODY)[:20]])
async def test_nobody_is_slow_while_the_server_stands_still(
    served: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Time in which its whole machine did nothing is not counted against a client that was about to send."""
    swept: list[http_module._GuardedProtocol] = []
    close_if_slow = http_module._GuardedProtocol.close_if_slow

    def sweep(connection: http_module._GuardedProtocol, now: float) -> None:
        close_if_slow(connection, now)
        swept.append(connection)

    monkeypatch.setattr(http_module._GuardedProtocol, "close_if_slow", sweep)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(sent)
    await until(lambda: swept, "a look at the connection")
    swept.clear()
    loop = asyncio.get_running_loop()
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + 20)
    await until(lambda: swept, "a look after that time")
    writer.write(request(BODY)[len(sent) :])
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer


async def test_a_body_that_never_comes_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers without the first byte of the promised body."""
    monkeypatch.setattr(http_module, "BODY_TIMEOUT_S", -0.9)
    assert (await served.raw(request(b"", length=100))).startswith(b"HTTP/1.1 408")


async def test_endless_headers_are_given_up(served: Served) -> None:
    """Header lines are bounded in size."""
    assert b"431" in await served.raw(b"POST /mcp HTTP/1.1\r\nx: " + b"a" * 100_000)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_client_that_has_said_all_is_still_answered(served: Served, times: int) -> None:
    """It may close its side after its last request (RFC 9112, 9.6): each is answered, then the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request(BODY).replace(b"connection: close\r\n", b"") * times)
    writer.write_eof()
    answers = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == times, answers


async def test_who_closes_before_the_end_of_a_request_is_not_waited_for(served: Served) -> None:
    """Its connection is closed: nothing more can come."""
    for cut in (20, len(request(BODY)) - 20):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request(BODY)[:cut])
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()


async def test_a_client_that_leaves_does_no_harm(served: Served) -> None:
    """Disconnects in the middle of headers, body and answer."""
    for cut in (20, len(request(BODY)) - 20, len(request(BODY))):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request(BODY)[:cut])
        await writer.drain()
        writer.close()
    assert (await served.call("query_event_nodes", ASKED)).is_error is False


@pytest.mark.parametrize("version", [None, "2025-03-26", "2024-11-05"])
async def test_batches_are_answered_where_the_protocol_has_them(served: Served, version: str | None) -> None:
    """Requests in order, errors in place, nothing for notifications; plain calls and others mixed."""
    batch = [
        call("myria.append_event", event("k"), version=None, request_id=1),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        call("myria.nope", {}, version=None, request_id=3),
        {"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {}},
        5,
    ]
    response = await served.post(batch, headers(version=version))
    assert response.status_code == 200
    answers = response.json()
    assert [answer.get("id") for answer in answers] == [1, 2, 3, 4, None]
    assert answers[0]["result"]["structuredContent"]["deduplicated"] is False
    assert len(answers[1]["result"]["tools"]) == len(CORE_TOOLS)
    assert [answer["error"]["code"] for answer in answers[2:]] == [-32602, -32600, -32600]


async def test_a_batch_of_notifications_is_accepted(served: Served) -> None:
    """202 and no body."""
    response = await served.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}], headers(version=None))
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.parametrize(
    ("version", "batch"),
    [
        ("2025-06-18", [call(NAME, ASKED, version=None)]),
        ("2025-11-25", [call(NAME, ASKED, version=None)]),
        (MODERN, [call(NAME, ASKED)]),
        (None, []),
        (None, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * 101),
    ],
)
async def test_batches_are_refused_elsewhere(served: Served, version: str | None, batch: list[Any]) -> None:
    """2025-06-18 took batches away; empty and endless ones never were."""
    response = await served.post(batch, headers(NAME, version=version))
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32600


@pytest.mark.parametrize("version", LEGACY)
async def test_every_handshake_version_is_agreed_on(served: Served, version: str) -> None:
    """initialize answers the version that was asked for; an unknown one gets the newest."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = (await served.post(hello, headers(version=None))).json()["result"]
    assert (answer["protocolVersion"], answer["serverInfo"]["name"]) == (version, "myria")
    params["protocolVersion"] = "1999-01-01"
    assert (await served.post(hello, headers(version=None))).json()["result"]["protocolVersion"] == LEGACY[-1]


async def test_an_unknown_protocol_version_is_told_which_are_known(served: Served) -> None:
    """-32022 with the versions that are served."""
    message = call(NAME, ASKED)
    message["params"]["_meta"] = META | {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    response = await served.post(message, headers(NAME) | {"mcp-protocol-version": "2031-01-01"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32022
    assert response.json()["error"]["data"]["supported"] == [MODERN]


async def test_tools_are_named_in_one_style_and_found_in_both(memory: Memory) -> None:
    """The setting picks what tools/list shows; calls may use either style, or the bare name."""
    for style, expected in (("dotted", "myria.append_event"), ("plain", "myria_append_event")):
        async with serving(memory, with_mcp(tool_names=style)) as served:
            tools = await listed(served)
            assert expected in {tool["name"] for tool in tools}
            assert len({tool["name"][5] for tool in tools}) == 1
            for name in ("myria.append_event", "myria_append_event", "append_event"):
                response = await served.post(call(name, event("k")), headers(name))
                assert response.json()["result"]["isError"] is False


async def test_advertised_names_suit_every_host_by_default(served: Served) -> None:
    """Without any setting the names of tools/list fit the narrowest rule of known hosts: ^[a-zA-Z0-9_-]{1,64}$."""
    names = [tool["name"] for tool in await listed(served)]
    assert "myria_append_event" in names
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)


async def test_hosts_are_told_what_each_tool_may_do(served: Served) -> None:
    """Reading is read-only; what moves the pointer is destructive; a repeat of the idempotent changes nothing more."""
    hints = {
        tool["name"].removeprefix("myria_"): tuple(
            tool["annotations"][hint] for hint in ("readOnlyHint", "destructiveHint", "idempotentHint")
        )
        for path in ("/mcp", "/mcp/admin")
        for tool in await listed(served, path=path)
    }
    reading = {name for name in hints if name.startswith(("get_", "list_", "query_"))} - {"get_erasure_receipt"}
    assert len(reading) == 9
    assert {hints[name] for name in reading} == {(True, False, True)}
    assert {name: hint for name, hint in hints.items() if name not in reading} == {
        "append_event": (False, False, False),
        "append_events": (False, False, False),
        "withdraw_events": (False, True, True),
        "restore_events": (False, False, True),
        "trigger_build": (False, False, False),
        "abort_build": (False, True, True),
        "publish_snapshot": (False, True, True),
        "discard_snapshot": (False, True, True),
        "rollback": (False, True, False),
        "resume_builds": (False, False, True),
        "decide_notes": (False, True, True),
        "preview_erasure": (True, False, True),
        "erase": (False, True, False),
        "get_erasure_receipt": (False, False, False),  # the key is shown for a while from the first time on
    }


async def test_an_unknown_tool_is_a_protocol_error_that_helps(served: Served) -> None:
    """-32602, naming the nearest tool."""
    response = await served.post(call("myria.apend_event", {}), headers("myria.apend_event"))
    error = response.json()["error"]
    assert error["code"] == -32602
    assert "did you mean myria_append_event?" in error["message"]


async def test_profiles_hide_tools(memory: Memory) -> None:
    """Without the admin profile its tools are neither listed nor run."""
    async with serving(memory, with_mcp(profiles=("core",))) as served:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        tools = (await served.post(listing, headers(version="2025-06-18"))).json()["result"]["tools"]
        assert {tool["name"] for tool in tools} == {
            "myria_append_event",
            "myria_append_events",
            "myria_withdraw_events",
            "myria_restore_events",
            "myria_query_event_nodes",
            "myria_query_references",
        }
        for version in (MODERN, "2025-06-18"):
            assert (await served.call("rollback", {}, version=version)).code == "tool_not_enabled"


async def test_a_stuck_database_is_answered_within_the_deadline(database: Database) -> None:
    """Appends and reads behind a lock are given up, retryable, before the lock is free, and the service goes on."""
    patient = PostgresSettings(statement_timeout_s=3600, lock_timeout_s=3600)  # only the service gives up
    settings = dataclasses.replace(with_mcp(request_deadline_s=0.4, append_deadline_s=0.4), postgres=patient)
    blocker = await asyncpg.connect(database.superuser_dsn)
    async with Memory(database.server_dsn, settings) as memory, serving(memory, settings) as served:
        async with asyncio.timeout(PATIENCE_S):
            while (await served.call("append_event", event("before"))).is_error:
                await asyncio.sleep(0.05)
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("LOCK TABLE myria.events IN ACCESS EXCLUSIVE MODE")
        appended, read = await asyncio.gather(
            served.call("append_event", event("during")), served.call("query_event_nodes", ASKED)
        )
        for answer in (appended, read):
            assert answer.code in ("deadline_exceeded", "database_unavailable")
            assert answer.content["error"]["retryable"] is True
        await transaction.rollback()
        async with asyncio.timeout(PATIENCE_S):
            while (await served.call("append_event", event("during"))).is_error:
                await asyncio.sleep(0.05)
    await blocker.close()


async def test_too_many_requests_at_once_are_overloaded(database: Database) -> None:
    """Beyond the limit a request is turned away at once, retryable, and later ones are served."""
    settings = with_mcp(max_in_flight=2)
    blocker = await asyncpg.connect(database.superuser_dsn)
    async with Memory(database.server_dsn, settings) as memory, serving(memory, settings) as served:
        await served.call("append_event", event("before"))
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("LOCK TABLE myria.events IN ACCESS EXCLUSIVE MODE")
        waiting = [asyncio.create_task(served.call("append_event", event(f"k{n}"))) for n in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            while served.server.app.metrics.in_flight < 2:
                await asyncio.sleep(0.01)
        turned_away = await served.call("append_event", event("late"))
        assert (turned_away.code, turned_away.content["error"]["retryable"]) == ("overloaded", True)
        await transaction.rollback()
        assert [answer.is_error for answer in await asyncio.gather(*waiting)] == [False, False]
        assert not (await served.call("append_event", event("late"))).is_error
    await blocker.close()


async def test_large_bodies_share_a_bounded_room(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that would not fit into memory together are overloaded, retryable; the room is given back."""
    monkeypatch.setattr(body_module, "BODIES_AT_ONCE", 2)
    async with serving(memory, with_mcp(body_bytes=300_000)) as served:
        big = BODY + b" " * (300_000 - len(BODY))
        message = request(big)
        go_on = asyncio.Event()

        async def slowly() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(message[:-9])
            await go_on.wait()
            writer.write(message[-9:])
            answer = await reader.read()
            writer.close()
            return answer

        slow = [asyncio.create_task(slowly()) for _ in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            while served.server.app.reader._held_bytes < 2 * (len(big) - 9):
                await asyncio.sleep(0.01)
        turned_away = await served.post(big, headers(NAME))
        assert turned_away.status_code == 503
        assert turned_away.json()["error"]["data"]["code"] == "overloaded"
        go_on.set()
        assert all(b'"isError":false' in answer for answer in await asyncio.gather(*slow))
        assert (await served.post(big, headers(NAME))).status_code == 200


class Broken(Memory):
    """A memory with a bug."""

    async def show(self, *_: Any, **__: Any) -> Any:
        """Fail as no one meant to."""
        raise ZeroDivisionError("a secret of the inside")


@pytest.mark.parametrize("version", [MODERN, "2025-06-18"])
async def test_a_bug_is_not_shown_to_the_caller(database: Database, version: str) -> None:
    """Whatever breaks inside is an internal error without details of the inside, and the service goes on."""
    async with Broken(database.server_dsn, Settings()) as memory, serving(memory) as served:
        answer = await served.call("query_event_nodes", ASKED, version=version)
        assert (answer.code, answer.content["error"]["retryable"]) == ("internal_error", False)
        assert "secret" not in json.dumps(answer.content)
        assert not (await served.call("append_event", event(), version=version)).is_error


@pytest.mark.parametrize(
    ("face", "name", "nearest", "endpoint"),
    [
        ("core", "myria_apend_event", "myria_append_event", None),
        ("agent", "recal", "recall", None),
        ("agent", "memtrace_serach", "memtrace_search", "/mcp/memtrace"),
        ("rest", "fragment_histories", "fragment_history", "/mcp/agent"),
        ("rest", "myria.triger_build", "myria_trigger_build", "/mcp/admin"),
        ("core", "zzzz", None, None),
    ],
)
async def test_an_unknown_tool_is_coded_and_says_where_it_is(
    served: Served, face: ApiName, name: str, nearest: str | None, endpoint: str | None
) -> None:
    """With the nearest name as data, and the endpoint that has it where that is another."""
    response = await served.post(call(name, {}), headers(name), path=PATH_OF[face])
    error = response.json()["error"]
    details = error["data"].get("details", {})
    assert (error["code"], error["data"]["code"]) == (-32602, "unknown_tool")
    assert (details.get("nearest"), details.get("endpoint")) == (nearest, endpoint)
    assert all(said in error["message"] for said in (nearest, endpoint) if said is not None)


async def test_an_unknown_tool_of_a_face_that_is_off_names_the_setting(memory: Memory) -> None:
    """As message, and as data for programs."""
    settings = Settings()
    assert not settings.turns.enabled
    async with serving(memory, settings) as served:
        for path, name in (
            ("/mcp", "memory_before_turn"),
            ("/mcp/agent", "memory_before_turns"),
            ("/mcp/memtrace", "memory_after_turn"),
        ):
            response = await served.post(call(name, {}), headers(name), path=path)
            text = json.dumps(response.json())
            assert "is offered at /mcp/turns, which turns.enabled switches on" in text
