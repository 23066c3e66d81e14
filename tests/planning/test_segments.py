"""Unit boundaries are local, and no unit is a single event without need (rule 7 of docs/architecture.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from myria.settings.planner import PlannerSettings
from myria.topics.model import PlanEvent
from myria.topics.scope_plan import units_between
from myria.topics.segments import AFTER, BEFORE, UnitSplitter, segment_starts, split_units, unit_starts
from tests.planning.generators import DENSE, MINUTE, SETTINGS, key_of, scopes
from tests.support.counts import examples


def starts(events: list[PlanEvent], rules: PlannerSettings) -> dict[str, bool | None]:
    """The verdicts by event id."""
    verdicts = unit_starts(events, rules, at_start=True, at_end=True)
    return {event.event_id: verdict for event, verdict in zip(events, verdicts, strict=True)}


@given(scopes(), st.sampled_from([SETTINGS, DENSE]))
def test_units_hold_at_least_two_events(events: list[PlanEvent], rules: PlannerSettings) -> None:
    """Units divide the scope in order, and only a scope of one event has a unit of one."""
    units = list(split_units(events, rules))
    assert [event for unit in units for event in unit] == events
    if len(events) > 1:
        assert min(len(unit) for unit in units) >= 2


@given(scopes(), st.sampled_from([SETTINGS, DENSE]))
def test_splitter_agrees_with_the_verdicts(events: list[PlanEvent], rules: PlannerSettings) -> None:
    """Streaming cuts exactly where the verdicts over the whole scope say."""
    verdicts = starts(events, rules)
    firsts = [unit[0].event_id for unit in split_units(events, rules)]
    assert firsts == [event_id for event_id, verdict in verdicts.items() if verdict]


@given(scopes(), scopes(3), st.sampled_from([SETTINGS, DENSE]), st.data())
def test_an_inserted_event_moves_boundaries_within_three_positions(
    events: list[PlanEvent], extra: list[PlanEvent], rules: PlannerSettings, data: st.DataObject
) -> None:
    """A verdict changes only where the new event is among the three before it or the two after it."""
    if not extra:
        return
    at = data.draw(st.integers(0, len(events)))
    low = events[at - 1].timestamp if at else -(10**16)
    high = events[at].timestamp if at < len(events) else 10**16
    late = PlanEvent(
        event_seq=at * 10 - 5,
        event_id=extra[0].event_id + "_late",
        key=key_of(extra[0].event_id + "_late"),
        timestamp=data.draw(st.integers(low, high)),
        type=extra[0].type,
        task=extra[0].task,
        context_id=extra[0].context_id,
    )
    whole = [*events[:at], late, *events[at:]]
    before, after = starts(events, rules), starts(whole, rules)
    for position, event in enumerate(whole):
        if event is not late and before[event.event_id] != after[event.event_id]:
            assert at - AFTER <= position <= at + BEFORE


@given(scopes(), st.data())
def test_a_window_gives_the_verdicts_of_the_whole(events: list[PlanEvent], data: st.DataObject) -> None:
    """A region with its context decides like the whole scope, and says where its context is too short."""
    first = data.draw(st.integers(0, len(events)))
    last = data.draw(st.integers(first, len(events)))
    region = unit_starts(events[first:last], DENSE, at_start=first == 0, at_end=last == len(events) and last > first)
    whole = starts(events, DENSE)
    for at, (event, verdict) in enumerate(zip(events[first:last], region, strict=True)):
        if verdict is not None:
            assert verdict == whole[event.event_id]
        else:
            assert at < BEFORE or at >= last - first - AFTER


@given(scopes(), st.data())
@settings(max_examples=examples(60))
def test_splitting_may_begin_at_any_unit(events: list[PlanEvent], data: st.DataObject) -> None:
    """From any unit on, with three events of context, the units are those of the whole scope."""
    units = list(split_units(events, DENSE))
    if not units:
        return
    skipped = data.draw(st.integers(0, len(units) - 1))
    begin = sum(len(unit) for unit in units[:skipped])
    splitter = UnitSplitter(DENSE, events[max(0, begin - BEFORE) : begin])
    rest = [unit for event in events[begin:] for unit in splitter.feed(event)]
    rest.extend(splitter.finish())
    assert rest == units[skipped:]


@given(scopes(), st.data())
@settings(max_examples=examples(100))
async def test_ranges_of_a_scope_have_its_units_between_them(events: list[PlanEvent], data: st.DataObject) -> None:
    """However a scope is divided and read, each unit is in the range in which it begins, and in no other."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(events) - 1)), max_size=6)))
    size = data.draw(st.integers(1, 7))
    bounds = [0, *(cut for cut in cuts if cut < len(events)), len(events)]

    async def pages(begin: int) -> AsyncIterator[list[PlanEvent]]:
        for at in range(begin, len(events), size):
            yield events[at : at + size]

    found = []
    for begin, end in pairwise(bounds):
        upto = events[end].position if end < len(events) else None
        before = events[max(0, begin - BEFORE) : begin]
        units = [unit async for unit in units_between(before, pages(begin), DENSE, end=upto)]
        assert all(events[begin].position <= unit[0].position < (upto or (1 << 62, 0)) for unit in units)
        found.extend(units)
    assert found == list(split_units(events, DENSE))


