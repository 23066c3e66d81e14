"""The loose lanes: the fresh tail and the internal events of the visible scopes, beside their trees.

A loose lane only grows: a cached one is topped up with the transactions that were not settled when it was last read,
and each request masks out what its own snapshot does not see. So each answer is exact, and no request reads the whole
tail again. Scopes that are packed share one lane per list of masks; a scope that is searched alone has one lane
for all who ask.
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
import numpy.typing as npt

from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Doc, Ints
from myria.index.loose import LooseBlock
from myria.index.searchable import document
from myria.search.cache import ByteCache
from myria.search.gathering import Gathered
from myria.search.pin import Pinned

Lane = Literal["tail", "internal"]

_STATEMENTS: Final[dict[Lane, str]] = {"tail": "events.tail", "internal": "events.internal"}

FEW_SCOPES = 64
"""Up to this many visible scopes, the tail of each is looked up; beyond, the tenant's tail is read if that is less."""

_EVENTS_PER_LOOKUP = 8
"""How many events of the tail PostgreSQL passes over in the time that it takes to look up one scope."""

_ANALYSED_AT_ONCE = 128
_ANALYSED_CHARACTERS = 256 * 1024
"""Rows, and characters of their payloads, that whoever reads them analyses at once: some hundredths of a second."""

_PORTION_CHARACTERS = 1024 * 1024
"""Characters of payloads whose words are held at a time."""

_STEP_S = 0.001
"""Seconds of analysing after which the event loop gets its turn."""

_EMPTY = LooseBlock()
_NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class LooseLane:
    """The loose events that a request may see of one scope, or of the scopes that share a corpus."""

    block: LooseBlock
    mask: npt.NDArray[np.bool_]

    def without(self, seqs: Ints) -> LooseLane:
        """Return the lane without these events."""
        return replace(self, mask=self.mask & ~np.isin(self.block.seq, seqs))

    def beside(self, docs: Sequence[Doc]) -> LooseLane:
        """Return the lane with events beside it for one request alone; none of them may be in it."""
        block = self.block.extended(docs)
        shown = np.concatenate((self.block.seq[self.mask], np.array([doc.event_seq for doc in docs], dtype=np.int64)))
        return LooseLane(block=block, mask=np.isin(block.seq, shown))


_NO_LANE = LooseLane(block=_EMPTY, mask=np.zeros(0, dtype=np.bool_))


@dataclass(frozen=True, kw_only=True, slots=True)
class Loose:
    """One lane of all visible scopes: that of the scopes which share a corpus, and those of the others, by scope."""

    shared: LooseLane | None
    alone: dict[int, LooseLane]

    def without(self, seqs: Ints) -> Loose:
        """Return both without these events."""
        return Loose(
            shared=None if self.shared is None else self.shared.without(seqs),
            alone={scope_id: lane.without(seqs) for scope_id, lane in self.alone.items()},
        )

    def beside(self, docs: Sequence[Doc], gathered: Gathered) -> Loose:
        """Return both with events beside them for one request alone."""
        alone = {scope.scope_id: [doc for doc in docs if doc.scope_id == scope.scope_id] for scope in gathered.alone}
        shared = [doc for doc in docs if doc.scope_id not in alone]
        lanes = dict(self.alone)
        for scope_id, of_scope in alone.items():
            if of_scope:
                lanes[scope_id] = lanes.get(scope_id, _NO_LANE).beside(of_scope)
        return Loose(shared=(self.shared or _NO_LANE).beside(shared) if shared else self.shared, alone=lanes)


@dataclass(frozen=True, slots=True)
class _Held:
    """A cached lane: complete for event_seq past `floor`, every transaction below `settled`, and these scopes."""

    block: LooseBlock
    settled: int
    floor: int
    scopes: Ints


@dataclass(slots=True)
class _Filling:
    """A lane being read: its scopes, what the cache held of it, and its new rows."""

    key: Hashable
    scopes: Ints
    held: _Held | None
    rows: list[asyncpg.Record]


