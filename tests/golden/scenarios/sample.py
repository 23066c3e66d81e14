"""A part of the sample of `myria demo`: asked as the demo asks, through builds and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from myria_cli.sample import CONVERSATION, QUESTIONS, folder
from tests.golden.replay import Golden

EVERY = 14

COMMANDS = (
    ("verify", "--json"),
    ("status", "--json"),
    ("snapshots", "--json"),
    ("show", "--json", "--summaries"),
    ("query", "preorders", "--as", "ines", "--json"),
    ("events", "--json", "--limit", "2"),
    ("export",),
)


async def play(golden: Golden) -> None:
    """Append in two parts with a build after each, ask the questions, roll back, and compare a full build."""
    lines = (folder() / CONVERSATION).read_text(encoding="utf-8").splitlines()[::EVERY]
    events = [json.loads(line) for line in lines]
    questions = [json.loads(line) for line in (folder() / QUESTIONS).read_text(encoding="utf-8").splitlines()]
    await golden.tool("myria_append_events", events=events[:26])
    await golden.tool("myria_query_event_nodes", participants=["jonas"], query="heater", limit=3)
    first = await golden.build()
    for question in questions[:3]:
        await golden.tool(
            "myria_query_event_nodes", participants=question["participants"], query=question["question"], limit=3
        )
    await golden.tool("myria_append_events", events=events[26:])
    await golden.tool("myria_append_events", events=events[24:28])
    await golden.tool("myria_get_snapshot_status")
    await golden.build()
    for question in questions:
        asked = {"participants": question["participants"], "query": question["question"], "now": "2026-03-20T12:00:00Z"}
        await golden.tool("myria_query_event_nodes", **asked, limit=3, view="lean")
        await golden.tool("myria_query_references", **asked, max_nodes=5, format="text")
    found = await golden.tool(
        "myria_query_references", participants=["ines"], query="When do preorders open?", max_nodes=8
    )
    topic = next(node for node in nodes_of(found) if "topic_id" in node)
    await golden.tool("myria_get_topic", topic_id=topic["topic_id"], participants=["ines"])
    await golden.tool("myria_query_references", participants=["ines"], root=topic["topic_id"], max_nodes=6)
    event = next(node for node in nodes_of(found) if "event_id" in node)
    await golden.tool("myria_get_event", event_id=event["event_id"], participants=["ines"])
    await golden.tool("myria_get_active_snapshot")
    await golden.tool("myria_list_snapshots", limit=5)
    await golden.build(full=True, force=True)
    await golden.tool("myria_rollback", to=first.snapshot_id, reason="to see what was")
    await golden.tool(
        "myria_query_event_nodes", participants=["ines"], query="When do preorders open?", limit=3, view="lean"
    )
    await golden.tool("myria_resume_builds")


def nodes_of(answer: Any) -> Iterator[Any]:
    """Yield the nodes of a tree in its order."""
    stack = [answer["root"]]
    while stack:
        node = stack.pop(0)
        yield node
        stack = node.get("children", []) + stack
