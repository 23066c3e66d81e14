"""Subjects: a function of the set of leaves, brought up to date by look-up, bounded, without dust."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.errors import InternalError
from myria.settings.planner import PlannerSettings
from myria.topics.model import LEAF, SUBJECT, Node, Outline, PlanEvent, Unit, UnitKey
from myria.topics.radix import in_order
from myria.topics.scope_plan import changed_units, plan_unit, split_units
from myria.topics.subjects.holders import KEPT_MOST, Holders, IncompleteHolders, stored_key
from myria.topics.subjects.keys import SUBJECTS_MOST, candidates
from myria.topics.subjects.trie import FILED_TWICE, SubjectPiece, keys_of
from myria.topics.subjects.update import (
    PlacedLeaf,
    SubjectUpdate,
    leaves_beneath,
    leaves_of,
    leaves_under,
    update_subjects,
)
from myria.topics.subjects.whole import plan_all_subjects
from myria.topics.trie import assemble
from tests.planning.generators import DENSE, MINUTE, SCOPE, SETTINGS, key_of
from tests.support.counts import CHECK, examples
from tests.support.trees import MemoryEvents, MemorySubjectNodes, MemoryTree

WORDS = ("kiln", "glaze", "pottery", "passport", "violin", "shelter", "sourdough", "telescope", "marathon", "tapestry")


class MemorySubjects(MemorySubjectNodes):
    """A scope's subjects in memory; records are stored as bytes, as in PostgreSQL. `looked_up` counts keys.

    Without `has_along` no nodes are returned ahead.
    """

    def __init__(self, *, has_along: bool = True) -> None:
        super().__init__()
        self._has_along = has_along
        self.root: bytes | None = None
        self.records: dict[str, tuple[bytes, bytes | None]] = {}
        self.looked_up = 0

    async def holders(self, keys: Sequence[str]) -> Mapping[str, Holders]:
        """Return the stored records of keys."""
        self.looked_up += len(keys)
        return {key: Holders.from_bytes(*self.records[key]) for key in keys if key in self.records}

    async def along(self, root: bytes, paths: Sequence[str]) -> list[Node]:
        """Return the nodes that paths lead through and those beneath them, or nothing."""
        return await super().along(root, paths) if self._has_along else []

    async def plan_anew(self, leaves: Sequence[PlacedLeaf]) -> None:
        """Forget what was there and plan from all leaves."""
        self.root, self.records = None, {}
        await self.update((), leaves)

    async def update(self, removed: Iterable[PlacedLeaf], added: Sequence[PlacedLeaf]) -> SubjectUpdate:
        """Bring the tree up to date and keep what comes of it."""
        self.add(placed.leaf for placed in added)
        update = await update_subjects(self.root, removed, added, self, participants=SCOPE, settings=SETTINGS)
        self.add(update.nodes)
        self.root = update.root.rendering_id if update.root else None
        self.records.update((key, (of.bounded().to_bytes(), of.subject)) for key, of in update.holders.items())
        return update


def units_of(events: Iterable[PlanEvent], rules: PlannerSettings = DENSE) -> list[tuple[PlacedLeaf, ...]]:
    """The leaves of each unit of a scope."""
    return [tuple(leaves_of(plan_unit(SCOPE, unit, rules))) for unit in split_units(events, rules)]


def talks(seed: int, count: int, *, words: Sequence[str] = WORDS) -> list[PlanEvent]:
    """Conversations of four to nine events about a few of some words each, some with hints."""
    chance = random.Random(seed)
    events: list[PlanEvent] = []
    for talk in range(count):
        about = chance.sample(words, min(len(words), chance.choice([1, 2, 2, 3])))
        for place in range(chance.randrange(4, 10)):
            said = " and the ".join(chance.sample(about, chance.randrange(1, len(about) + 1)))
            name = f"evt_{seed}_{talk}_{place}"
            events.append(
                PlanEvent(
                    event_seq=len(events),
                    event_id=name,
                    key=key_of(name),
                    timestamp=talk * 5000 * MINUTE + place * MINUTE,
                    text=f"I think of the {said} again.",
                    speaker=chance.choice(["Ana", "Bo"]),
                    hints=((f"project {chance.randrange(4)}", 900),) if chance.random() < 0.1 else (),
                )
            )
    return events


async def full(units: Iterable[tuple[PlacedLeaf, ...]]) -> SubjectUpdate:
    """Subjects of some units, planned from nothing."""
    leaves = [placed for unit in units for placed in unit]
    return await update_subjects(None, (), leaves, MemorySubjects(), participants=SCOPE, settings=SETTINGS)


def root_of(update: SubjectUpdate) -> bytes | None:
    """The root rendering id of an update."""
    return update.root.rendering_id if update.root else None


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([3, 8, 40, 90]), st.sampled_from([2, 4, 10]), st.data())
async def test_any_order_of_units_that_come_and_go_ends_with_the_root_of_a_full_plan(
    seed: int, count: int, variety: int, data: st.DataObject
) -> None:
    """Units that come, go and come back, in any order and any steps, leave the root that their set has."""
    units = units_of(talks(seed, count, words=WORDS[:variety]))
    chance = random.Random(seed)
    tree, present = MemorySubjects(), set[int]()
    for _ in range(data.draw(st.integers(1, 5))):
        wanted = set(chance.sample(range(len(units)), data.draw(st.integers(0, len(units)))))
        if chance.random() < 0.6:  # mostly what was there
            few = set(chance.sample(range(len(units)), min(len(units), 3)))
            wanted = present ^ few
        again = {at for at in present & wanted if chance.random() < 0.1}
        gone = [placed for at in sorted((present - wanted) | again) for placed in units[at]]
        come = [placed for at in sorted((wanted - present) | again) for placed in units[at]]
        present = wanted
        try:
            await tree.update(gone, come)
        except IncompleteHolders:
            await tree.plan_anew([placed for at in sorted(present) for placed in units[at]])
        anew = await full(units[at] for at in sorted(present))
        assert tree.root == root_of(anew)
        for key, record in (await tree.holders([*tree.records, *anew.holders])).items():
            assert record.is_part_of(anew.holders.get(key, Holders()))


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 8, 40, 90]), st.sampled_from([2, 4, 10]))
async def test_a_plan_that_keeps_no_nodes_gives_the_same(seed: int, count: int, variety: int) -> None:
    """From all leaves of the tree of time, kept as numbers, come the same root, nodes and records."""
    await assert_whole_plan_is_the_same(talks(seed, count, words=WORDS[:variety]))


async def test_a_plan_reads_leaves_again_where_it_keeps_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a scope has more leaves than a plan keeps or reads at once, its subjects are the same."""
    monkeypatch.setattr("myria.topics.subjects.whole._NODES_CACHED", 5)
    monkeypatch.setattr("myria.topics.subjects.whole.LEAVES_AT_ONCE", 20)
    monkeypatch.setattr("myria.topics.subjects.update.LEAVES_AT_ONCE", 3)
    tree = await assert_whole_plan_is_the_same(talks(11, 60, words=WORDS[:4]))
    assert tree.most_at_once <= 40


