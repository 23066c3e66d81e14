"""What the visible trees hold: the search blocks of large scopes, and packs of those of all the small ones.

Blocks are immutable and cached by content: large ones for everyone who sees them, packs for one list of masks. When a
snapshot changes some scopes, their rows are masked out of the packs, and what they hold now becomes a small pack beside
them; a few such packs are joined into one. Once a quarter is masked out, all are read and packed again. So the cost of
publishes to a reader grows with what they changed, and a question costs no work per scope.
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
from myria.index.block import BlockView, Ints, decode, splice
from myria.index.corpus import Mask, ScopeTable
from myria.index.documents import Doc
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
"""Packs that are added, one with each snapshot that changed a small scope, before these are joined into one."""

_HIDDEN_SHARE = 4
"""All are packed anew when more than one in so many of their documents is masked out: .6 s of CPU for 5,000 scopes."""

_ANALYSED_AT_ONCE = 128
_READ_AT_ONCE = 256
_BYTES_AT_ONCE = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class VisibleBlocks:
    """The visible trees, ready to be searched.

    `table` lists the scopes, None for a single one. The scopes of `alone` are searched by their own blocks, all others
    in `packs`: each has a mask of its documents that count (None: all). The last `added` packs came with later
    snapshots, for scopes that these changed.
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
    def is_mostly_shown(self) -> bool:
        """Tell whether few enough documents of the packs are masked out to go on with them."""
        docs = sum(len(packed) for packed, _ in self.packs)
        hidden = sum(int(np.count_nonzero(~mask)) for _, mask in self.packs if mask is not None)
        return hidden * _HIDDEN_SHARE <= docs


class BlockReader:
    """Loads and keeps what visible trees hold, within the cache's bytes."""

    def __init__(self, cache: ByteCache, threads: ThreadPoolExecutor) -> None:
        self._cache = cache
        self._threads = threads
        self._making = asyncio.Lock()
        self._has_warned = False

    async def visible(self, connection: Connection, snapshot: SnapshotView) -> VisibleBlocks:
        """Return the blocks and packs of all trees that a request sees, from the cache as far as they are unchanged.

        Raises:
            InternalError: a block of a retained snapshot is damaged, or neither it nor its events are there.
        """
        visible = snapshot.visible
        key = (snapshot.memory, "visible blocks", snapshot.masks)
        previous: VisibleBlocks | None = self._cache.get(key)
        if previous is not None and previous.visible is visible:
            return previous
        if len(visible) < SHARED_FROM:
            blocks = VisibleBlocks(visible=visible, table=_table(visible, previous), alone=visible.scopes)
        else:
            if previous is not None and not (previous.is_mostly_shown and len(previous.visible) >= SHARED_FROM):
                previous = None
            blocks = await self._pack_scopes(connection, snapshot.tenant, visible, previous)
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
                views[rendering_id] = self._cache_block(tenant, rendering_id, missing[rendering_id], raw)
        return tuple([views[rendering_id] for scope in scopes for rendering_id in scope.blocks])

    async def _pack_scopes(
        self, connection: Connection, tenant: str, visible: VisibleScopes, previous: VisibleBlocks | None
    ) -> VisibleBlocks:
        """Pack the small scopes, taking over the packs in `previous` and adding one for the scopes that changed since.

        Args:
            previous: the packs of an earlier request, None to pack all scopes.
        """
        changed, outdated = _differences(visible, previous)
        alone_ids = set() if previous is None else {scope.scope_id for scope in previous.alone} - set(outdated.tolist())
        packs = [] if previous is None else [_mask_out(packed, mask, outdated) for packed, mask in previous.packs]
        added = 0 if previous is None else previous.added
        joined: Sequence[VisibleScope] = ()
        if added >= MOST_ADDED:
            joined, packs, added = _scopes_shown(packs[-added:], visible), packs[:-added], 0
        packs_before = len(packs)
        small: dict[bytes, VisibleScope] = {}
        for scope in (*changed, *joined):
            if len(scope.blocks) == 1:
                small[scope.blocks[0]] = scope
            elif scope.blocks:
                alone_ids.add(scope.scope_id)
        blocks: list[tuple[int, bytes]] = []
        async for raws in self._read(connection, tenant, small):
            for rendering_id, raw in raws.items():
                scope = small[rendering_id]
                if len(raw) > SMALL_BYTES:
                    alone_ids.add(scope.scope_id)
                    self._cache_block(tenant, rendering_id, scope, raw)
                else:
                    blocks.append((scope.scope_id, raw))
            if sum(len(raw) for _, raw in blocks) > _BYTES_AT_ONCE:
                packs.append((await self._pack(blocks), None))
                blocks = []
        if blocks:
            packs.append((await self._pack(blocks), None))
        made = len(packs) - packs_before
        if joined:
            made = min(made, 1)  # all but the last are full: they need not be joined again
        return VisibleBlocks(
            visible=visible,
            table=_table(visible, previous),
            alone=tuple([scope for scope in visible.scopes if scope.scope_id in alone_ids]),
            packs=tuple(packs),
            added=0 if previous is None else added + made,
        )

    async def _pack(self, blocks: Sequence[tuple[int, bytes]]) -> Pack:
        return await asyncio.get_running_loop().run_in_executor(self._threads, pack, blocks)

    async def _read(
        self, connection: Connection, tenant: str, scope_of: Mapping[bytes, VisibleScope]
    ) -> AsyncIterator[dict[bytes, bytes]]:
        """Yield the bytes of search blocks by rendering, a batch at a time; missing blocks are made from the log.

        Args:
            scope_of: the scope of each rendering whose block is read.
        """
        unread = list(scope_of)
        for start in range(0, len(unread), _READ_AT_ONCE):
            batch = unread[start : start + _READ_AT_ONCE]
            records = await connection.fetch(sql("retrieval.blocks"), tenant, batch, SEARCH_VERSION)
            raws: dict[bytes, bytes] = {record["rendering_id"]: record["block"] for record in records}
            for rendering_id in batch:
                if rendering_id not in raws:
                    raws[rendering_id] = await self._make_block(
                        connection, tenant, scope_of[rendering_id], rendering_id
                    )
            yield raws

    async def _make_block(self, connection: Connection, tenant: str, scope: VisibleScope, rendering_id: bytes) -> bytes:
        """Make, out of the log, the bytes of a block that is not stored in this program's version.

        It is missing after an upgrade until the next build, and after a rollback to a snapshot from before the upgrade.
        The process makes one block at a time.
        """
        async with self._making:
            # Another request may have made it while this one waited.
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
            event_seqs = sorted(covers.leaf_of)
            docs: list[Doc] = []
            for start in range(0, len(event_seqs), _ANALYSED_AT_ONCE):
                batch = event_seqs[start : start + _ANALYSED_AT_ONCE]
                rows = await connection.fetch(sql("events.by_seqs"), tenant, batch, [scope.scope_id])
                docs += [document(row, leaf=covers.leaf_of[row["event_seq"]]) for row in rows]
            if not event_seqs or len(docs) != len(event_seqs):
                raise InternalError("a topic's events are not there; see myria verify", rendering_id=rendering_id.hex())
            return self._cache_block(tenant, rendering_id, scope, splice((), fresh=docs, nodes=covers.nodes)).raw

    def _cache_block(self, tenant: str, rendering_id: bytes, scope: VisibleScope, raw: bytes) -> BlockView:
        """Decode a block, note its scope at each document, and cache it."""
        view = decode(raw)
        view = replace(view, scope_id=np.broadcast_to(np.int64(scope.scope_id), (len(view),)))
        self._cache.put((tenant, "block", rendering_id), view, view.nbytes)
        return view


