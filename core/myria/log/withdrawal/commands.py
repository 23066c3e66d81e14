"""Withdrawing events, bringing them back, and replacing them: each one atomic append."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from myria import errors
from myria.db.clock import to_microseconds
from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.ids import new_id
from myria.log.limits import MAX_WITHDRAWN
from myria.log.payloads import dedupe_key
from myria.log.withdrawal.model import WITHDRAWAL_CHANNEL, WITHDRAWAL_TYPE, Reason, Withdrawal, withdrawal_event
from myria.log.withdrawal.projection import already_superseded, is_stored, refuses

MaySee = Callable[[Sequence[str]], bool]
"""Whether the caller may see what these participants may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WithdrawalResult:
    """What a withdrawal did, or would do: ids that it changed, and ids of events that were so already."""

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


class Withdrawals:
    """The commands of one process.

    Args:
        log: where withdrawals are appended, and the events that they name are read before.
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
    ) -> WithdrawalResult:
        """Take events out of every answer, all or none, one withdrawal per scope. A repeat changes nothing.

        Args:
            may_append: raises where the caller may not append to a channel: nor may it withdraw that channel's events.
            dry_run: only say what would happen.

        Raises:
            EventNotFound: one is absent, of others, or erased.
            InvalidArgument: no event, or more than `MAX_WITHDRAWN`.
        """
        rows = await self._named(tenant, event_ids, may_see, may_append)
        return await self._withdraw(tenant, rows, reason, dry_run=dry_run, key=None)

    async def withdraw_versions(
        self, tenant: str, event_ids: Sequence[str], reason: Reason, *, may_see: MaySee, key: str | None = None
    ) -> None:
        """Take the versions of one thing out of every answer, however many; one erased meanwhile stays as it is.

        Args:
            key: source key of the first withdrawal: a repeat with it changes nothing of those.

        Raises:
            EventNotFound: one is absent or of others.
        """
        for start in range(0, len(event_ids), MAX_WITHDRAWN):
            some = event_ids[start : start + MAX_WITHDRAWN]
            if key is None or not await self.was_made(tenant, key):
                rows = await self._named(tenant, some, may_see, lambda _: None, also_erased=True)
                await self._withdraw(tenant, rows, reason, dry_run=False, key=key)
            key = None

    async def was_made(self, tenant: str, key: str) -> bool:
        """Tell whether a withdrawal with a source key is in the log."""
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("withdrawal.stored_keys"), tenant, [dedupe_key(WITHDRAWAL_CHANNEL, key)])
        return bool(rows)

    async def forget(self, tenant: str, rows: Sequence[asyncpg.Record]) -> None:
        """Take events out of every answer for good, all of them at once, however many; one may be so already.

        Args:
            rows: event_id, scope_id, occurred_at and participants of each.

        Raises:
            as `EventLog.append_events`.
        """
        await self._log.append_events(tenant, _by_scope(rows, Withdrawal(reason="forgotten", events=()), key=None))

    async def restore(
        self,
        tenant: str,
        event_ids: Sequence[str],
        *,
        may_see: MaySee,
        may_append: Callable[[str], None] = lambda _: None,
        dry_run: bool = False,
    ) -> WithdrawalResult:
        """Bring withdrawn events back into every answer, all or none; see `withdraw`."""
        rows = await self._named(tenant, event_ids, may_see, may_append)
        changed = [row for row in rows if row["reason"] not in (None, "restored")]
        return await self._append(tenant, rows, changed, Withdrawal(reason="restored", events=()), dry_run=dry_run)

    async def append(
        self,
        tenant: str,
        event: NewEvent,
        *,
        supersedes: Sequence[str],
        may_see: MaySee,
        may_append: Callable[[str], None] = lambda _: None,
        beside: Sequence[NewEvent] = (),
    ) -> list[AppendResult]:
        """Append an event that replaces others, atomically; return its result, then those of `beside`.

        A repeat with the event's source key answers the first one. Of two that replace one event, one is refused.

        Args:
            beside: events that are appended with it.

        Raises:
            EventNotFound: one of those named is absent or of others.
            AlreadySuperseded: one of them was replaced by another event, or withdrawn.
            InvalidArgument: more than `MAX_WITHDRAWN`.
        """
        event, withdrawals = await self.superseding(tenant, event, supersedes, may_see=may_see, may_append=may_append)
        events = [event, *beside, *withdrawals]
        results = await self._log.append_events(tenant, events)
        return results[: 1 + len(beside)]

    async def replace(self, tenant: str, event_ids: Sequence[str], by: str, *, may_see: MaySee) -> None:
        """Let an event that is stored already stand for others, which are superseded by it. A repeat changes nothing.

        Args:
            by: the id of the event that stays.

        Raises:
            EventNotFound: one of those named is absent or of others.
            AlreadySuperseded: one of them was replaced by another event, or withdrawn.
        """
        rows = await self._named(tenant, event_ids, may_see, lambda _: None, also_erased=True)
        withdrawal = Withdrawal(reason="superseded", events=(), superseded_by=by)
        open_rows = [row for row in rows if not (row["reason"] == "superseded" and row["successor_id"] == by)]
        if open_rows:
            await self._log.append_events(tenant, _by_scope(open_rows, withdrawal, key=None))

    async def superseding(
        self,
        tenant: str,
        event: NewEvent,
        supersedes: Sequence[str],
        *,
        may_see: MaySee,
        may_append: Callable[[str], None] = lambda _: None,
    ) -> tuple[NewEvent, list[NewEvent]]:
        """Return the event with its id, and the withdrawals that must be appended after it in one group.

        Raises:
            as `append`.
        """
        rows = await self._named(tenant, supersedes, may_see, may_append, field="supersedes", also_erased=True)
        event_id, by_key = event.event_id or new_id("evt"), None
        if event.source_event_key is not None:
            by_key = dedupe_key(event.channel, event.source_event_key).hex()
        withdrawal = Withdrawal(
            reason="superseded",
            events=(),
            superseded_by=None if by_key else event_id,
            superseded_by_key=by_key,
        )
        withdrawals = _by_scope(rows, withdrawal, key=None if by_key is None else f"supersedes:{by_key}")
        late = next((row for row in rows if refuses(row, withdrawal)), None)
        if late is not None and not await self._are_stored(tenant, withdrawals):
            if late["reason"] != "superseded":
                raise _absent(late["event_id"])
            shown = late["successor_participants"] is not None and may_see(late["successor_participants"])
            raise already_superseded(late["event_id"], late["successor_id"] if shown else None)
        return _with_id(event, event_id), withdrawals

    async def _are_stored(self, tenant: str, withdrawals: Sequence[NewEvent]) -> bool:
        """Tell whether all these withdrawals are in the log already: the append is a repeat."""
        async with self._database.read(tenant) as connection:
            for withdrawal in withdrawals:
                if not await is_stored(connection, tenant, withdrawal):
                    return False
        return True

    async def _withdraw(
        self, tenant: str, rows: Sequence[asyncpg.Record], reason: Reason, *, dry_run: bool, key: str | None
    ) -> WithdrawalResult:
        # A superseded event can still be found on request, so it can be forgotten; not the other way round.
        changed = [row for row in rows if row["reason"] != reason and _rank(row["reason"]) <= _rank(reason)]
        return await self._append(tenant, rows, changed, Withdrawal(reason=reason, events=()), dry_run=dry_run, key=key)

    async def _append(
        self,
        tenant: str,
        rows: Sequence[asyncpg.Record],
        changed: Sequence[asyncpg.Record],
        withdrawal: Withdrawal,
        *,
        dry_run: bool,
        key: str | None = None,
    ) -> WithdrawalResult:
        if changed and not dry_run:
            first, *others = _by_scope(changed, withdrawal, key=None)
            await self._log.append_events(tenant, [first._replace(source_event_key=key), *others])
        ids = {row["event_id"] for row in changed}
        return WithdrawalResult(
            reason=withdrawal.reason,
            changed=tuple(row["event_id"] for row in changed),
            unchanged=tuple(row["event_id"] for row in rows if row["event_id"] not in ids),
            dry_run=dry_run,
        )

    async def _named(
        self,
        tenant: str,
        event_ids: Sequence[str],
        may_see: MaySee,
        may_append: Callable[[str], None],
        *,
        field: str = "event_ids",
        also_erased: bool = False,
    ) -> list[asyncpg.Record]:
        """Return the named events in the order named, each once; one that was erased is absent, unless asked for."""
        if not event_ids or len(event_ids) > MAX_WITHDRAWN:
            raise errors.InvalidArgument(
                f"{field} must name 1..{MAX_WITHDRAWN} events", field=field, limit=MAX_WITHDRAWN
            )
        wanted = list(dict.fromkeys(event_ids))
        async with self._database.read(tenant) as connection:
            fetched = await connection.fetch(sql("withdrawal.resolve"), tenant, wanted)
        rows = {row["event_id"]: row for row in fetched}
        for event_id in wanted:
            row = rows.get(event_id)
            if row is None or not may_see(row["participants"]) or row["type"] == WITHDRAWAL_TYPE:
                raise _absent(event_id)
            if not row["is_erased"]:
                may_append(row["channel"])
            elif not also_erased:
                raise _absent(event_id)
        return [rows[event_id] for event_id in wanted]


def _rank(reason: str | None) -> int:
    """Return how far a reason takes an event away: a superseded one can still be asked for."""
    return {None: 0, "restored": 0, "superseded": 1, "expired": 2, "forgotten": 3}[reason]


def _by_scope(rows: Sequence[asyncpg.Record], withdrawal: Withdrawal, *, key: str | None) -> list[NewEvent]:
    """Return one withdrawal per scope of these events, of more than `MAX_WITHDRAWN` several.

    Args:
        key: a source key for each, so that a repeat finds it.
    """
    scopes: dict[int, list[asyncpg.Record]] = {}
    for row in rows:
        scopes.setdefault(row["scope_id"], []).append(row)
    withdrawals = []
    parts = (rows[at : at + MAX_WITHDRAWN] for rows in scopes.values() for at in range(0, len(rows), MAX_WITHDRAWN))
    for of_scope in parts:
        named = sorted(row["event_id"] for row in of_scope)
        withdrawals.append(
            withdrawal_event(
                replace(withdrawal, events=tuple(named)),
                of_scope[0]["participants"],
                timestamp=max(to_microseconds(row["occurred_at"]) for row in of_scope),
                source_event_key=None if key is None else f"{key}:{digest(named).hex()[:32]}",
            )
        )
    return withdrawals


def _with_id(event: NewEvent, event_id: str) -> NewEvent:
    return event if event.event_id == event_id else event._replace(event_id=event_id)


def _absent(event_id: str) -> errors.EventNotFound:
    return errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)
