"""A server that asks for keys: who may ask as whom, which roles open which tools, and two tenants that see nothing of
each other."""

from __future__ import annotations

from typing import Any

from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_server.paths import REST_PREFIX as PREFIX
from tests.golden.replay import Golden
from tests.support.keys import access_store, make_key

SETTINGS = Settings(auth=AuthSettings(mode="keys"), turns=TurnsSettings(enabled=True))
COMMANDS = (("key", "list", "--json"), ("tenant", "list", "--json"), ("verify",))


async def play(golden: Golden) -> None:
    """Write and ask with keys of each kind."""
    every = ("core", "agent", "turns", "rest", "admin")
    async with access_store(golden.database, "other") as store:
        for name, own, more in (
            ("ana", ("ana",), {"roles": ("append", "read"), "faces": every}),
            ("ben", ("ben",), {"roles": ("append", "read"), "faces": every}),
            ("reader", ("ana", "ben"), {"roles": ("read",), "faces": every}),
            ("writer", ("ana",), {"roles": ("append",), "faces": every}),
            ("admin", ("root",), {"roles": ("append", "read", "admin"), "faces": every}),
            ("officer", ("law",), {"roles": ("erase",), "faces": ("admin",)}),
            ("core", ("ana",), {"roles": ("append", "read"), "faces": ("core",)}),
            ("elsewhere", ("ana",), {"roles": ("append", "read"), "faces": every, "tenant": "other"}),
        ):
            await golden.stillness.next_call()
            golden.keys[name] = await make_key(store, *own, name=name, **more)
    event: dict[str, Any] = {
        "timestamp": "2026-03-20T10:00:00Z",
        "channel": "test",
        "payload": {"text": "The vault is behind the mill."},
    }
    for key in (*golden.keys, None, "unknown"):
        await golden.tool("myria_append_event", _key=key, **event, source_event_key=f"of {key}")
    for key in golden.keys:
        await golden.tool("myria_query_event_nodes", _key=key, query="vault", limit=3, view="lean")
        await golden.tool("myria_get_snapshot_status", _key=key, _path="/mcp/admin")
        await golden.tool("remember", _key=key, content="The mill is closed in winter.", topic="mill")
        await golden.tool("recall", _key=key, text="mill")
        await golden.tool(
            "memory_after_turn", _key=key, session_id="s", turn_id=f"t {key}", input_items=["I like mills"]
        )
        await golden.tool("memtrace_search", _key=key, query="mill")
        await golden.tool("myria_trigger_build", _key=key)
        await golden.tool("myria_get_erasures", _key=key)
        bearer = {"authorization": f"Bearer {golden.keys[key]}"}
        await golden.http("POST", PREFIX + "/memories", {"agent_id": "bot", "content": f"kept by {key}"}, **bearer)
        await golden.http("GET", PREFIX + "/memories?limit=2", **bearer)
    together = {
        "timestamp": "2026-03-20T11:00:00Z",
        "channel": "test",
        "payload": {"text": "Between us: the vault is empty."},
    }
    await golden.tool("myria_append_event", _key="ana", **together, participants=["ana", "ben"])
    await golden.tool("myria_append_event", _key="ana", **together, participants=["ben"])
    for key, participants in (
        ("ana", ["ana"]),
        ("ana", ["ben"]),
        ("ben", ["ana", "ben"]),
        ("reader", ["ana", "ben"]),
        ("admin", ["ana"]),
    ):
        await golden.tool(
            "myria_query_event_nodes", _key=key, participants=participants, query="vault", limit=3, view="lean"
        )
    await golden.tool(
        "myria_query_event_nodes", _key="ana", masks=[{"participants": ["ben"], "exact": True}], limit=3, view="lean"
    )
    for path in ("/mcp", "/mcp/agent", "/mcp/turns", "/mcp/memtrace", "/mcp/admin", PREFIX + "/memories"):
        await golden.http("POST", path, b"{}", content_type="application/json", accept="application/json")
        await golden.http(
            "POST", path, b"{}", authorization="Basic YTpi", content_type="application/json", accept="application/json"
        )
        await golden.http(
            "POST",
            path,
            b"{}",
            authorization="Bearer myria_nothing",
            content_type="application/json",
            accept="application/json",
        )
