"""The calendar trie: a function of its set of units, of bounded fan-out and depth."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.errors import InternalError
from myria.topics.model import KEY_DIGITS, Node, PlanEvent, Unit, UnitKey, group_level, level_name, shared_digits
from myria.topics.scope_plan import plan_unit
from myria.topics.trie import assemble, key_digits
from tests.planning.generators import MINUTE, SCOPE, SETTINGS, YEAR_1, YEAR_9999_END, key_of
from tests.support.counts import examples
from tests.support.trees import MemoryTree

DAY = 24 * 60 * MINUTE


@lru_cache
def planned(index: int) -> tuple[Node, ...]:
    """One of 400 units, crowded in some minutes, hours, days and years, some in one microsecond."""
    chance = random.Random(index)
    at = chance.choice([0, 0, 0, 50 * 365 * DAY])
    at += chance.choice([0, 1, 1, 40, 300]) * DAY * chance.randrange(3)
    at += chance.choice([0, 0, 60, 600]) * MINUTE + chance.choice([0, 0, 0, chance.randrange(10**9)])
    events = [
        PlanEvent(event_seq=index * 2 + k, event_id=f"evt_{index}_{k}", key=key_of(f"evt_{index}_{k}"), timestamp=at)
        for k in (0, 1)
    ]
    return tuple(plan_unit(SCOPE, events, SETTINGS))


POOL = [Unit.of(planned(index)) for index in range(400)]
BASE = [node for index in range(400) for node in planned(index)]


async def root_of(units: list[Unit]) -> bytes | None:
    """The root of a full assembly."""
    root, _ = await assemble(None, set(), units, MemoryTree(), participants=SCOPE, settings=SETTINGS)
    return root.rendering_id if root else None


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 15, 16, 17, 18, 30, 100, 399]), st.integers(0, 2**32)),
        min_size=2,
        max_size=6,
    )
)
async def test_grown_and_shrunk_trees_equal_fresh_ones(steps: list[tuple[int, int]]) -> None:
    """Whatever was there before, the root is that of the present set: past 16 units and back, and emptied."""
    tree, root = MemoryTree(BASE), None
    present: dict[UnitKey, Unit] = {}
    for size, seed in steps:
        chance = random.Random(seed)
        wanted = {unit.key: unit for unit in chance.sample(POOL, size)}
        if chance.random() < 0.5:  # mostly the same units as before
            keys = sorted(present.keys() | wanted.keys(), key=lambda key: (key not in present, key))[:size]
            wanted = {key: present.get(key) or wanted[key] for key in keys}
        replaced = {key for key in present.keys() & wanted.keys() if chance.random() < 0.1}
        root, groups = await assemble(
            root.rendering_id if root else None,
            (present.keys() - wanted.keys()) | replaced,
            [unit for key, unit in wanted.items() if key not in present or key in replaced],
            tree,
            participants=SCOPE,
            settings=SETTINGS,
        )
        tree.add(groups)
        present = wanted
        assert (root.rendering_id if root else None) == await root_of(list(wanted.values()))


async def test_removing_the_last_unit_leaves_no_root() -> None:
    """A scope whose only unit goes has no root and writes nothing."""
    tree = MemoryTree(BASE)
    root, _ = await assemble(None, set(), POOL[:1], tree, participants=SCOPE, settings=SETTINGS)
    assert root == POOL[0].top
    gone = await assemble(root.rendering_id, {POOL[0].key}, [], tree, participants=SCOPE, settings=SETTINGS)
    assert gone == (None, [])


async def test_unknown_and_doubled_units_are_refused() -> None:
    """Removing a unit that is not there, or adding one that is, is a bug and says so."""
    tree = MemoryTree(BASE)
    root, groups = await assemble(None, set(), POOL[:40], tree, participants=SCOPE, settings=SETTINGS)
    assert root is not None
    tree.add(groups)
    with pytest.raises(InternalError):
        await assemble(root.rendering_id, {POOL[50].key}, [], tree, participants=SCOPE, settings=SETTINGS)
    with pytest.raises(InternalError):
        await assemble(root.rendering_id, set(), [POOL[3]], tree, participants=SCOPE, settings=SETTINGS)


async def test_a_reader_that_loses_leaves_is_found_out() -> None:
    """The leaves under the new root are as many as its nodes count, or nothing is made of them."""

    class Forgetful(MemoryTree):
        async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
            return (await super().leaf_node_ids(rendering_id))[32:]

    tree = Forgetful(BASE)
    root, groups = await assemble(None, set(), POOL[:100], tree, participants=SCOPE, settings=SETTINGS)
    assert root is not None
    tree.add(groups)
    with pytest.raises(InternalError, match="other leaves"):
        await assemble(root.rendering_id, set(), [POOL[150]], tree, participants=SCOPE, settings=SETTINGS)


async def test_fan_out_levels_and_order() -> None:
    """No group has one child or more than 16, levels fall on the way down, and children are in key order."""
    root, groups = await assemble(None, set(), POOL, MemoryTree(), participants=SCOPE, settings=SETTINGS)
    assert root is not None
    assert root.units == len(POOL)
    by_id = {node.rendering_id: node for node in [*BASE, *groups]}
    for node in groups:
        children = [by_id[child] for child in node.children]
        assert 2 <= len(children) <= SETTINGS.max_children
        assert all(child.level < node.level for child in children)
        digits = [key_digits(child.key) for child in children]
        assert digits == sorted(digits)
        assert node.key == children[0].key
        assert len({key_digits(child.key)[: shared_digits(node.level)] for child in children}) == 1


@given(st.integers(YEAR_1, YEAR_9999_END), st.integers(YEAR_1, YEAR_9999_END))
def test_digits_keep_the_order_of_time(one: int, other: int) -> None:
    """Keys order as their timestamps do, from year 1 to 9999; a digit has at most 16 values."""
    a, b = key_digits((one, key_of("evt_a"))), key_digits((other, key_of("evt_b")))
    assert len(a) == len(b) == KEY_DIGITS
    assert max(a) <= "f"
    if one != other:
        assert (a < b) == (one < other)


def test_ladder() -> None:
    """Levels have names that a person reads."""
    names = [level_name(level) for level in (0, 1, 8, group_level(0), group_level(4), group_level(5), group_level(7))]
    assert names == ["leaf", "part", "unit", "all", "year", "month", "day"]
    assert level_name(group_level(KEY_DIGITS - 1)) == "instant"
    assert group_level(KEY_DIGITS - 1) == 9
