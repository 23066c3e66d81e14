"""A real browser at the console: every page in every way to look at it, without scripts, and by keyboard alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from myria.settings import ConsoleSettings, ReviewSettings, Settings
from tests.clients.conftest import Outside
from tests.server.wire import Served, call, event, headers
from tests.support import builds
from tests.support.counts import SOAK
from tests.support.postgres import Database
from tests.support.skips import not_here

BROWSER = (Path(__file__).parent / "node" / "console.mjs").read_text()
LONG = "<b>" + "long" * 200


PAGES = (
    "/ask",
    "/ask?q=kiln&as=user_42",
    "/ask?q=kiln&as=user_42&why=on",
    "/ask?q=kiln&as=user_42&view=topics&since=2020-01-01T00:00",
    "/ask?q=kiln&as=user_42&view=text",
    "/ask?q=nothing+like+it&as=nobody",
    "/events/{event}?as=user_42",
    "/events/{event}/forget?as=user_42",
    "/topics/{topic}?as=user_42",
    "/changes",
    "/topics?as=user_42",
    "/topics?as=user_42&view=time",
    "/topics?as=user_42&view=timeline",
    "/topics?as=user_42&view=timeline&from=2020-01-01&to=2030-01-01",
    "/notes",
    "/notes/{note}",
    "/notes/{note}?done=corrected",
    "/notes/{held}",
    "/notes/new",
    "/notes/{note}/correct",
    "/notes/{note}/forget",
    "/people",
    "/people?as=user_42",
    "/people/one?name=user_42",
    "/people/erase?name=user_42",
    "/erasures/{erasure}",
    "/changes/build",
    "/changes/abort?build={queued}",
    "/changes/builds/{build}",
    "/changes/builds/{queued}",
    "/changes/rollback?snapshot={first}",
    "/changes/diff?from={first}&to=active",
    "/review",
    "/review?kind=fact",
    "/operations",
    "/settings?q=builder",
    "/audit",
    "/keys",
    "/keys/grants",
    "/nowhere",
)
"""The address of each page below the console's; `{name}` stands for what the test keeps."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to look at a page."""

    width: int = 1280
    scheme: Literal["light", "dark"] = "light"
    direction: Literal["ltr", "rtl"] = "ltr"
    javascript: bool = True
    rules: tuple[str, ...] = ()
    """Rules that axe looks at alone; where none is named, at all."""


DRAWN = ("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size")
"""What axe finds by colours and sizes; the rest it finds by elements, which are the same in every scheme and width."""

WAYS = (
    Way(),
    Way(width=360, scheme="dark", direction="rtl", rules=() if SOAK else DRAWN),
    Way(javascript=False),
)


@pytest.fixture
def settings() -> Settings:
    """The console is on, and decisions wait for a review."""
    return Settings(console=ConsoleSettings(enabled=True), review=ReviewSettings(kinds=("decision",)))


@pytest.fixture
def chromium() -> str:
    """The browser's program, of Debian's package `chromium`."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (path := shutil.which(name)) is not None:
            return path
    return not_here("no Chromium (apt-get install chromium)")


async def look(outside: Outside, chromium: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the browser saw."""
    status, out, err = await outside.node("--input-type=module", "-", chromium, json.dumps(wanted), text=BROWSER)
    if status and "No usable sandbox" in err:
        not_here("Chromium finds no sandbox for this user")
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()]


async def _kept_note(served: Served) -> str:
    """Keep a note with two versions and a link, in place of another one, and notes under review; return its id."""

    async def tool(name: str, **arguments: Any) -> str:
        answer = await served.post(call(name, arguments), headers(name), path="/mcp/agent")
        note_id: str = answer.json()["result"]["structuredContent"].get("id", "")
        return note_id

    older = await tool("remember", content="The kiln opens on Friday")
    note_id = await tool("remember", content="The kiln opens on Monday", supersedes=[older])
    await tool("amend", id=note_id, content="The kiln opens on Sunday", importance=0.9)
    other = await tool("remember", content="The kiln stops at 900 degrees", type="error", linkedTo=[note_id])
    assert other
    for content in (f"We close the kiln {LONG}", "שלום, we sell the kiln"):
        await tool("remember", content=content, type="decision", supersedes=[other], sessionId="s", source=LONG[:400])
    refused = await tool("remember", content="We buy a kiln", type="decision")
    await served.call("decide_notes", {"note_ids": [refused], "decision": "refuse", "reason": LONG})
    return note_id


def in_each_way(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ways, each with its pages: the first one with all; any other, outside a soak run, with every third."""
    return [
        {**asdict(way), "paths": list(paths if SOAK or not number else paths[number::3])}
        for number, way in enumerate(WAYS)
    ]


@pytest.mark.soak
async def test_every_page_is_accessible_and_whole(
    outside: Outside, chromium: str, served: Served, database: Database
) -> None:
    """No page breaks a rule of WCAG 2.2 AA, its own policy or its width; and a question is asked by keyboard alone."""
    texts = ["The kiln opens on Friday", "The glaze is red", LONG, "שלום, the kiln is hot \u202e!", "陶芸の窯は熱い"]
    events = [event(str(n), text=text) for n, text in enumerate(texts)]
    called = {"id": "c", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    events += [
        event("called", payload={"tool_calls": [called]}),
        event("answered", payload={"role": "tool", "tool_call_id": "c", "content": "4 °C. " * 300}),
    ]
    stored = await served.call("append_events", {"events": events})
    built = await builds.build(database)
    first, build_id = built.snapshot_id, built.build_id
    await served.call("append_event", event("later", text="The kiln opens on Saturday, not on Friday"))
    await builds.build(database)
    await served.call("append_event", event("fresh", text="The kiln is closed"))
    tree = await served.call("query_references", {"participants": ["user_42"], "query": "kiln"})
    topic = next(node["topic_id"] for node in tree.content["root"]["children"] if "topic_id" in node)
    event_id = stored.content["results"][-1]["event_id"]
    note_id = await _kept_note(served)
    await served.call("append_event", event("gone", participants=["gone"]))
    gone = {"of_participants": ["gone"], "expected_events": 1, "reason": LONG}
    erasure_id = (await served.call("erase", gone)).content["erasure_id"]
    queued = await builds.queue(database)
    held_id = (await served.call("list_held_notes", {})).content["under_review"][0]["note_id"]
    kept = {"event": event_id, "topic": topic, "note": note_id, "held": held_id, "first": first, "build": build_id}
    paths = ["/console" + page.format(**kept, erasure=erasure_id, queued=queued) for page in PAGES]
    url = str(served.client.base_url).rstrip("/")
    question = {"text": "when does the kiln open", "as": "user_42", "expects": "The kiln opens on Friday"}
    ways = in_each_way(paths)
    *looks, asked = await look(outside, chromium, {"url": url, "paths": paths, "ways": ways, "question": question})
    assert len(looks) == sum(len(way["paths"]) for way in ways)
    for seen in looks:
        expected = ["Failed to load resource"] if "nowhere" in seen["path"] else []
        assert all(any(text in complaint for text in expected) for complaint in seen["complaints"]), seen
        assert not seen.get("violations"), seen
        assert seen["fits"] is not False, seen
    assert "The kiln opens on Friday" in asked["answer"]
    # In the reader's own zone, as labels of topics write moments.
    assert re.fullmatch(r"\d{1,2} [A-Z][a-z]{2} \d{4}, \d\d:\d\d", asked["moment"])
    assert "/console/events/" in asked["opened"]
    assert not asked["violations"], asked
    assert not asked["complaints"], asked
