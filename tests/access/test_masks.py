"""Masks: which scopes a read sees, in one normal form however the list was written."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.errors import InvalidArgument, InvalidParticipants
from myria.log.masks import MAX_MASKS, NOBODY, Mask, Masks
from myria.search.queries import EventNodesQuery

NAMES = ("ann", "bob", "carol", "dan")
SCOPES = tuple(frozenset(scope) for size in range(1, 5) for scope in combinations(NAMES, size))

masks = st.builds(
    Mask,
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(tuple),
    exact=st.booleans(),
)
lists = st.lists(masks, min_size=1, max_size=MAX_MASKS)


def seen(mask: Mask) -> set[frozenset[str]]:
    """Return what a mask sees of all scopes, by the words of the rule."""
    named = frozenset(mask.participants)
    return {scope for scope in SCOPES if (scope == named if mask.exact else named <= scope)}


@given(lists)
def test_a_list_sees_the_union_of_its_masks(given_masks: list[Mask]) -> None:
    """Whatever was left out of the normal form added nothing, and nothing that is left can be left out."""
    normal = Masks.of(given_masks)
    union = set().union(*map(seen, given_masks))
    assert {scope for scope in SCOPES if normal.sees(scope)} == union
    for mask in normal:
        assert set().union(*(seen(other) for other in normal if other != mask)) < union


@given(lists, st.randoms(use_true_random=False))
def test_a_list_has_one_normal_form(given_masks: list[Mask], rng: random.Random) -> None:
    """Order, repetitions and the order of names make no difference: equal lists are one key of a cache."""
    shuffled = [Mask(tuple(rng.sample(mask.participants, len(mask.participants))), mask.exact) for mask in given_masks]
    rng.shuffle(shuffled)
    assert Masks.of(shuffled) == Masks.of(given_masks)
    assert hash(Masks.of(shuffled)) == hash(Masks.of(given_masks))
    assert Masks.of(Masks.of(given_masks)) == Masks.of(given_masks)


@given(masks, masks)
def test_a_mask_covers_what_adds_nothing_to_it(one: Mask, other: Mask) -> None:
    """A mask covers another exactly when it sees all of it, in every memory."""
    assert one.covers(other) == (seen(other) <= seen(one) and (not one.exact or other.exact))


def test_wider_and_narrower_masks() -> None:
    """A mask of more names that must be contained is left out beside one of fewer, and so is an exact one."""
    wide, narrow, pool = Mask(("ann",)), Mask(("ann", "bob")), Mask(("ann", "bob"), exact=True)
    assert Masks.of([narrow, pool, wide]) == Masks.containing(("ann",))
    assert Masks.of([narrow, pool]) == Masks.containing(("bob", "ann"))
    other = Mask(("ann",), exact=True)
    assert list(Masks.of([pool, other])) == [other, pool]
    assert Masks.of([pool, other]).participants == ("ann", "bob")


def test_masks_as_arguments() -> None:
    """One mask that contains its names is shown as participants, as ever; any other list as masks."""
    assert Masks.containing(("bob", "ann")).to_json() == {"participants": ["ann", "bob"]}
    assert Masks.exactly(("ann",)).to_json() == {"masks": [{"participants": ["ann"], "exact": True}]}


def test_nobody_sees_nothing() -> None:
    """A mask of nobody would see everything: it is refused, and so is a query without masks."""
    assert not any(NOBODY.sees(scope) for scope in SCOPES)
    for refused in (lambda: Mask(()), lambda: Masks.of([]), lambda: Masks.containing(()), EventNodesQuery):
        with pytest.raises(InvalidParticipants):
            refused()
    with pytest.raises(InvalidParticipants, match="one of them"):
        EventNodesQuery(participants=("ann",), masks=Masks.containing(("bob",)))


def test_a_list_is_bounded() -> None:
    """More masks than the bound are refused, also where some of them add nothing."""
    many = [Mask((f"user:{number}",)) for number in range(MAX_MASKS)]
    assert len(Masks.of(many)) == MAX_MASKS
    with pytest.raises(InvalidArgument, match="at most 8 masks"):
        Masks.of([*many, Mask(("user:0", "user:1"))])
