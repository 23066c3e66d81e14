"""Identities depend on what they name, and on nothing else (§7.3)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from myria.log.canonical import digest, quick_digest
from myria.topics.identity import internal_node_id, leaf_node_id, rendering_id, topic_id
from myria.topics.model import INTERNAL, LEAF, PlanEvent
from myria.topics.scope_plan import plan_scope, plan_unit
from tests.planning.generators import SCOPE, SETTINGS, key_of


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=9), st.randoms())
def test_internal_identity_is_the_digest_of_its_canonical_body(leaves: list[bytes], chance: random.Random) -> None:
    """The body written out by hand is the canonical JSON, in whatever order the leaves come."""
    names = ("Zoë", 'quo"te', "user_42")
    body = {"schema": 1, "node_type": INTERNAL, "participants": list(names), "leaves": sorted(x.hex() for x in leaves)}
    shuffled = list(leaves)
    chance.shuffle(shuffled)
    assert internal_node_id(names, b"".join(shuffled)) == digest(body)


_TEXT = st.text()
_RECORD = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT | st.binary(max_size=9),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(_TEXT, inner),
    max_leaves=12,
)


@given(_RECORD)
def test_the_quick_digest_is_the_digest(value: Any) -> None:
    """Texts of any characters, large integers, bytes and nesting have the same canonical bytes either way."""
    assert quick_digest(value) == digest(value)


def test_leaf_identity_is_its_scope_and_set_of_events() -> None:
    """Order does not matter; participants and members do."""
    one = leaf_node_id(SCOPE, ["evt_a", "evt_b"])
    assert one == leaf_node_id(SCOPE, ["evt_b", "evt_a"])
    assert one != leaf_node_id(("ana",), ["evt_a", "evt_b"])
    assert one != leaf_node_id(SCOPE, ["evt_a"])


def test_rendering_identity_covers_everything_shown() -> None:
    """Each of label, summary, metadata, level and children changes the rendering."""
    body: dict[str, Any] = {
        "node_id": b"n" * 32,
        "level": 3,
        "label": "l",
        "summary": "s",
        "metadata": {"a": 1},
        "children": [b"c"],
    }
    base = rendering_id(**body)
    for field, value in [
        ("node_id", b"m" * 32),
        ("level", 4),
        ("label", "L"),
        ("summary", "S"),
        ("metadata", {"a": 2}),
        ("children", [b"d"]),
    ]:
        assert rendering_id(**{**body, field: value}) != base


def test_topic_id_follows_its_anchor() -> None:
    """A topic is named by its scope, kind, height and oldest arrival; the form is fixed."""
    one = topic_id(SCOPE, LEAF, 0, "evt_a")
    assert one.startswith("top_")
    assert len(one) == 36
    others = [
        topic_id(("ana",), LEAF, 0, "evt_a"),
        topic_id(SCOPE, INTERNAL, 0, "evt_a"),
        topic_id(SCOPE, LEAF, 0, "e"),
    ]
    assert len({one, *others}) == 4


def test_arrival_changes_topics_and_not_renderings() -> None:
    """The order of arrival shows in topic ids and anchors alone."""
    events = [
        PlanEvent(event_seq=n, event_id=f"evt_{n}", key=key_of(f"evt_{n}"), timestamp=n * 10**6, text=f"kiln {n}")
        for n in range(30)
    ]
    turned = [replace(event, event_seq=100 - event.event_seq) for event in events]
    first, second = plan_unit(SCOPE, events, SETTINGS), plan_unit(SCOPE, turned, SETTINGS)
    assert [node.rendering_id for node in first] == [node.rendering_id for node in second]
    assert first[-1].topic_id != second[-1].topic_id
    assert (first[-1].anchor_event_id, second[-1].anchor_event_id) == ("evt_0", "evt_29")


async def test_topic_ids_are_unique_within_a_tree() -> None:
    """No two nodes of one tree share a topic id, a node id or a rendering."""
    events = [
        PlanEvent(
            event_seq=n,
            event_id=f"evt_{n}",
            key=key_of(f"evt_{n}"),
            timestamp=n // 40 * 10**10 + n * 10**6,
            text="kiln",
        )
        for n in range(3000)
    ]
    _, nodes = await plan_scope(SCOPE, events, SETTINGS)
    for field in ("topic_id", "node_id", "rendering_id"):
        assert len({getattr(node, field) for node in nodes}) == len(nodes)
