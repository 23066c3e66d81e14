"""The timeline counts exactly what its visitor may see, and leads from years down to single events."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria_server.console.timeline import MOST_MARKS, STEPS, CalendarUnit
from tests.console.conftest import Browser, elements, text_of
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.postgres import Database

MOMENTS = st.datetimes(timezones=st.just(UTC))


def _marks(page: str) -> list[tuple[str, int, float, float]]:
    """Return the marks of a drawn timeline: address, count, place and width."""
    drawing = page.partition('<svg class="timeline bars"')[2].partition("</svg>")[0]
    links = [a["href"] or "" for tag, a in elements(drawing) if tag == "a"]
    bars = [a for tag, a in elements(drawing) if tag == "rect" and a.get("class") != "room"]
    counts = [
        int(title.partition("</title>")[0].rpartition(": ")[2].partition(" ")[0].replace("\u202f", ""))
        for title in drawing.split("<title>")[1:]
    ]
    return [
        (link, count, float(bar["x"] or 0), float(bar["width"] or 0))
        for link, count, bar in zip(links, counts, bars, strict=True)
    ]


def _links(page: str, part: str) -> list[str]:
    return [a["href"] or "" for tag, a in elements(page) if tag == "a" and part in (a.get("href") or "")]


@given(MOMENTS, st.sampled_from(STEPS))
def test_units_of_time_follow_each_other(moment: datetime, step: CalendarUnit) -> None:
    """Each moment is in one unit, which begins at or before it and ends after it."""
    begin = step.floor(moment)
    assert begin <= moment
    assert step.after(begin) >= moment
    assert step.floor(begin) == begin


@pytest.mark.parametrize("is_built", [False, True])
async def test_counts_of_a_timeline_add_up(
    served: Served, browser: Browser, database: Database, is_built: bool
) -> None:
    """Whatever one zooms into, its marks do not overlap, are few, and add up to the count of the mark before."""
    rng = random.Random(7)
    start = datetime(2024, 11, 3, tzinfo=UTC)
    moments = [start + timedelta(seconds=rng.randrange(86_400 * 500)) for _ in range(120)]
    moments += [start + timedelta(days=9, seconds=n) for n in range(80)]
    events = [
        event(f"k{n}", text=f"tea {n}", participants=["ada"] if n % 4 else ["bob"], timestamp=at.isoformat())
        for n, at in enumerate(moments)
    ]
    await served.call("append_events", {"events": events})
    if is_built:
        await builds.build(database)
    page = await browser.get("/console/topics", view="timeline", **{"as": "ada"})
    assert "150 events" in text_of(page.text)
    whole = 150
    depth = 0
    while marks := _marks(page.text):
        depth += 1
        assert len(marks) <= MOST_MARKS
        assert sum(count for _, count, _, _ in marks) == whole
        ends = [0.0, *(x + width for _, _, x, width in marks)]
        assert all(end <= x for end, (_, _, x, _) in zip(ends, marks, strict=False))
        assert ends[-1] <= 1_000
        address, whole, _, _ = max(marks, key=lambda mark: mark[1])
        page = await browser.get(address)
        assert f"{whole} events" in text_of(page.text)
    assert depth >= 4
    listed = [a for tag, a in elements(page.text) if tag == "a" and "/events/" in (a.get("href") or "")]
    while more := [
        a["href"] or "" for tag, a in elements(page.text) if tag == "a" and "cursor=" in (a.get("href") or "")
    ]:
        page = await browser.get(more[0])
        listed += [a for tag, a in elements(page.text) if tag == "a" and "/events/" in (a.get("href") or "")]
    assert len(listed) == whole
    assert "bob" not in text_of(page.text)


async def test_a_timeline_leads_out_and_aside(served: Served, browser: Browser) -> None:
    """From an hour there are ways to its day, month and year, and to the nearest hours that hold something."""
    moments = ("2025-01-02T03:04:05Z", "2026-03-04T16:17:00Z", "2026-03-04T16:20:00Z", "2026-05-06T07:08:09Z")
    events = [event(at, text=at, participants=["ada"], timestamp=at) for at in moments]
    await served.call("append_events", {"events": events})
    hour = {"from": "2026-03-04T16:00:00Z", "to": "2026-03-04T17:00:00Z"}
    page = await browser.get("/console/topics", view="timeline", **{"as": "ada"}, **hour)
    said = text_of(page.text)
    assert "2 events" in said
    ways = {
        "2026": "3 events that ada may see, from 2026-01 to 2026-12 (UTC)",
        "2026-03": "2 events that ada may see, from 2026-03-01 to 2026-03-31 (UTC)",
        "2026-03-04": "2 events that ada may see, from 2026-03-04 00:00 to 2026-03-04 23:00 (UTC)",
        "Earlier (1 event)": "1 event that ada may see",
        "Later (1 event)": "1 event that ada may see",
    }
    for way, told in ways.items():
        link = page.text.partition(f">{way}</a>")[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
        assert told in text_of((await browser.get(link)).text), way


async def test_a_timeline_counts_nothing_that_was_forgotten(served: Served, browser: Browser) -> None:
    """What was withdrawn leaves the counts at once; a memory without anything says what to do."""
    empty = await browser.get("/console/topics", view="timeline", **{"as": "ada"})
    assert "Append something first" in text_of(empty.text)
    stored = await served.call("append_events", {"events": [event(f"k{n}", participants=["ada"]) for n in range(3)]})
    gone = stored.content["results"][0]["event_id"]
    await served.call("withdraw_events", {"event_ids": [gone], "participants": ["ada"]})
    page = await browser.get("/console/topics", view="timeline", **{"as": "ada"})
    assert "2 events" in text_of(page.text)
    assert gone not in page.text


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"from": "yesterday"}, "from is no date"),
        ({"to": "2026-13-01T00:00:00Z"}, "to is no date"),
        ({"from": "2026-03-04", "to": "2026-03-03"}, "must come after its beginning"),
        ({"from": "\u0000"}, "from is no date"),
        ({"from": "9" * 400}, "from is no date"),
    ],
)
async def test_a_time_that_is_none_is_refused(browser: Browser, fields: dict[str, str], told: str) -> None:
    """The page says which field is wrong."""
    page = await browser.get("/console/topics", view="timeline", **fields)
    assert page.status_code == 400
    assert told in text_of(page.text)


@pytest.mark.parametrize(
    "fields",
    [
        {"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"},
        {"from": "0001-01-01T00:00:00Z"},
        {"to": "9999-12-31T23:59:59.999999Z"},
        {"from": "9999-12-31T23:59:00Z"},
        {"to": "0001-01-01T00:01:00Z"},
        {"from": "2026-03-01T10:00:00Z", "to": "2026-03-01T10:00:00.000001Z"},
        {"from": "0001-01-01T00:00:00+14:00"},
    ],
)
async def test_any_time_can_be_asked_for(served: Served, browser: Browser, fields: dict[str, str]) -> None:
    """From the first year to the last one, and down to a microsecond, a page answers."""
    await served.call("append_event", event("k", participants=["ada"], timestamp="2026-03-01T10:00:00Z"))
    page = await browser.get("/console/topics", view="timeline", **{"as": "ada"}, **fields)
    assert page.status_code in (200, 400)
    assert len(_marks(page.text)) <= MOST_MARKS
