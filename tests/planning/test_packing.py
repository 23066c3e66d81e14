"""Nodes as a plan of subjects keeps them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from myria.planning.model import Node
from myria.planning.subjects.packing import packed

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