async def test_a_plan_holds_few_nodes_also_where_all_leaves_have_one_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an emitter hints the same at every event, memory does not grow with the scope."""
    monkeypatch.setattr("myria.topics.subjects.whole._NODES_CACHED", 20)
    monkeypatch.setattr("myria.topics.subjects.whole.LEAVES_AT_ONCE", 20)
    events = [replace(event, hints=(("support desk", 1000),)) for event in talks(5, 300)]
    nodes = [plan_unit(SCOPE, unit, DENSE) for unit in split_units(events, DENSE)]
    times = MemoryTree(node for unit in nodes for node in unit)
    top, groups = await assemble(
        None, set(), [Unit.of(unit) for unit in nodes], times, participants=SCOPE, settings=DENSE
    )
    times.add(groups)
    stored = {id(node) for node in chain(groups, *nodes)}
    held: list[int] = []

    class CopyingReader:
        """Reads each node anew, as PostgreSQL does."""

        async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
            """Return copies of stored nodes."""
            return [replace(node) for node in await times.nodes(rendering_ids)]

    async def take(some: Sequence[Node]) -> None:
        objects = [each for each in gc.get_objects() if isinstance(each, Node) and id(each) not in stored]
        held.append(len(objects))

    await plan_all_subjects(top, CopyingReader(), take, participants=SCOPE, settings=SETTINGS)

    leaves = sum(node.is_leaf for unit in nodes for node in unit)
    assert leaves > 300
    assert len(held) > 10
    assert max(held) < 150


async def assert_whole_plan_is_the_same(events: Sequence[PlanEvent]) -> MemoryTree:
    """A plan from all leaves gives what an update from none gives, each node once and after its children."""
    units = units_of(events)
    nodes = [plan_unit(SCOPE, unit, DENSE) for unit in split_units(events, DENSE)]
    times = MemoryTree(node for unit in nodes for node in unit)
    top, groups = await assemble(
        None, set(), [Unit.of(unit) for unit in nodes], times, participants=SCOPE, settings=DENSE
    )
    times.add(groups)
    assert top is not None
    taken: list[Node] = []

    async def take(some: Sequence[Node]) -> None:
        taken.extend(some)

    leaves = [placed async for placed in leaves_beneath([top], times)]
    assert {(placed.leaf.rendering_id, placed.unit) for placed in leaves} == {
        (placed.leaf.rendering_id, placed.unit) for unit in units for placed in unit
    }
    plan = await plan_all_subjects(top, times, take, participants=SCOPE, settings=SETTINGS)
    anew = await full(units)
    assert (plan.root.rendering_id if plan.root else None) == root_of(anew)
    records = [(stored_key(key), holders) for key, holders in anew.holders.items()]
    assert list(plan.records()) == sorted(records, key=itemgetter(0))
    assert {node.rendering_id: node for node in taken} == {node.rendering_id: node for node in anew.nodes}
    assert len(taken) == len(anew.nodes)
    seen = {placed.leaf.rendering_id for placed in leaves}
    for node in taken:
        assert seen.issuperset(node.children)
        seen.add(node.rendering_id)
    return times


async def built(
    times: MemoryTree, top: Outline | None, subjects: MemorySubjects, old: Sequence[PlanEvent], new: Sequence[PlanEvent]
) -> Outline | None:
    """Bring both hierarchies over the events `old` up to the events `new`, as a build does."""
    before, after = set(old), set(new)
    events = MemoryEvents(before | after)
    removed: set[UnitKey] = set()
    planned: list[list[Node]] = []
    coming, going = [e.position for e in new if e not in before], [e.position for e in old if e not in after]
    async for changes in changed_units(coming, events, DENSE, gone=going):
        removed.update(changes.removed)
        planned.extend(plan_unit(SCOPE, unit, DENSE) for unit in changes.added)
    gone: list[Outline] = []
    top, groups = await assemble(
        top.rendering_id if top else None,
        removed,
        [Unit.of(unit) for unit in planned],
        times,
        participants=SCOPE,
        settings=DENSE,
        gone=gone,
    )
    old_leaves, new_leaves = await leaves_under(gone, times), [leaf for unit in planned for leaf in leaves_of(unit)]
    times.add([*groups, *(node for unit in planned for node in unit)])
    try:
        await subjects.update(old_leaves, new_leaves)
    except IncompleteHolders:
        await subjects.plan_anew([leaf for unit in units_of(sorted(new, key=lambda e: e.position)) for leaf in unit])
    return top


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([2, 6, 16]), st.sampled_from([2, 10]))
async def test_any_split_of_a_log_with_late_and_withdrawn_events_ends_with_the_subjects_of_a_full_build(
    seed: int, count: int, variety: int
) -> None:
    """Builds after any events, in any order of arrival, some withdrawn and restored, give a full build's subjects."""
    chance = random.Random(seed)
    events = talks(seed, count, words=WORDS[:variety])
    order = list(events) if chance.random() < 0.4 else chance.sample(events, len(events))
    times, subjects, top = MemoryTree(), MemorySubjects(has_along=chance.random() < 0.5), None
    present: list[PlanEvent] = []
    for _ in range(chance.randrange(1, 5)):
        upto = chance.randrange(len(order) + 1)
        hidden = set(chance.sample(order, chance.choice([0, 0, 1, min(20, len(order))])))
        wanted = [event for event in order[:upto] if event not in hidden]
        top = await built(times, top, subjects, present, wanted)
        present = wanted
        fresh = units_of(sorted(present, key=lambda event: event.position))
        assert subjects.root == root_of(await full(fresh))


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([20, 60, 120]), st.sampled_from([2, 5, 10]))
async def test_every_tree_of_subjects_keeps_its_rules(seed: int, count: int, variety: int) -> None:
    """Bounded fan-out, two units at least, in the order of time, few subjects a leaf, identities of their own."""
    units = units_of(talks(seed, count, words=WORDS[:variety]))
    update = await full(units)
    unit_by_leaf = {placed.leaf.rendering_id: placed.unit for unit in units for placed in unit}
    tree = MemoryTree([*update.nodes, *(placed.leaf for unit in units for placed in unit)])
    subjects_by_leaf: dict[bytes, int] = {}
    for node in update.nodes:
        assert node.node_type == SUBJECT
        assert 2 <= len(node.children) <= SETTINGS.max_children
        below = tree.under(node.rendering_id)
        leaves = [inner for inner in below if inner.node_type == LEAF]
        assert all(inner.level < node.level for inner in below[1:])
        assert node.leaves == len(leaves)
        assert node.anchor_seq == min(leaf.anchor_seq for leaf in leaves)
        assert len(node.label) <= 120
        assert len(node.summary) <= 600
        if len(leaves) <= SETTINGS.max_children and keys_of(node.metadata["prefix"]):
            assert leaves == sorted(leaves, key=lambda leaf: leaf.key)
        if node.is_unit:
            assert len({unit_by_leaf[leaf.rendering_id] for leaf in leaves}) >= 2
            for leaf in leaves:
                assert keys_of(node.metadata["prefix"])[0] in candidates(leaf.metadata)
                subjects_by_leaf[leaf.rendering_id] = subjects_by_leaf.get(leaf.rendering_id, 0) + 1
    assert all(subjects <= SUBJECTS_MOST for subjects in subjects_by_leaf.values())
    assert len({node.topic_id for node in update.nodes}) == len(update.nodes)
    assert len({node.node_id for node in update.nodes}) == len(update.nodes)


