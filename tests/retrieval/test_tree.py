"""Assembling bounded, rooted answers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from myria.retrieval.tree import Leafward, assemble, estimated_tokens

Json = dict[str, Any]


def _topic(name: str, kind: str) -> Json:
    return {"kind": kind, "topic_id": name, "participants": ["ann", "bob"], "label": name}


def _event(number: int, kind: str = "event_ref") -> Json:
    return {"kind": kind, "event_id": f"evt_{number}", "event_seq": number, "participants": ["ann", "bob"]}


def _walk(node: Json, depth: int = 0) -> list[tuple[int, Json]]:
    return [(depth, node)] + [pair for child in node.get("children", ()) for pair in _walk(child, depth + 1)]


PATHS = [
    (b"root", b"march", b"session1", b"leaf1"),
    (b"root", b"march", b"session1", b"leaf2"),
    (b"root", b"march", b"session2", b"leaf3"),
    (b"root", b"april", b"leaf4"),
    (b"alone",),
    (),
]
TOPICS = {
    name: _topic(name.decode(), "leaf_topic" if name.startswith((b"leaf", b"alone")) else "internal_topic")
    for path in PATHS
    for name in path
}


def _own_tokens(node: Json) -> int:
    """Return what a node costs without those below it."""
    return estimated_tokens({**node, "children": []} if "children" in node else node)


def test_topics_with_one_child_are_left_out() -> None:
    """Between a scope's root and a leaf only the topics where hits part are shown."""
    hits = [Leafward(event=_event(1), path=PATHS[0]), Leafward(event=_event(2), path=PATHS[2])]

    root = assemble(hits, topics=TOPICS, asked_by=["ann"], max_nodes=60, max_depth=None, max_tokens=None).root

    (scope_root,) = root["children"]
    (march,) = scope_root["children"]
    assert march["topic_id"] == "march"
    assert [leaf["topic_id"] for leaf in march["children"]] == ["leaf1", "leaf3"]


def test_an_empty_answer_carries_who_asked() -> None:
    """A root without children carries the query's participants."""
    root = assemble([], topics={}, asked_by=["ann"], max_nodes=5, max_depth=None, max_tokens=None).root

    assert root == {"kind": "root", "label": "query_result", "participants": ["ann"], "children": []}


@given(
    picks=st.lists(st.sampled_from(range(len(PATHS))), max_size=30),
    max_nodes=st.integers(1, 40),
    max_depth=st.one_of(st.none(), st.integers(1, 6)),
    max_tokens=st.one_of(st.none(), st.integers(100, 2000)),
)
def test_bounds_hold_and_the_answer_is_a_prefix(
    picks: list[int], max_nodes: int, max_depth: int | None, max_tokens: int | None
) -> None:
    """Whatever is asked, nodes, depth and tokens stay within bounds, and exactly a prefix of the hits is placed."""
    hits = [
        Leafward(event=_event(number, "event_ref" if PATHS[pick] else "event"), path=PATHS[pick])
        for number, pick in enumerate(picks)
    ]

    answer = assemble(
        hits, topics=TOPICS, asked_by=["ann"], max_nodes=max_nodes, max_depth=max_depth, max_tokens=max_tokens
    )

    nodes = _walk(answer.root)
    assert len(nodes) <= max_nodes
    assert len(nodes) == answer.nodes
    if max_depth is not None:
        assert max(depth for depth, _ in nodes) <= max_depth
    shown = [node["event_seq"] for _, node in nodes if "event_seq" in node]
    if not answer.cut_by_depth:
        assert sorted(shown) == list(range(answer.placed))
    if max_tokens is not None and answer.placed:
        assert sum(_own_tokens(node) for _, node in nodes) <= max_tokens + 40


@given(picks=st.lists(st.sampled_from(range(len(PATHS))), max_size=30))
def test_every_event_hangs_under_its_own_leaf(picks: list[int]) -> None:
    """No bound in the way, each event is a child of the last topic of its path, fresh ones of the root."""
    hits = [Leafward(event=_event(number), path=PATHS[pick]) for number, pick in enumerate(picks)]

    root = assemble(hits, topics=TOPICS, asked_by=["ann"], max_nodes=500, max_depth=None, max_tokens=None).root

    parents = {
        child["event_seq"]: node
        for _, node in _walk(root)
        for child in node.get("children", ())
        if "event_seq" in child
    }
    for number, pick in enumerate(picks):
        expected = PATHS[pick][-1].decode() if PATHS[pick] else None
        assert parents[number].get("topic_id") == expected
