"""Nodes as a plan of subjects keeps them."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields
from typing import Any

from myria.topics.model import Node
from myria.topics.subjects.packing import PackedMetadata, packed

_LEFT_OUT = {"refs": (), "children": (), "child_leaves": ()}


def test_a_packed_node_keeps_all_but_its_events_and_children() -> None:
    """Whatever fields a node has, also those it will have: each is kept as it is, events and children aside."""
    given: dict[str, Any] = {field.name: object() for field in fields(Node)} | {
        "metadata": {"names": ["a"], "filed": 1}
    }
    node = packed(Node(**given))
    assert {field.name: getattr(node, field.name) for field in fields(Node)} == {
        **given,
        **_LEFT_OUT,
        "metadata": {"names": ["a"]},
    }


def test_packed_metadata_take_little_more_memory_than_their_text() -> None:
    """Thousands are held: no one keeps the room that its text was written in."""
    metadata = {"keywords": [[f"word {number}", number] for number in range(12)]}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        held = [PackedMetadata(metadata) for _ in range(500)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dict(held[-1]) == metadata
    assert (after - before) / len(held) < 1_000
