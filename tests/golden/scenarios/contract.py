"""What is served at all: lists of tools, prompts and resources, documents, and what each tool and route refuses."""

from __future__ import annotations

from typing import Any

from myria.log.limits import Limits
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.tools import TOOLS, input_schema
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.golden.replay import Golden
from tests.server.wire import LEGACY, MODERN

COMMANDS = (
    ("version", "--json"),
    ("status", "--json"),
    ("verify", "--json"),
    ("export",),
    ("show", "nothing"),
    ("rebuild", "--json"),
)

_HOST = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "golden", "version": "1"}}
_SENT = {"accept": "application/json, text/event-stream", "content_type": "application/json"}


async def play(golden: Golden) -> None:
    """List everything, then call every tool and route with too much, too little, and the wrong thing."""
    for path in PATH_OF.values():
        await golden.method("tools/list", path=path)
        for name in (
            "prompts/list",
            "resources/list",
            "resources/templates/list",
            "ping",
            "server/discover",
            "unknown/method",
        ):
            await golden.method(name, path=path)
        for version in LEGACY if path == "/mcp" else LEGACY[-1:]:
            await golden.method("initialize", path=path, version=version, **{**_HOST, "protocolVersion": version})
        await golden.method("tools/call", path=path, version=LEGACY[-1], name="unknown_tool", arguments={})
        await golden.method("tools/call", path=path, version=MODERN, name="unknown_tool", arguments={})
        await golden.method("tools/call", path=path, version=MODERN, name="myria_append_evnt", arguments=None)
    for prompt in ("keep_memory", "begin_session", "end_session", "unknown"):
        await golden.method("prompts/get", path="/mcp/agent", name=prompt)
    await golden.method("resources/read", path="/mcp/agent", uri="myria://unknown")
    for tool in TOOLS:
        for path in (PATH_OF[face] for face in tool.apis):
            await golden.tool(tool.plain(), _path=path)
        properties = input_schema(tool, Limits())["properties"]
        await golden.tool(tool.plain(), nonsense=1)
        for name in list(properties)[:3]:
            await golden.tool(tool.plain(), **{name: [{"not": "this"}]})
    for method, path in (
        ("GET", PREFIX),
        ("GET", PREFIX + "/openapi.json"),
        ("GET", PREFIX + "/docs"),
        ("GET", "/"),
        ("GET", "/favicon.ico"),
        ("GET", "/.well-known/oauth-protected-resource"),
        ("OPTIONS", "/mcp"),
        ("DELETE", "/mcp"),
        ("GET", "/sse"),
        ("POST", "/message"),
    ):
        await golden.http(method, path)
    for route in ROUTES:
        path = PREFIX + route.path.replace("{id}", "unknown")
        await golden.http(route.method, path)
        await golden.http(route.method, path + "?nonsense=1", b'{"nonsense": 1}', content_type="application/json")
        await golden.http("TRACE", path)
    event: dict[str, Any] = {
        "timestamp": "2026-03-20T10:00:00Z",
        "channel": "test",
        "payload": {"text": "by an old client"},
    }
    for version in LEGACY:
        for name in ("myria.append_event", "myria_query_event_nodes"):
            arguments = event if "append" in name else {"query": "client", "limit": 1, "view": "lean"}
            await golden.method("tools/call", version=version, name=name, arguments=arguments)
    await golden.method("tools/call", name="myria_append_event", arguments='{"channel": "test"}')
