"""What differs between two snapshots reads like a change log: topics, and events that stand elsewhere; page by page."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from myria.builds.change_log import ChangedTopic, scope_changes
from myria_server.console.rendering import first_words
from tests.console.conftest import Browser, elements, text_of
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.postgres import Database

DIFF = "/console/changes/diff"


def topic(name: str, *, events: int = 1, label: str = "", kind: str = "leaf_topic") -> dict[str, Any]:
    """Return a topic as a difference has it."""
    times = {"first_at": "2026-03-01T10:00:00Z", "last_at": "2026-03-02T10:00:00Z"}
    return {"topic_id": name, "label": label or name, "summary": "", "events": events, "kind": kind, **times}


def change(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    """Return a changed topic as a difference has it."""
    kind = "added" if before is None else "gone" if after is None else "changed"
    return {"change": kind, "topic_id": (after or before or {})["topic_id"], "before": before, "after": after}


def test_a_difference_becomes_lines_in_the_order_to_read_them() -> None:
    """New subjects and topics first, then gone, renamed and resized ones, then events that moved; apart from these the
    folders above topics, unless their size alone changed."""
    difference = {
        "participants": ["ada"],
        "topics": [
            change(topic("all", events=9, kind="internal_topic"), topic("all", events=11, kind="internal_topic")),
            change(topic("a", label="old"), topic("a", label="new")),
            change(topic("b", events=2), topic("b", events=5)),
            change(topic("same"), topic("same")),
            change(topic("c", events=3), None),
            change(None, topic("day", events=2, kind="internal_topic")),
            change(None, topic("d", events=2)),
        ],
        "subjects": [change(None, topic("e", kind="subject"))],
        "events": [
            *({"event_seq": seq, "before": "c", "after": "b"} for seq in (4, 5, 6, 7)),
            {"event_seq": 8, "before": "c", "after": "d"},
            {"event_seq": 9, "before": None, "after": "d"},
            {"event_seq": 10, "before": "b", "after": None},
        ],
        "is_cut": False,
    }
    log = scope_changes(7, difference)
    lines = [(entry.what, (entry.after or entry.before or topic("")).topic_id) for entry in log.entries]  # type: ignore[union-attr]
    assert lines == [
        ("came", "e"),
        ("came", "d"),
        ("went", "c"),
        ("renamed", "a"),
        ("resized", "b"),
        ("moved", "b"),
        ("moved", "d"),
    ]
    assert [(entry.what, entry.after and entry.after.topic_id) for entry in log.folders] == [("came", "day")]
    assert [len(log.entries), len(log.folders)] == [7, 1]
    cut = scope_changes(7, {**difference, "is_cut": True})
    assert [len(cut.entries), len(cut.folders)] == [8, 0]
    assert log.entries[5].examples == (4, 5, 6)
    assert dict(log.counts) == {"came": 2, "went": 1, "renamed": 1, "resized": 1, "moved": 5}
    assert (log.new_events, log.left_events) == (1, 1)


@pytest.mark.parametrize(("kind", "lines"), [("internal_topic", ["came"]), ("leaf_topic", ["came", "came", "went"])])
def test_a_whole_conversation_neither_comes_nor_goes(kind: str, lines: list[str]) -> None:
    """The top of a tree has another id once the tree has grown; nobody is told that all is gone, and new."""
    difference: dict[str, Any] = {
        "participants": ["ada"],
        "topics": [
            change(None, topic("new top", events=11, kind=kind)),
            change(topic("old top", events=9, kind=kind), None),
            change(None, topic("d", events=2)),
        ],
        "subjects": [],
        "events": [],
        "is_cut": False,
    }
    log = scope_changes(7, difference)
    assert [entry.what for entry in (*log.entries, *log.folders)] == lines
    first = scope_changes(7, {**difference, "topics": difference["topics"][::2]})  # there was no tree before
    assert [entry.what for entry in (*first.entries, *first.folders)] == ["came", "came"]


async def _grown(served: Served, database: Database, groups: int = 1) -> tuple[str, str]:
    """Build the conversations of some pairs of people, and again after each went on; return both snapshots."""
    made = []
    for day in (1, 20):
        for group in range(groups):
            talk = [
                event(
                    f"{group}-{day}-{n}",
                    text=f"<i>kiln</i> {group} is at {n} degrees, the glaze {day} of bowl {n % 3} is red",
                    participants=[f"user_{group}", "agent_1"],
                    timestamp=f"2026-03-{day:02}T{n:02}:00:00Z",
                )
                for n in range(8)
            ]
            await served.call("append_events", {"events": talk})
        made.append((await builds.build(database)).snapshot_id or "")
    return made[0], made[1]


async def test_what_a_build_changed_is_told(served: Served, browser: Browser, database: Database) -> None:
    """New topics are named with how many events they have, and lead to their pages; text stays text."""
    first, second = await _grown(served, database)
    page = await browser.get(DIFF, **{"from": first, "to": second})
    text = text_of(page.text)
    assert re.search(r"[0-9]+ new topics", text)
    assert "8 events added to topics" in text
    assert not [tag for tag, _ in elements(page.text) if tag == "i"]
    link = next(a["href"] for tag, a in elements(page.text) if "/topics/" in (a.get("href") or ""))
    assert (await browser.get(link or "", **{"as": "user_0"})).status_code == 200
    back = text_of((await browser.get(DIFF, **{"from": second, "to": first})).text)
    assert "8 events no longer in a topic" in back


async def test_what_was_forgotten_or_erased_comes_back_nowhere(
    served: Served, browser: Browser, database: Database
) -> None:
    """No difference, preview or list of topics counts it, to an older snapshot and back; what others said stays."""
    for number in range(3):
        own = event(f"own{number}", text=f"the loom {number}", participants=["user_8", "agent_1"])
        await served.call("append_event", own)
    first, second = await _grown(served, database)
    newest = await served.call("query_event_nodes", {"participants": ["user_0"], "order": "newest", "limit": 1})
    # The span of the first snapshot's topics holds no later moment, so only what is in it may hide its words.
    forgotten = newest.content["root"]["children"][0]["event_id"]
    await served.call("withdraw_events", {"event_ids": [forgotten], "participants": ["user_0"]})
    erase = await browser.get("/console/people/erase", name="user_8", shared="remove")
    await browser.submit(erase, "/console/people/erase", {"reason": "asked to", "confirmed": "user_8"})
    third = (await builds.build(database)).snapshot_id or ""

    back = text_of((await browser.get(DIFF, **{"from": third, "to": first})).text)
    assert "user_8" not in back
    assert "7 events no longer in a topic; still found" in back
    on = text_of((await browser.get(DIFF, **{"from": first, "to": third})).text)
    assert "user_8" not in on
    assert "7 events added to topics" in on
    assert "withdrawn events" not in on
    assert "Roll back to snapshot" in on  # from what changed since to what undoes it
    assert "Roll back to snapshot" not in back
    assert "Nothing differs" in text_of((await browser.get(DIFF, **{"from": second, "to": third})).text)
    asked = text_of((await browser.get("/console/changes/rollback", snapshot=first)).text)
    assert "For 1 group of people" in asked
    assert "7 events no longer in a topic" in asked

    for snapshot, count in ((second, 15), (first, 8)):
        await served.call("rollback", {"to": snapshot, "reason": "labels went wrong"})
        for view in ("subject", "time"):
            topics = text_of((await browser.get("/console/topics", view=view, **{"as": "user_0"})).text)
            assert f"{count} events in which exactly these 2 took part" in topics
            gone = text_of((await browser.get("/console/topics", view=view, **{"as": "user_8"})).text)
            assert "No topic is visible to user_8" in gone


async def test_topics_of_one_name_are_told_apart(served: Served, browser: Browser, database: Database) -> None:
    """Topics of which something was forgotten tell their time, and no word."""
    made: list[str] = []
    forgotten: list[str] = []
    for round_ in (0, 1):
        for day in (1, 9, 20):
            talk = [
                event(
                    f"{round_} {day} {n}",
                    text=f"the kiln is at {n}",
                    timestamp=f"2026-03-{day:02}T1{round_}:{n:02}:00Z",
                )
                for n in range(5)
            ]
            stored = await served.call("append_events", {"events": talk})
            forgotten.append(stored.content["results"][0]["event_id"])
        made.append((await builds.build(database)).snapshot_id or "")
    await served.call("withdraw_events", {"event_ids": forgotten, "participants": ["user_42"]})
    for before, after in (made, made[::-1]):
        text = text_of((await browser.get(DIFF, **{"from": before, "to": after})).text)
        times = re.findall(r"Topic with withdrawn events , (\d+ Mar 2026(?:, \d\d:\d\d)?)", text)
        assert len(set(times)) == len(times) == 4
        assert "kiln" not in text


def test_a_topic_that_its_type_names_is_told_by_its_first_words() -> None:
    """Notes without a speaker or a subject are called alike; labels of people stay as they are."""
    times = {"first_at": "2023-05-08T13:56:00Z", "last_at": "2023-05-08T13:56:00Z"}
    note = ChangedTopic(
        topic_id="top_1",
        label="Note, 8 May 2023, 13:56",
        summary="1 event, 8 May 2023, 13:56 UTC. “Rosa likes tea.”",
        events=1,
        is_subject=False,
        is_folder=False,
        **times,
    )
    assert text_of(first_words(note)) == ": “Rosa likes tea.”"
    for label in ("Note, about tea", "Note", "The note, 8 May 2023, 13:56"):
        assert first_words(replace(note, label=label)) == ""


async def test_the_same_snapshot_does_not_differ(served: Served, browser: Browser, database: Database) -> None:
    """An empty difference says what that means."""
    first, _ = await _grown(served, database)
    assert "Nothing differs" in text_of((await browser.get(DIFF, **{"from": first, "to": first})).text)


async def test_groups_and_lines_are_paged(
    served: Served, browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group is on one page, and each line of a group; no page has more than its bound."""
    monkeypatch.setattr("myria_server.console.differences._SCOPES", 2)
    monkeypatch.setattr("myria_server.console.differences._ENTRIES", 2)
    monkeypatch.setattr("myria_server.console.differences._SHOWN_OF_SCOPE", 1)
    first, second = await _grown(served, database, groups=5)

    async def pages(address: str) -> list[str]:
        read = []
        while address:
            page = (await browser.get(address)).text
            read.append(page)
            more = re.search(r'<a class="button" href="([^"]+)">More</a>', page)
            address = unescape(more[1]) if more else ""
        return read

    everything = await pages(f"{DIFF}?from={first}&to={second}")
    groups = [re.findall(r'<h2 id="scope-(\d+)"', page) for page in everything]
    assert [len(page) for page in groups] == [2, 2, 1]
    lines = int(re.search(r"All (\d+) lines", text_of(everything[0])).group(1))  # type: ignore[union-attr]
    of_group = await pages(f"{DIFF}?from={first}&to={second}&scope={groups[0][0]}")
    counts = [len(re.findall(r'<li><span class="(?:added|gone|changed)"', page)) for page in of_group]
    assert sum(counts) == lines
    assert set(counts[:-1]) == {2}


async def test_a_huge_difference_is_cut(
    served: Served, browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too much differs the page says so, instead of reading it all."""
    monkeypatch.setattr("myria_server.console.differences._MOST_NODES", 2)
    first, second = await _grown(served, database)
    text = text_of((await browser.get(DIFF, **{"from": first, "to": second})).text)
    assert "only the upper topics are compared" in text


@pytest.mark.parametrize("odd", ["-1", "9" * 400, "x", "\x00", "1.5", "\u202e"])
async def test_odd_addresses_get_a_page(served: Served, browser: Browser, database: Database, odd: str) -> None:
    """Numbers and ids that are none break nothing."""
    first, second = await _grown(served, database)
    for name in ("from", "to", "after", "scope", "begin"):
        page = await browser.get(DIFF, **{"from": first, "to": second, name: odd})
        assert page.status_code in (200, 400, 404), (name, page.text)
