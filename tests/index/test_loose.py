"""The loose lane: appending, keeping, and readers that are never disturbed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from myria.index import MAX_DOCS, Corpus, Doc, LooseBlock, Timeline


def _doc(seq: int, timestamp: int | None = None) -> Doc:
    return Doc(
        event_seq=seq,
        timestamp=seq if timestamp is None else timestamp,
        terms=[f"w{seq % 7}", "all"],
        channel="c",
        xid=seq * 10,
        leaf=5,
    )


@given(st.lists(st.integers(1, 40), max_size=12))
def test_appending_in_steps_loses_nothing(steps: list[int]) -> None:
    """Whatever the steps, every document is there once, with its transaction; older blocks stay as they were."""
    block, total = LooseBlock(), 0
    for step in steps:
        before, seen = block, block.seq.tolist()
        block = block.extended(_doc(at) for at in range(total, total + step))
        total += step
        assert before.seq.tolist() == seen
    assert sorted(block.seq.tolist()) == list(range(total))
    assert (block.xid == block.seq * 10).all()
    assert len(block) == total


def test_few_blocks_stand_beside_each_other() -> None:
    """Single appends do not leave a heap of small blocks, and a full block is never copied again."""
    block = LooseBlock()
    for at in range(500):
        block = block.extended([_doc(at)])
    assert len(block.views) <= 10
    block = LooseBlock().extended(_doc(at) for at in range(MAX_DOCS + 5))
    first = block.views[0]
    assert block.extended([_doc(99_999)]).views[0] is first


@given(st.integers(0, 60), st.integers(0, 60))
def test_keeping(size: int, cut: int) -> None:
    """What is kept is what the mask says; keeping everything copies nothing."""
    block = LooseBlock()
    for at in range(size):
        block = block.extended([_doc(at)])
    kept = block.kept(block.seq >= cut)
    assert sorted(kept.seq.tolist()) == list(range(min(cut, size), size))
    assert (kept.xid == kept.seq * 10).all()
    assert block.kept(np.ones(size, dtype=np.bool_)) is block


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30))
def test_one_line_of_time(stamps: list[tuple[int, bool]]) -> None:
    """However documents are spread and hidden, a timeline is the visible ones in (timestamp, event_seq) order."""
    block = LooseBlock()
    for at, (stamp, _) in enumerate(stamps):
        block = block.extended([_doc(at, stamp)])
    shown = np.array([stamps[seq][1] for seq in block.seq.tolist()], dtype=np.bool_)
    timeline = Timeline.of(Corpus(participants=("a",), tail=block, tail_mask=shown))
    expected = sorted((stamp, at) for at, (stamp, visible) in enumerate(stamps) if visible)
    assert list(zip(timeline.timestamp.tolist(), timeline.seq.tolist(), strict=True)) == expected
    for at in range(len(timeline)):
        view = block.views[int(timeline.view[at])]
        assert view.seq[int(timeline.doc[at])] == timeline.seq[at]
        assert timeline.places[int(timeline.view[at])][int(timeline.doc[at])] == at
