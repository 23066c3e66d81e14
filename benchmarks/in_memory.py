"""A log in memory, without a database: planned by the real planner, with vectors, and plain BM25 beside it."""

from __future__ import annotations

import asyncio
import hashlib
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from myria.index import BlockNode, Corpus, Doc, build, decode
from myria.index.embeddings.local import LocalModel
from myria.index.vectors import Near, VectorRows
from myria.log.payloads import dedupe_key, searchable_text, speaker_of
from myria.search.plan import meaning
from myria.search.question import Question
from myria.settings.planner import PlannerSettings
from myria.text import terms
from myria.topics.model import Node, PlanEvent
from myria.topics.scope_plan import plan_scope

K1 = 1.5
B = 0.75
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's default list. The product's longer one also drops "I" and "my", which costs BM25 a tenth of its MRR on
agents' chats, where most answers are the user's own words."""

_LONGEST_S = 3_600.0
_AT_ONCE = 128

Rows = Sequence[tuple[int, Mapping[str, Any]]]
"""Arguments of append_event, each with its number."""


def indexed(scope: tuple[str, ...], rows: Rows) -> Corpus:
    """Return the corpus of one scope whose events the real planner planned."""
    root, nodes = asyncio.run(plan_scope(scope, _plan_events(rows), PlannerSettings()))
    assert root is not None
    ordered = _parents_first(root.rendering_id, nodes)
    at = {node.rendering_id: position for position, node in enumerate(ordered)}
    above = {child: node.rendering_id for node in ordered for child in node.children}
    leaf_of = {ref.event_seq: at[node.rendering_id] for node in ordered for ref in node.refs}
    block_nodes = [
        BlockNode(
            rendering_id=node.rendering_id,
            parent=at[above[node.rendering_id]] if node.rendering_id in above else -1,
            level=node.level,
        )
        for node in ordered
    ]
    docs = [
        Doc.of_payload(
            event["payload"],
            event_seq=number,
            timestamp=_microseconds(event["timestamp"]),
            channel=event["channel"],
            type=event["type"],
            leaf=leaf_of.get(number, -1),
        )
        for number, event in rows
    ]
    return Corpus(participants=scope, blocks=(decode(build(docs, block_nodes)),))


class Meanings:
    """Vectors of texts by the local model, each computed once and kept in a file between runs.

    Args:
        texts: those of all documents of a corpus, by event_seq.
        file: where vectors are kept.
    """

    def __init__(self, texts: Mapping[int, str], file: Path) -> None:
        self._model = LocalModel.installed()
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._open()) as kept, kept:
            kept.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")
        vectors = self._of(list(texts.values()))
        made = [(seq, vector) for seq, vector in zip(texts, vectors, strict=True) if vector is not None]
        self._rows = VectorRows.of(made, len(made[0][1]))

    def near(self, question: Question, corpus: Corpus) -> Near | None:
        """Return what a question is compared with."""
        vector = self._of([meaning(question, corpus)])[0]
        if vector is None:
            return None
        return Near(question=vector, documents=self._rows)

    def _of(self, texts: Sequence[str]) -> list[bytes | None]:
        vectors: list[bytes | None] = []
        for at in range(0, len(texts), _AT_ONCE):
            vectors += self._some(texts[at : at + _AT_ONCE])
        return vectors

    def _some(self, texts: Sequence[str]) -> list[bytes | None]:
        keys = [hashlib.sha256(f"{self._model.name}\n{text}".encode()).digest() for text in texts]
        with closing(self._open()) as kept:
            asked = ",".join("?" * len(keys))
            known = dict(kept.execute(f"SELECT text, vector FROM vectors WHERE text IN ({asked})", keys))  # noqa: S608
            new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
            if new:
                computed = asyncio.run(self._model.embed(list(new.values()), within_s=_LONGEST_S))
                known |= zip(new, computed, strict=True)
                with kept:
                    kept.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", [(key, known[key]) for key in new])
        return [known[key] for key in keys]

    def _open(self) -> sqlite3.Connection:
        # two processes write: one waits for the other's short transactions
        return sqlite3.connect(self._file, timeout=60.0)


class Bm25:
    """Ranks the texts of one log.

    Args:
        texts: what was said, by number.
    """

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._lengths: dict[int, int] = {}
        for number, text in texts.items():
            words = Counter(_words(text))
            self._lengths[number] = words.total()
            for word, times in words.items():
                self._postings[word].append((number, times))
        self._mean = max(1, sum(self._lengths.values())) / max(1, len(self._lengths))

    def first(self, question: str, limit: int) -> tuple[int, ...]:
        """Return the numbers of the best texts, best first; those that share no word with the question are not among
        them.
        """
        scores: dict[int, float] = defaultdict(float)
        for word in set(_words(question)):
            found = self._postings.get(word, ())
            rarity = math.log(1 + (len(self._lengths) - len(found) + 0.5) / (len(found) + 0.5))
            for number, times in found:
                length = 1 - B + B * self._lengths[number] / self._mean
                scores[number] += rarity * times * (K1 + 1) / (times + K1 * length)
        return tuple(sorted(scores, key=lambda number: (-scores[number], number))[:limit])


def _words(text: str) -> list[str]:
    return [word for word in terms(text) if word not in STOP_WORDS]


def _plan_events(rows: Rows) -> list[PlanEvent]:
    """Return a scope's events as the planner sees them, in order."""
    return sorted(
        (
            PlanEvent(
                event_seq=number,
                event_id=f"evt_{number:026d}",
                key=dedupe_key(event["channel"], event["source_event_key"]),
                timestamp=_microseconds(event["timestamp"]),
                type=event["type"],
                text=searchable_text(event["payload"]),
                speaker=speaker_of(event["payload"]),
            )
            for number, event in rows
        ),
        key=lambda event: event.position,
    )


def _parents_first(root: bytes, nodes: Sequence[Node]) -> list[Node]:
    known = {node.rendering_id: node for node in nodes}
    ordered = [known[root]]
    for node in ordered:
        ordered.extend(known[child] for child in node.children)
    return ordered


def _microseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp()) * 1_000_000
