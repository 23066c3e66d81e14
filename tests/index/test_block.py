"""Search blocks: what goes in comes out, the same documents are the same bytes, damage is noticed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.errors import InternalError
from myria.index import MAX_DOCS, BlockNode, Doc, Piece, build, decode, splice
from myria.text import term_id
from tests.support.counts import examples

NODES = [
    BlockNode(rendering_id=b"u" * 32, parent=-1, level=8),
    BlockNode(rendering_id=b"a" * 32, parent=0, level=0),
    BlockNode(rendering_id=b"b" * 32, parent=0, level=0),
    BlockNode(rendering_id=b"c" * 32, parent=-1, level=0),
]
NAME = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
DOC = st.builds(
    Doc,
    event_seq=st.integers(1, 10**12),
    timestamp=st.integers(-(10**17), 10**17),
    terms=st.lists(st.sampled_from(["race", "paint", "dog", "京都", "2023"]), max_size=8),
    channel=NAME,
    speaker=st.none() | NAME,
    type=st.none() | NAME,
    context_id=st.none() | NAME,
    hints=st.lists(st.tuples(st.sampled_from(["adoption agency", "race", "…"]), st.integers(0, 1000)), max_size=2),
    asks=st.booleans(),
    leaf=st.sampled_from([-1, 1, 2, 3]),
    xid=st.integers(0, 10**15),
)

DOCS = st.lists(DOC, max_size=12, unique_by=lambda doc: doc.event_seq)


@given(DOCS)
def test_columns_come_back(docs: list[Doc]) -> None:
    """Every document is found again, in order of time, with its words, names and leaf."""
    view = decode(build(docs, NODES))
    ordered = sorted(docs, key=lambda doc: (doc.timestamp, doc.event_seq))
    assert view.seq.tolist() == [doc.event_seq for doc in ordered]
    assert view.timestamp.tolist() == [doc.timestamp for doc in ordered]
    assert view.xid.tolist() == [doc.xid for doc in ordered]
    assert view.leaf.tolist() == [doc.leaf for doc in ordered]
    assert view.length.tolist() == [len(doc.terms) for doc in ordered]
    assert [view.speakers[code] for code in view.speaker] == [doc.speaker or "" for doc in ordered]
    assert [view.contexts[code] for code in view.context] == [doc.context_id or "" for doc in ordered]
    for at, term in enumerate(view.terms.tolist()):
        start, end = view.offsets[at : at + 2]
        found = dict(zip(view.posting_doc[start:end].tolist(), view.posting_tf[start:end].tolist(), strict=True))
        counts = [sum(term_id(word) == term for word in doc.terms) for doc in ordered]
        assert found == {place: count for place, count in enumerate(counts) if count}
    assert view.raw == build(docs, NODES)


@given(DOCS, st.randoms())
def test_order_of_arrival_does_not_matter(docs: list[Doc], randomness: random.Random) -> None:
    """The same documents give the same bytes in whatever order they are given."""
    shuffled = list(docs)
    randomness.shuffle(shuffled)
    assert build(shuffled, NODES) == build(docs, NODES)


@given(DOCS, st.integers(0, 12), st.randoms())
def test_splicing_equals_building(docs: list[Doc], cut: int, randomness: random.Random) -> None:
    """Documents taken over from older blocks give byte for byte what building from their text gives."""
    old, fresh = docs[:cut], docs[cut:]
    halves = [old[::2], old[1::2]]
    views = [decode(build(half, NODES)) for half in halves]
    pieces = [Piece(view=view, docs=np.array(randomness.sample(range(len(view)), len(view)))) for view in views]
    leaf_of = {doc.event_seq: doc.leaf for doc in docs}
    assert splice(pieces, fresh=fresh, nodes=NODES, leaf_of=leaf_of) == build(docs, NODES)


def test_structure() -> None:
    """A document knows its unit and the renderings above it; one outside the tree has neither."""
    leaves = (1, 2, 3, -1)
    docs = [Doc(event_seq=at, timestamp=at, terms=["a"], channel="c", leaf=leaf) for at, leaf in enumerate(leaves)]
    view = decode(build(docs, NODES))
    assert view.unit.tolist() == [0, 0, 3, -1]
    assert view.path(0) == (b"a" * 32, b"u" * 32)
    assert view.path(2) == (b"c" * 32,)
    assert view.path(3) == ()


@settings(max_examples=examples(300))
@given(st.integers(0, 10**9), st.integers(1, 255))
def test_damage_is_noticed_or_harmless(place: int, flip: int) -> None:
    """A changed byte either is noticed or leaves columns that agree with each other; nothing else is raised."""
    raw = bytearray(build(_sample(20), NODES))
    raw[place % len(raw)] ^= flip
    try:
        view = decode(bytes(raw))
    except InternalError:
        return
    assert view.posting_doc.max() < len(view)
    view.unit  # noqa: B018


@pytest.mark.parametrize("cut", [0, 10, 100, -8, -1])
def test_a_cut_block_is_refused(cut: int) -> None:
    """A block that is not whole, or is longer than it says, is refused."""
    raw = build(_sample(20), NODES)
    with pytest.raises(InternalError):
        decode(raw[:cut])
    with pytest.raises(InternalError):
        decode(raw + bytes(8))


def test_bounds() -> None:
    """More documents than a block holds, and leaves or parents that are not there, are refused."""
    too_many = [Doc(event_seq=at, timestamp=at, terms=[], channel="c") for at in range(MAX_DOCS + 1)]
    with pytest.raises(InternalError):
        build(too_many)
    with pytest.raises(InternalError):
        build(_sample(3), NODES[:1])
    with pytest.raises(InternalError):
        build([], [BlockNode(rendering_id=b"x" * 32, parent=0, level=0)])


def test_size() -> None:
    """A block of 2,048 messages of 25 words takes at most 150 bytes a message."""
    assert len(build(_sample(2048), NODES)) <= 2048 * 150


def _sample(size: int) -> list[Doc]:
    randomness = random.Random(7)
    words = [f"w{at}" for at in range(6000)]
    weights = [1 / (at + 3) for at in range(len(words))]
    return [
        Doc(
            event_seq=at + 1,
            timestamp=at * 30_000_000,
            terms=randomness.choices(words, weights, k=25),
            channel="chat",
            speaker=("Anna", "Bob")[at % 2],
            type="message",
            leaf=1 + at % 3,
        )
        for at in range(size)
    ]
