"""The scopes that everyone who asks belongs to, each with its root in the pinned snapshot.

Scopes are only ever added, their participants never change, and neither does a root of a snapshot. So the set is kept
between requests and topped up: with new scopes when the driver (the participant with the fewest scopes when the set
was first read) has more of them than before, and with the roots that differ when another snapshot is pinned. A set read
by a slightly later transaction does no harm: a scope that only that transaction saw has no document that this one can
see.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import chain

import asyncpg
import numpy as np

from myria.index.block import Ints
from myria.retrieval.cache import ByteCache
from myria.retrieval.turns import Turn
from myria.store.database import Connection
from myria.store.queries import sql

_PAGE = 5_000
_MADE_AT_ONCE = 500
_LOOKED_UP_AT_ONCE = 5_000


Memory = tuple[str, int]
"""A tenant by its name and since when it is, in microseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleScope:
    """A scope that everyone who asks belongs to.

    `root` is its root rendering in the pinned snapshot, `number` that of the snapshot which made it, and `blocks` the
    renderings whose search blocks cover it, in time order; None, 0 and empty while the scope has no tree there.
    """

    scope_id: int
    participants: tuple[str, ...]
    number: int
    root: bytes | None
    blocks: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class VisibleScopes:
    """All scopes that some participants see together, by ascending `ids`, with the `numbers` of their roots.

    The driver was in `memberships` scopes when this was read.
    """

    snapshot_id: str | None
    driver: str
    memberships: int
    scopes: tuple[VisibleScope, ...]
    ids: Ints
    numbers: Ints

    def __len__(self) -> int:
        return len(self.scopes)

    def scope(self, scope_id: int) -> VisibleScope | None:
        """Return a scope by its number, or None when it is not visible."""
        at = int(self.ids.searchsorted(scope_id))
        return self.scopes[at] if at < len(self.ids) and self.ids[at] == scope_id else None

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory it holds."""
        names = sum(map(len, chain.from_iterable(scope.participants for scope in self.scopes)))
        members = sum(len(scope.participants) for scope in self.scopes)
        blocks = sum(len(scope.blocks) for scope in self.scopes)
        return 1_000 + 300 * len(self.scopes) + 60 * members + names + 75 * blocks


async def visible_scopes(
    connection: Connection,
    cache: ByteCache,
    memory: Memory,
    participants: tuple[str, ...],
    snapshot_id: str | None,
    *,
    is_active: bool,
    turn: Turn,
) -> VisibleScopes:
    """Return the visible scopes with their roots in a snapshot.

    Args:
        is_active: the snapshot is the active one: only then the set is kept.

    Raises:
        HeavyRead: very many scopes must be resolved, and this read has no turn.
    """
    tenant = memory[0]
    key = (memory, "visible", participants)
    known: VisibleScopes | None = cache.get(key)
    if known is None:
        row = await connection.fetchrow(sql("retrieval.driver"), tenant, list(participants))
        if row is None:
            raise AssertionError("somebody always asks")
        driver, memberships = row["participant"], row["memberships"]
        turn.weigh(scopes=memberships)
        scopes = await _beyond(connection, tenant, participants, snapshot_id, driver, known=[])
    else:
        driver = known.driver
        memberships = await connection.fetchval(sql("retrieval.memberships"), tenant, driver)
        if known.snapshot_id == snapshot_id and memberships <= known.memberships:
            return known
        turn.weigh(scopes=len(known) if known.snapshot_id != snapshot_id else memberships - known.memberships)
        scopes = list(known.scopes)
        if known.snapshot_id != snapshot_id:
            changed = await _changed(connection, tenant, known, snapshot_id)
            scopes = [changed.get(scope.scope_id, scope) for scope in scopes]
        if memberships > known.memberships:
            scopes += await _beyond(connection, tenant, participants, snapshot_id, driver, known=known.ids.tolist())
            scopes.sort(key=lambda scope: scope.scope_id)
        memberships = max(memberships, known.memberships)
    resolved = VisibleScopes(
        snapshot_id=snapshot_id,
        driver=driver,
        memberships=memberships,
        scopes=tuple(scopes),
        ids=np.array([scope.scope_id for scope in scopes], dtype=np.int64),
        numbers=np.array([scope.number for scope in scopes], dtype=np.int64),
    )
    if is_active:
        cache.put(key, resolved, resolved.nbytes)
    return resolved


async def _beyond(
    connection: Connection,
    tenant: str,
    participants: tuple[str, ...],
    snapshot_id: str | None,
    driver: str,
    *,
    known: list[int],
) -> list[VisibleScope]:
    """Return the visible scopes that are not known yet."""
    new_scopes: list[VisibleScope] = []
    while True:
        rows = await connection.fetch(
            sql("retrieval.visible_trees"),
            tenant,
            list(participants),
            snapshot_id,
            driver,
            new_scopes[-1].scope_id if new_scopes else 0,
            _PAGE,
            known,
        )
        for at in range(0, len(rows), _MADE_AT_ONCE):
            new_scopes += [_scope(row, tuple(row["participants"])) for row in rows[at : at + _MADE_AT_ONCE]]
            await asyncio.sleep(0)  # others on the loop do not wait for thousands of scopes
        if len(rows) < _PAGE:
            return new_scopes


async def _changed(
    connection: Connection, tenant: str, known: VisibleScopes, snapshot_id: str | None
) -> dict[int, VisibleScope]:
    """Return the known scopes whose root differs in a snapshot, by number."""
    changed: dict[int, VisibleScope] = {}
    ids, numbers = known.ids.tolist(), known.numbers.tolist()
    for at in range(0, len(ids), _LOOKED_UP_AT_ONCE):
        until = at + _LOOKED_UP_AT_ONCE
        rows = await connection.fetch(
            sql("retrieval.changed_trees"), tenant, ids[at:until], numbers[at:until], snapshot_id
        )
        for row in rows:
            scope = known.scope(row["scope_id"])
            if scope is not None:
                changed[scope.scope_id] = _scope(row, scope.participants)
    return changed


def _scope(row: asyncpg.Record, participants: tuple[str, ...]) -> VisibleScope:
    return VisibleScope(
        scope_id=row["scope_id"],
        participants=participants,
        number=row["number"] or 0,
        root=row["root_rendering_id"],
        blocks=tuple(row["blocks"] or ()),
    )
