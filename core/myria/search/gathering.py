"""What the visible trees hold: search blocks of large scopes, each by itself, and packs of all the small ones.

Blocks are immutable and cached by content: large ones for everyone who sees them, packs for one list of masks. When a
snapshot changes some scopes, their rows are masked out of the packs, and what they hold now becomes a small pack beside
them; packs of falling size are merged like the runs of a log-structured merge tree. So the cost of a publish to a
reader grows with what it changed, and a question costs no work per scope.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.errors import InternalError
from myria.index.block import BlockView, Doc, Ints, decode, splice
from myria.index.corpus import Mask, ScopeTable
from myria.index.pack import Pack, pack, repack
from myria.index.searchable import covered, document
from myria.search.cache import ByteCache
from myria.search.pin import Pinned
from myria.search.scopes import VisibleScope, VisibleScopes, are_kept
from myria.versions import SEARCH_VERSION

logger = logging.getLogger(__name__)

SHARED_FROM = 9
"""From this many visible scopes on the small ones are packed; fewer are searched one by one, from shared blocks."""

SMALL_BYTES = 128 * 1024
"""Size of a block up to which its scope is packed: some 800 events."""

_ANALYSED_AT_ONCE = 128
_READ_AT_ONCE = 256
_MOST_READ_AT_ONCE = 4_096
_SHARE_READ = 70
"""Percent of the blocks that are left in one page: each page is then more than twice as large as all after it."""

_BYTES_AT_ONCE = 16 * 1024 * 1024
_HIDDEN_SHARE = 4

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Gathered:
    """The visible trees, ready to be searched.

    `alone` are the scopes that are searched by themselves; `table` holds the others, with a tree or without, None when
    there are none; their documents are those of `packs` that no mask leaves out.
    """

    visible: VisibleScopes
    alone: tuple[VisibleScope, ...]
    table: ScopeTable | None
    packs: tuple[tuple[Pack, Mask | None], ...]

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory it holds."""
        table = 0 if self.table is None else self.table.nbytes
        return 1_000 + table + sum(packed.nbytes + (0 if mask is None else len(mask)) for packed, mask in self.packs)


