"""A topic's page is its history: what is true now first, then what it replaced, in order."""

from __future__ import annotations

from typing import Any

import pytest

from myria_server.console.fields import number_of
from myria_server.console.gists import gist_of
from myria_server.console.rendering import told_apart
from myria_server.console.topics import in_reading_order
from tests.console.conftest import Browser, elements, text_of
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.postgres import Database


def _links(page: str, part: str) -> list[str]:
    return [a["href"] or "" for tag, a in elements(page) if tag == "a" and part in (a.get("href") or "")]


async def _append(served: Served, number: int, text: str, **fields: Any) -> str:
    stored = await served.call(
        "append_event",
        {**event(f"k{number}", text=text, timestamp=f"2026-03-01T10:{number:02}:00Z", context_id="kiln"), **fields},
    )
    assert not stored.is_error, stored.content
    event_id: str = stored.content["event_id"]
    return event_id


@pytest.mark.parametrize("is_built_between", [False, True])
async def test_what_is_true_now_stands_before_what_it_replaced(
    served: Served, browser: Browser, database: Database, is_built_between: bool
) -> None:
    """The newest state comes first, then what it replaced and what that replaced, each with its event."""
    first = await _append(served, 1, "the kiln opens on Friday")
    for number in (2, 3, 4):
        await _append(served, number, f"the kiln is at {number} hundred degrees")
    if is_built_between:
        await builds.build(database)
    second = await _append(served, 5, "the kiln opens on Monday", supersedes=[first])
    forgotten = await _append(served, 6, "the kiln opens on Saturday")
    third = await _append(served, 7, "the kiln opens on Sunday", supersedes=[second, forgotten])
    await served.call("withdraw_events", {"event_ids": [forgotten], "participants": ["user_42"]})
    await builds.build(database)
    answer = await served.call("query_references", {"participants": ["user_42"], "query": "kiln Sunday"})
    topic = next(node["topic_id"] for node in answer.content["root"]["children"] if "topic_id" in node)
    page = await browser.get(f"/console/topics/{topic}", **{"as": "user_42"})
    while "What was said, newest first" not in text_of(page.text):
        below = page.text.partition("In it, newest first")[2]
        page = await browser.get(_links(below, "/topics/")[0])
    said = text_of(page.text).partition("What is true now, and what it replaced")[2]
    places = [said.index(f"the kiln opens on {day}") for day in ("Sunday", "Monday", "Friday")]
    assert places == sorted(places)
    assert "Saturday" not in said
    assert [link for link in _links(page.text, "/events/") if first in link or second in link or third in link]
    newest_first = said.partition("What was said, newest first")[2]
    assert newest_first.index("Sunday") < newest_first.index("4 hundred") < newest_first.index("2 hundred")
    assert "Friday" not in newest_first


def test_a_gist_is_the_latest_state_and_apart_from_it_what_was_before() -> None:
    """Each with who said it and when; no quote is cut, and what a model wrote in its own words stays as it is."""
    told = gist_of(
        "Latest, on 16 March 2026: Jo: “It moved: Bremen is full.” Last spoken of on 17 March 2026. "
        "Before: on 3 March 2026: Al: “Open: the test.”"
    )
    assert [(quoted.day, quoted.said) for quoted in told.now] == [
        ("on 16 March 2026", "Jo: “It moved: Bremen is full.”")
    ]
    assert [(quoted.day, quoted.said) for quoted in told.before] == [("on 3 March 2026", "Al: “Open: the test.”")]
    assert told.is_state
    assert told.about == "Last spoken of on 17 March 2026."
    talk = gist_of("Jo and Al, 3 March 2026, 13:30–13:34 UTC. Al: “Yes.” Jo: “No.”")
    assert [quoted.said for quoted in talk.now] == ["Al: “Yes.”", "Jo: “No.”"]
    assert talk.about == "Jo and Al, 3 March 2026, 13:30–13:34 UTC."
    assert not talk.is_state
    own_words = "They agree that the “old” test is over."
    assert gist_of(own_words).about == own_words
    assert gist_of("word " * 100).about == "word " * 59 + "word …"


