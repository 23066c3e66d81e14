"""The scopes that a request's masks see, each once, with its root in the pinned snapshot.

Scopes are only ever added, their participants never change, and neither does a root of a snapshot. So the set of each
mask is kept between requests and topped up: with new scopes when the driver (the participant with the fewest scopes
when the set was first read) has more of them than before, and with the roots that differ when another snapshot is
pinned. A set read by a slightly later transaction does no harm: a scope that only that transaction saw has no document
that this one can see. The union of several masks is kept too, as long as no set in it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import asyncpg
import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints
from myria.log.masks import Mask, Masks
from myria.log.scopes import scope_key
from myria.search.cache import ByteCache
from myria.search.read_slots import Turn

_PAGE = 5_000
_MADE_AT_ONCE = 500
_LOOKED_UP_AT_ONCE = 5_000
_NONE: Ints = np.zeros(0, dtype=np.int64)


Memory = tuple[str, int]
"""A tenant by its name and since when it is, in microseconds since 1970."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisibleScope:
    """A scope that a mask of the request sees.

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
    """All scopes that a request sees, by ascending `ids`, with the `numbers` of their roots.

    `exact` are those of them that only a mask for exactly their participants sees.
    """

    snapshot_id: str | None
    scopes: tuple[VisibleScope, ...]
    ids: Ints
    numbers: Ints
    exact: Ints

    @classmethod
    def of(cls, snapshot_id: str | None, scopes: Sequence[VisibleScope], *, exact: Ints = _NONE) -> VisibleScopes:
        """Return scopes, given by ascending number."""
        return cls(
            snapshot_id=snapshot_id,
            scopes=tuple(scopes),
            ids=np.array([scope.scope_id for scope in scopes], dtype=np.int64),
            numbers=np.array([scope.number for scope in scopes], dtype=np.int64),
            exact=exact,
        )

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Resolved:
    """What one mask sees. Its driver was in `memberships` scopes when this was read; an exact mask has none."""

    visible: VisibleScopes
    driver: str | None = None
    memberships: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Union:
    """What several masks see together: valid as long as what each of them sees is these `parts`."""

    parts: tuple[VisibleScopes, ...]
    visible: VisibleScopes


async def visible_scopes(
    connection: Connection,
    cache: ByteCache,
    memory: Memory,
    masks: Masks,
    snapshot_id: str | None,
    *,
    counted: Mapping[str, int],
    is_active: bool,
    turn: Turn,
) -> VisibleScopes:
    """Return the visible scopes with their roots in a snapshot: the same object as before where nothing has changed.

    Args:
        counted: in how many scopes drivers are, of those that `drivers_of` names; others are counted here.
        is_active: the snapshot is the active one: only then the set is kept.

    Raises:
        HeavyRead: very many scopes must be resolved, and this read has no turn.
    """
    tenant = memory[0]
    seen: dict[Mask, _Resolved | None] = {mask: cache.get((memory, "visible", mask)) for mask in masks}
    memberships = dict(counted)
    appeared = 0
    drivers = sorted(_drivers(seen.values()) - counted.keys())
    absent = [
        scope_key(mask.participants)
        for mask, known in seen.items()
        if known is not None and mask.exact and known.visible.snapshot_id == snapshot_id and not len(known.visible)
    ]
    if drivers or absent:
        rows = await connection.fetch(sql("retrieval.memberships"), tenant, drivers, absent)
        memberships.update((row["participant"], row["memberships"]) for row in rows if row["participant"] is not None)
        appeared = sum(row["memberships"] for row in rows if row["participant"] is None)
    parts: list[VisibleScopes] = []
    for mask, known in seen.items():
        if mask.exact:
            if known is not None and known.visible.snapshot_id == snapshot_id and (len(known.visible) or not appeared):
                resolved = known
            else:
                resolved = await _exactly(connection, tenant, mask.participants, snapshot_id, known)
        elif known is None or known.driver is None:
            resolved = await _containing(connection, tenant, mask.participants, snapshot_id, turn=turn)
        else:
            resolved = await _topped_up(
                connection,
                tenant,
                mask.participants,
                snapshot_id,
                known=known,
                memberships=memberships[known.driver],
                turn=turn,
            )
        if is_active and resolved is not known:
            cache.put((memory, "visible", mask), resolved, resolved.visible.nbytes)
        parts.append(resolved.visible)
    if len(parts) == 1:
        return parts[0]
    key = (memory, "visible", masks)
    union: _Union | None = cache.get(key)
    if union is not None and all(part is before for part, before in zip(parts, union.parts, strict=True)):
        return union.visible
    visible = _union(snapshot_id, masks, parts)
    if is_active:
        cache.put(key, _Union(parts=tuple(parts), visible=visible), visible.nbytes)
    return visible


def drivers_of(cache: ByteCache, memory: Memory, masks: Masks) -> list[str]:
    """Return the drivers of the sets that are kept of these masks: when such a set is topped up tells their count."""
    return sorted(_drivers([cache.peek((memory, "visible", mask)) for mask in masks]))


def _drivers(seen: Iterable[_Resolved | None]) -> set[str]:
    return {known.driver for known in seen if known is not None and known.driver is not None}


def are_kept(cache: ByteCache, memory: Memory, masks: Masks, visible: VisibleScopes) -> bool:
    """Tell whether these visible scopes are the ones that are kept, so that further requests will get them."""
    if len(masks) == 1:
        seen: _Resolved | None = cache.get((memory, "visible", masks.each[0]))
        return seen is not None and seen.visible is visible
    union: _Union | None = cache.get((memory, "visible", masks))
    return union is not None and union.visible is visible


def _union(snapshot_id: str | None, masks: Masks, parts: Sequence[VisibleScopes]) -> VisibleScopes:
    """Return the scopes of all parts, each once: in one snapshot a scope is the same in every part."""
    ids, places = np.unique(np.concatenate([part.ids for part in parts]), return_index=True)
    every = list(chain.from_iterable(part.scopes for part in parts))
    contained = [part.ids for mask, part in zip(masks, parts, strict=True) if not mask.exact]
    seen_widely = np.concatenate(contained) if contained else _NONE
    return VisibleScopes(
        snapshot_id=snapshot_id,
        scopes=tuple([every[place] for place in places.tolist()]),
        ids=ids,
        numbers=np.concatenate([part.numbers for part in parts])[places],
        exact=ids[~np.isin(ids, seen_widely)],
    )


async def _exactly(
    connection: Connection, tenant: str, participants: tuple[str, ...], snapshot_id: str | None, known: _Resolved | None
) -> _Resolved:
    """Return the scope of exactly these participants in a snapshot, where it is there already."""
    if known is not None and len(known.visible):
        changed = await _changed(connection, tenant, known.visible, snapshot_id)
        scopes = [changed.get(scope.scope_id, scope) for scope in known.visible.scopes]
    else:
        row = await connection.fetchrow(sql("retrieval.exact_tree"), tenant, scope_key(participants), snapshot_id)
        if row is None and known is not None and known.visible.snapshot_id == snapshot_id:
            return known
        scopes = [] if row is None else [_scope(row, participants)]
    exact = np.array([scope.scope_id for scope in scopes], dtype=np.int64)
    return _Resolved(visible=VisibleScopes.of(snapshot_id, scopes, exact=exact))


async def _containing(
    connection: Connection, tenant: str, participants: tuple[str, ...], snapshot_id: str | None, *, turn: Turn
) -> _Resolved:
    """Return the scopes that contain all of these participants."""
    row = await connection.fetchrow(sql("retrieval.driver"), tenant, list(participants))
    if row is None:
        raise AssertionError("somebody always asks")
    driver, memberships = row["participant"], row["memberships"]
    turn.weigh(scopes=memberships)
    scopes = await _beyond(connection, tenant, participants, snapshot_id, driver, known=[])
    return _Resolved(visible=VisibleScopes.of(snapshot_id, scopes), driver=driver, memberships=memberships)


async def _topped_up(
    connection: Connection,
    tenant: str,
    participants: tuple[str, ...],
    snapshot_id: str | None,
    *,
    known: _Resolved,
    memberships: int,
    turn: Turn,
) -> _Resolved:
    """Return what is known of a mask with the roots of a snapshot, and with the scopes that are new."""
    visible = known.visible
    if visible.snapshot_id == snapshot_id and memberships <= known.memberships:
        return known
    turn.weigh(scopes=len(visible) if visible.snapshot_id != snapshot_id else memberships - known.memberships)
    scopes = list(visible.scopes)
    if visible.snapshot_id != snapshot_id:
        changed = await _changed(connection, tenant, visible, snapshot_id)
        scopes = [changed.get(scope.scope_id, scope) for scope in scopes]
    if memberships > known.memberships:
        driver, ids = known.driver or "", visible.ids.tolist()
        scopes += await _beyond(connection, tenant, participants, snapshot_id, driver, known=ids)
        scopes.sort(key=lambda scope: scope.scope_id)
    return _Resolved(
        visible=VisibleScopes.of(snapshot_id, scopes),
        driver=known.driver,
        memberships=max(memberships, known.memberships),
    )


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