@pytest.mark.parametrize("count", [200, 500 if CHECK else 800])
async def test_one_more_conversation_costs_what_it_is_about(count: int) -> None:
    """A unit that comes reads and writes a bounded number of nodes and records in few steps, however long the scope."""
    words = [word + ending for word in WORDS for ending in ("ist", "er", "ing", "eau", "ux")]
    units = units_of(talks(7, count, words=words))
    tree = MemorySubjects()
    await tree.update((), [placed for unit in units[:-1] for placed in unit])
    tree.opened = tree.looked_up = tree.calls = 0
    update = await tree.update((), units[-1])
    assert tree.opened < 1500
    assert tree.calls <= 4
    assert tree.looked_up < 600
    assert 0 < len(update.nodes) < 120
    assert len(update.holders) < 120
    assert tree.root == root_of(await full(units))


async def test_what_one_conversation_says_is_no_subject() -> None:
    """A word of a single unit, however often said, gathers nothing."""
    (unit,) = units_of(talks(1, 1, words=("kiln",)), SETTINGS)
    assert "kiln" in candidates(unit[0].leaf.metadata)
    assert (await full([unit])).root is None


async def test_a_hint_gathers_leaves_that_share_no_word() -> None:
    """Leaves of two conversations with one hint are one subject, called as the hint says."""
    events = [
        PlanEvent(
            event_seq=at,
            event_id=f"evt_{at}",
            key=key_of(f"evt_{at}"),
            timestamp=at // 4 * 9000 * MINUTE + at * MINUTE,
            text=("The crowdfunding of the boxes begins.", "Our own webshop takes the orders.")[at // 4],
            speaker="Ana",
            hints=(("launch plan", 900),),
        )
        for at in range(8)
    ]
    update = await full(units_of(events, SETTINGS))
    assert [node.metadata["names"] for node in update.nodes if node.is_unit] == [["launch plan"]]


async def test_a_subject_keeps_its_topic_id_while_leaves_come() -> None:
    """The topic of a subject is named by its key and its first event, whatever comes later."""
    units = units_of(talks(3, 60, words=WORDS[:3]))
    tree = MemorySubjects()
    named: dict[tuple[str, str], str] = {}
    for at in range(0, len(units), 10):
        await tree.update((), [placed for unit in units[at : at + 10] for placed in unit])
        assert tree.root is not None
        for node in tree.under(tree.root):
            if node.is_unit and node.node_type == SUBJECT:
                name = (node.metadata["prefix"], node.anchor_event_id)
                assert named.setdefault(name, node.topic_id) == node.topic_id
    assert len(set(named.values())) == len(named)


async def test_a_record_that_was_cut_says_when_it_does_not_suffice() -> None:
    """A bounded record counts units rightly or refuses to."""
    many = {bytes([at]) * 32: (bytes([at]) * 16, at % 2 == 0) for at in range(200)}
    record = Holders.from_bytes(Holders().changed((), many).bounded().to_bytes())
    assert len(record.kept) == KEPT_MOST
    assert record.units == 4
    assert record.is_subject
    rest = record.changed([holder.rendering_id for holder in record.kept[2:]], {})
    with pytest.raises(IncompleteHolders):
        _ = rest.units


async def test_the_latest_state_stands_first() -> None:
    """A subject's summary begins with what was said last, and goes back from there, past what says the same."""
    said = ["The violin is in Braga.", "The violin is at home.", "The violin is in Porto.", "The violin is in Porto."]
    units = units_of(talk_of(zip(("Ana", "Bo", "Ana", "Bo"), said, strict=True)))
    update = await full(units)
    subject = next(node for node in update.nodes if node.is_unit)
    leaves: list[Node] = [placed.leaf for unit in units for placed in unit]
    newest = max(leaves, key=lambda leaf: leaf.last_at)
    assert subject.summary.startswith("Latest, on ")
    assert subject.last_at == newest.last_at
    assert subject.summary == (
        "Latest, on 11 January 1970: Bo: “The violin is in Porto.” "
        "Before: on 4 January 1970: Bo: “The violin is at home.”"
    )


async def test_a_state_says_what_names_its_subject() -> None:
    """Of what was said last, a subject by kind quotes what names one of the kind; else it says what that was about."""
    said = {0: ("We rest.", "The violin is at home."), 1: ("So embarrassing!", "The piano was sold yesterday.")}
    events = [
        PlanEvent(
            event_seq=talk * 10 + place,
            event_id=f"evt_{talk}_{place}",
            key=key_of(f"evt_{talk}_{place}"),
            timestamp=talk * 5000 * MINUTE + place * MINUTE,
            text=text,
        )
        for talk, texts in said.items()
        for place, text in enumerate((*texts, texts[1]))
    ]
    update = await full(units_of(events))
    subject = next(node for node in update.nodes if node.metadata["names"] == ["violin, piano"])
    assert "piano" in subject.summary.partition(" Before: ")[0]
    assert "embarrassing" not in subject.summary


@pytest.mark.parametrize(
    ("nouns", "labels"),
    [
        (("tariff engine", "tariff engine"), ["Tariff engine"]),
        (("violin", "violin"), ["Violin"]),
        (("violin", "piano"), ["Violin, piano"]),
        (("violin", "piano", "instrument"), ["Instrument"]),
    ],
)
async def test_no_subject_is_called_what_nobody_says(nouns: Sequence[str], labels: Sequence[str]) -> None:
    """A kind has its own name where that is said, else the names of what is of it; alone this is no second subject."""
    update = await full(units_of(talk_of(("Ana", f"The {noun} is new.") for noun in nouns)))
    assert [node.label for node in update.nodes if node.is_unit] == labels


def said(phrases: Sequence[str], keywords: Sequence[str]) -> dict[str, Any]:
    """Metadata of a leaf that says these, all alike."""
    return {"phrases": [[p, 60] for p in phrases], "keywords": [[k, 60] for k in keywords], "hints": []}


def test_a_kind_needs_more_than_a_word_of_another_sense() -> None:
    """A drive is no charity by itself; with a shelter it is, and a violin alone is an instrument."""
    assert "chariti" not in candidates(said(["drive"], ["drive"]))
    assert "chariti" in candidates(said(["drive"], ["drive", "shelter"]))
    assert "chariti" in candidates(said(["drive"], ["drive", "charity"]))
    assert "instrument" in candidates(said(["violin"], ["violin"]))
    assert "instrument" not in candidates(said(["evening"], ["evening", "violin"]))


def test_a_word_alone_is_no_subject_unless_it_is_a_thing() -> None:
    """What stands in no phrase of a leaf gathers nothing."""
    assert set(candidates(said(["kiln class"], ["kiln", "class", "healthier"]))) == {
        "kiln class",
        "kiln",
        "class",
    }


def talk_of(said: Iterable[tuple[str, str]], hints: tuple[tuple[str, int], ...] = ()) -> list[PlanEvent]:
    """Conversations of three events that say one thing each, by one speaker."""
    return [
        PlanEvent(
            event_seq=talk * 10 + place,
            event_id=f"evt_{talk}_{place}",
            key=key_of(f"evt_{talk}_{place}"),
            timestamp=talk * 5000 * MINUTE + place * MINUTE,
            text=text,
            speaker=speaker,
            hints=hints,
        )
        for talk, (speaker, text) in enumerate(said)
        for place in range(3)
    ]


async def test_a_hint_is_named_as_people_write() -> None:
    """A subject by an emitter's hint is called in words, not by a tag."""
    said = [("Ana", "The crowdfunding of the boxes begins."), ("Bo", "Our own webshop takes the orders.")]
    update = await full(units_of(talk_of(said, (("launch_plan", 900),)), SETTINGS))
    assert [node.metadata["names"] for node in update.nodes if node.is_unit] == [["launch plan"]]


def test_a_leaf_is_filed_once_under_a_key() -> None:
    """The same leaf twice under one key is refused."""
    event = PlanEvent(event_seq=1, event_id="evt_1", key=b"k" * 32, timestamp=MINUTE, text="The violin is in Porto.")
    piece = SubjectPiece.filed(plan_unit(SCOPE, [event], PlannerSettings())[0], "violin", ["violin"])
    assert in_order([piece], FILED_TWICE) == [piece]
    with pytest.raises(InternalError, match="twice"):
        in_order([piece, piece], FILED_TWICE)