class Lanes:
    """Loads and keeps loose lanes, within the cache's bytes."""

    def __init__(self, cache: ByteCache) -> None:
        self._cache = cache
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def loose(self, connection: Connection, pinned: Pinned, gathered: Gathered, lane: Lane) -> Loose:
        """Return a lane of all visible scopes that have events in it."""
        shared = None
        if gathered.table is not None:
            shared = self._begun(pinned, lane, pinned.masks, gathered.table.ids)
        alone = {
            scope.scope_id: self._begun(pinned, lane, scope.scope_id, np.array([scope.scope_id], dtype=np.int64))
            for scope in gathered.alone
        }
        for row in await _fresh(connection, pinned, lane, shared, alone):
            filling = alone.get(row["scope_id"], shared)
            if filling is not None:
                filling.rows.append(row)
        seen = None if shared is None else await self._seen(pinned, lane, shared)
        lanes = {}
        for scope_id, filling in alone.items():
            if filling.rows or filling.held is not None:
                of_scope = await self._seen(pinned, lane, filling)
                if of_scope is not None:
                    lanes[scope_id] = of_scope
        return Loose(shared=seen, alone=lanes)

    def _begun(self, pinned: Pinned, lane: Lane, whose: Hashable, scopes: Ints) -> _Filling:
        key = (pinned.memory, lane, whose)
        return _Filling(key=key, scopes=scopes, held=self._usable(pinned, lane, key), rows=[])

    def _usable(self, pinned: Pinned, lane: Lane, key: Hashable) -> _Held | None:
        held: _Held | None = self._cache.get(key)
        if held is not None and lane == "tail" and pinned.cutoff < held.floor:
            return None
        return held

    async def _seen(self, pinned: Pinned, lane: Lane, filling: _Filling) -> LooseLane | None:
        """Return the part of a lane that the request sees, None where it sees nothing."""
        block = await self._topped_up(pinned, lane, filling)
        mask = pinned.visibility.sees(block.xid)
        if lane == "tail":
            mask &= block.seq > pinned.cutoff
        mask &= _among(block.scope_id, filling.scopes)
        if len(pinned.hidden.seqs):
            mask &= pinned.hidden.shown(block.seq)
        return LooseLane(block=block, mask=mask) if mask.any() else None

    async def _topped_up(self, pinned: Pinned, lane: Lane, filling: _Filling) -> LooseBlock:
        """Return a lane with its new rows, which is cached.

        Of those that read much of a lane at the same time, one analyses it; the others wait for what it leaves in the
        cache. Whoever is interrupted leaves there what it has done.
        """
        docs: list[Doc] = []
        size = sum(len(row["payload"]) for row in filling.rows)
        if len(filling.rows) <= _ANALYSED_AT_ONCE and size <= _ANALYSED_CHARACTERS:
            held = _EMPTY if filling.held is None else filling.held.block
            await _analyse(_missing(filling.rows, held), docs)
            base = self._base(pinned, lane, filling)
            return self._kept(pinned, lane, filling, base, _extended(_EMPTY if base is None else base.block, docs))
        turn = self._turns.setdefault(filling.key, asyncio.Lock())
        async with turn:
            base = self._base(pinned, lane, filling)
            block = _EMPTY if base is None else base.block
            try:
                for rows in _portions(_missing(filling.rows, block)):
                    docs = []
                    await _analyse(rows, docs)
                    # long texts have very many words: in a thread, so that others are served meanwhile
                    block = await asyncio.to_thread(block.extended, docs)
            except asyncio.CancelledError:
                if not pinned.at_cursor and (base is None or not len(base.scopes)):
                    self._keep_part(pinned, lane, filling, _extended(block, docs))
                raise
            return self._kept(pinned, lane, filling, base, block)

    def _kept(self, pinned: Pinned, lane: Lane, filling: _Filling, base: _Held | None, block: LooseBlock) -> LooseBlock:
        """Return a lane that was topped up, without what is indexed by now, and cache it."""
        if pinned.at_cursor:
            return block
        floor, scopes, settled = 0, filling.scopes, pinned.settled
        if lane == "tail":
            floor = pinned.cutoff if base is None else max(base.floor, pinned.cutoff)
            block = block.kept(block.seq > pinned.cutoff)
        if base is not None and base.scopes is not scopes and not np.array_equal(base.scopes, scopes):
            settled = min(base.settled, pinned.settled)
        elif base is not None:
            settled = max(base.settled, pinned.settled)
        if block is not (None if base is None else base.block) or base is None or settled != base.settled:
            held = _Held(block=block, settled=settled, floor=floor, scopes=scopes)
            self._cache.put(filling.key, held, block.nbytes + 256)
        return block

    def _base(self, pinned: Pinned, lane: Lane, filling: _Filling) -> _Held | None:
        """Return what was held of a lane when it was read, or what another has topped up meanwhile, if that fits."""
        held, newer = filling.held, self._usable(pinned, lane, filling.key)
        if newer is not None and (
            held is None or (newer.settled >= held.settled and bool(_among(held.scopes, newer.scopes).all()))
        ):
            return newer
        return held

    def _keep_part(self, pinned: Pinned, lane: Lane, filling: _Filling, block: LooseBlock) -> None:
        """Keep documents of a lane that is complete for no scope: its next reader reads all rows, and has these."""
        floor = pinned.cutoff if lane == "tail" else 0
        part = _Held(block=block, settled=pinned.settled, floor=floor, scopes=_NONE)
        self._cache.put(filling.key, part, block.nbytes + 256)