def _table(visible: VisibleScopes, previous: VisibleBlocks | None) -> ScopeTable | None:
    """Return the table of the visible scopes, None for fewer than two.

    The known table is used again if it has the same scopes: its indexes of names are made already.
    """
    if len(visible) < 2:
        return None
    if previous is not None and previous.table is not None and np.array_equal(previous.table.ids, visible.ids):
        return previous.table
    return ScopeTable(ids=visible.ids, participants=tuple([scope.participants for scope in visible.scopes]))


def _differences(visible: VisibleScopes, previous: VisibleBlocks | None) -> tuple[Sequence[VisibleScope], Ints]:
    """Return the scopes that are new or have a changed tree, and the ids of those whose known trees are outdated."""
    if previous is None:
        return visible.scopes, np.zeros(0, dtype=np.int64)
    former = previous.visible
    places = visible.ids.searchsorted(former.ids)
    places[places == len(visible.ids)] = 0
    is_same = (visible.ids[places] == former.ids) & (visible.numbers[places] == former.numbers)
    unchanged = np.zeros(len(visible), dtype=np.bool_)
    unchanged[places[is_same]] = True
    return [visible.scopes[place] for place in np.flatnonzero(~unchanged).tolist()], former.ids[~is_same]


def _scopes_shown(packs: Sequence[tuple[Pack, Mask | None]], visible: VisibleScopes) -> list[VisibleScope]:
    """Return the scopes of which packs have a document that counts."""
    shown = np.concatenate([packed.scope_id if mask is None else packed.scope_id[mask] for packed, mask in packs])
    return [visible.scopes[place] for place in visible.ids.searchsorted(np.unique(shown)).tolist()]


def _mask_out(packed: Pack, mask: Mask | None, outdated: Ints) -> tuple[Pack, Mask | None]:
    """Return a pack with a mask that also leaves out the documents of outdated scopes; None if it leaves out none."""
    is_shown = ~np.isin(packed.scope_id, outdated)
    if mask is not None:
        is_shown &= mask
    return packed, None if bool(is_shown.all()) else is_shown
