"""Memories over REST and its MCP endpoint: agents, sessions, memories kept, listed, searched, changed, withdrawn."""

from __future__ import annotations

from typing import Any

from myria_server.paths import REST_PREFIX as PREFIX
from tests.golden.replay import Golden

COMMANDS = (("verify",), ("export",))


async def play(golden: Golden) -> None:
    """Register, keep, ask, and go through what each route refuses."""

    async def ask(method: str, path: str, body: Any = None, **sent: str) -> Any:
        return await golden.http(method, PREFIX + path, body, **sent)

    for path in ("/livez", "/healthz", "/readyz", "/health", "/ready", PREFIX + "/health", PREFIX + "/ready"):
        await golden.http("GET", path)
    crawler = await ask("POST", "/agents", {"name": "crawler", "description": "Reads pages", "config": {"depth": 2}})
    await ask("POST", "/agents", {"name": "crawler"})
    writer = await ask("POST", "/agents", {"name": "writer"}, idempotency_key="w1")
    await ask("POST", "/agents", {"name": "writer"}, idempotency_key="w1")
    await ask("POST", "/agents", {"name": "reader"}, idempotency_key="w1")
    await ask("GET", "/agents")
    await ask("GET", "/agents?limit=1&offset=1")
    await ask("GET", f"/agents/{crawler['id']}")
    await ask("GET", "/agents/crawler")
    session = await ask("POST", "/sessions", {"agent_id": "crawler", "metadata": {"run": 7}})
    await ask("POST", "/sessions", {"agent_id": "nobody"})
    await ask("GET", f"/sessions/{session['id']}")
    kept = []
    said: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Crawled https://example.com/start with 12 links", {"event_type": "page_crawled", "tags": ["web"]}),
        ("Chose breadth first, since pages are small", {"memory_type": "decision", "importance": 0.8}),
        (
            "Acme GmbH sells ovens in Hamburg",
            {"memory_type": "entity", "metadata": {"city": "Hamburg"}, "tags": ["web", "firm"]},
        ),
        ("The robots file forbids /private", {"memory_type": "session", "tags": ["web", "rules"]}),
        ("Crawled https://example.com/about twice", {"event_type": "page_crawled", "dedup_key": "about"}),
        ("Der Ofen von Acme wird 280 Grad heiß", {"importance": 0.3, "tags": ["v1.2"]}),
    )
    for number, (text, more) in enumerate(said):
        body = {
            "agent_id": "crawler" if number % 2 == 0 else crawler["id"],
            "content": text,
            "session_id": session["id"],
            **more,
        }
        kept.append(await ask("POST", "/memories", body))
    await ask(
        "POST",
        "/memories",
        {"agent_id": "crawler", "content": "Crawled https://example.com/about again", "dedup_key": "about"},
    )
    await ask(
        "POST",
        "/memories",
        {"agent_id": "writer", "content": "A draft", "parent_id": kept[0]["id"]},
        idempotency_key="m1",
    )
    await ask(
        "POST",
        "/memories",
        {"agent_id": "writer", "content": "A draft", "parent_id": kept[0]["id"]},
        idempotency_key="m1",
    )
    await ask("POST", "/memories", {"agent_id": "writer", "content": "Another"}, idempotency_key="m1")
    several = [{"agent_id": "writer", "content": f"Paragraph {number}"} for number in (1, 2, 2)]
    await ask("POST", "/memories", {"memories": several})
    await ask("POST", "/memories", {"memories": [{"agent_id": "writer", "content": "new"}, several[0]], "atomic": True})
    await ask("POST", "/memories", {"memories": [{"agent_id": "writer", "content": "new"}, {"agent_id": ""}]})
    await golden.build()
    for query in (
        *(
            "",
            "?limit=2",
            "?limit=2&offset=2",
            "?agent_id=crawler",
            "?memory_type=decision",
            "?event_type=page_crawled",
        ),
        *("?tags=web,rules", "?since=24h&order=asc", f"?session_id={session['id']}", "?until=2026-03-20T12:20:00Z"),
        *("?limit=0", "?limit=1001", "?since=soon", "?order=random", "?nonsense=1", "?memory_type=rumour", "?cursor=x"),
    ):
        await ask("GET", f"/memories{query}")
    page = await ask("GET", "/memories?limit=3")
    while cursor := page.get("next_cursor"):
        page = await ask("GET", f"/memories?limit=3&cursor={cursor}")
    for body in (
        {"query": "ovens in Hamburg"},
        {"query": "oven", "min_importance": 0.2, "limit": 2},
        {"content_contains": "example.com", "order": "asc"},
        {"agent_id": "crawler", "memory_types": ["decision", "entity"]},
        {"tags": ["web"], "event_types": ["page_crawled"], "since": "7d"},
        {"query": "yesterday"},
        {"query": "Ofen Grad", "session_id": session["id"]},
        {},
        {"limit": 0},
        {"memory_types": ["rumour"]},
        {"nonsense": 1},
    ):
        await ask("POST", "/search", body)
    first = kept[0]["id"]
    await ask("GET", f"/memories/{first}")
    await ask("PATCH", f"/memories/{first}", {"content": "Crawled https://example.com/start with 14 links", "tags": []})
    await ask("PATCH", f"/memories/{first}", {"importance": 0.5, "version": 1})
    await ask("PATCH", f"/memories/{first}", {"importance": 0.5, "version": 2}, idempotency_key="p1")
    await ask("PATCH", f"/memories/{first}", {"importance": 0.5, "version": 2}, idempotency_key="p1")
    await ask("PATCH", f"/memories/{first}", {"content": kept[1]["content"]})
    await ask("PATCH", f"/memories/{first}", {})
    await ask("GET", f"/memories/{first}")
    await ask("DELETE", f"/memories/{kept[4]['id']}")
    await ask("DELETE", f"/memories/{kept[4]['id']}")
    await ask("GET", f"/memories/{kept[4]['id']}")
    await ask("GET", "/agents/crawler/memories?limit=2")
    await ask("GET", "/agents/crawler/memories?since=30d&memory_type=entity")
    await ask("GET", "/agents/crawler/stats")
    await ask("GET", "/agents/nobody/stats")
    await ask("GET", "/agents/nobody/memories")
    await ask("GET", f"/sessions/{session['id']}/memories?limit=2")
    await ask("POST", f"/sessions/{session['id']}/context")
    await ask(
        "POST",
        f"/sessions/{session['id']}/context",
        {"max_tokens": 60, "include_types": ["decision"], "query": "breadth"},
    )
    await ask("POST", "/sessions/sess_unknown/context", {})
    await ask("GET", "/sessions?agent_id=crawler")
    await ask("PUT", f"/sessions/{session['id']}", {"metadata": {"run": 8}})
    await ask("PUT", f"/sessions/{session['id']}", {"status": "closed"})
    await ask("PUT", f"/sessions/{session['id']}", {"status": "lost"})
    await ask("GET", "/sessions/sess_unknown")
    await ask("PUT", "/sessions/sess_unknown", {"status": "closed"})
    await ask("DELETE", "/agents/writer")
    await ask("DELETE", f"/agents/{writer['id']}")
    await ask("DELETE", f"/agents/{writer['id']}")
    await ask("GET", "/agents/writer")
    await ask("GET", "/agents")
    for method, path in (
        ("GET", "/memories/none"),
        ("PATCH", "/memories/none"),
        ("DELETE", "/memories/none"),
        ("PUT", "/memories"),
        ("GET", "/nothing"),
        ("GET", "/memories/a%00b"),
        ("GET", "/memories/%ff"),
        ("POST", "/memories/x/y"),
    ):
        await ask(method, path, {"content": "x"} if method == "PATCH" else None)
    for wrong in (
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"agent_id": 7, "content": "x"}',
        b'{"agent_id": "a"}',
        b'{"agent_id": "a", "content": ""}',
        b'{"agent_id": "a", "content": "x", "importance": 2}',
        b'{"agent_id": "a", "content": "x", "tags": "web"}',
        b'{"agent_id": "a", "content": "x", "memory_type": "rumour"}',
        b'{"agent_id": "a", "content": "x", "colour": "red"}',
    ):
        await ask("POST", "/memories", wrong, content_type="application/json")
    await golden.tool("memtrace_agent_register", name="pilot", description="Flies")
    await golden.tool("memtrace_agent_register", name="pilot")
    own = await golden.tool("memtrace_session_create", agent_id="pilot", metadata={"leg": 1})
    await golden.tool("memtrace_session_create", agent_id="nobody")
    flight = {"agent_id": "pilot", "session_id": own["id"]}
    await golden.tool("memtrace_remember", **flight, content="Took off from Faro at nine.", tags=["log"])
    await golden.tool("memtrace_remember", **flight, content="Took off from Faro at nine.")
    await golden.tool("memtrace_remember", agent_id="pilot", content="")
    await golden.tool("memtrace_decide", agent_id="pilot", decision="Turn back to Faro", reasoning="Fog over Porto")
    await golden.tool("memtrace_recall", agent_id="pilot", limit=5)
    await golden.tool("memtrace_recall", agent_id="pilot", since="1m", memory_type="decision")
    await golden.tool("memtrace_recall", agent_id="nobody")
    await golden.tool("memtrace_search", query="fog", limit=3)
    await golden.tool("memtrace_search", content_contains="Faro", tags=["log"], min_importance=0.1)
    await golden.tool("memtrace_search", memory_types=["rumour"])
    await golden.tool("memtrace_session_context", session_id=own["id"], max_tokens=200)
    await golden.tool("memtrace_session_context", session_id="sess_unknown")
    await golden.wait(days=2)
    await ask("POST", "/memories", {"agent_id": "crawler", "content": kept[1]["content"]})
    await ask("GET", "/memories?since=24h")
    await ask("POST", "/search", {"query": "what was crawled two days ago"})
    await golden.tool("myria_query_event_nodes", query="oven", limit=3, format="text")
