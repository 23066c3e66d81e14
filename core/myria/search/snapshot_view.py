"""The snapshot view of one request: a snapshot, the part of the tail it sees, what is hidden, and the visible scopes.

Everything is read inside one REPEATABLE READ transaction, so the snapshot, the tail and the set of scopes belong
together, and a publish in between is not seen. Withdrawals past the snapshot's cutoff are kept between requests with
their number, which only grows: where nothing was withdrawn since the last build, or nothing since the last question, no
statement is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from myria.db.clock import to_datetime, to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.search.cache import ByteCache
from myria.search.cursors import Cursor, expired
from myria.search.read_slots import ReadSlot
from myria.search.scopes import Memory, VisibleScope, VisibleScopes, drivers_of, visible_scopes
from myria.search.visibility import NOTHING, Hidden, Visibility, WithdrawalChange, hidden_by

_MEMORY_BYTES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotView:
    """The view of one request.

    `memory` identifies the tenant, also against a deleted one of the same name: caches use it as a key.
    `snapshot_id` is None and `cutoff` 0 before the first publish. Every event past the cutoff was written by a
    transaction of at least `tail_xid`; no visible event's number is past `newest_seq`. Every transaction below
    `settled` has ended, and its id is never given out again. `visibility` is what this view sees, `now` what the
    request's own transaction sees; they differ if `at_cursor`: the view is then that of an earlier page. `clock` is the
    database's, in microseconds since 1970. Withdrawals past the cutoff are not yet in the snapshot's trees; `hidden` is
    what they, and notes that have ended, hide or bring back; `withdrawn_before` tells whether there are withdrawals up
    to the cutoff, `has_subjects` whether the tenant has subjects in any snapshot, and `is_active` whether the snapshot
    is the active one: only then is what is read of it kept between requests.
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
    withdrawn_before: bool
    hidden: Hidden
    is_active: bool
    has_subjects: bool

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


async def open_snapshot(
    connection: Connection,
    cache: ByteCache,
    tenant: str,
    masks: Masks,
    cursor: Cursor | None,
    *,
    slot: ReadSlot,
    include_superseded: bool = False,
    at: int | None = None,
) -> SnapshotView:
    """Open the view of a request: the newest, or with a cursor that of its first page.

    Args:
        include_superseded: do not hide superseded events.
        at: notes that have ended by this moment are hidden, in microseconds since 1970; None: the database's clock.

    Raises:
        CursorExpired: the cursor's snapshot is no longer kept.
        HeavyRead: very many scopes must be resolved, and this read has no slot.
    """
    moment = None if at is None else to_datetime(at)
    known_memory: Memory | None = cache.peek((tenant, "memory"))
    drivers = [] if known_memory is None else drivers_of(cache, known_memory, masks)
    row = await connection.fetchrow(sql("retrieval.snapshot_view"), tenant, moment, drivers)
    if row is None:
        raise AssertionError("retrieval.snapshot_view always gives one row")
    memory = (tenant, 0 if row["tenant_since"] is None else to_microseconds(row["tenant_since"]))
    if memory != known_memory:
        cache.put((tenant, "memory"), memory, _MEMORY_BYTES)
    now = Visibility.parse(row["visible"])
    active_id = snapshot_id = row["snapshot_id"]
    cutoff, tail_xid = row["cutoff"], row["tail_xid"]
    withdrawn, withdrawn_before = row["withdrawn"], row["withdrawn_before"]
    visibility = now
    if cursor is not None:
        visibility = Visibility.parse(cursor.visible)
        if cursor.snapshot_id != (snapshot_id or ""):
            snapshot_id, cutoff, tail_xid, withdrawn_before = None, None, None, False
            if cursor.snapshot_id:
                cursor_row = await connection.fetchrow(sql("retrieval.snapshot_of_cursor"), tenant, cursor.snapshot_id)
                if cursor_row is None:
                    raise expired()
                snapshot_id, cutoff, tail_xid = cursor_row["snapshot_id"], cursor_row["cutoff"], cursor_row["tail_xid"]
                withdrawn, withdrawn_before = cursor_row["withdrawn"], cursor_row["withdrawn_before"]
            else:
                withdrawn = await connection.fetchval(sql("retrieval.count_withdrawn"), tenant)
    hidden = await _hidden_from(
        connection,
        cache,
        memory,
        cutoff=cutoff or 0,
        count=withdrawn,
        seen_by=None if cursor is None else visibility,
        with_superseded=include_superseded,
    )
    if row["notes_may_have_ended"]:
        ended_notes = await connection.fetch(sql("retrieval.ended"), tenant, moment)
        hidden = hidden.also(
            [(note["event_seq"], note["scope_id"], to_microseconds(note["occurred_at"])) for note in ended_notes]
        )
    return SnapshotView(
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
        # are given out again, and what was read up to them would miss the events of their second owners.
        settled=min(now.xmin, (row["newest_xid"] or 0) + 1),
        clock=to_microseconds(row["clock"]),
        visible=await visible_scopes(
            connection,
            cache,
            memory,
            masks,
            snapshot_id,
            counted=dict(zip(drivers, row["memberships"], strict=True)),
            is_active=snapshot_id == active_id,
            slot=slot,
        ),
        withdrawn_before=withdrawn_before,
        hidden=hidden,
        is_active=snapshot_id == active_id,
        has_subjects=row["has_subjects"],
    )


