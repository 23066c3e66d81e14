"""Events that no tree holds: the fresh tail, and internal events. They are analysed as they are read, and kept.

What is kept of a list of masks is topped up: with the events of transactions that had not ended when it was read, and
with scopes that are new. A request sees of it what its own snapshot of PostgreSQL sees, so it may hold more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal
from weakref import WeakValueDictionary

import asyncpg
import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints
from myria.index.corpus import Mask
from myria.index.documents import Doc
from myria.index.loose import LooseBlock
from myria.index.searchable import document
from myria.search.cache import ByteCache
from myria.search.snapshot_view import SnapshotView

Kind = Literal["tail", "internal"]

_STATEMENTS: Final[dict[Kind, str]] = {"tail": "events.tail", "internal": "events.internal"}

FEW_SCOPES = 64
"""Up to this many visible scopes, the tail of each is looked up; beyond, the tenant's tail is read if that is less."""

_EVENTS_PER_LOOKUP = 8
"""How many events of the tail PostgreSQL passes over in the time that it takes to look up one scope."""

_FEW_CHARACTERS = 256 * 1024
"""Characters of payloads whose words are put into a block at once: some hundredths of a second. More go to a thread."""

_PORTION_CHARACTERS = 1024 * 1024
"""Characters of payloads whose words are held at a time."""

_STEP_S = 0.001
"""Seconds of analysing after which the event loop gets its turn."""

_NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unindexed:
    """Events that a request sees although no tree holds them: the documents of `block` where `mask` is true."""

    block: LooseBlock
    mask: Mask

    def without(self, seqs: Ints) -> Unindexed:
        """Return the same events without some."""
        return replace(self, mask=self.mask & ~np.isin(self.block.seq, seqs))

    def beside(self, docs: Sequence[Doc]) -> Unindexed:
        """Return the same events with further ones, which it must not hold yet; for one request, not to be kept."""
        block = self.block.extended(docs)
        shown = np.concatenate((self.block.seq[self.mask], np.array([doc.event_seq for doc in docs], dtype=np.int64)))
        return Unindexed(block=block, mask=np.isin(block.seq, shown))


@dataclass(frozen=True, slots=True)
class _KeptEvents:
    """Events kept between requests.

    `block` holds every event of `scopes` with an event_seq past `floor` of a transaction below `settled`, and maybe
    others.
    """

    block: LooseBlock
    settled: int
    floor: int
    scopes: Ints


class UnindexedReader:
    """Reads events that no tree holds, and keeps them within the cache's bytes."""

    def __init__(self, cache: ByteCache) -> None:
        self._cache = cache
        self._topping_up: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def read(self, connection: Connection, snapshot: SnapshotView, kind: Kind) -> Unindexed:
        """Return the tail's or the internal events of all visible scopes, as far as a request sees them."""
        key = (snapshot.memory, kind, snapshot.masks)
        kept = self._usable(snapshot, kind, key)
        rows = await _read_new(connection, snapshot, kind, kept)
        block = await self._top_up(snapshot, kind, key, kept, rows)
        mask = snapshot.visibility.sees(block.xid) & _among(block.scope_id, snapshot.visible.ids)
        if kind == "tail":
            mask &= block.seq > snapshot.cutoff
        return Unindexed(block=block, mask=mask & snapshot.hidden.shown(block.seq))

    def _usable(self, snapshot: SnapshotView, kind: Kind, key: Hashable) -> _KeptEvents | None:
        """Return what is kept, None if it begins after this snapshot's cutoff (an older snapshot needs more of it)."""
        kept: _KeptEvents | None = self._cache.get(key)
        if kept is not None and kind == "tail" and snapshot.cutoff < kept.floor:
            return None
        return kept

    async def _top_up(
        self,
        snapshot: SnapshotView,
        kind: Kind,
        key: Hashable,
        kept: _KeptEvents | None,
        rows: Sequence[asyncpg.Record],
    ) -> LooseBlock:
        """Return the block of kept and new events, and keep it for later requests.

        If several requests read many events at the same time, one analyses them; the others wait and take its result
        from the cache. A request that is cancelled leaves there what it has analysed so far.
        """
        if not rows:
            block = LooseBlock() if kept is None else kept.block
            is_newest = self._usable(snapshot, kind, key) is kept  # else somebody else has kept more meanwhile
            return self._keep_all(snapshot, kind, key, kept, block) if is_newest else block
        lock = self._topping_up.setdefault(key, asyncio.Lock())
        async with lock:
            newer = self._usable(snapshot, kind, key)
            if newer is not None and (
                kept is None or (newer.settled >= kept.settled and bool(_among(kept.scopes, newer.scopes).all()))
            ):
                kept = newer  # what somebody else has analysed meanwhile: the rows hold all that this lacks
            block = LooseBlock() if kept is None else kept.block
            docs: list[Doc] = []
            try:
                for portion in _portions(_not_in_block(rows, block)):
                    docs = []
                    await _analyse(portion, docs)
                    if sum(len(row["payload"]) for row in portion) <= _FEW_CHARACTERS:
                        block = block.extended(docs)
                    else:
                        block = await asyncio.to_thread(block.extended, docs)
            except asyncio.CancelledError:
                if not snapshot.at_cursor and (kept is None or not len(kept.scopes)):
                    # Complete for no scope: the next reader reads all rows again, and analyses the others.
                    self._keep(snapshot, kind, key, block.extended(docs), settled=snapshot.settled, scopes=_NONE)
                raise
            return self._keep_all(snapshot, kind, key, kept, block)

    def _keep_all(
        self, snapshot: SnapshotView, kind: Kind, key: Hashable, kept: _KeptEvents | None, block: LooseBlock
    ) -> LooseBlock:
        """Keep a block that is complete for the visible scopes, unless it is an earlier page's; return it.

        Events that are in trees by now are left out.
        """
        if snapshot.at_cursor:
            return block
        if kind == "tail":
            block = block.kept(block.seq > snapshot.cutoff)
        settled, scopes = snapshot.settled, snapshot.visible.ids
        if kept is not None:
            is_same = np.array_equal(kept.scopes, scopes)
            settled = max(kept.settled, settled) if is_same else min(kept.settled, settled)
            if is_same and block is kept.block and settled == kept.settled:
                return block
        self._keep(snapshot, kind, key, block, settled=settled, scopes=scopes)
        return block

    def _keep(
        self, snapshot: SnapshotView, kind: Kind, key: Hashable, block: LooseBlock, *, settled: int, scopes: Ints
    ) -> None:
        floor = snapshot.cutoff if kind == "tail" else 0
        kept = _KeptEvents(block=block, settled=settled, floor=floor, scopes=scopes)
        self._cache.put(key, kept, block.nbytes + scopes.nbytes + 256)


