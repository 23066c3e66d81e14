"""The sample in examples/ is sound: what the demo loads, asks and shows is what the files promise."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from myria.log.masks import Mask
from myria.log.payloads import searchable_text, speaker_of, task_of
from myria.log.scopes import canonical_participants

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TYPES = {"message", "assistant_message", "tool_result", "task_update", "topic_marker", "memory_marker"}
CHANNELS = {"slack", "email", "telegram", "ci", "agent"}
EVENT_FIELDS = {
    "timestamp",
    "channel",
    "participants",
    "source_event_key",
    "type",
    "context_id",
    "payload",
    "topic_hints",
    "internal",
}
REQUIRED_FIELDS = {"timestamp", "channel", "participants", "source_event_key", "type", "payload"}
KINDS = {
    "single_fact",
    "changed_fact",
    "reversed_decision",
    "history",
    "temporal",
    "multi_hop",
    "other_language",
    "tool_result",
    "task_state",
    "preference",
    "hidden",
}

Line = dict[str, Any]


def read_lines(name: str) -> list[Line]:
    """Return the objects of a JSON lines file; a blank line or a duplicate key is an error."""

    def unique(pairs: list[tuple[str, Any]]) -> Line:
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"duplicate key in {keys}"
        return dict(pairs)

    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    assert all(lines)
    return [json.loads(line, object_pairs_hook=unique) for line in lines]


@pytest.fixture(scope="module")
def events() -> list[Line]:
    """The events of the sample, as written."""
    return read_lines("workshop.jsonl")


@pytest.fixture(scope="module")
def questions() -> list[Line]:
    """The questions of the sample, as written."""
    return read_lines("questions.jsonl")


@pytest.fixture(scope="module")
def by_key(events: list[Line]) -> dict[str, Line]:
    """The events by source_event_key."""
    return {event["source_event_key"]: event for event in events}


def instant(event: Line) -> datetime:
    """Return the moment of an event."""
    return datetime.fromisoformat(event["timestamp"])


def test_there_is_enough_to_remember(events: list[Line]) -> None:
    """The sample holds several hundred events over at least five weeks, in many scopes and all channels."""
    scopes = Counter(tuple(event["participants"]) for event in events)
    assert len(events) >= 420
    assert (instant(events[-1]) - instant(events[0])).days >= 35
    assert len(scopes) >= 6
    assert min(scopes.values()) >= 5
    assert {event["channel"] for event in events} == CHANNELS


def test_every_event_has_the_shape_that_append_takes(events: list[Line]) -> None:
    """Each line has the required fields, no unknown one, and a payload that says something and who said it."""
    for event in events:
        assert event.keys() >= REQUIRED_FIELDS
        assert event.keys() <= EVENT_FIELDS
        assert searchable_text(event["payload"]).strip()
        assert speaker_of(event["payload"])
        assert len(event.get("context_id", "")) <= 200


def test_every_type_is_present_and_no_other(events: list[Line]) -> None:
    """The six types of the sample all occur, and nothing else does."""
    assert {event["type"] for event in events} == TYPES


def test_participants_are_canonical(events: list[Line]) -> None:
    """Participant sets are written in the form in which they are stored."""
    for event in events:
        assert event["participants"] == list(canonical_participants(event["participants"]))


def test_there_are_people_alone_groups_and_agents_alone(events: list[Line]) -> None:
    """One-to-one chats, a group, a private pair without agents and agents among themselves all occur."""
    scopes = {tuple(event["participants"]) for event in events}
    agents = [sum(name.startswith("agent_") for name in scope) for scope in scopes]
    shapes = {(count, len(scope) - count) for count, scope in zip(agents, scopes, strict=True)}
    assert {(1, 1), (1, 4), (0, 2), (2, 0)} <= shapes


def test_timestamps_are_utc_and_strictly_rising(events: list[Line]) -> None:
    """Timestamps are RFC 3339 with Z, no two are equal, and lines are in their order."""
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
    assert all(form.fullmatch(event["timestamp"]) for event in events)
    moments = [instant(event) for event in events]
    assert all(moment.tzinfo == UTC for moment in moments)
    assert all(a < b for a, b in pairwise(moments))


def test_keys_are_unique_in_the_whole_file(events: list[Line]) -> None:
    """A source_event_key names one event, whatever its channel."""
    keys = Counter(event["source_event_key"] for event in events)
    assert [key for key, count in keys.items() if count > 1] == []
    assert all(0 < len(key) <= 512 for key in keys)


def test_hints_are_weighted(events: list[Line]) -> None:
    """A good part of the events carries hints, each a short label with a confidence in [0, 1]."""
    hinted = [event["topic_hints"] for event in events if "topic_hints" in event]
    assert len(hinted) >= len(events) // 2
    assert len(hinted) < len(events)
    for hints in hinted:
        assert 0 < len(hints) <= 32
        assert len({hint["hint"] for hint in hints}) == len(hints)
        for hint in hints:
            assert hint.keys() == {"hint", "confidence"}
            assert 0 < len(hint["hint"]) <= 200
            assert 0 <= hint["confidence"] <= 1


def test_internal_is_written_only_where_true(events: list[Line]) -> None:
    """Some notes are internal, all of them by agents; no other event mentions the flag."""
    flagged = [event for event in events if "internal" in event]
    assert len(flagged) >= 5
    assert all(event["internal"] is True and event["type"] == "assistant_message" for event in flagged)


def test_task_updates_name_task_and_status(events: list[Line]) -> None:
    """Task updates carry task and status, and nothing else does; each task opens before it moves."""
    statuses: dict[str, list[str]] = {}
    for event in events:
        task = task_of(event["payload"])
        assert (task is not None) == (event["type"] == "task_update")
        if task is not None:
            statuses.setdefault(task, []).append(event["payload"]["status"])
    known = {"open", "in_progress", "blocked", "done"}
    assert all(set(history) <= known for history in statuses.values())
    assert {history[-1] for history in statuses.values()} >= {"in_progress", "done"}
    opened = [task for task, history in statuses.items() if history[0] == "open"]
    assert len(opened) == len(statuses)


def test_it_speaks_several_languages_and_has_a_long_tool_output(events: list[Line]) -> None:
    """German, Japanese and Spanish occur beside English, as do code and one tool output of about 5 KB."""
    assert {event["payload"].get("lang") for event in events} >= {"de", "ja", "es"}
    assert any("```c" in event["payload"]["text"] for event in events)
    sizes = [len(event["payload"]["text"].encode()) for event in events if event["type"] == "tool_result"]
    assert 4500 <= max(sizes) <= 6000


def test_questions_are_of_every_kind(questions: list[Line]) -> None:
    """There are twelve questions with unique ids, of every kind, three of them for the demo."""
    assert [question["id"] for question in questions] == [f"q{n:02d}" for n in range(1, 13)]
    assert {question["kind"] for question in questions} == KINDS
    assert sum(question.get("demo", False) for question in questions) == 3
    for question in questions:
        assert question["question"].strip()
        assert question["answer"].strip()
        assert question["participants"] == list(canonical_participants(question["participants"]))


def test_evidence_exists_and_the_asker_may_see_it(questions: list[Line], by_key: dict[str, Line]) -> None:
    """Every evidence key names an event whose scope holds everyone who asks, and that is not internal."""
    for question in questions:
        evidence = question["evidence"]
        assert len(evidence) == len(set(evidence))
        assert bool(evidence) == (question["kind"] != "hidden")
        for key in evidence:
            assert Mask(tuple(question["participants"])).sees(by_key[key]["participants"]), (question["id"], key)
            assert "internal" not in by_key[key]


def test_hidden_answers_exist_out_of_sight(questions: list[Line], by_key: dict[str, Line]) -> None:
    """What a hidden question asks for is in the log, in scopes that the asker may not see."""
    hidden = [question for question in questions if question["kind"] == "hidden"]
    assert hidden
    for question in hidden:
        assert question["forbidden"]
        for key in question["forbidden"]:
            assert not Mask(tuple(question["participants"])).sees(by_key[key]["participants"])


def test_multi_hop_evidence_spans_scopes(questions: list[Line], by_key: dict[str, Line]) -> None:
    """The evidence of a multi-hop question lies in at least two scopes."""
    for question in questions:
        if question["kind"] == "multi_hop":
            assert len({tuple(by_key[key]["participants"]) for key in question["evidence"]}) >= 2


def test_the_readme_counts_what_is_there(events: list[Line]) -> None:
    """The table in examples/README.md names every scope with its number of events, and the total is right."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    table = {
        tuple(names.split()): int(count)
        for names, count in re.findall(r"^\| `([^`]+)` \| \w+ \| (\d+) \|", text, flags=re.MULTILINE)
    }
    assert table == Counter(tuple(event["participants"]) for event in events)
    assert f"\n{len(events)} events" in text