async def test_topics_are_listed_by_their_latest_state(served: Served, browser: Browser, database: Database) -> None:
    """What it replaced is folded: it is often the latest state of another topic."""
    for day, place in ((1, "in Braga"), (5, "at the luthier in Porto, where it gets two strings and a bridge " * 2)):
        for minute in range(3):
            text = f"The violin is {place.strip()}."
            at = f"2026-03-{day:02}T10:{minute:02}:00Z"
            await _append(served, 10 * day + minute, text, timestamp=at, context_id=f"talk{day}")
    await _append(served, 99, "Ok.", timestamp="2026-03-09T10:00:00Z", context_id="talk9")  # no subject holds it
    await builds.build(database)
    page = await browser.get("/console/topics", **{"as": "user_42"})
    listed = page.text.partition("Violin")[2].partition("</li>")[0]
    assert listed.index("at the luthier in Porto") < listed.index("<details") < listed.index("in Braga")
    assert "latest, on 5 March 2026" in text_of(listed)
    for view in ("subject", "time"):
        said = text_of((await browser.get("/console/topics", view=view, **{"as": "user_42"})).text)
        assert "7 events in which exactly these 2 took part · 1 Mar 2026, 10:00 UTC to 9 Mar 2026, 10:00 UTC" in said


async def test_a_long_topic_comes_in_pages(served: Served, browser: Browser, database: Database) -> None:
    """Every event of a subject is on one of its pages, and newer ones before older ones."""
    for start in range(0, 200, 100):
        events = [
            event(
                f"k{n}",
                text=f"the kiln is at {n} degrees",
                context_id=f"talk{n // 10}",
                timestamp=f"2026-03-{1 + n // 10:02}T10:{n % 10:02}:00Z",
            )
            for n in range(start, start + 100)
        ]
        await served.call("append_events", {"events": events})
    await builds.build(database)
    listed = await browser.get("/console/topics", **{"as": "user_42"})
    for address in _links(listed.text, "/topics/top_"):
        page = await browser.get(address)
        assert page.status_code == 200
        if "What was said, newest first" in text_of(page.text):
            break
    seen: list[str] = []
    while True:
        seen += dict.fromkeys(_links(page.text.partition("What was said")[2], "/events/"))
        more = _links(page.text, "cursor=")
        if not more:
            break
        page = await browser.get(more[0])
    count = int(text_of(page.text).partition("Events ")[2].split()[0])
    assert count > 60
    assert len(set(seen)) == len(seen) == count


def _topic(label: str, first_at: str) -> dict[str, Any]:
    return {"label": label, "first_at": first_at, "last_at": first_at}


def test_topics_of_one_label_are_told_apart() -> None:
    """By their days, and by the time of day where they share one too; a label of its own stays as it is."""
    nodes = [
        _topic("Kiln", "2026-03-01T10:00:00Z"),
        _topic("Kiln", "2026-03-02T10:00:00Z"),
        _topic("Kiln", "2026-03-02T11:30:00Z"),
        _topic("Glaze", "2026-03-02T10:00:00Z"),
        {"event_id": "evt_1"},
    ]
    written = [", 1 Mar 2026", ", 2 Mar 2026, 10:00 UTC", ", 2 Mar 2026, 11:30 UTC", "", ""]
    assert [apart.striptags() for apart in told_apart(nodes)] == written
    assert [apart.striptags() for apart in told_apart(nodes[3:], above="Glaze")] == [", 2 Mar 2026", ""]


def test_what_is_in_a_topic_comes_as_a_talk_does() -> None:
    """Oldest first, but newest first where one replaced another; the topics themselves keep their order."""
    old = {"event_id": "1", "timestamp": "2026-03-01T10:00:00Z"}
    new = {"event_id": "2", "timestamp": "2026-03-02T10:00:00Z"}
    replaced = {**old, "superseded": True, "superseded_by": "2"}
    kiln = {**_topic("Kiln", "2026-03-09T10:00:00Z"), "children": [new, old]}
    glaze = {**_topic("Glaze", "2026-03-01T10:00:00Z"), "children": [replaced, new]}
    ordered = in_reading_order([kiln, glaze])
    assert [topic["label"] for topic in ordered] == ["Kiln", "Glaze"]
    assert [topic["children"] for topic in ordered] == [[old, new], [new, replaced]]


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 7), ("12", 12), ("1234567890", 1_234_567_890), ("9" * 18, 10**18 - 1), ("9" * 19, "9" * 19), ("-1", "-1")],
)
def test_a_number_of_a_field_may_be_large(text: str, number: int | str) -> None:
    """Ids beyond a thousand million are numbers too; what no database holds is left for the tool to refuse."""
    assert number_of(text, default=7) == number
