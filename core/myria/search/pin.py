"""The view of one request: the pinned snapshot, the part of the tail it sees, and the scopes it may read.

Everything is read inside one REPEATABLE READ transaction, so the snapshot, the tail and the set of scopes belong
together, and a publish in between is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from myria.db.clock import to_datetime, to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.search.cache import ByteCache
from myria.search.cursors import Cursor, expired
from myria.search.read_slots import Turn
from myria.search.scopes import Memory, VisibleScope, VisibleScopes, drivers_of, visible_scopes
from myria.search.visibility import Visibility
from myria.search.withdrawn import Hidden, hidden_from

_MEMORY_BYTES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """The view of one request.

    `memory` tells the tenant from a deleted one of its name: what is kept between requests is kept under it.
    `snapshot_id` is None and `cutoff` 0 before the first publish. Every event past the cutoff has a transaction of
    at least `tail_xid`, and no visible one a number past `newest_seq`. Every transaction below `settled` has ended,
    and its id is never given out again. `at_cursor` tells that the view is that of an earlier page, not the newest.
    `clock` is the database's, in microseconds since 1970. Withdrawals past `floor` are not in the snapshot's trees;
    `hidden` is what they, and notes that have ended, change for this request; `withdrawn_before` tells whether there
    are any up to the floor, `has_subjects` whether the tenant has subjects in any snapshot.
    """

    tenant: str
    memory: Memory
    masks: Masks
    snapshot_id: str | None
    cutoff: int
    tail_xid: int
    newest_seq: int
    visibility: Visibility
    now: Visibility
    settled: int
    clock: int
    visible: VisibleScopes
    floor: int
    withdrawn_before: bool
    hidden: Hidden
    has_subjects: bool = False

    @property
    def at_cursor(self) -> bool:
        """Whether this view is an earlier page's."""
        return self.visibility.text != self.now.text

    @property
    def scopes(self) -> tuple[VisibleScope, ...]:
        """The visible scopes, by ascending number."""
        return self.visible.scopes

    def scope(self, scope_id: int) -> VisibleScope | None:
        """Return a scope by its number, or None when it is not visible."""
        return self.visible.scope(scope_id)


async def pin(
    connection: Connection,
    cache: ByteCache,
    tenant: str,
    masks: Masks,
    cursor: Cursor | None,
    *,
    turn: Turn,
    include_superseded: bool = False,
    at: int | None = None,
) -> Pinned:
    """Return the view of a request, or that of the cursor's first page.

    Args:
        include_superseded: what was superseded is not hidden.
        at: by which notes have ended, in microseconds since 1970; left out, the database's clock.

    Raises:
        CursorExpired: the cursor's snapshot is no longer kept.
        HeavyRead: very many scopes must be resolved, and this read has no turn.
    """
    moment = None if at is None else to_datetime(at)
    before: Memory | None = cache.peek((tenant, "memory"))
    drivers = [] if before is None else drivers_of(cache, before, masks)
    row = await connection.fetchrow(sql("retrieval.pin"), tenant, moment, drivers)
    if row is None:
        raise AssertionError("the pin always gives one row")
    memory = (tenant, 0 if row["tenant_since"] is None else to_microseconds(row["tenant_since"]))
    if memory != before:
        cache.put((tenant, "memory"), memory, _MEMORY_BYTES)
    now = Visibility.parse(row["visible"])
    active = snapshot_id = row["snapshot_id"]
    cutoff, tail_xid = row["cutoff"], row["tail_xid"]
    floor, withdrawn, withdrawn_before = row["withdrawn_floor"], row["withdrawn"], row["withdrawn_before"]
    visibility = now
    if cursor is not None:
        visibility = Visibility.parse(cursor.visible)
        if cursor.snapshot_id != (snapshot_id or ""):
            snapshot_id, cutoff, tail_xid, floor, withdrawn_before = None, None, None, 0, False
            if cursor.snapshot_id:
                pinned_row = await connection.fetchrow(sql("retrieval.pin_again"), tenant, cursor.snapshot_id)
                if pinned_row is None:
                    raise expired()
                snapshot_id, cutoff, tail_xid = pinned_row["snapshot_id"], pinned_row["cutoff"], pinned_row["tail_xid"]
                floor, withdrawn = pinned_row["withdrawn_floor"], pinned_row["withdrawn"]
                withdrawn_before = pinned_row["withdrawn_before"]
            else:
                withdrawn = await connection.fetchval(sql("retrieval.count_withdrawn"), tenant)
    hidden = await hidden_from(
        connection,
        cache,
        memory,
        floor=floor,
        cutoff=cutoff or 0,
        rows=withdrawn,
        visibility=visibility,
        at_cursor=cursor is not None,
        with_superseded=include_superseded,
    )
    if row["notes_may_have_ended"]:
        ended = await connection.fetch(sql("retrieval.ended"), tenant, moment)
        hidden = hidden.also(
            [(end["event_seq"], end["scope_id"], to_microseconds(end["occurred_at"])) for end in ended]
        )
    return Pinned(
        tenant=tenant,
        memory=memory,
        masks=masks,
        snapshot_id=snapshot_id,
        cutoff=cutoff or 0,
        tail_xid=tail_xid or 0,
        newest_seq=row["newest_seq"] or 0,
        visibility=visibility,
        now=now,
        # Not simply xmin: ids of transactions that a crash of PostgreSQL forgot (rolled back, or without an effect)
        # are given out again, and a lane that was read up to them would miss the events of their second owners.
        settled=min(now.xmin, (row["newest_xid"] or 0) + 1),
        clock=to_microseconds(row["clock"]),
        visible=await visible_scopes(
            connection,
            cache,
            memory,
            masks,
            snapshot_id,
            counted=dict(zip(drivers, row["memberships"], strict=True)),
            is_active=snapshot_id == active,
            turn=turn,
        ),
        floor=floor,
        withdrawn_before=withdrawn_before,
        hidden=hidden,
        has_subjects=row["has_subjects"],
    )
