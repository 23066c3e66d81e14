"""Withdraw events, restore them, and replace them; each command is one atomic append."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from myria import errors
from myria.db.clock import rfc3339_of, to_microseconds
from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.ids import new_id
from myria.log.limits import MAX_WITHDRAWN
from myria.log.payloads import dedupe_key
from myria.log.withdrawal.model import (
    WITHDRAWAL_CHANNEL,
    WITHDRAWAL_TYPE,
    WITHHELD,
    Reason,
    Withdrawal,
    withdrawal_event,
)
from myria.log.withdrawal.projection import already_superseded, is_stored, refuses, withheld

MaySee = Callable[[Sequence[str]], bool]
"""Tells whether the caller may see events of these participants."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WithdrawalResult:
    """What a withdrawal did, or would do: ids of events that it changes, and of those already in that state."""

    reason: Reason
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Return the answer of withdraw_events and restore_events."""
        return {
            "reason": self.reason,
            "event_ids": list(self.changed),
            "unchanged": list(self.unchanged),
            "dry_run": self.dry_run,
        }


_ACTS = 20
"""Withdrawals and restorations of one event that are told, the newest."""

_NEWEST = 1_000
"""Withdrawals of a tenant among which is looked for what was forgotten lately."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restorable:
    """A note or an event that was forgotten: by what id it is restored, and without a word of it, which one it is.

    `kind` is a note's, None of an event. `said_at` is when the event was, or the note's last version; `at` is when it
    was forgotten (both RFC 3339), and `by` by whom, None where nobody is named.
    """

    restored_by: str
    kind: str | None
    channel: str
    said_at: str
    at: str
    by: str | None

    @property
    def is_note(self) -> bool:
        """Whether it is a note."""
        return self.kind is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class WithdrawalAct:
    """That an event was withdrawn or restored: when (RFC 3339), by whom, and a reviewer's words on why, where known."""

    reason: Reason
    at: str
    by: str | None
    why: str | None


