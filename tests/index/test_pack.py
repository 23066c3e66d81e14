"""Packs: many small scopes searched as one view give what their blocks give one by one, byte for byte."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.errors import InternalError
from myria.index import BlockNode, Corpus, Doc, LooseBlock, ScopeTable, View, build, decode, pack
from myria.log.payloads import TopicHint
from myria.search.question import Question
from myria.search.ranking import Filters, Key, rank
from tests.support.counts import examples

MINUTE = 60_000_000
START = 1_700_000_000_000_000
WORDS = ("paint", "race", "dog", "camp", "lake", "Anna", "Bob", "May", "yesterday", "great?", "tea", "boat")
NAMES = ("Anna", "Bob", "Carla Diaz", "Carla Stein", "agent", "Will")


@dataclass(frozen=True, kw_only=True)
class Log:
    """One random log: the events of each scope in its tree, in the tail, and internal ones."""

    participants: dict[int, tuple[str, ...]]
    trees: dict[int, list[Doc]]
    tails: dict[int, list[Doc]]
    internal: dict[int, list[Doc]]


def _log(rng: random.Random) -> Log:
    scopes = {number: tuple(sorted(rng.sample(NAMES, rng.randint(1, 4)))) for number in rng.sample(range(1, 99), 9)}
    log = Log(participants=scopes, trees={}, tails={}, internal={})
    for scope_id in scopes:
        for lane in (log.trees, log.tails, log.internal):
            if rng.random() < 0.7:
                lane[scope_id] = []
    sequence = rng.sample(range(1, 10_000), 400)
    for lane in (log.trees, log.tails, log.internal):
        for scope_id in lane:
            lane[scope_id] = [_doc(rng, sequence.pop(), scope_id) for _ in range(rng.randint(1, 12))]
    return log


def _doc(rng: random.Random, seq: int, scope_id: int) -> Doc:
    return Doc.of_payload(
        {"text": " ".join(rng.choices(WORDS, k=rng.randint(0, 6))), "speaker": rng.choice(("", *NAMES))},
        event_seq=seq,
        timestamp=START + rng.randint(0, 400) * rng.choice((1, 20, 1440)) * MINUTE,
        channel=rng.choice(("chat", "mail")),
        type=rng.choice((None, "message", "task")),
        context_id=rng.choice((None, "x", "y")),
        hints=[("the lake", 700)] if rng.random() < 0.2 else [],
        xid=rng.randint(1, 9),
        scope_id=scope_id,
    )


def _block(docs: Sequence[Doc]) -> bytes:
    """Return a block with a root, units below it and leaves below these."""
    nodes = [BlockNode(rendering_id=docs[0].event_seq.to_bytes(32, "big"), parent=-1, level=30)]
    placed = []
    for at, doc in enumerate(sorted(docs, key=lambda doc: (doc.timestamp, doc.event_seq))):
        if at % 4 == 0:
            nodes.append(BlockNode(rendering_id=(doc.event_seq + 20_000).to_bytes(32, "big"), parent=0, level=8))
            unit = len(nodes) - 1
        if at % 2 == 0:
            nodes.append(BlockNode(rendering_id=(doc.event_seq + 40_000).to_bytes(32, "big"), parent=unit, level=0))
        placed.append(replace(doc, leaf=len(nodes) - 1, xid=0))
    return build(placed, nodes)


def _corpus(log: Log, trees: Sequence[tuple[View, Any]], *, hidden: int, internal: bool) -> Corpus:
    """Return a log with trees as they are given; loose events of transactions from `hidden` on are not visible."""
    ids = np.array(sorted(log.participants), dtype=np.int64)
    tail, inside = LooseBlock(), LooseBlock()
    for docs in log.tails.values():
        tail = tail.extended(docs)
    for docs in log.internal.values():
        inside = inside.extended(docs if internal else [])
    return Corpus(
        table=ScopeTable(ids=ids, participants=tuple(log.participants[one] for one in ids.tolist())),
        blocks=tuple(one for one, _ in trees),
        block_masks=tuple(mask for _, mask in trees),
        tail=tail,
        tail_mask=tail.xid < hidden,
        internal=inside,
        internal_mask=inside.xid < hidden,
    )


def _blocks(log: Log) -> list[tuple[View, Any]]:
    """Return the block of each scope."""
    views = [(scope_id, decode(_block(docs))) for scope_id, docs in sorted(log.trees.items())]
    return [(replace(view, scope_id=np.full(len(view), scope_id)), None) for scope_id, view in views]


def _packs(log: Log, rng: random.Random) -> list[tuple[View, Any]]:
    """Return the same as packs, made and masked at random."""
    blocks = [(scope_id, _block(docs)) for scope_id, docs in log.trees.items()]
    rng.shuffle(blocks)
    packs: list[tuple[View, Any]] = []
    while blocks:
        count = rng.randint(1, len(blocks))
        part, blocks = blocks[:count], blocks[count:]
        stale = [(scope_id, _block([_doc(rng, 77_777, scope_id)])) for scope_id, _ in blocks[:2]]
        packed = pack([*part, *stale])
        mask = ~np.isin(packed.scope_id, [scope_id for scope_id, _ in stale])
        packs.append((packed, None if mask.all() else mask))
    return packs


def _facts(corpus: Corpus, question: Question, **rest: Any) -> list[Any]:
    """Return what a ranking says, without where in memory it found it; and the path of each hit."""
    rows = []
    for hit in rank(question, corpus, **rest).hits:
        view, _ = corpus.parts[hit.view]
        assert view.seq[hit.doc] == hit.event_seq
        path = view.path(hit.doc) if hit.view < len(corpus.blocks) else ()
        rows.append((hit.event_seq, hit.timestamp, hit.score, path))
    return rows


QUESTION = st.lists(
    st.sampled_from((*WORDS, *NAMES, "in November 2023", "when", "Carla", "what did", "said")), max_size=5
)


@settings(max_examples=examples(120), deadline=None)
@given(
    st.integers(0, 2**32), QUESTION, st.sampled_from(["relevance", "newest", "oldest"]), st.booleans(), st.booleans()
)
def test_packs_give_what_single_blocks_give(
    seed: int, words: list[str], order: Any, hinted: bool, filtered: bool
) -> None:
    """Over random logs: the same hits, the same integer scores, the same paths, with filters and on every page."""
    rng = random.Random(seed)
    log = _log(rng)
    hidden, internal = rng.randint(1, 12), rng.random() < 0.5
    question = Question(text=" ".join(words), topic_hints=(TopicHint(hint="lake", confidence=0.5),) if hinted else ())
    filters = Filters()
    if filtered:
        filters = Filters(
            channel=rng.choice((None, "chat")),
            types=rng.choice(((), ("task", "message"))),
            context_id=rng.choice((None, "x")),
            since=rng.choice((None, START + 30 * MINUTE)),
            until=rng.choice((None, START + 5_000 * MINUTE)),
        )
    asked: dict[str, Any] = {"order": order, "filters": filters, "limit": rng.choice((3, 1000))}
    plain = _corpus(log, _blocks(log), hidden=hidden, internal=internal)
    packed = _corpus(log, _packs(log, rng), hidden=hidden, internal=internal)
    first = _facts(plain, question, **asked)
    assert _facts(packed, question, **asked) == first
    if first:
        seq, timestamp, score, _ = first[-1]
        after = Key(score=score, timestamp=timestamp, event_seq=seq)
        assert _facts(packed, question, **asked, after=after) == _facts(plain, question, **asked, after=after)


@pytest.mark.parametrize("position", [0, 4, 40, 112, 300, -1])
def test_damage_is_said(position: int) -> None:
    """A damaged block among sound ones is refused with the coded error, or changes nothing that is looked at."""
    rng = random.Random(5)
    blocks = [(number, _block([_doc(rng, number * 10 + at, number) for at in range(5)])) for number in range(1, 5)]
    sound = pack(blocks)
    raw = bytearray(blocks[2][1])
    raw[position] ^= 0xFF
    try:
        damaged = pack([*blocks[:2], (3, bytes(raw)), blocks[3]])
    except InternalError:
        return
    assert len(damaged) == len(sound)


@pytest.mark.parametrize("cut", [8, 100, 120])
def test_a_cut_block_is_refused(cut: int) -> None:
    """A block that lost its end, or all but a part of its header, is refused."""
    rng = random.Random(6)
    raw = _block([_doc(rng, at, 1) for at in range(1, 5)])
    with pytest.raises(InternalError, match="damaged"):
        pack([(1, raw[:-cut]), (2, raw)])
    with pytest.raises(InternalError, match="damaged"):
        pack([(1, raw[:cut]), (2, raw)])


@pytest.mark.parametrize(("question", "apart"), [("What did Anna paint, a dog?", 0), ("Anna paint dog", 19)])
def test_ranking_takes_no_numpy_call_per_scope(monkeypatch: pytest.MonkeyPatch, question: str, apart: int) -> None:
    """Ten times as many scopes are laid out and ranked with as many calls into numpy.

    Asked how something is, a few more or fewer: of what may have replaced the best hit, some statements are looked at.
    """
    calls = _counted(monkeypatch)
    taken = []
    for scopes in (40, 400):
        rng = random.Random(7)
        blocks = [
            (number, _block([_doc(rng, number * 10 + at, number) for at in range(4)])) for number in range(scopes)
        ]
        table = ScopeTable(ids=np.arange(scopes), participants=(("Anna", "Bob"),) * scopes)
        corpus = Corpus(table=table, blocks=(pack(blocks),))
        calls.clear()
        assert len(rank(Question(text=question), corpus, limit=4 * scopes).hits) > scopes
        taken.append(calls.total())
    assert taken[0] > 20
    assert abs(taken[0] - taken[1]) <= apart


def _counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count calls of those functions of numpy that the index and the ranking use."""
    calls: Counter[str] = Counter()
    for name in (
        "frombuffer",
        "repeat",
        "cumsum",
        "arange",
        "flatnonzero",
        "concatenate",
        "argsort",
        "lexsort",
        "where",
    ):
        original = getattr(np, name)

        def counting(*arguments: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
            calls[_name] += 1
            return _original(*arguments, **named)

        monkeypatch.setattr(np, name, counting)
    return calls


def test_postings_are_sorted_by_their_ids() -> None:
    """Packed, each term has the documents that its blocks give it."""
    rng = random.Random(8)
    blocks = [(number, _block([_doc(rng, number * 100 + at, number) for at in range(30)])) for number in range(1, 9)]
    wanted: dict[int, Counter[int]] = {}
    for _, raw in blocks:
        view = decode(raw)
        for at, term in enumerate(view.terms.tolist()):
            places = slice(view.offsets[at], view.offsets[at + 1])
            counts = dict(
                zip(view.seq[view.posting_doc[places]].tolist(), view.posting_tf[places].tolist(), strict=True)
            )
            wanted.setdefault(term, Counter()).update(counts)
    packed = pack(blocks)
    assert packed.terms.tolist() == sorted(wanted)
    for at, term in enumerate(packed.terms.tolist()):
        places = slice(packed.offsets[at], packed.offsets[at + 1])
        seqs = packed.seq[packed.posting_doc[places]].tolist()
        assert dict(zip(seqs, packed.posting_tf[places].tolist(), strict=True)) == wanted[term]
