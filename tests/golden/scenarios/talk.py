"""Made-up talk between people in three circles that overlap: masks, pages, orders, and builds that add a little."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.golden.replay import Golden

_WORDS = (
    *("garden", "tomato", "seed", "river", "bridge", "bread", "oven", "piano", "lesson", "train", "ticket", "doctor"),
    *("school", "essay", "camera", "hiking", "tent", "budget", "invoice", "coffee", "yoga", "kitten", "vet", "harbour"),
)

CIRCLES = (("ana", "ben"), ("ana", "ben", "chloé"), ("ben",))
COMMANDS = (("verify",), ("show", "--json", "--as", "ben"), ("export",))


def talk(size: int, seed: int) -> list[dict[str, Any]]:
    """Return events as append_event takes them, of all circles, in order of time: subjects change now and then."""
    chosen = random.Random(seed)
    at, subject = datetime(2026, 3, 2, 9, tzinfo=UTC), chosen.sample(_WORDS, 4)
    events = []
    for number in range(size):
        gap = chosen.random()
        at += timedelta(seconds=40_000 if gap < 0.05 else 900 if gap < 0.2 else chosen.randint(5, 90))
        if chosen.random() < 0.25:
            subject = chosen.sample(_WORDS, 4)
        circle = chosen.choice(CIRCLES)
        words = chosen.choices(subject, k=5) + chosen.choices(_WORDS, k=2)
        event: dict[str, Any] = {
            "timestamp": at.isoformat(),
            "channel": "talk",
            "participants": list(circle),
            "payload": {"text": f"{number}: {' '.join(words)}", "speaker": chosen.choice(circle)},
            "source_event_key": f"talk:{number}",
        }
        if chosen.random() < 0.15:
            event["topic_hints"] = [{"hint": subject[0], "confidence": 0.8}]
        if chosen.random() < 0.1:
            event["type"] = "topic_marker"
        if chosen.random() < 0.1:
            event["internal"] = True
        events.append(event)
    return events


async def play(golden: Golden) -> None:
    """Ask as each circle, by every way to choose and to order, before and after builds."""
    events = talk(48, seed=7)
    await golden.tool("myria_append_events", events=events[:32])
    await golden.build()
    for event in events[32:34]:
        await golden.tool("myria_append_event", **event)
    await golden.build()
    await golden.tool("myria_append_events", events=events[34:])
    await golden.build()
    ask = "myria_query_event_nodes"
    for circle in ([], ["ana"], ["ben"], ["chloé"], ["ana", "ben"], ["ana", "ben", "chloé"], ["ana", "chloé", "dora"]):
        await golden.tool(
            ask, **({"participants": circle} if circle else {}), query="river bread", limit=3, view="lean"
        )
    await golden.tool(ask, participants=["Ana"], query="river", limit=1)
    await golden.tool(
        ask, masks=[{"participants": ["ana"], "exact": True}, {"participants": ["ben"], "exact": True}], limit=4
    )
    await golden.tool(ask, masks=[{"participants": ["ana", "ben"], "exact": True}], query="river", limit=2, view="lean")
    await golden.tool(ask, participants=["ben"], order="oldest", limit=3, view="lean")
    await golden.tool(ask, participants=["ben"], order="newest", limit=3, include_internal=True)
    await golden.tool(ask, participants=["ana"], types=["topic_marker"], limit=5)
    await golden.tool(
        ask, participants=["ben"], since="2026-03-02T09:05:00Z", until="2026-03-02T09:40:00Z", limit=50, view="lean"
    )
    await golden.tool(
        ask, participants=["ben"], topic_hints=["garden", {"hint": "yoga", "confidence": 0.5}], limit=3, view="lean"
    )
    await golden.tool(ask, participants=["ben"], query="tomato", max_tokens=120, limit=20)
    cursor: dict[str, Any] = {}
    for _ in range(4):
        page = await golden.tool(ask, participants=["ana"], query="garden music", limit=4, format="text", **cursor)
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    cursor = {}
    for _ in range(3):
        page = await golden.tool("myria_query_references", participants=["ben"], max_nodes=7, **cursor)
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    references = "myria_query_references"
    await golden.tool(
        references, participants=["ben"], query="piano lesson", max_nodes=6, include_payload=True, view="full"
    )
    await golden.tool(references, participants=["ben"], query="piano lesson", max_depth=1)
    await golden.tool(
        references, participants=["ana"], query="piano", mode="deterministic", format="text", view="full", max_nodes=6
    )
