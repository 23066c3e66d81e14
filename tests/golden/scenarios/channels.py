"""A log of many channels: types, context ids, hints, internal events, tasks, and every filter over them."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.golden.replay import Golden

COMMANDS = (("verify",), ("show", "--json", "--as", "ivo"), ("events", "--json", "--limit", "4"), ("export",))

_ROWS: tuple[tuple[str, str | None, str | None, str, tuple[str, ...], dict[str, Any]], ...] = (
    ("slack", "message", "launch", "The launch is planned for 14 April.", ("launch_date",), {}),
    ("slack", "message", "launch", "Who tells the press?", (), {}),
    ("email", "message", "press", "The press list has forty names.", ("press",), {}),
    ("ci", "tool_result", "nightly", "Build 812 failed: test_heater timed out.", ("firmware",), {"task_id": "B-812"}),
    ("ci", "tool_result", "nightly", "Build 813 passed.", ("firmware",), {"task_id": "B-813"}),
    (
        "planner",
        "task_update",
        None,
        "T-4 is in progress: book the laboratory.",
        (),
        {"task": "T-4", "state": "in_progress"},
    ),
    ("planner", "task_update", None, "T-4 is done: the laboratory is booked.", (), {"task": "T-4", "state": "done"}),
    ("planner", "topic_marker", "launch", "From here on: prices.", ("pricing",), {}),
    ("slack", "message", "pricing", "159 euros, 139 for the first hundred.", ("pricing", "preorders"), {}),
    ("slack", "message", "pricing", "Is that with VAT?", (), {}),
    ("slack", "message", "pricing", "Yes, with VAT and shipping.", (), {}),
    (
        "camera",
        None,
        None,
        "",
        (),
        {"image_caption": "A box on a table, its lid open", "attachments": [{"altText": "the hinge"}]},
    ),
    ("sensor", "reading", "box4", "", (), {"celsius": 28.1, "minutes": 25, "where": {"room": "cellar"}}),
    ("email", "message", "press", "The magazine wants a photograph by Friday.", ("press",), {}),
    ("telegram", "message", None, "Lunch?", (), {}),
    ("telegram", "message", None, "At one, by the harbour.", (), {}),
)


async def play(golden: Golden) -> None:
    """Keep it over two days, some of it internal, and ask by each filter and by several."""
    events = []
    for number, (channel, kind, context, text, hints, more) in enumerate(_ROWS):
        event: dict[str, Any] = {
            "timestamp": f"2026-03-{17 + number // 9:02}T{9 + number % 9:02}:10:00+01:00",
            "channel": channel,
            "participants": ["ivo", "kai"] if channel != "ci" else ["ivo"],
            "payload": {**({"text": text} if text else {}), **more},
            "source_event_key": f"{channel}:{number}",
            "topic_hints": [{"hint": hint, "confidence": 0.9 - place / 4} for place, hint in enumerate(hints)],
            "internal": channel == "sensor" or number == 9,
        }
        events.append(event | ({"type": kind} if kind else {}) | ({"context_id": context} if context else {}))
    await golden.tool("myria_append_events", events=events[:9])
    await golden.build()
    await golden.tool("myria_append_events", events=events[9:])
    ask, references = "myria_query_event_nodes", "myria_query_references"
    filters: tuple[dict[str, Any], ...] = (
        *(
            {"channel": "slack"},
            {"channel": "ci", "types": ["tool_result"]},
            {"types": ["task_update", "topic_marker"]},
        ),
        *({"context_id": "pricing"}, {"context_id": "pricing", "include_internal": True}, {"channel": "unknown"}),
        *(
            {"since": "2026-03-18T00:00:00+01:00"},
            {"until": "2026-03-17T12:00:00Z"},
            {"include_internal": True, "order": "newest"},
        ),
        *(
            {"topic_hints": ["press"]},
            {"query": "lid hinge"},
            {"query": "T-4"},
            {"query": "celsius", "include_internal": True},
        ),
        *(
            {"query": "Build 812"},
            {"query": "price with VAT", "context_id": "pricing"},
            {"query": "laboratory", "types": ["message"]},
        ),
    )
    for chosen in filters:
        await golden.tool(ask, participants=["ivo"], limit=4, view="lean", **chosen)
    await golden.build()
    for chosen in filters[::2]:
        await golden.tool(references, participants=["ivo"], max_nodes=6, view="lean", **chosen)
    for flag, view in product((False, True), ("lean", "full")):
        await golden.tool(ask, participants=["kai"], query="reading cellar", include_internal=flag, view=view, limit=2)
    for word, moment in (
        ("yesterday", "2026-03-19T01:00:00+01:00"),
        ("yesterday", "2026-03-18T23:30:00Z"),
        ("today", "2026-03-18T20:00:00Z"),
    ):
        await golden.tool(ask, participants=["ivo"], query=f"what was said {word}", now=moment, limit=3, format="text")
    internal = await golden.tool(ask, participants=["kai"], channel="sensor", include_internal=True, limit=1)
    sensor = internal["root"]["children"][0]
    while "event_id" not in sensor:
        sensor = sensor["children"][0]
    await golden.tool("myria_get_event", event_id=sensor["event_id"], participants=["kai"])
    await golden.tool("myria_get_event", event_id=sensor["event_id"], participants=["kai"], include_internal=True)
    for query in (
        {"since": "2026-03-18T00:00:00Z", "until": "2026-03-17T00:00:00Z"},
        {"limit": 0},
        {"limit": 10_000},
        {"view": "fat"},
        {"order": "best"},
        {"topic_hints": [{"hint": "a", "confidence": 2}]},
        {"masks": [{"participants": ["a"]}]},
        {"cursor": "nonsense"},
        {"types": "x"},
        {"max_tokens": 0},
        {"now": "now"},
    ):
        await golden.tool(ask, participants=["ivo"], **query)