def test_dense_streams_are_cut() -> None:
    """Thousands of events in one microsecond become many units of bounded size."""
    events = [
        PlanEvent(event_seq=seq, event_id=f"evt_{seq:06}", key=key_of(f"evt_{seq:06}"), timestamp=0)
        for seq in range(20_000)
    ]
    sizes = [len(unit) for unit in split_units(events, SETTINGS)]
    assert len(sizes) > 40
    assert max(sizes) < 4_000


def sizes(*gaps_in_minutes: int) -> list[int]:
    """Unit sizes of events that are so many minutes apart; ids are chosen to be cut by no hash."""
    events, at = [], 0
    for seq, gap in enumerate((0, *gaps_in_minutes)):
        at += gap * MINUTE
        events.append(
            PlanEvent(event_seq=seq, event_id=f"evt_plain_{seq}", key=key_of(f"evt_plain_{seq}"), timestamp=at)
        )
    return [len(unit) for unit in split_units(events, SETTINGS)]


def test_lone_events_join_the_nearer_neighbour() -> None:
    """A one-event segment joins the segment that is nearer in time, the earlier one when both are as near."""
    assert sizes(1, 40, 50, 1) == [3, 2]
    assert sizes(1, 50, 40, 1) == [2, 3]
    assert sizes(1, 40, 40, 1) == [3, 2]
    assert sizes(40, 1, 1) == [4]
    assert sizes(1, 1, 40) == [4]


def test_runs_of_lone_events_are_units() -> None:
    """Two or more one-event segments in a row are a unit of their own."""
    assert sizes(1, 40, 40, 40, 1) == [2, 2, 2]
    assert sizes(40, 40, 40) == [4]
    assert sizes(40) == [2]


def test_segments_part_at_tasks_contexts_and_markers() -> None:
    """A known other task, a known other context, or a marker begins a segment; an unknown one does not (§6.2)."""
    base = PlanEvent(
        event_seq=1, event_id="evt_plain_1", key=key_of("evt_plain_1"), timestamp=0, task="a", context_id="c"
    )

    def parted(**fields: Any) -> bool:
        after: dict[str, Any] = {
            "event_seq": 2,
            "event_id": "evt_plain_2",
            "key": key_of("evt_plain_2"),
            "timestamp": 1,
            "task": "a",
            "context_id": "c",
        }
        return segment_starts(base, PlanEvent(**{**after, **fields}), SETTINGS)

    assert not parted()
    assert parted(task="b")
    assert parted(context_id="d")
    assert parted(type="task_start")
    assert not parted(task=None)
    assert not parted(context_id=None)
    assert parted(timestamp=30 * MINUTE)
    assert not parted(timestamp=30 * MINUTE - 1)
