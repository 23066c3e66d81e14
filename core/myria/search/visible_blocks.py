"""What the visible trees hold: the search blocks of large scopes, and packs of those of all the small ones.

Blocks are immutable and cached by content: large ones for everyone who sees them, packs for one list of masks. When a
snapshot changes some scopes, their rows are masked out of the packs, and what they hold now becomes a small pack beside
them; after a few such packs all are read and packed again. So the cost of a publish to a reader grows with what it
changed, and a question costs no work per scope.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.errors import InternalError
from myria.index.block import BlockView, Doc, Ints, decode, splice
from myria.index.corpus import Mask, ScopeTable
from myria.index.pack import Pack, pack
from myria.index.searchable import covered, document
from myria.search.cache import ByteCache
from myria.search.scopes import VisibleScope, VisibleScopes
from myria.search.snapshot_view import SnapshotView
from myria.versions import SEARCH_VERSION

logger = logging.getLogger(__name__)

SHARED_FROM = 9
"""From this many visible scopes on the small ones are packed; of fewer the blocks are shared with other readers."""

SMALL_BYTES = 128 * 1024
"""Size of a block up to which its scope is packed: some 800 events."""

MOST_ADDED = 8
"""Packs that are added, one with each snapshot that changed a small scope, before all are packed anew."""

_HIDDEN_SHARE = 4
"""All are packed anew, too, when more than one in so many of their documents is masked out."""

_ANALYSED_AT_ONCE = 128
_READ_AT_ONCE = 256
_BYTES_AT_ONCE = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class VisibleBlocks:
    """The visible trees, ready to be searched.

    `table` names the scopes, None for a single one. `alone` are those whose own blocks are searched; the documents of
    the others are those of `packs` that no mask leaves out, of which `added` came with later snapshots.
    """

    visible: VisibleScopes
    table: ScopeTable | None
    alone: tuple[VisibleScope, ...]
    packs: tuple[tuple[Pack, Mask | None], ...] = ()
    added: int = 0

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory it holds."""
        table = 0 if self.table is None else self.table.nbytes
        return 1_000 + table + sum(packed.nbytes + (0 if mask is None else len(mask)) for packed, mask in self.packs)

    @property
    def is_fragmented(self) -> bool:
        """Tell whether it should be packed anew."""
        docs = sum(len(packed) for packed, _ in self.packs)
        hidden = sum(int(np.count_nonzero(~mask)) for _, mask in self.packs if mask is not None)
        return self.added >= MOST_ADDED or hidden * _HIDDEN_SHARE > docs


