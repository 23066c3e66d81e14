"""The vector of a question, within a short time or not at all, and those of the events that are searched.

A read never fails for a vector. Those of events are kept between requests and topped up, as events without a tree are:
a request reads those that were written since the last look at the same scopes; what its own snapshot does not see, it
does not count. So pages of one answer compare the same vectors, and no request reads all of them again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg
import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.errors import ModelFailed
from myria.index.block import Ints
from myria.index.embeddings.model import EmbeddingModel
from myria.index.vectors import WHOLE, Near, VectorRows
from myria.search.cache import ByteCache
from myria.search.read_slots import Awaited, ReadSlot
from myria.search.snapshot_view import SnapshotView

logger = logging.getLogger(__name__)

_KEPT: Final = 1_000


class QuestionVectors:
    """Computes vectors of questions, and keeps the last thousand by their text: pages of one answer ask alike.

    Args:
        within_s: seconds after which a question is answered by its words alone.
    """

    def __init__(self, model: EmbeddingModel, *, within_s: float) -> None:
        self._model = model
        self._within_s = within_s
        self._known: OrderedDict[str, bytes | None] = OrderedDict()
        self._computed = 0
        self._failed = 0

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._model.name

    def figures(self) -> dict[str, int]:
        """Return how many vectors were computed and how many failed since the start."""
        return {"computed": self._computed, "failed": self._failed}

    async def close(self) -> None:
        """Close what computes them."""
        await self._model.close()

    def knows(self, text: str) -> bool:
        """Tell whether a question's vector is kept, or that it has none."""
        return text in self._known

    def known(self, text: str) -> bytes | None:
        """Return the vector of a question without computing, None where none is kept."""
        if text in self._known:
            self._known.move_to_end(text)
        return self._known.get(text)

    async def of(self, text: str) -> bytes | None:
        """Return the vector of a question, computed if it is not kept; None if it has none or none came in time."""
        if self.knows(text):
            return self.known(text)
        try:
            vector = (await self._model.embed([text], within_s=self._within_s))[0]
        except ModelFailed as failure:
            self._failed += 1
            logger.info(
                "a question is answered by its words alone: %s",
                failure.message,
                extra={"action": "question_without_vector"},
            )
            return None
        except Exception:
            self._failed += 1
            logger.exception("the vector of a question failed", extra={"action": "question_without_vector"})
            return None
        self._computed += 1
        self._known[text] = vector
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return vector


MOST_VECTORS: Final = 4
"""Vectors of questions that one read waits for; it waits for none after one that failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _HeldVectors:
    """The vectors of `scopes`, complete for all transactions below `settled`; `xid` has the transaction of each row."""

    rows: VectorRows
    xid: Ints
    settled: int
    scopes: Ints


class VectorReader:
    """Loads and keeps the vectors of events, within the cache's bytes.

    Args:
        most: events of the searched scopes beyond which a question is not compared by vectors.
    """

    def __init__(self, cache: ByteCache, questions: QuestionVectors, *, most: int) -> None:
        self._cache = cache
        self._questions = questions
        self._most = most

    async def near(
        self,
        connection: Connection,
        snapshot: SnapshotView,
        text: str,
        *,
        scopes: Ints,
        events: int,
        least: int | None,
        slot: ReadSlot,
    ) -> Near | None:
        """Return a question's vector with those of the searched scopes; None if it is not compared by vectors.

        Args:
            text: the question as it is embedded.
            scopes: the ids of the searched scopes, ascending.
            events: how many visible events these hold.
            least: the nearness, in permille, that makes an event without a word of the question a hit; None: as fits
                the model.

        Raises:
            Awaited: the question is to get its vector first.
        """
        question = self._vector(text, slot) if text and events <= self._most else None
        if question is None:
            return None
        documents = await self._read_scopes(connection, snapshot, scopes, len(question))
        return Near(question=question, documents=documents, least=None if least is None else least * WHOLE // 1000)

    def _vector(self, text: str, slot: ReadSlot) -> bytes | None:
        """Return the vector of a question if this read has waited for it or it is kept, else None.

        Raises:
            Awaited: it is neither, and the read may still wait.
        """
        key = ("vector", text)
        if key in slot.found:
            waited: bytes | None = slot.found[key]
            return waited
        waited_for = [vector for (kind, _), vector in slot.found.items() if kind == "vector"]
        if not self._questions.knows(text) and len(waited_for) < MOST_VECTORS and None not in waited_for:
            raise Awaited(key, lambda _spent_s: self._questions.of(text))
        return self._questions.known(text)

    async def _read_scopes(
        self, connection: Connection, snapshot: SnapshotView, scopes: Ints, dimensions: int
    ) -> VectorRows:
        """Return the vectors of scopes that a request sees, reading only those that are not kept yet."""
        # All who search one scope alone share its vectors.
        whose: Hashable = int(scopes[0]) if len(scopes) == 1 else snapshot.masks
        key = (snapshot.memory, "vectors", self._questions.model, dimensions, whose)
        kept_vectors: _HeldVectors | None = self._cache.get(key)
        if kept_vectors is None or not np.array_equal(kept_vectors.scopes, scopes):
            rows_read = await connection.fetch(
                sql("vectors.of_scopes"), snapshot.tenant, self._questions.model, scopes.tolist()
            )
            kept_vectors = _HeldVectors(
                rows=VectorRows.of((), dimensions), xid=np.zeros(0, dtype=np.int64), settled=0, scopes=scopes
            )
        else:
            rows_read = await connection.fetch(
                sql("vectors.new"), snapshot.tenant, self._questions.model, kept_vectors.settled, scopes.tolist()
            )
        topped_up = _top_up(kept_vectors, rows_read, dimensions, snapshot.now.xmin)
        if topped_up is not kept_vectors:
            self._cache.put(key, topped_up, topped_up.rows.nbytes + topped_up.xid.nbytes + 500)
        is_seen = snapshot.visibility.sees(topped_up.xid)
        return topped_up.rows if bool(is_seen.all()) else topped_up.rows.kept(is_seen)


def _top_up(
    kept_vectors: _HeldVectors, rows_read: Sequence[asyncpg.Record], dimensions: int, oldest_running: int
) -> _HeldVectors:
    """Add new rows to the vectors held; the same object if nothing has changed.

    Args:
        rows_read: rows read since; some may be held already.
        oldest_running: every transaction below it has ended.
    """
    present = set(kept_vectors.rows.seq.tolist()) if rows_read else set()
    new_rows = sorted(
        (row["event_seq"], row["xid"], row["vector"])
        for row in rows_read
        if len(row["vector"]) == dimensions and row["event_seq"] not in present
    )
    newest = max((row["xid"] for row in rows_read), default=0)
    # A transaction that wrote what is seen has its id for good, whatever a crash of PostgreSQL forgets.
    settled = max(kept_vectors.settled, min(oldest_running, newest + 1))
    if not new_rows:
        if settled == kept_vectors.settled and kept_vectors.settled:
            return kept_vectors
        return _HeldVectors(rows=kept_vectors.rows, xid=kept_vectors.xid, settled=settled, scopes=kept_vectors.scopes)
    new_vectors = VectorRows.of([(seq, vector) for seq, _, vector in new_rows], dimensions)
    xid = np.concatenate((kept_vectors.xid, np.array([row_xid for _, row_xid, _ in new_rows], dtype=np.int64)))
    order = np.argsort(np.concatenate((kept_vectors.rows.seq, new_vectors.seq)), kind="stable")
    return _HeldVectors(
        rows=kept_vectors.rows.with_more(new_vectors), xid=xid[order], settled=settled, scopes=kept_vectors.scopes
    )
