"""The scopes that a request's masks see, each once, with its root in the snapshot.

Scopes are only ever added, their participants never change, and neither does a root of a snapshot. So the set of each
mask is kept between requests and topped up: with new scopes when the driver (the participant with the fewest scopes
when the set was first read) has more of them than before, and with the roots that differ in another snapshot. A set
read by a slightly later transaction does no harm: a scope that only that transaction saw has no document that this one
can see. The union of several masks is kept too, as long as no set in it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import asyncpg
import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints
from myria.log.masks import Masks
from myria.log.scopes import scope_key
from myria.search.cache import ByteCache
from myria.search.read_slots import ReadSlot

_PAGE = 5_000
_MADE_AT_ONCE = 500
_LOOKED_UP_AT_ONCE = 5_000
_NONE: Ints = np.zeros(0, dtype=np.int64)


Memory = tuple[str, int]
"""A tenant: its name, and when it was created, in microseconds since 1970 (a deleted one may have had its name)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisibleScope:
    """A scope that a mask of the request sees.

    `root` is its root rendering in the snapshot, `number` that of the snapshot which made it, and `blocks` the
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
        """Build the set of some scopes, which come by ascending scope_id."""
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
    """The scopes that one mask sees.

    `driver` is the mask's participant with the fewest scopes, and `memberships` how many these were when this was read:
    if it has more by now, there may be new scopes. An exact mask has no driver.
    """

    visible: VisibleScopes
    driver: str | None = None
    memberships: int = 0


async def visible_scopes(
    connection: Connection,
    cache: ByteCache,
    memory: Memory,
    masks: Masks,
    snapshot_id: str | None,
    *,
    counted: Mapping[str, int],
    is_active: bool,
    slot: ReadSlot,
) -> VisibleScopes:
    """Return the scopes that any mask sees, with their roots in a snapshot.

    If nothing has changed it is the same object as before, so that what was made of it stays valid.

    Args:
        counted: by driver that `drivers_of` names, to how many scopes it belongs now.
        is_active: whether the snapshot is the active one: only then is the set kept.

    Raises:
        HeavyRead: very many scopes must be resolved, and this read has no slot.
    """
    tenant = memory[0]
    parts: list[VisibleScopes] = []
    for mask in masks:
        previous: _Resolved | None = cache.get((memory, "visible", mask))
        if mask.exact:
            resolved = await _exact_scope(connection, tenant, mask.participants, snapshot_id, previous)
        elif previous is None or previous.driver is None or previous.driver not in counted:
            resolved = await _containing_scopes(connection, tenant, mask.participants, snapshot_id, slot=slot)
        else:
            resolved = await _bring_up_to_date(
                connection,
                tenant,
                mask.participants,
                snapshot_id,
                previous=previous,
                memberships=counted[previous.driver],
                slot=slot,
            )
        if is_active and resolved is not previous:
            cache.put((memory, "visible", mask), resolved, resolved.visible.nbytes)
        parts.append(resolved.visible)
    if len(parts) == 1:
        return parts[0]
    key = (memory, "visible", masks)
    union: tuple[list[VisibleScopes], VisibleScopes] | None = cache.get(key)
    if union is not None and all(part is former_part for part, former_part in zip(parts, union[0], strict=True)):
        return union[1]
    visible = _union(snapshot_id, masks, parts)
    if is_active:
        cache.put(key, (parts, visible), visible.nbytes)
    return visible


def drivers_of(cache: ByteCache, memory: Memory, masks: Masks) -> list[str]:
    """Return the drivers of the sets kept for these masks: a driver in more scopes than before shows a set outdated."""
    known: list[_Resolved | None] = [cache.peek((memory, "visible", mask)) for mask in masks]
    return sorted({resolved.driver for resolved in known if resolved is not None and resolved.driver is not None})


def _union(snapshot_id: str | None, masks: Masks, parts: Sequence[VisibleScopes]) -> VisibleScopes:
    """Unite the scopes of all masks, each once; in one snapshot a scope is the same whichever mask sees it."""
    ids, places = np.unique(np.concatenate([part.ids for part in parts]), return_index=True)
    all_scopes = list(chain.from_iterable(part.scopes for part in parts))
    ids_seen_widely = [part.ids for mask, part in zip(masks, parts, strict=True) if not mask.exact]
    widely_seen = np.concatenate(ids_seen_widely) if ids_seen_widely else _NONE
    return VisibleScopes(
        snapshot_id=snapshot_id,
        scopes=tuple([all_scopes[place] for place in places.tolist()]),
        ids=ids,
        numbers=np.concatenate([part.numbers for part in parts])[places],
        exact=ids[~np.isin(ids, widely_seen)],
    )


async def _exact_scope(
    connection: Connection,
    tenant: str,
    participants: tuple[str, ...],
    snapshot_id: str | None,
    previous: _Resolved | None,
) -> _Resolved:
    """Return the scope of exactly these participants with its root in a snapshot; an empty set without such a scope."""
    is_current = previous is not None and previous.visible.snapshot_id == snapshot_id
    if previous is not None and is_current and len(previous.visible):
        return previous
    row = await connection.fetchrow(sql("retrieval.exact_tree"), tenant, scope_key(participants), snapshot_id)
    if row is None and previous is not None and is_current:
        return previous  # the same object: what is made of it stays valid
    scopes = [] if row is None else [_scope(row, participants)]
    exact = np.array([scope.scope_id for scope in scopes], dtype=np.int64)
    return _Resolved(visible=VisibleScopes.of(snapshot_id, scopes, exact=exact))


async def _containing_scopes(
    connection: Connection, tenant: str, participants: tuple[str, ...], snapshot_id: str | None, *, slot: ReadSlot
) -> _Resolved:
    """Read the scopes that contain all of these participants, and the driver among these."""
    row = await connection.fetchrow(sql("retrieval.driver"), tenant, list(participants))
    if row is None:
        raise AssertionError("somebody always asks")
    driver, memberships = row["participant"], row["memberships"]
    slot.weigh(scopes=memberships)
    scopes = await _read_new_scopes(connection, tenant, participants, snapshot_id, driver, known_ids=[])
    return _Resolved(visible=VisibleScopes.of(snapshot_id, scopes), driver=driver, memberships=memberships)


async def _bring_up_to_date(
    connection: Connection,
    tenant: str,
    participants: tuple[str, ...],
    snapshot_id: str | None,
    *,
    previous: _Resolved,
    memberships: int,
    slot: ReadSlot,
) -> _Resolved:
    """Bring a mask's known scopes up to date: with the roots of a snapshot, and with scopes that are new."""
    visible = previous.visible
    if visible.snapshot_id == snapshot_id and memberships <= previous.memberships:
        return previous
    slot.weigh(scopes=len(visible) if visible.snapshot_id != snapshot_id else memberships - previous.memberships)
    scopes = list(visible.scopes)
    if visible.snapshot_id != snapshot_id:
        changed = await _read_changed_scopes(connection, tenant, visible, snapshot_id)
        scopes = [changed.get(scope.scope_id, scope) for scope in scopes]
    if memberships > previous.memberships:
        driver, ids = previous.driver or "", visible.ids.tolist()
        scopes += await _read_new_scopes(connection, tenant, participants, snapshot_id, driver, known_ids=ids)
        scopes.sort(key=lambda scope: scope.scope_id)
    return _Resolved(
        visible=VisibleScopes.of(snapshot_id, scopes),
        driver=previous.driver,
        memberships=max(memberships, previous.memberships),
    )