class BlockReader:
    """Loads and keeps what visible trees hold, within the cache's bytes."""

    def __init__(self, cache: ByteCache, threads: ThreadPoolExecutor) -> None:
        self._cache = cache
        self._threads = threads
        self._making = asyncio.Lock()
        self._has_warned = False

    async def visible(self, connection: Connection, snapshot: SnapshotView) -> VisibleBlocks:
        """Return the visible trees of a request.

        Raises:
            InternalError: a block of a retained snapshot is damaged, or neither it nor its events are there.
        """
        visible = snapshot.visible
        key = (snapshot.memory, "visible blocks", snapshot.masks)
        known: VisibleBlocks | None = self._cache.get(key)
        if known is not None and known.visible is visible:
            return known
        if len(visible) < SHARED_FROM:
            blocks = VisibleBlocks(visible=visible, table=_table(visible, known), alone=visible.scopes)
        else:
            if known is not None and (known.is_fragmented or len(known.visible) < SHARED_FROM):
                known = None
            blocks = await self._packed(connection, snapshot.tenant, visible, known)
        if snapshot.is_active:
            self._cache.put(key, blocks, blocks.nbytes)
        return blocks

    async def of_scopes(
        self, connection: Connection, tenant: str, scopes: Sequence[VisibleScope]
    ) -> tuple[BlockView, ...]:
        """Return the search blocks of scopes, those of each in order of time.

        Raises:
            InternalError: as `visible`.
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
        async for raws in self._read(connection, tenant, missing):
            for rendering_id, raw in raws.items():
                views[rendering_id] = self._kept(tenant, rendering_id, missing[rendering_id], raw)
        return tuple([views[rendering_id] for scope in scopes for rendering_id in scope.blocks])

    async def _packed(
        self, connection: Connection, tenant: str, visible: VisibleScopes, known: VisibleBlocks | None
    ) -> VisibleBlocks:
        """Return what these scopes hold, taking over what is known of those that have not changed."""
        changed, gone = _differences(visible, known)
        alone = set() if known is None else {scope.scope_id for scope in known.alone} - set(gone.tolist())
        packs = [] if known is None else [_without(packed, mask, gone) for packed, mask in known.packs]
        before = len(packs)
        small: dict[bytes, VisibleScope] = {}
        for scope in changed:
            if len(scope.blocks) == 1:
                small[scope.blocks[0]] = scope
            elif scope.blocks:
                alone.add(scope.scope_id)
        blocks: list[tuple[int, bytes]] = []
        async for raws in self._read(connection, tenant, small):
            for rendering_id, raw in raws.items():
                scope = small[rendering_id]
                if len(raw) > SMALL_BYTES:
                    alone.add(scope.scope_id)
                    self._kept(tenant, rendering_id, scope, raw)
                else:
                    blocks.append((scope.scope_id, raw))
            if sum(len(raw) for _, raw in blocks) > _BYTES_AT_ONCE:
                packs.append((await self._pack(blocks), None))
                blocks = []
        if blocks:
            packs.append((await self._pack(blocks), None))
        return VisibleBlocks(
            visible=visible,
            table=_table(visible, known),
            alone=tuple([scope for scope in visible.scopes if scope.scope_id in alone]),
            packs=tuple(packs),
            added=0 if known is None else known.added + len(packs) - before,
        )

    async def _pack(self, blocks: Sequence[tuple[int, bytes]]) -> Pack:
        return await asyncio.get_running_loop().run_in_executor(self._threads, pack, blocks)

    async def _read(
        self, connection: Connection, tenant: str, wanted: Mapping[bytes, VisibleScope]
    ) -> AsyncIterator[dict[bytes, bytes]]:
        """Yield the bytes of search blocks, some at a time; missing blocks are made from the log."""
        unread = list(wanted)
        for at in range(0, len(unread), _READ_AT_ONCE):
            part = unread[at : at + _READ_AT_ONCE]
            records = await connection.fetch(sql("retrieval.blocks"), tenant, part, SEARCH_VERSION)
            raws: dict[bytes, bytes] = {record["rendering_id"]: record["block"] for record in records}
            for rendering_id in part:
                if rendering_id not in raws:
                    raws[rendering_id] = await self._made(connection, tenant, wanted[rendering_id], rendering_id)
            yield raws

    async def _made(self, connection: Connection, tenant: str, scope: VisibleScope, rendering_id: bytes) -> bytes:
        """Make, out of the log, a block that is not stored in this program's version.

        It is missing after an upgrade until the next build, and after a rollback to a snapshot from before the upgrade.
        The process makes one block at a time.
        """
        async with self._making:
            made: BlockView | None = self._cache.get((tenant, "block", rendering_id))
            if made is not None:
                return made.raw
            if not self._has_warned:
                self._has_warned = True
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
            return self._kept(tenant, rendering_id, scope, splice((), fresh=docs, nodes=covers.nodes)).raw

    def _kept(self, tenant: str, rendering_id: bytes, scope: VisibleScope, raw: bytes) -> BlockView:
        view = decode(raw)
        view = replace(view, scope_id=np.broadcast_to(np.int64(scope.scope_id), (len(view),)))
        self._cache.put((tenant, "block", rendering_id), view, view.nbytes)
        return view


def _table(visible: VisibleScopes, known: VisibleBlocks | None) -> ScopeTable | None:
    """Return the table of visible scopes: the one that is known where it has the same, with its indexes of names."""
    if len(visible) < 2:
        return None
    if known is not None and known.table is not None and np.array_equal(known.table.ids, visible.ids):
        return known.table
    return ScopeTable(ids=visible.ids, participants=tuple([scope.participants for scope in visible.scopes]))


def _differences(visible: VisibleScopes, known: VisibleBlocks | None) -> tuple[Sequence[VisibleScope], Ints]:
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


def _without(packed: Pack, mask: Mask | None, gone: Ints) -> tuple[Pack, Mask | None]:
    """Return a pack with a mask that also leaves out the documents of these scopes."""
    shown = ~np.isin(packed.scope_id, gone)
    if mask is not None:
        shown &= mask
    return packed, None if bool(shown.all()) else shown