async def _read_new(
    connection: Connection, snapshot: SnapshotView, kind: Kind, kept: _KeptEvents | None
) -> Sequence[asyncpg.Record]:
    """Read the rows that may be missing in what is kept, with at most one statement for each mask."""
    visible = snapshot.visible
    if not len(visible) or (kind == "tail" and snapshot.newest_seq <= snapshot.cutoff):
        return ()
    first_xid = snapshot.tail_xid if kind == "tail" else 0
    is_kept = _among(visible.ids, _NONE if kept is None else kept.scopes)
    settled = first_xid if kept is None else kept.settled
    if kind == "tail" and len(visible) > FEW_SCOPES:
        most_events = _EVENTS_PER_LOOKUP * len(visible)
        length = snapshot.newest_seq - snapshot.cutoff  # at most: numbers are given out to all tenants
        if length > most_events:
            length = await connection.fetchval(
                sql("events.tail_length"), snapshot.tenant, snapshot.cutoff, most_events + 1
            )
        if length <= most_events:
            if not is_kept.any():
                return await _short_tail(connection, snapshot, first_xid, [])
            return await _short_tail(connection, snapshot, settled, visible.ids[~is_kept].tolist())
    bounds = np.where(is_kept, settled, first_xid).tolist()
    arguments = (snapshot.tenant, visible.ids.tolist(), bounds, *((snapshot.cutoff,) if kind == "tail" else ()))
    return await connection.fetch(sql(_STATEMENTS[kind]), *arguments)


async def _short_tail(
    connection: Connection, snapshot: SnapshotView, bound: int, new_scope_ids: list[int]
) -> Sequence[asyncpg.Record]:
    """Read the rows of the tenant's tail that the masks see; a row that several masks see comes more than once.

    Args:
        bound: transactions below it are kept already.
        new_scope_ids: new scopes: of these all transactions are read.
    """
    rows: list[asyncpg.Record] = []
    for mask in snapshot.masks:
        if not mask.exact:
            rows += await connection.fetch(
                sql("events.short_tail"),
                snapshot.tenant,
                snapshot.cutoff,
                list(mask.participants),
                bound,
                new_scope_ids,
            )
    exact = snapshot.visible.exact.tolist()
    if exact:
        bounds = [snapshot.tail_xid if scope_id in new_scope_ids else bound for scope_id in exact]
        rows += await connection.fetch(sql("events.tail"), snapshot.tenant, exact, bounds, snapshot.cutoff)
    return rows


def _among(scopes: Ints, table: Ints) -> Mask:
    """Return a mask of the scopes that stand in a table, which is ascending."""
    if not len(table):
        return np.zeros(len(scopes), dtype=np.bool_)
    places = table.searchsorted(scopes)
    places[places == len(table)] = 0
    present: Mask = table[places] == scopes
    return present


def _not_in_block(rows: Sequence[asyncpg.Record], block: LooseBlock) -> list[asyncpg.Record]:
    """Return the rows that a block does not hold, each once: rows that several masks see were read more than once."""
    present = set(block.seq.tolist()) if rows and len(block) else set()
    missing = {row["event_seq"]: row for row in rows if row["event_seq"] not in present}
    return list(missing.values())


def _portions(rows: Sequence[asyncpg.Record]) -> Iterator[Sequence[asyncpg.Record]]:
    """Yield rows in portions whose words have room in memory: words take some fifty times the bytes of their text."""
    start = size = 0
    for end, row in enumerate(rows, 1):
        size += len(row["payload"])
        if size > _PORTION_CHARACTERS or end == len(rows):
            yield rows[start:end]
            start, size = end, 0


async def _analyse(rows: Sequence[asyncpg.Record], docs: list[Doc]) -> None:
    """Append the documents of rows to `docs`, letting other tasks run every millisecond.

    If it is cancelled, `docs` holds what was done until then.
    """
    step_ends = time.perf_counter() + _STEP_S
    for row in rows:
        docs.append(document(row, xid=row["xid"], scope_id=row["scope_id"]))
        if time.perf_counter() > step_ends:
            await asyncio.sleep(0)
            step_ends = time.perf_counter() + _STEP_S