class Gatherer:
    """Loads and keeps what visible trees hold, within the cache's bytes."""

    def __init__(self, cache: ByteCache, threads: ThreadPoolExecutor) -> None:
        self._cache = cache
        self._threads = threads
        self._making = asyncio.Lock()
        self._said = False

    async def gather(self, connection: Connection, pinned: Pinned) -> Gathered:
        """Return the visible trees of a request.

        Raises:
            InternalError: a block of a retained snapshot is damaged, or neither it nor its events are there.
        """
        visible = pinned.visible
        if len(visible) < SHARED_FROM:
            return Gathered(visible=visible, alone=visible.scopes, table=None, packs=())
        key = (pinned.memory, "gathered", pinned.masks)
        known: Gathered | None = self._cache.get(key)
        if known is not None and known.visible is visible:
            return known
        gathered = await self._gathered(connection, pinned.tenant, visible, known)
        if are_kept(self._cache, pinned.memory, pinned.masks, visible):
            self._cache.put(key, gathered, gathered.nbytes)
        return gathered

    async def views(self, connection: Connection, tenant: str, scope: VisibleScope) -> tuple[BlockView, ...]:
        """Return the search blocks of one scope, in order of time.

        Raises:
            InternalError: as `gather`.
        """
        return (await self.blocks(connection, tenant, (scope,)))[scope.scope_id]

    async def blocks(
        self, connection: Connection, tenant: str, scopes: Sequence[VisibleScope]
    ) -> dict[int, tuple[BlockView, ...]]:
        """Return the search blocks of scopes, in order of time, by scope.

        Raises:
            InternalError: as `gather`.
        """
        views: dict[bytes, BlockView] = {}
        missing: dict[bytes, VisibleScope] = {}
        for scope in scopes:
            for rendering_id in scope.blocks:
                view = self._cache.get((tenant, "block", rendering_id))
                if view is None:
                    missing[rendering_id] = scope
                else:
                    views[rendering_id] = view
        async for rows in self._read(connection, tenant, missing):
            for rendering_id, raw in rows:
                views[rendering_id] = self._kept(tenant, rendering_id, decode(raw))
        return {scope.scope_id: tuple([views[rendering_id] for rendering_id in scope.blocks]) for scope in scopes}

    async def _gathered(
        self, connection: Connection, tenant: str, visible: VisibleScopes, known: Gathered | None
    ) -> Gathered:
        """Return what these scopes hold, taking over what is known of those that have not changed."""
        changed, hidden = _differences(visible, known)
        alone = {scope.scope_id for scope in known.alone} if known is not None else set()
        alone.difference_update(hidden.tolist())
        packs = [] if known is None else [_without(packed, mask, hidden) for packed, mask in known.packs]
        small: dict[bytes, VisibleScope] = {}
        for scope in changed:
            if len(scope.blocks) == 1:
                small[scope.blocks[0]] = scope
            elif scope.blocks:
                alone.add(scope.scope_id)
        packing: asyncio.Future[Pack] | None = None
        try:
            blocks: list[tuple[int, bytes]] = []
            left, size = len(small), 0
            async for rows in self._read_for_packing(connection, tenant, small):
                left -= len(rows)
                for rendering_id, raw in rows:
                    scope_id = small[rendering_id].scope_id
                    if len(raw) > SMALL_BYTES:
                        alone.add(scope_id)
                        self._kept(tenant, rendering_id, decode(raw))
                    else:
                        blocks.append((scope_id, raw))
                        size += len(raw)
                if blocks and (len(blocks) > 2 * left or size > _BYTES_AT_ONCE):
                    if packing is not None:
                        packs.append((await packing, None))
                    # A thread packs these blocks while PostgreSQL sends the next ones.
                    packing = self._begun(partial(_packed, blocks))
                    blocks, size = [], 0
            if packing is not None:
                packs.append((await packing, None))
        finally:
            if packing is not None:
                packing.cancel()
        packs = await self._begun(partial(_compacted, packs))
        in_table = np.ones(len(visible), dtype=np.bool_)
        if alone:
            in_table[visible.ids.searchsorted(np.array(sorted(alone), dtype=np.int64))] = False
        ids = visible.ids[in_table]
        if known is not None and known.table is not None and np.array_equal(known.table.ids, ids):
            table: ScopeTable | None = known.table
        else:
            members = tuple([visible.scopes[at].participants for at in np.flatnonzero(in_table).tolist()])
            table = ScopeTable(ids=ids, participants=members) if len(ids) else None
        return Gathered(
            visible=visible,
            alone=tuple([visible.scopes[at] for at in np.flatnonzero(~in_table).tolist()]),
            table=table,
            packs=tuple(packs),
        )

    async def _read_for_packing(
        self, connection: Connection, tenant: str, wanted: dict[bytes, VisibleScope]
    ) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield the bytes of blocks, those of cached ones first."""
        cached: list[tuple[bytes, bytes]] = []
        missing = {}
        for rendering_id, scope in wanted.items():
            view: BlockView | None = self._cache.peek((tenant, "block", rendering_id))
            if view is None:
                missing[rendering_id] = scope
            else:
                cached.append((rendering_id, view.raw))
        if cached:
            yield cached
        async for rows in self._read(connection, tenant, missing):
            yield rows

    async def _read(
        self, connection: Connection, tenant: str, wanted: dict[bytes, VisibleScope]
    ) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield the bytes of search blocks in pages of bounded size; missing blocks are made from the log.

        Each page is most of what is left, as far as the bounds allow, so that packs of them need no merging.
        """
        unread = list(wanted)
        at, size = 0, _READ_AT_ONCE
        while at < len(unread):
            part = unread[at : at + size]
            records = await connection.fetch(sql("retrieval.blocks"), tenant, part, SEARCH_VERSION)
            rows = [(record["rendering_id"], record["block"]) for record in records]
            if len(rows) < len(part):
                there = {rendering_id for rendering_id, _ in rows}
                for rendering_id in part:
                    if rendering_id not in there:
                        view = await self._made(connection, tenant, wanted[rendering_id], rendering_id)
                        rows.append((rendering_id, view.raw))
            yield rows
            at += len(part)
            mean = sum(len(raw) for _, raw in rows) // len(rows) + 1
            share = (len(unread) - at) * _SHARE_READ // 100
            size = max(_READ_AT_ONCE, min(_MOST_READ_AT_ONCE, _BYTES_AT_ONCE // mean, share))

    async def _made(self, connection: Connection, tenant: str, scope: VisibleScope, rendering_id: bytes) -> BlockView:
        """Make, out of the log, a block that is not stored in this program's version.

        It is missing after an upgrade until the next build, and after a rollback to a snapshot from before the upgrade.
        The process makes one block at a time.
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
            return self._kept(tenant, rendering_id, decode(splice((), fresh=docs, nodes=covers.nodes)))

    def _kept(self, tenant: str, rendering_id: bytes, view: BlockView) -> BlockView:
        self._cache.put((tenant, "block", rendering_id), view, view.nbytes)
        return view

    def _begun(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begin work in a thread and return what it will give."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)


def _differences(visible: VisibleScopes, known: Gathered | None) -> tuple[Sequence[VisibleScope], Ints]:
    """Return the scopes whose trees changed, and the ids of those known before that no longer hold."""
    if known is None:
        return visible.scopes, np.zeros(0, dtype=np.int64)
    before = known.visible
    at = visible.ids.searchsorted(before.ids)
    at[at == len(visible.ids)] = 0
    same = (visible.ids[at] == before.ids) & (visible.numbers[at] == before.numbers)
    unchanged = np.zeros(len(visible), dtype=np.bool_)
    unchanged[at[same]] = True
    return [visible.scopes[place] for place in np.flatnonzero(~unchanged).tolist()], before.ids[~same]


def _without(packed: Pack, mask: Mask | None, hidden: Ints) -> tuple[Pack, Mask | None]:
    """Return a pack with a mask that also leaves out the documents of these scopes."""
    if not len(hidden):
        return packed, mask
    shown = ~np.isin(packed.scope_id, hidden)
    if mask is not None:
        shown &= mask
    return packed, None if bool(shown.all()) else shown


def _compacted(packs: list[tuple[Pack, Mask | None]]) -> list[tuple[Pack, Mask | None]]:
    """Merge packs until each is less than half as large as the one before and few of its documents are masked."""
    compacted: list[tuple[Pack, Mask | None]] = []
    for packed, mask in packs:
        shown = _shown(packed, mask)
        if not shown:
            continue
        compacted.append((packed, mask))
        if (len(packed) - shown) * _HIDDEN_SHARE > len(packed):
            compacted[-1] = (repack(compacted[-1:]), None)
        while len(compacted) > 1 and _shown(*compacted[-2]) <= 2 * _shown(*compacted[-1]):
            compacted[-2:] = [(repack(compacted[-2:]), None)]
    return compacted


def _packed(blocks: Sequence[tuple[int, bytes]]) -> Pack:
    """Return a pack, with what every question looks up in it."""
    packed = pack(blocks)
    _ = packed.span, packed.unit, packed.speakers_by_term
    return packed


def _shown(packed: Pack, mask: Mask | None) -> int:
    return len(packed) if mask is None else int(np.count_nonzero(mask))