async def _hidden_from(
    connection: Connection,
    cache: ByteCache,
    memory: Memory,
    *,
    cutoff: int,
    count: int,
    seen_by: Visibility | None,
    with_superseded: bool,
) -> Hidden:
    """Return what withdrawals hide from a request; no statement is needed if no further one has come.

    Args:
        cutoff: the snapshot's: withdrawals past it are not in its trees.
        count: how many withdrawals past the cutoff the request's transaction sees; the number only grows.
        seen_by: what the first page saw, None on a first page. What a later page hides is its own, and is not kept.
        with_superseded: whether to show superseded events.
    """
    if not count:
        return NOTHING
    key = (memory, "hidden", cutoff, with_superseded)
    if seen_by is None:
        kept: tuple[int, Hidden] | None = cache.get(key)
        if kept is not None and kept[0] == count:
            return kept[1]
    hidden = hidden_by(
        await _withdrawals(connection, cache, memory, cutoff=cutoff, count=count),
        (cutoff, count, with_superseded) if seen_by is None else None,
        cutoff=cutoff,
        view=seen_by,
        with_superseded=with_superseded,
    )
    if seen_by is None:
        cache.put(key, (count, hidden), 200 + 100 * count)
    return hidden


async def ended_now(connection: Connection, tenant: str) -> Hidden:
    """Return what no tree of a tenant must show now, as it is of notes that have ended, by the rules of answers."""
    ended_notes = await connection.fetch(sql("retrieval.ended"), tenant, None)
    return NOTHING.also(
        [(note["event_seq"], note["scope_id"], to_microseconds(note["occurred_at"])) for note in ended_notes]
    )


async def withdrawn_of_scope(connection: Connection, tenant: str, scope_id: int, cutoff: int) -> Hidden:
    """Return what the trees of a scope, in a snapshot with this cutoff, must not show now, as it was withdrawn."""
    rows = await connection.fetch(sql("retrieval.withdrawn_of_scope"), tenant, scope_id, cutoff)
    if not rows:
        return NOTHING
    moments = sorted(to_microseconds(row["occurred_at"]) for row in rows)
    return Hidden(
        seqs=np.array([row["event_seq"] for row in rows], dtype=np.int64),
        places={scope_id: np.array(moments, dtype=np.int64)},
    )


async def _withdrawals(
    connection: Connection, cache: ByteCache, memory: Memory, *, cutoff: int, count: int
) -> Sequence[WithdrawalChange]:
    """Return the withdrawals past a cutoff, from the cache if it has `count` of them."""
    key = (memory, "withdrawals", cutoff)
    kept: tuple[int, Sequence[WithdrawalChange]] | None = cache.get(key)
    if kept is not None and kept[0] == count:
        return kept[1]
    changes = await _changes_past(connection, memory[0], cutoff)
    cache.put(key, (count, changes), 200 + 300 * count)
    return changes


async def _changes_past(connection: Connection, tenant: str, cutoff: int) -> Sequence[WithdrawalChange]:
    return [
        WithdrawalChange(
            event_seq=row["event_seq"],
            scope_id=row["scope_id"],
            occurred_at=to_microseconds(row["occurred_at"]),
            reason=row["reason"],
            xid=row["xid"],
            was_withdrawn=row["was_withdrawn"],
            superseded_by=row["superseded_by"] if row["reason"] == "superseded" else None,
        )
        for row in await connection.fetch(sql("retrieval.withdrawn"), tenant, cutoff)
    ]