class Withdrawals:
    """The commands of one process.

    Args:
        log: where withdrawals are appended; the events that they name are read from its database.
    """

    def __init__(self, log: EventLog) -> None:
        self._database = log.database
        self._log = log

    async def withdraw(
        self,
        tenant: str,
        event_ids: Sequence[str],
        reason: Reason,
        *,
        may_see: MaySee,
        may_append: Callable[[str], None] = lambda _: None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> WithdrawalResult:
        """Remove events from every answer, all or none, by one withdrawal per scope. A repeat changes nothing.

        Args:
            may_append: raises if the caller may not append to a channel; then it may not withdraw its events either.
            dry_run: only return what would happen.
            by: who asks for it, for the log and the journal of access; None where nobody does.

        Raises:
            NoteHeld: an event waits for a review, or was refused in one.
            EventNotFound: an event does not exist, may not be seen, or was erased.
            InvalidArgument: no event, or more than `MAX_WITHDRAWN`.
        """
        rows = await self._resolve(tenant, event_ids, may_see, may_append)
        _refuse_withheld(rows)
        return await self._withdraw(tenant, rows, reason, dry_run=dry_run, key=None, by=by)

    async def withdraw_versions(
        self,
        tenant: str,
        event_ids: Sequence[str],
        reason: Reason,
        *,
        may_see: MaySee,
        key: str | None = None,
        by: str | None = None,
    ) -> None:
        """Remove all versions of one thing from every answer, however many; erased ones are accepted, and stay erased.

        Args:
            key: source key of the first withdrawal; if that one is stored already, its events are skipped.
            by: as `withdraw`.

        Raises:
            EventNotFound: an event does not exist, or may not be seen.
        """
        for start in range(0, len(event_ids), MAX_WITHDRAWN):
            batch = event_ids[start : start + MAX_WITHDRAWN]
            if key is None or not await self.was_made(tenant, key):
                rows = await self._resolve(tenant, batch, may_see, lambda _: None, also_erased=True)
                await self._withdraw(tenant, rows, reason, dry_run=False, key=key, by=by)
            key = None  # only the first withdrawal has the key

    async def was_made(self, tenant: str, key: str) -> bool:
        """Tell whether a withdrawal with a source key is in the log."""
        return bool(await self._log.stored_keys(tenant, WITHDRAWAL_CHANNEL, [key]))

    async def forget(self, tenant: str, rows: Sequence[asyncpg.Record]) -> None:
        """Remove events from every answer for good, in one append, however many; some may be withdrawn already.

        Args:
            rows: event_id, scope_id, occurred_at and participants of each.

        Raises:
            as `EventLog.append_events`.
        """
        await self._log.append_events(tenant, by_scope(rows, Withdrawal(reason="forgotten", events=()), key=None))

    async def forgotten(
        self, tenant: str, *, may_see_notes: MaySee, may_see_events: MaySee, most: int
    ) -> list[Restorable]:
        """Return what was forgotten lately and can be restored, newest first; a note once, whatever its versions.

        Args:
            tenant: whose.
            may_see_notes: tells whether the caller may see notes of given participants.
            may_see_events: the same of events.
            most: how many at most, among the newest withdrawals of the tenant.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("withdrawal.forgotten"), tenant, _NEWEST)
        forgotten: dict[str, Restorable] = {}
        for row in rows:
            is_note = row["note_id"] is not None
            if (may_see_notes if is_note else may_see_events)(row["participants"]):
                one = Restorable(
                    restored_by=row["note_id"] or row["event_id"],
                    kind=row["kind"],
                    channel=row["channel"],
                    said_at=rfc3339_of(row["occurred_at"], row["utc_offset"]),
                    at=rfc3339_of(row["ingested_at"]),
                    by=row["by"],
                )
                forgotten.setdefault(one.restored_by, one)
        return list(forgotten.values())[:most]

    async def participants(
        self, tenant: str, event_ids: Collection[str], *, also_gone: bool
    ) -> dict[str, Sequence[str]]:
        """Return who shares each of some events, by id; of none that is erased.

        Args:
            also_gone: also of those that are withdrawn, but not replaced.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("withdrawal.resolve"), tenant, list(event_ids))
        there = (None, "restored", "superseded")
        return {
            row["event_id"]: row["participants"]
            for row in rows
            if not row["is_erased"] and (also_gone or row["reason"] in there)
        }

    async def acts(self, tenant: str, event_id: str, *, may_see: MaySee) -> list[WithdrawalAct]:
        """Return how an event was withdrawn and restored, newest first; what replaced it is not among that.

        Nothing is returned of an event that is absent, of others, or erased.

        Args:
            may_see: tells whether the caller may see what given participants see.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("withdrawal.acts"), tenant, event_id, _ACTS)
        return [
            WithdrawalAct(reason=row["reason"], at=rfc3339_of(row["ingested_at"]), by=row["by"], why=row["why"])
            for row in rows
            if may_see(row["participants"])
        ]

    async def restore(
        self,
        tenant: str,
        event_ids: Sequence[str],
        *,
        may_see: MaySee,
        may_append: Callable[[str], None] = lambda _: None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> WithdrawalResult:
        """Restore withdrawn events to every answer, all or none; see `withdraw`."""
        rows = await self._resolve(tenant, event_ids, may_see, may_append)
        _refuse_withheld(rows)
        changed = [row for row in rows if row["reason"] not in (None, "restored")]
        return await self._append(tenant, rows, changed, "restored", dry_run=dry_run, by=by)

    async def restore_versions(
        self,
        tenant: str,
        event_id: str,
        replaced: Mapping[str, str],
        *,
        may_see: MaySee,
        by: str | None = None,
    ) -> None:
        """Restore the last version of one thing to every answer, and earlier ones as superseded; all or none.

        Nothing is done where the last version is not withdrawn.

        Args:
            replaced: by an earlier version's event, the event that replaces it; fewer than `MAX_WITHDRAWN`.
            by: as `withdraw`.

        Raises:
            as `withdraw`.
        """
        rows = await self._resolve(tenant, [event_id, *replaced], may_see, lambda _: None)
        _refuse_withheld(rows)
        last, *earlier = rows
        if last["reason"] in (None, "restored"):
            return
        restored = by_scope(rows, Withdrawal(reason="restored", events=(), by=by), key=None)
        superseded = [
            event
            for row in earlier
            for event in by_scope(
                [row], Withdrawal(reason="superseded", events=(), superseded_by=replaced[row["event_id"]]), key=None
            )
        ]
        await self._log.append_events(tenant, [*restored, *superseded])

    async def append(
        self,
        tenant: str,
        event: NewEvent,
        *,
        supersedes: Sequence[str],
        may_see: MaySee,
        may_append: Callable[[str], None] = lambda _: None,
    ) -> AppendResult:
        """Append an event that replaces others, atomically; return its result.

        A repeat with the same source key returns the first result. If two events replace the same one, one is refused.

        Raises:
            EventNotFound: an event to replace does not exist, or may not be seen.
            AlreadySuperseded: an event to replace was replaced by another one, or withdrawn.
            InvalidArgument: more than `MAX_WITHDRAWN`.
        """
        event, withdrawals = await self.superseding(tenant, event, supersedes, may_see=may_see, may_append=may_append)
        result, *_ = await self._log.append_events(tenant, [event, *withdrawals])
        return result

    async def replace(self, tenant: str, event_ids: Sequence[str], by: str, *, may_see: MaySee) -> None:
        """Mark events as superseded by an event that is stored already. A repeat changes nothing.

        Args:
            by: the id of the event that stays.

        Raises:
            EventNotFound: an event to replace does not exist, or may not be seen.
            AlreadySuperseded: an event to replace was replaced by another one, or withdrawn.
        """
        rows = await self._resolve(tenant, event_ids, may_see, lambda _: None, also_erased=True)
        withdrawal = Withdrawal(reason="superseded", events=(), superseded_by=by)
        open_rows = [row for row in rows if not (row["reason"] == "superseded" and row["successor_id"] == by)]
        if open_rows:
            await self._log.append_events(tenant, by_scope(open_rows, withdrawal, key=None))

    async def superseding(
        self,
        tenant: str,
        event: NewEvent,
        supersedes: Sequence[str],
        *,
        may_see: MaySee,
        may_append: Callable[[str], None] = lambda _: None,
    ) -> tuple[NewEvent, list[NewEvent]]:
        """Return the new event with its id, and the withdrawals that must be appended after it in the same group.

        Raises:
            as `append`.
        """
        rows = await self._resolve(tenant, supersedes, may_see, may_append, field="supersedes", also_erased=True)
        event_id, successor_key = event.event_id or new_id("evt"), None
        if event.source_event_key is not None:
            successor_key = dedupe_key(event.channel, event.source_event_key).hex()
        withdrawal = Withdrawal(
            reason="superseded",
            events=(),
            superseded_by=None if successor_key else event_id,
            superseded_by_key=successor_key,
        )
        withdrawals = by_scope(rows, withdrawal, key=None if successor_key is None else f"supersedes:{successor_key}")
        # A refused row is no error if these very withdrawals are stored: then this is a repeat.
        refused_row = next((row for row in rows if refuses(row, withdrawal)), None)
        if refused_row is not None and not await self._all_stored(tenant, withdrawals):
            _refuse_withheld([refused_row])
            if refused_row["reason"] != "superseded":
                raise _absent(refused_row["event_id"])
            successor_visible = refused_row["successor_participants"] is not None and may_see(
                refused_row["successor_participants"]
            )
            raise already_superseded(
                refused_row["event_id"], refused_row["successor_id"] if successor_visible else None
            )
        return event._replace(event_id=event_id), withdrawals

    async def _all_stored(self, tenant: str, withdrawals: Sequence[NewEvent]) -> bool:
        """Tell whether all these withdrawals are in the log already, so that the append is a repeat."""
        async with self._database.read(tenant) as connection:
            for withdrawal in withdrawals:
                if not await is_stored(connection, tenant, withdrawal):
                    return False
        return True

    async def _withdraw(
        self,
        tenant: str,
        rows: Sequence[asyncpg.Record],
        reason: Reason,
        *,
        dry_run: bool,
        key: str | None,
        by: str | None,
    ) -> WithdrawalResult:
        # A superseded event can still be found on request, so it can be forgotten; not the other way round.
        changed = [row for row in rows if row["reason"] != reason and _rank(row["reason"]) <= _rank(reason)]
        return await self._append(tenant, rows, changed, reason, dry_run=dry_run, key=key, by=by)

    async def _append(
        self,
        tenant: str,
        rows: Sequence[asyncpg.Record],
        changed: Sequence[asyncpg.Record],
        reason: Reason,
        *,
        dry_run: bool,
        by: str | None,
        key: str | None = None,
    ) -> WithdrawalResult:
        """Append one withdrawal per scope for the rows in `changed`, and report about all rows."""
        if changed and not dry_run:
            first, *others = by_scope(changed, Withdrawal(reason=reason, events=(), by=by), key=None)
            await self._log.append_events(tenant, [first._replace(source_event_key=key), *others])
        ids = {row["event_id"] for row in changed}
        return WithdrawalResult(
            reason=reason,
            changed=tuple(row["event_id"] for row in changed),
            unchanged=tuple(row["event_id"] for row in rows if row["event_id"] not in ids),
            dry_run=dry_run,
        )

    async def _resolve(
        self,
        tenant: str,
        event_ids: Sequence[str],
        may_see: MaySee,
        may_append: Callable[[str], None],
        *,
        field: str = "event_ids",
        also_erased: bool = False,
    ) -> list[asyncpg.Record]:
        """Return the rows of the given events, in that order, each once; see `withdraw` for the checks.

        Raises:
            EventNotFound: as `withdraw`; erased events are accepted with `also_erased`.
        """
        if not event_ids or len(event_ids) > MAX_WITHDRAWN:
            raise errors.InvalidArgument(
                f"{field} must name 1..{MAX_WITHDRAWN} events", field=field, limit=MAX_WITHDRAWN
            )
        unique_ids = list(dict.fromkeys(event_ids))
        async with self._database.read(tenant) as connection:
            fetched_rows = await connection.fetch(sql("withdrawal.resolve"), tenant, unique_ids)
        rows = {row["event_id"]: row for row in fetched_rows}
        for event_id in unique_ids:
            row = rows.get(event_id)
            if row is None or not may_see(row["participants"]) or row["type"] == WITHDRAWAL_TYPE:
                raise _absent(event_id)
            if not row["is_erased"]:
                may_append(row["channel"])
            elif not also_erased:
                raise _absent(event_id)
        return [rows[event_id] for event_id in unique_ids]


def _rank(reason: str | None) -> int:
    """Return how strongly a reason hides an event; a superseded event can still be asked for."""
    return {None: 0, "restored": 0, "superseded": 1, "expired": 2, "forgotten": 3, "held": 4, "refused": 4}[reason]


def _refuse_withheld(rows: Sequence[asyncpg.Record]) -> None:
    """Refuse a change of an event that waits for a review, or was refused in one; see `resolve` for the rows."""
    for row in rows:
        if row["decided"] in WITHHELD:
            raise withheld(row["event_id"], row["decided"])


def by_scope(rows: Sequence[asyncpg.Record], withdrawal: Withdrawal, *, key: str | None) -> list[NewEvent]:
    """Return a withdrawal for each scope of these events; several for a scope with more than `MAX_WITHDRAWN`.

    Args:
        rows: event_id, scope_id, occurred_at and participants of each.
        key: prefix of a source key for each, by which a repeat finds it; None for none.
    """
    rows_by_scope: dict[int, list[asyncpg.Record]] = {}
    for row in rows:
        rows_by_scope.setdefault(row["scope_id"], []).append(row)
    withdrawals = []
    batches = (
        rows[start : start + MAX_WITHDRAWN]
        for rows in rows_by_scope.values()
        for start in range(0, len(rows), MAX_WITHDRAWN)
    )
    for batch in batches:
        event_ids = sorted(row["event_id"] for row in batch)
        withdrawals.append(
            withdrawal_event(
                replace(withdrawal, events=tuple(event_ids)),
                batch[0]["participants"],
                timestamp=max(to_microseconds(row["occurred_at"]) for row in batch),
                source_event_key=None if key is None else f"{key}:{digest(event_ids).hex()[:32]}",
            )
        )
    return withdrawals


def _absent(event_id: str) -> errors.EventNotFound:
    return errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)
