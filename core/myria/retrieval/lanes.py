"""What a request searches: the search blocks of its scopes, and the loose lanes beside them.

Blocks are immutable and cached by content. A loose lane (the fresh tail; the internal events) only grows: a cached
one is topped up with the transactions that were not settled when it was last read, and each request masks out what
its own snapshot does not see. So reading is exact without reading a tail again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import asyncpg
import numpy as np
import numpy.typing as npt

from myria.errors import InternalError
from myria.index.block import SEARCH_VERSION, BlockView, Doc, decode, splice
from myria.index.loose import LooseBlock
from myria.retrieval.cache import ByteCache
from myria.retrieval.pinned import Pinned, VisibleScope
from myria.searchable import covered, document
from myria.store.database import Connection
from myria.store.queries import sql

logger = logging.getLogger(__name__)

Lane = Literal["tail", "internal"]

_ANALYSED_AT_ONCE = 128
_STALE_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseLane:
    """The loose events of one scope that a request may see."""

    block: LooseBlock
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Held:
    """A cached lane: complete for event_seq past `floor` and every transaction below `settled`."""

    block: LooseBlock
    settled: int
    floor: int


_EMPTY = LooseBlock()


class Lanes:
    """Loads and keeps what requests search, within the cache's bytes."""

    def __init__(self, cache: ByteCache) -> None:
        self._cache = cache
        self._making = asyncio.Lock()
        self._said = False

    async def blocks(self, connection: Connection, pinned: Pinned) -> dict[bytes, BlockView]:
        """Return every search block of the visible scopes, by rendering.

        Raises:
            InternalError: a block of a retained snapshot is damaged, or neither it nor its events are there.
        """
        found: dict[bytes, BlockView] = {}
        missing: dict[bytes, VisibleScope] = {}
        for scope in pinned.scopes:
            for rendering_id in scope.blocks:
                view = self._cache.get((pinned.tenant, "block", rendering_id))
                if view is None:
                    missing[rendering_id] = scope
                else:
                    found[rendering_id] = view
        unread = list(missing)
        for start in range(0, len(unread), 256):
            wanted = unread[start : start + 256]
            for row in await connection.fetch(sql("retrieval.blocks"), pinned.tenant, wanted, SEARCH_VERSION):
                view = decode(row["block"])
                found[row["rendering_id"]] = view
                self._cache.put((pinned.tenant, "block", row["rendering_id"]), view, view.nbytes)
        for rendering_id, scope in missing.items():
            if rendering_id not in found:
                found[rendering_id] = await self._made(connection, pinned.tenant, scope, rendering_id)
        return found

    async def _made(self, connection: Connection, tenant: str, scope: VisibleScope, rendering_id: bytes) -> BlockView:
        """Return a block that nobody has written in this program's version, made out of the log.

        That is so after an upgrade until the next build, and after a rollback to a snapshot from before it. One is made
        at a time, whoever asks.
        """
        async with self._making:
            made: BlockView | None = self._cache.get((tenant, "block", rendering_id))
            if made is not None:
                return made
            if not self._said:
                self._said = True
                logger.warning(
                    "search blocks of version %d are missing: they are made while reading, which is slow at first; "
                    "myria rebuild --full writes them",
                    SEARCH_VERSION,
                )
            covers = await covered(connection, tenant, rendering_id)
            wanted = sorted(covers.leaf_of)
            docs: list[Doc] = []
            for at in range(0, len(wanted), _ANALYSED_AT_ONCE):
                part = wanted[at : at + _ANALYSED_AT_ONCE]
                rows = await connection.fetch(sql("events.by_seqs"), tenant, part, [scope.scope_id])
                docs += [document(row, leaf=covers.leaf_of[row["event_seq"]]) for row in rows]
            if not wanted or len(docs) != len(wanted):
                raise InternalError("a topic's events are not there; see myria verify", rendering_id=rendering_id.hex())
            view = decode(splice((), fresh=docs, nodes=covers.nodes))
            self._cache.put((tenant, "block", rendering_id), view, view.nbytes)
            return view

    async def loose(self, connection: Connection, pinned: Pinned, lane: Lane) -> dict[int, LooseLane]:
        """Return a lane of every visible scope that has events in it, by scope."""
        held = {scope.scope_id: self._usable(pinned, scope, lane) for scope in pinned.scopes}
        bounds = [_bound(pinned, lane, entry) for entry in held.values()]
        arguments = (pinned.tenant, list(held), bounds, *((pinned.cutoff,) if lane == "tail" else ()))
        fresh: dict[int, list[asyncpg.Record]] = {}
        for row in await connection.fetch(sql(f"events.{lane}"), *arguments):
            fresh.setdefault(row["scope_id"], []).append(row)
        lanes = {}
        for scope in pinned.scopes:
            rows = fresh.get(scope.scope_id, ())
            entry = held[scope.scope_id]
            if rows or entry is not None:
                block = await self._topped_up(pinned, scope, lane, entry, rows)
                if len(block):
                    mask = pinned.visibility.sees(block.xid)
                    if lane == "tail":
                        mask &= block.seq > pinned.cutoff
                    if mask.any():
                        lanes[scope.scope_id] = LooseLane(block=block, mask=mask)
        return lanes

    def _usable(self, pinned: Pinned, scope: VisibleScope, lane: Lane) -> _Held | None:
        held: _Held | None = self._cache.get((pinned.tenant, lane, scope.scope_id))
        if held is not None and lane == "tail" and pinned.cutoff < held.floor:
            return None
        return held

    async def _topped_up(
        self,
        pinned: Pinned,
        scope: VisibleScope,
        lane: Lane,
        entry: _Held | None,
        rows: Sequence[asyncpg.Record],
    ) -> LooseBlock:
        fresh = await _analysed(rows, _EMPTY if entry is None else entry.block)
        if entry is None and not fresh:
            return _EMPTY
        key = (pinned.tenant, lane, scope.scope_id)
        # While this request waited, another may have topped the lane up: go on from the newer one if it serves.
        newer = self._usable(pinned, scope, lane)
        base = newer if newer is not None and (entry is None or newer.settled >= entry.settled) else entry
        block = _EMPTY if base is None else base.block
        if fresh:
            present = set(block.seq.tolist()) if len(block) else set()
            block = block.extended([doc for doc in fresh if doc.event_seq not in present])
        floor = 0
        if lane == "tail":
            floor = pinned.cutoff if base is None else max(base.floor, pinned.cutoff)
            stale = block.seq <= pinned.cutoff
            if not pinned.at_cursor and int(stale.sum()) * _STALE_SHARE > len(block):
                block = block.kept(~stale)
        settled = pinned.settled if base is None else max(base.settled, pinned.settled)
        if not pinned.at_cursor:
            self._cache.put(key, _Held(block=block, settled=settled, floor=floor), block.nbytes + 256)
        return block


def _bound(pinned: Pinned, lane: Lane, held: _Held | None) -> int:
    if held is not None:
        return held.settled
    return pinned.tail_xid if lane == "tail" else 0


async def _analysed(rows: Sequence[asyncpg.Record], known: LooseBlock) -> list[Doc]:
    present = set(known.seq.tolist()) if rows and len(known) else set()
    docs: list[Doc] = []
    for row in rows:
        if row["event_seq"] in present:
            continue
        docs.append(document(row, xid=row["xid"]))
        if len(docs) % _ANALYSED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return docs