async def _read_new_scopes(
    connection: Connection,
    tenant: str,
    participants: tuple[str, ...],
    snapshot_id: str | None,
    driver: str,
    *,
    known_ids: list[int],
) -> list[VisibleScope]:
    """Read, page by page, the visible scopes whose ids are not in `known_ids`."""
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
            known_ids,
        )
        for start in range(0, len(rows), _MADE_AT_ONCE):
            new_scopes += [_scope(row, tuple(row["participants"])) for row in rows[start : start + _MADE_AT_ONCE]]
            await asyncio.sleep(0)  # others on the loop do not wait for thousands of scopes
        if len(rows) < _PAGE:
            return new_scopes


async def _read_changed_scopes(
    connection: Connection, tenant: str, previous: VisibleScopes, snapshot_id: str | None
) -> dict[int, VisibleScope]:
    """Read the known scopes whose root differs in a snapshot; return them as they are there, by scope_id."""
    changed: dict[int, VisibleScope] = {}
    ids, numbers = previous.ids.tolist(), previous.numbers.tolist()
    for start in range(0, len(ids), _LOOKED_UP_AT_ONCE):
        end = start + _LOOKED_UP_AT_ONCE
        rows = await connection.fetch(
            sql("retrieval.changed_trees"), tenant, ids[start:end], numbers[start:end], snapshot_id
        )
        for row in rows:
            scope = previous.scope(row["scope_id"])
            if scope is not None:
                changed[scope.scope_id] = _scope(row, scope.participants)
    return changed


def _scope(row: asyncpg.Record, participants: tuple[str, ...]) -> VisibleScope:
    """Build a scope of a row; its columns are null if the scope has no tree in the snapshot."""
    return VisibleScope(
        scope_id=row["scope_id"],
        participants=participants,
        number=row["number"] or 0,
        root=row["root_rendering_id"],
        blocks=tuple(row["blocks"] or ()),
    )
