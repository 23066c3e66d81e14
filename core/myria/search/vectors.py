"""The vectors of visible events, kept between requests and topped up, as the loose lanes are.

A request reads those that were written since the last look at the same scopes; what its own snapshot does not see, it
does not count. So pages of one answer compare the same vectors, and no request reads all of them again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg
import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints
from myria.index.corpus import Corpus
from myria.index.embeddings.asking import QuestionVectors
from myria.index.vectors import VectorRows
from myria.search.cache import ByteCache
from myria.search.nearness import Near
from myria.search.pin import Pinned
from myria.search.read_slots import Awaited, Turn
from myria.search.scopes import VisibleScope

MOST_VECTORS: Final = 4
"""Vectors of questions that one read waits for; it waits for none after one that failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _HeldVectors:
    """The vectors of some scopes, complete for every transaction below `settled`; `xid` stands beside `rows`."""

    rows: VectorRows
    xid: Ints
    settled: int
    scopes: Ints


class VectorLanes:
    """Loads and keeps the vectors of visible events, within the cache's bytes.

    Args:
        most: visible events beyond which a question is not compared by vectors.
    """

    def __init__(self, cache: ByteCache, questions: QuestionVectors, *, most: int) -> None:
        self._cache = cache
        self._questions = questions
        self._most = most

    def has_room_for(self, events: int) -> bool:
        """Tell whether so many visible events are compared."""
        return events <= self._most

    async def near(
        self,
        connection: Connection,
        pinned: Pinned,
        corpora: Sequence[Corpus],
        owners: Sequence[VisibleScope | None],
        text: str,
        *,
        turn: Turn,
    ) -> Near | None:
        """Return a question's vector with those of the corpora, None where it has none.

        Args:
            owners: the scope of each corpus, None for one that scopes share.
            text: the question as it is embedded.

        Raises:
            Awaited: the question is to get its vector first.
        """
        question = self._vector(text, turn) if text else None
        if question is None:
            return None
        documents = [
            await self._lane(connection, pinned, corpus, owner, len(question))
            for corpus, owner in zip(corpora, owners, strict=True)
        ]
        return Near(question=question, documents=documents)

    def _vector(self, text: str, turn: Turn) -> bytes | None:
        """Return the vector of a question as far as this read has waited for it, or it is known.

        Raises:
            Awaited: it is neither, and the read may wait.
        """
        key = ("vector", text)
        if key in turn.waits.found:
            waited: bytes | None = turn.waits.found[key]
            return waited
        before = turn.waits.of("vector")
        if not self._questions.knows(text) and len(before) < MOST_VECTORS and None not in before:
            raise Awaited(key, lambda _spent_s: self._questions.of(text))
        return self._questions.known(text)

    async def _lane(
        self, connection: Connection, pinned: Pinned, corpus: Corpus, owner: VisibleScope | None, dimensions: int
    ) -> VectorRows:
        whose: Hashable = pinned.masks if owner is None else owner.scope_id
        scopes = corpus.scopes.ids if owner is None else np.array([owner.scope_id], dtype=np.int64)
        key = (pinned.memory, "vectors", self._questions.model, dimensions, whose)
        held: _HeldVectors | None = self._cache.get(key)
        if held is None or not np.array_equal(held.scopes, scopes):
            found = await connection.fetch(
                sql("vectors.of_scopes"), pinned.tenant, self._questions.model, scopes.tolist()
            )
            held = _HeldVectors(
                rows=VectorRows.of((), dimensions), xid=np.zeros(0, dtype=np.int64), settled=0, scopes=scopes
            )
        else:
            found = await connection.fetch(
                sql("vectors.new"), pinned.tenant, self._questions.model, held.settled, scopes.tolist()
            )
        topped_up = _with(held, found, dimensions, pinned.now.xmin)
        if topped_up is not held:
            self._cache.put(key, topped_up, topped_up.rows.nbytes + topped_up.xid.nbytes + 500)
        seen = pinned.visibility.sees(topped_up.xid)
        return topped_up.rows if bool(seen.all()) else topped_up.rows.kept(seen)


def _with(held: _HeldVectors, found: Sequence[asyncpg.Record], dimensions: int, oldest_running: int) -> _HeldVectors:
    """Return what is held with what was found, where that is new."""
    present = set(held.rows.seq.tolist()) if found else set()
    fresh = sorted(
        (row["event_seq"], row["xid"], row["vector"])
        for row in found
        if len(row["vector"]) == dimensions and row["event_seq"] not in present
    )
    newest = max((row["xid"] for row in found), default=0)
    # A transaction that wrote what is seen has its id for good, whatever a crash of PostgreSQL forgets.
    settled = max(held.settled, min(oldest_running, newest + 1))
    if not fresh:
        if settled == held.settled and held.settled:
            return held
        return _HeldVectors(rows=held.rows, xid=held.xid, settled=settled, scopes=held.scopes)
    more = VectorRows.of([(seq, vector) for seq, _, vector in fresh], dimensions)
    xid = np.concatenate((held.xid, np.array([number for _, number, _ in fresh], dtype=np.int64)))
    order = np.argsort(np.concatenate((held.rows.seq, more.seq)), kind="stable")
    return _HeldVectors(rows=held.rows.with_more(more), xid=xid[order], settled=settled, scopes=held.scopes)
