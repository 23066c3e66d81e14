"""Leaves: bounded, contiguous, cut where the subject changes; and the extremes of a scope."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.settings.planner import PlannerSettings
from myria.topics.leaves import leaf_spans
from myria.topics.model import LEAF, MAX_PART_LEVEL, UNIT_LEVEL, PlanEvent
from myria.topics.scope_plan import plan_scope, plan_unit
from myria.topics.validation import Candidate, SourceEvent, validate
from tests.planning.generators import MINUTE, SCOPE, SETTINGS, YEAR_1, YEAR_9999_END, key_of, scopes
from tests.support.counts import examples

WIDE = PlannerSettings(leaf_min=3, leaf_target=3, leaf_max=5)


async def checked(events: list[PlanEvent]) -> int:
    """Plan a scope, hold it against every rule, and return its number of leaves."""
    root, nodes = await plan_scope(SCOPE, events, SETTINGS)
    sources = [SourceEvent(event_seq=e.event_seq, event_id=e.event_id, participants=SCOPE) for e in events]
    tree = Candidate(
        participants=SCOPE,
        settings=SETTINGS,
        root=root.rendering_id if root else None,
        nodes=nodes,
        events=sources,
        scope_events=len(events),
    )
    assert validate(tree) == []
    return root.leaves if root else 0


@given(scopes(), st.sampled_from([SETTINGS, WIDE]))
def test_leaves_are_contiguous_and_bounded(events: list[PlanEvent], rules: PlannerSettings) -> None:
    """Leaves divide a unit in order, none smaller or larger than the settings say where the unit allows."""
    if not events:
        return
    spans = leaf_spans(events, rules)
    assert [at for start, end in spans for at in range(start, end)] == list(range(len(events)))
    sizes = [end - start for start, end in spans]
    assert max(sizes) <= rules.leaf_max
    assert min(sizes) >= min(rules.leaf_min, len(events))


def talk(*subjects: tuple[str, int]) -> list[PlanEvent]:
    """A talk of even tempo in which each subject is spoken of for so many turns."""
    texts = [text for text, turns in subjects for _ in range(turns)]
    return [
        PlanEvent(
            event_seq=n,
            event_id=f"evt_{n}",
            key=key_of(f"evt_{n}"),
            timestamp=n * MINUTE // 2,
            text=text,
            speaker="Ana",
        )
        for n, text in enumerate(texts)
    ]


def test_a_cut_falls_where_the_words_change() -> None:
    """Two subjects in one talk become leaves that meet where the subject changes."""
    events = talk(("kiln glaze pottery clay", 6), ("visa embassy passport stamp", 5))
    assert 6 in [start for start, _ in leaf_spans(events, SETTINGS)]


def test_hints_pull_together_and_apart() -> None:
    """Weighted hints move a cut that words alone leave open (§17)."""
    base = talk(("well then", 12))
    hinted = [
        PlanEvent(
            event_seq=e.event_seq,
            event_id=e.event_id,
            key=key_of(e.event_id),
            timestamp=e.timestamp,
            text=e.text,
            speaker=e.speaker,
            hints=(("garden" if n < 4 else "travel", 900),),
        )
        for n, e in enumerate(base)
    ]
    assert 4 in [start for start, _ in leaf_spans(hinted, SETTINGS)]


def test_an_answer_stays_with_its_question() -> None:
    """Where nothing else speaks, no leaf begins between a question and its answer."""
    events = [
        PlanEvent(
            event_seq=n,
            event_id=f"evt_{n}",
            key=key_of(f"evt_{n}"),
            timestamp=n * MINUTE // 2,
            speaker="Ana" if n % 2 == 0 else "Bo",
            text="Which glaze was it?" if n % 2 == 0 else "Celadon glaze again.",
        )
        for n in range(20)
    ]
    assert all(start % 2 == 0 for start, _ in leaf_spans(events, SETTINGS))


def test_many_leaves_get_parts() -> None:
    """A long unit is a tree of parts of even size under one unit node."""
    events = talk(("kiln glaze", 100), ("visa passport", 100))
    nodes = plan_unit(SCOPE, events, SETTINGS)
    assert nodes[-1].level == UNIT_LEVEL
    assert nodes[-1].is_unit
    parts = [node for node in nodes if 0 < node.level <= MAX_PART_LEVEL]
    assert parts
    assert all(8 <= len(node.children) <= SETTINGS.max_children for node in parts)
    assert sum(node.units for node in nodes) == 1


@pytest.mark.parametrize("at", [YEAR_1, YEAR_9999_END, 0, -1])
async def test_the_ends_of_time(at: int) -> None:
    """Events of the years 1 and 9999 are planned like any other."""
    assert (
        await checked(
            [PlanEvent(event_seq=n, event_id=f"evt_{n}", key=key_of(f"evt_{n}"), timestamp=at) for n in range(2)]
        )
        == 1
    )
    far = [
        PlanEvent(event_seq=n, event_id=f"evt_{n}", key=key_of(f"evt_{n}"), timestamp=t)
        for n, t in enumerate((YEAR_1, at, YEAR_9999_END))
    ]
    await checked(sorted(far, key=lambda event: event.position))


async def test_a_scope_of_one_event_is_one_leaf() -> None:
    """One event is the unavoidable singleton."""
    assert (
        await checked([PlanEvent(event_seq=1, event_id="evt_1", key=key_of("evt_1"), timestamp=0, text="hello")]) == 1
    )
    assert await checked([]) == 0


async def test_thousands_in_one_microsecond() -> None:
    """Five thousand events of the same instant make a bounded tree."""
    events = [
        PlanEvent(event_seq=n, event_id=f"evt_{n}", key=key_of(f"evt_{n}"), timestamp=5, text=f"tick {n % 9}")
        for n in range(5_000)
    ]
    assert await checked(events) > 400


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t",
        "word " * 13_000,
        "x" * 65_536,
        "会議" * 20_000,
        "?! " * 20_000,
        "a\n" * 30_000,
        "Ω≈ç√∫ ." * 8_000,
        "\ud800 \x00",
    ],
)
async def test_any_text_is_described(text: str) -> None:
    """Empty, endless, unbroken or unstorable texts give bounded labels; work by the square of a length takes hours."""
    await checked(
        [
            PlanEvent(event_seq=n, event_id=f"evt_{n}", key=key_of(f"evt_{n}"), timestamp=n * MINUTE, text=text)
            for n in range(12)
        ]
    )


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(max_size=60), min_size=2, max_size=8), st.text(max_size=20))
async def test_any_unicode_is_described(texts: list[str], name: str) -> None:
    """No text, speaker, type or hint can break a description."""
    events = [
        PlanEvent(
            event_seq=n,
            event_id=f"evt_{n}",
            key=key_of(f"evt_{n}"),
            timestamp=n,
            text=text,
            speaker=name,
            type=name,
            hints=((name, 800),),
        )
        for n, text in enumerate(texts)
    ]
    assert await checked(events) >= 1
    for node in plan_unit(SCOPE, events, SETTINGS):
        assert node.node_type != LEAF or node.label
