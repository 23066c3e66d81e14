"""The vector of a question, within a short time or not at all, and those of the visible events.

A read never fails for a vector. Those of events are kept between requests and topped up, as events without a tree are:
a request reads those that were written since the last look at the same scopes; what its own snapshot does not see, it
does not count. So pages of one answer compare the same vectors, and no request reads all of them again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
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
        """Return the vector of a question, None where it has none or none came in time."""
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
    """The vectors of some scopes, complete for every transaction below `settled`; `xid` stands beside `rows`."""

    rows: VectorRows
    xid: Ints
    settled: int
    scopes: Ints


class VectorReader:
    """Loads and keeps the vectors of visible events, within the cache's bytes.

    Args:
        most: visible events beyond which a question is not compared by vectors.
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
        events: int,
        least: int | None,
        slot: ReadSlot,
    ) -> Near | None:
        """Return a question's vector with those of the visible events, None where it is not compared.

        Args:
            text: the question as it is embedded.
            events: how many are searched.
            least: how near an event must be that holds no word of the question, in permille; None: as the model is.

        Raises:
            Awaited: the question is to get its vector first.
        """
        question = self._vector(text, slot) if text and events <= self._most else None
        if question is None:
            return None
        documents = await self._visible(connection, snapshot, len(question))
        return Near(question=question, documents=documents, least=None if least is None else least * WHOLE // 1000)

    def _vector(self, text: str, slot: ReadSlot) -> bytes | None:
        """Return the vector of a question as far as this read has waited for it, or it is known.

        Raises:
            Awaited: it is neither, and the read may wait.
        """
        key = ("vector", text)
        if key in slot.found:
            waited: bytes | None = slot.found[key]
            return waited
        before = [vector for (kind, _), vector in slot.found.items() if kind == "vector"]
        if not self._questions.knows(text) and len(before) < MOST_VECTORS and None not in before:
            raise Awaited(key, lambda _spent_s: self._questions.of(text))
        return self._questions.known(text)

    async def _visible(self, connection: Connection, snapshot: SnapshotView, dimensions: int) -> VectorRows:
        scopes = snapshot.visible.ids
        key = (snapshot.memory, "vectors", self._questions.model, dimensions, snapshot.masks)
        held: _HeldVectors | None = self._cache.get(key)
        if held is None or not np.array_equal(held.scopes, scopes):
            found = await connection.fetch(
                sql("vectors.of_scopes"), snapshot.tenant, self._questions.model, scopes.tolist()
            )
            held = _HeldVectors(
                rows=VectorRows.of((), dimensions), xid=np.zeros(0, dtype=np.int64), settled=0, scopes=scopes
            )
        else:
            found = await connection.fetch(
                sql("vectors.new"), snapshot.tenant, self._questions.model, held.settled, scopes.tolist()
            )
        topped_up = _with(held, found, dimensions, snapshot.now.xmin)
        if topped_up is not held:
            self._cache.put(key, topped_up, topped_up.rows.nbytes + topped_up.xid.nbytes + 500)
        seen = snapshot.visibility.sees(topped_up.xid)
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