async def _fresh(
    connection: Connection, pinned: Pinned, lane: Lane, shared: _Filling | None, alone: dict[int, _Filling]
) -> Sequence[asyncpg.Record]:
    """Return the rows of a lane that may be new to what is held of it, in a statement for each mask at most."""
    visible = pinned.visible
    if lane == "tail" and pinned.newest_seq <= pinned.cutoff:
        return ()
    if lane == "tail" and len(visible) > FEW_SCOPES:
        most = _EVENTS_PER_LOOKUP * len(visible)
        length = pinned.newest_seq - pinned.cutoff  # at most: numbers are given out to all tenants
        if length > most:
            length = await connection.fetchval(sql("events.tail_length"), pinned.tenant, pinned.cutoff, most + 1)
        if length <= most:
            bound, joined = _common_bound(pinned, shared, alone)
            return await _short_tail(connection, pinned, bound, joined.tolist())
    first = pinned.tail_xid if lane == "tail" else 0
    bounds = np.full(len(visible), first, dtype=np.int64)
    for filling in ([] if shared is None else [shared]) + list(alone.values()):
        if filling.held is not None:
            known = filling.scopes[_among(filling.scopes, filling.held.scopes)]
            bounds[visible.ids.searchsorted(known)] = filling.held.settled
    arguments = (pinned.tenant, visible.ids.tolist(), bounds.tolist(), *((pinned.cutoff,) if lane == "tail" else ()))
    return await connection.fetch(sql(_STATEMENTS[lane]), *arguments)


async def _short_tail(
    connection: Connection, pinned: Pinned, bound: int, joined: list[int]
) -> Sequence[asyncpg.Record]:
    """Return the rows of the tenant's tail that each mask sees; one that several see stands there more than once."""
    rows: list[asyncpg.Record] = []
    for mask in pinned.masks:
        if not mask.exact:
            rows += await connection.fetch(
                sql("events.short_tail"), pinned.tenant, pinned.cutoff, list(mask.participants), bound, joined
            )
    exact = pinned.visible.exact.tolist()
    if exact:
        bounds = [pinned.tail_xid if scope_id in joined else bound for scope_id in exact]
        rows += await connection.fetch(sql("events.tail"), pinned.tenant, exact, bounds, pinned.cutoff)
    return rows


def _common_bound(pinned: Pinned, shared: _Filling | None, alone: dict[int, _Filling]) -> tuple[int, Ints]:
    """Return the transaction from which all lanes must be read, and the scopes of which nothing is held."""
    fillings = [*([] if shared is None else [shared]), *alone.values()]
    if shared is not None and shared.held is None:
        return pinned.tail_xid, _NONE
    held = [filling.held for filling in fillings if filling.held is not None]
    if not held:
        return pinned.tail_xid, _NONE
    joined = [
        filling.scopes if filling.held is None else filling.scopes[~_among(filling.scopes, filling.held.scopes)]
        for filling in fillings
    ]
    return min(lane.settled for lane in held), np.concatenate(joined)


def _among(scopes: Ints, table: Ints) -> npt.NDArray[np.bool_]:
    """Return which of these scopes stand in a table, ascending."""
    if scopes is table:
        return np.ones(len(scopes), dtype=np.bool_)
    if not len(table):
        return np.zeros(len(scopes), dtype=np.bool_)
    at = table.searchsorted(scopes)
    at[at == len(table)] = 0
    present: npt.NDArray[np.bool_] = table[at] == scopes
    return present


def _missing(rows: Sequence[asyncpg.Record], block: LooseBlock) -> list[asyncpg.Record]:
    """Return the rows that a block does not hold, each once: one that several masks see stands there more than once."""
    present = set(block.seq.tolist()) if rows and len(block) else set()
    missing = {row["event_seq"]: row for row in rows if row["event_seq"] not in present}
    return list(missing.values())


def _portions(rows: Sequence[asyncpg.Record]) -> Iterator[Sequence[asyncpg.Record]]:
    """Yield rows, so many at a time that the words of all of them can be held: they take some fifty times the text."""
    start = size = 0
    for at, row in enumerate(rows, 1):
        size += len(row["payload"])
        if size > _PORTION_CHARACTERS or at == len(rows):
            yield rows[start:at]
            start, size = at, 0


async def _analyse(rows: Sequence[asyncpg.Record], docs: list[Doc]) -> None:
    """Add the documents of rows to `docs`, as far as it comes, giving way to others every few milliseconds."""
    turn_ends = time.perf_counter() + _STEP_S
    for row in rows:
        docs.append(document(row, xid=row["xid"], scope_id=row["scope_id"]))
        if time.perf_counter() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.perf_counter() + _STEP_S


def _extended(block: LooseBlock, docs: Sequence[Doc]) -> LooseBlock:
    """Return a block with those documents beside it that are not there yet."""
    present = set(block.seq.tolist()) if docs and len(block) else set()
    fresh = [doc for doc in docs if doc.event_seq not in present]
    return block.extended(fresh) if fresh else block
