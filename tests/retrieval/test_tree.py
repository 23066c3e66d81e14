"""Assembling bounded, rooted answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from myria.search.tree import MAX_SKIPPED, Assembled, Leafward, Room, assemble, cost_of

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
    return cost_of({**node, "children": []} if "children" in node else node).tokens


def _hit(number: int, size: int, pick: int, *, short: int | None) -> Leafward:
    """Return a hit with a text of so many characters, and perhaps a shorter form."""
    event = _event(number, "event_ref" if PATHS[pick] else "event")
    made: Callable[[], Json] | None = None if short is None else partial(dict, event, text="é" * short, truncated=True)
    return Leafward(event={**event, "text": "é" * size}, path=PATHS[pick], shortened=made)


def _all_pages(hits: list[Leafward], room: Room) -> list[Assembled]:
    """Return every page, each of which must take something."""
    found: list[Assembled] = []
    at = 0
    while at < len(hits):
        found.append(assemble(hits[at:], room, topics=TOPICS, asked_by=["ann"]))
        assert found[-1].taken > 0
        at += found[-1].taken
    return found


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from([0, 5, 50, 300, 5_000]),
            st.sampled_from(range(len(PATHS))),
            st.sampled_from([None, 3, 40]),
        ),
        max_size=25,
    ),
    nodes=st.integers(1, 20),
    tokens=st.one_of(st.none(), st.integers(1, 1500)),
    size=st.one_of(st.none(), st.integers(1, 6000)),
)
def test_every_hit_is_reached_whatever_the_bounds(
    events: list[tuple[int, int, int | None]], nodes: int, tokens: int | None, size: int | None
) -> None:
    """Page after page, each hit is shown whole, shown shortened, or skipped by name: once, and in order of pages."""
    hits = [_hit(number, size, pick, short=short) for number, (size, pick, short) in enumerate(events)]
    room = Room(nodes=nodes, tokens=tokens, size=size)
    reached: list[int] = []
    for page in _all_pages(hits, room):
        shown = [node for _, node in _walk(page.root) if "event_seq" in node]
        said = [int(event_id.removeprefix("evt_")) for event_id in page.skipped]
        assert len(said) <= MAX_SKIPPED
        reached += sorted([node["event_seq"] for node in shown] + said)
        if shown and size is not None:
            assert len(orjson.dumps([page.root, page.skipped])) <= size
        for node in shown:
            whole = hits[node["event_seq"]].event
            assert node == whole or node["truncated"]
    assert reached == list(range(len(hits)))


def test_a_hit_is_shortened_only_where_it_fits_on_no_page() -> None:
    """What is too big for the rest of a page waits for the next; what is too big for any is shortened in its place."""
    hits = [_hit(0, 100, 5, short=3), _hit(1, 300, 5, short=3), _hit(2, 9_000, 5, short=3), _hit(3, 10, 5, short=3)]
    pages = _all_pages(hits, Room(nodes=60, size=1000))

    shown = [[node for _, node in _walk(page.root) if "event_seq" in node] for page in pages]
    assert [[node["event_seq"] for node in page] for page in shown] == [[0], [1, 2], [3]] or [
        [node["event_seq"] for node in page] for page in shown
    ] == [[0], [1, 2, 3]]
    assert [node["event_seq"] for page in shown for node in page if node.get("truncated")] == [2]


def test_topics_with_one_child_are_left_out() -> None:
    """Between a scope's root and a leaf only the topics where hits part are shown."""
    hits = [Leafward(event=_event(1), path=PATHS[0]), Leafward(event=_event(2), path=PATHS[2])]

    root = assemble(hits, Room(nodes=60), topics=TOPICS, asked_by=["ann"]).root

    (scope_root,) = root["children"]
    (march,) = scope_root["children"]
    assert march["topic_id"] == "march"
    assert [leaf["topic_id"] for leaf in march["children"]] == ["leaf1", "leaf3"]


def test_an_empty_answer_carries_who_asked() -> None:
    """A root without children carries the query's participants."""
    root = assemble([], Room(nodes=5), topics={}, asked_by=["ann"]).root

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

    room = Room(nodes=max_nodes, depth=max_depth, tokens=max_tokens)
    answer = assemble(hits, room, topics=TOPICS, asked_by=["ann"])

    nodes = _walk(answer.root)
    assert len(nodes) <= max_nodes
    assert len(nodes) == answer.nodes
    if max_depth is not None:
        assert max(depth for depth, _ in nodes) <= max_depth
    shown = [node["event_seq"] for _, node in nodes if "event_seq" in node]
    if not answer.cut_by_depth:
        said = [int(event_id.removeprefix("evt_")) for event_id in answer.skipped]
        assert sorted(shown + said) == list(range(answer.taken))
    if max_tokens is not None and answer.placed:
        assert sum(_own_tokens(node) for _, node in nodes) <= max_tokens + 40


@given(picks=st.lists(st.sampled_from(range(len(PATHS))), max_size=30))
def test_every_event_hangs_under_its_own_leaf(picks: list[int]) -> None:
    """No bound in the way, each event is a child of the last topic of its path, fresh ones of the root."""
    hits = [Leafward(event=_event(number), path=PATHS[pick]) for number, pick in enumerate(picks)]

    root = assemble(hits, Room(nodes=500), topics=TOPICS, asked_by=["ann"]).root

    parents = {
        child["event_seq"]: node
        for _, node in _walk(root)
        for child in node.get("children", ())
        if "event_seq" in child
    }
    for number, pick in enumerate(picks):
        expected = PATHS[pick][-1].decode() if PATHS[pick] else None
        assert parents[number].get("topic_id") == expected
