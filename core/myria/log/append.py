"""Appending: concurrent appends of a tenant share commits, and nothing is acknowledged before its commit.

A commit takes the tenant's append lock shared, allocates sequence numbers in input order, inserts in
dedupe-key order, and reads what stood already in a statement of its own. One caller's events stay together: they
commit or fail as one, and a group refused by the database is tried alone, so that it never fails another caller's.
Events get their event_id before the first attempt, so an attempt whose outcome is unknown is simply made again.
What is folded from events of some types (`myria.log.projections`) is folded in the same transaction.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import asyncpg

from myria import errors
from myria.db.clock import offset_in
from myria.db.database import NOT_NEW, TENANT_REMADE, Connection, Database
from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.ids import new_ids
from myria.log.payloads import TopicHint, dedupe_key, hints_json
from myria.log.projections import Incoming, Projection, Stored
from myria.log.scopes import scope_key

_log = logging.getLogger(__name__)

MAX_WAITING_EVENTS = 20_000
"""Events that may wait for a commit, over all tenants, before appends are refused as overloaded."""

_KNOWN_SCOPES = 100_000
_JOINING = 4
"""Turns of the event loop that a commit waits at most for callers that join it, as long as some do."""

_RETRIED = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    errors.DatabaseUnavailable,
    errors.DeadlineExceeded,
)


class _Scope(NamedTuple):
    """A scope that this process remembers, and since when the tenant exists to which it belongs."""

    scope_id: int
    tenant_since: str


class _Row(NamedTuple):
    event: NewEvent
    event_id: str
    scope: _Scope
    dedupe_key: bytes | None
    topic_hints: str


class _ScopesGoneError(Exception):
    """Scopes that this process remembers are gone: their tenant was deleted, and perhaps made anew."""


@dataclass(slots=True, kw_only=True)
class _Group:
    """One caller's events: atomic."""

    rows: list[_Row]
    importing: bool
    deadline: float
    outcome: asyncio.Future[list[AppendResult]]


@dataclass(slots=True)
class _Lane:
    """One tenant's waiting groups with the number of their events, and the number of commits under way."""

    waiting: deque[_Group] = field(default_factory=deque)
    waiting_events: int = 0
    writers: int = 0

    def add(self, group: _Group) -> None:
        """Let a group wait."""
        self.waiting.append(group)
        self.waiting_events += len(group.rows)

    def take(self) -> _Group:
        """Return the group that waits longest, which waits no longer."""
        group = self.waiting.popleft()
        self.waiting_events -= len(group.rows)
        return group


class Ingest:
    """The write path of one process.

    Args:
        events_per_commit: how many events may share a commit.
        writers: commits of one tenant under way at once; twice as many where what waits fills half a commit by itself.
        deadline: seconds until an append is answered as failed (and may be retried by its caller).
        on_commit: told the tenant and the number of events of each commit, for metrics.
        projections: what is folded from the events of a commit, in its transaction (`folding.every_projection`).
    """

    def __init__(
        self,
        database: Database,
        *,
        events_per_commit: int = 256,
        writers: int = 2,
        deadline: float = 10.0,
        on_commit: Callable[[str, int], None] | None = None,
        projections: Sequence[Projection],
        zone: ZoneInfo | None = None,
    ) -> None:
        self._database = database
        self._zone = zone
        self._projections = tuple(projections)
        self._folded = frozenset(kind for projection in self._projections for kind in projection.types)
        self._events_per_commit = events_per_commit
        self._full = max(1, events_per_commit // 2)
        self._writers = writers
        self._deadline_s = deadline
        self._on_commit = on_commit or (lambda _tenant, _events: None)
        self._lanes: dict[str, _Lane] = {}
        self._under_way: set[asyncio.Future[None]] = set()
        self._scopes: OrderedDict[tuple[str, tuple[str, ...]], _Scope] = OrderedDict()
        self._waiting_events = 0
        # Whether the last commit was of one caller, and nobody came while it was under way.
        self._is_quiet = True

    @property
    def database(self) -> Database:
        """Where it appends."""
        return self._database

    async def append_events(self, tenant: str, events: Sequence[NewEvent]) -> list[AppendResult]:
        """Append events as one atomic group; return their results in input order, after the commit.

        Raises:
            Overloaded, DatabaseUnavailable, DeadlineExceeded, DiskFull: retry; keyed events deduplicate, and
                events without a key may have been stored when the deadline passed during the commit.
            EventErased: an event with this channel and source key was erased; nothing was stored.
            SourceEventKeyTaken: an event that the participants of a new one may not see has its key already (the
                detail `index` names the first of several); nothing was stored.
        """
        if self._zone is not None:
            events = [_in_zone(event, self._zone) for event in events]
        return await self._submit(tenant, events, importing=False)

    async def import_events(self, tenant: str, events: Sequence[NewEvent]) -> list[AppendResult]:
        """Append events that may bring their event_id, as one atomic group.

        Raises:
            EventIdConflict: an event_id, or a source key, exists already with other content.
        """
        return await self._submit(tenant, events, importing=True)

    async def close(self) -> None:
        """Wait for the commits under way."""
        while self._under_way:
            await asyncio.gather(*list(self._under_way), return_exceptions=True)

    async def _submit(self, tenant: str, events: Sequence[NewEvent], *, importing: bool) -> list[AppendResult]:
        if not events:
            return []
        if self._waiting_events + len(events) > MAX_WAITING_EVENTS:
            raise errors.Overloaded("too many appends wait for the database; slow down and retry")
        deadline = time.monotonic() + self._deadline_s
        self._waiting_events += len(events)
        try:
            async with asyncio.timeout(self._deadline_s):
                scopes = self._known_scopes(tenant, events)
                if scopes is None:
                    scopes = [await self._scope(tenant, event.participants, deadline) for event in events]
                rows = _rows(events, scopes)
                if self._is_quiet and self._waiting_events == len(events) and tenant not in self._lanes:
                    return await self._alone(tenant, rows, deadline, importing=importing)
                outcome: asyncio.Future[list[AppendResult]] = asyncio.get_running_loop().create_future()
                group = _Group(rows=rows, importing=importing, deadline=deadline, outcome=outcome)
                outcome.add_done_callback(_seen)
                lane = self._lanes.get(tenant)
                if lane is None:
                    lane = self._lanes[tenant] = _Lane()
                lane.add(group)
                if lane.writers < (self._writers if lane.waiting_events < self._full else 2 * self._writers):
                    self._begin_writing(tenant, lane)
                return await outcome
        except TimeoutError as error:
            raise errors.DeadlineExceeded(
                "the append was not confirmed within its deadline; retry (with a source_event_key it cannot duplicate)"
            ) from error
        finally:
            self._waiting_events -= len(events)

    async def _alone(self, tenant: str, rows: list[_Row], deadline: float, *, importing: bool) -> list[AppendResult]:
        """Commit the events of a caller beside whom nobody appends: in its own task, and without waiting for others."""
        lane = self._lanes[tenant] = _Lane(writers=1)
        under_way = asyncio.get_running_loop().create_future()
        self._under_way.add(under_way)
        may_be_new = not importing
        try:
            if len(rows) == 1 and may_be_new and rows[0].event.type not in self._folded:
                # Whatever fails here is made again, or refused, the long way.
                with suppress(_ScopesGoneError, *_RETRIED):
                    results = await self._new_alone(tenant, rows[0].scope.tenant_since, rows)
                    if results is not None:
                        return results
                    may_be_new = False
            return await self._attempt(tenant, rows, deadline, importing=importing, may_be_new=may_be_new)
        except errors.MyriaError:
            raise
        except Exception as error:
            raise _refusal(error) from error
        finally:
            self._under_way.discard(under_way)
            if not under_way.done():  # whoever closes may have given up waiting
                under_way.set_result(None)
            self._is_quiet = lane.writers == 1 and not lane.waiting
            lane.writers -= 1
            if not lane.writers:
                if lane.waiting:
                    self._begin_writing(tenant, lane)
                else:
                    self._lanes.pop(tenant, None)

    def _begin_writing(self, tenant: str, lane: _Lane) -> None:
        lane.writers += 1
        task = asyncio.create_task(self._drain(tenant, lane))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _known_scopes(self, tenant: str, events: Sequence[NewEvent]) -> list[_Scope] | None:
        """Return the scopes of events, None where this process does not remember all of them."""
        scopes: list[_Scope] = []
        # Events of one call often share who sees them.
        participants, scope = None, None
        for event in events:
            if scope is None or event.participants is not participants:
                participants = event.participants
                scope = self._scopes.get((tenant, participants))
                if scope is None:
                    return None
            scopes.append(scope)
        return scopes

    async def _scope(self, tenant: str, participants: tuple[str, ...], deadline: float) -> _Scope:
        scope = self._scopes.get((tenant, participants))
        return scope if scope is not None else await self._make_scope(tenant, participants, deadline)

    def _forget_scopes(self, tenant: str) -> None:
        for known in [key for key in self._scopes if key[0] == tenant]:
            self._scopes.pop(known, None)

    async def _make_scope(self, tenant: str, participants: tuple[str, ...], deadline: float) -> _Scope:
        attempt = 0
        while True:
            try:
                async with self._database.write(tenant) as connection:
                    await connection.execute(sql("scopes.ensure_tenant"), tenant)
                    row = await connection.fetchrow(
                        sql("scopes.ensure"), tenant, scope_key(participants), list(participants)
                    )
            except _RETRIED as error:
                attempt += 1
                await _back_off(attempt, deadline, error)
                continue
            if row is not None:
                scope = _Scope(row["scope_id"], row["tenant_since"].isoformat())
                self._scopes[tenant, participants] = scope
                if len(self._scopes) > _KNOWN_SCOPES:
                    self._scopes.popitem(last=False)
                return scope

    async def _drain(self, tenant: str, lane: _Lane) -> None:
        try:
            while lane.waiting:
                if lane.waiting_events < self._full:
                    await _let_others_join(lane)
                    if not lane.waiting:
                        break
                groups = [lane.take()]
                size = len(groups[0].rows)
                importing = groups[0].importing
                while (
                    lane.waiting
                    and lane.waiting[0].importing == importing
                    and size + len(lane.waiting[0].rows) <= self._events_per_commit
                ):
                    group = lane.take()
                    groups.append(group)
                    size += len(group.rows)
                self._is_quiet = len(groups) == 1 and not lane.waiting
                await self._commit(tenant, groups)
        finally:
            lane.writers -= 1
            if not lane.writers and not lane.waiting:
                self._lanes.pop(tenant, None)

    async def _commit(self, tenant: str, groups: list[_Group]) -> None:
        """Commit groups together; when some are refused, halve the lot until they stand alone."""
        try:
            rows = [row for group in groups for row in group.rows]
            deadline = max(group.deadline for group in groups)
            importing = groups[0].importing
            results = await self._attempt(tenant, rows, deadline, importing=importing, may_be_new=not importing)
        except asyncio.CancelledError:
            for group in groups:
                _fail(group, errors.DatabaseUnavailable("the server is stopping; retry"))
            raise
        except Exception as error:  # noqa: BLE001 - every waiting caller must get an answer
            if len(groups) > 1 and isinstance(error, asyncpg.PostgresError | errors.ConflictError):
                middle = len(groups) // 2
                await self._commit(tenant, groups[:middle])
                await self._commit(tenant, groups[middle:])
                return
            for group in groups:
                _fail(group, _refusal(error))
            return
        position = 0
        for group in groups:
            if not group.outcome.done():
                group.outcome.set_result(results[position : position + len(group.rows)])
            position += len(group.rows)

    async def _attempt(
        self, tenant: str, rows: list[_Row], deadline: float, *, importing: bool, may_be_new: bool
    ) -> list[AppendResult]:
        attempt = 0
        while True:
            left = deadline - time.monotonic()
            try:
                async with asyncio.timeout(max(0.05, left)):
                    return await self._transaction(tenant, rows, importing=importing, may_be_new=may_be_new)
            except _ScopesGoneError:
                self._forget_scopes(tenant)
                rows = [row._replace(scope=await self._scope(tenant, row.event.participants, deadline)) for row in rows]
            except TimeoutError as error:
                raise errors.DeadlineExceeded("the database did not confirm the append in time; retry") from error
            except _RETRIED as error:
                attempt += 1
                await _back_off(attempt, deadline, error)

    async def _transaction(
        self, tenant: str, rows: list[_Row], *, importing: bool, may_be_new: bool
    ) -> list[AppendResult]:
        """Append rows in one transaction; `may_be_new` says whether all may be new, so that one round trip is tried."""
        projected = self._projected(rows)
        folded = sorted({position for _, positions in projected for position in positions})
        incoming = {position: _incoming(rows[position]) for position in folded}
        since = rows[0].scope.tenant_since
        if any(row.scope.tenant_since != since for row in rows):
            raise _ScopesGoneError
        if may_be_new and not incoming and (results := await self._new_alone(tenant, since, rows)) is not None:
            return results
        async with self._database.append(tenant, since) as connection:
            for projection, positions in projected:
                own = [incoming[position] for position in positions]
                await projection.prepare(connection, tenant, own, importing=importing)
            try:
                inserted = await _insert(connection, tenant, rows)
            except asyncpg.UnknownPostgresError as error:
                if error.sqlstate != TENANT_REMADE:
                    raise
                raise _ScopesGoneError from error
            known: dict[int, asyncpg.Record] = {}
            # An import may name one event_id twice: which of the two was inserted, only their content tells.
            named = Counter(row.event_id for row in rows) if importing else {}
            skipped = [
                position
                for position, row in enumerate(rows)
                if row.event_id not in inserted or named.get(row.event_id, 1) > 1
            ]
            if skipped:
                known = await _find_duplicates(connection, tenant, rows, skipped, importing=importing)
                lost = [at for at in skipped if rows[at].event_id not in inserted and at not in known]
                if lost:
                    await _refuse_erased(connection, tenant, rows, lost)
                    raise _ScopesGoneError
            existing = {
                position: _existing(
                    rows[position], record, importing=importing, index=position if len(rows) > 1 else None
                )
                for position, record in sorted(known.items())
            }
            stored = {
                position: _stored(rows[position], inserted[rows[position].event_id])
                for position in incoming
                if position not in known
            }
            for projection, positions in projected:
                new = [stored[position] for position in positions if position in stored]
                if new:
                    await projection.fold(connection, tenant, new)
            results = [
                existing[position] if position in existing else _new(row, inserted[row.event_id])
                for position, row in enumerate(rows)
            ]
        self._on_commit(tenant, len(rows))
        return results

    async def _new_alone(self, tenant: str, since: str, rows: list[_Row]) -> list[AppendResult] | None:
        """Append new events of which nothing is folded in one round trip.

        Returns:
            None where one of them is not new: nothing was stored.
        """
        try:
            records = await self._database.append_alone(tenant, since, _new_events(rows))
        except asyncpg.UnknownPostgresError as error:
            if error.sqlstate == TENANT_REMADE:
                raise _ScopesGoneError from error
            if error.sqlstate == NOT_NEW:
                return None
            raise
        numbers = {record["event_id"]: record["event_seq"] for record in records}
        self._on_commit(tenant, len(rows))
        return [_new(row, numbers[row.event_id]) for row in rows]

    def _projected(self, rows: list[_Row]) -> list[tuple[Projection, list[int]]]:
        """Return the projections that fold some of these rows, in their order, and the positions of those."""
        by_type: dict[str, list[int]] = {}
        for position, row in enumerate(rows):
            if (kind := row.event.type) in self._folded:
                by_type.setdefault(kind, []).append(position)
        projected = []
        for projection in self._projections if by_type else ():
            found = [positions for kind, positions in by_type.items() if kind in projection.types]
            if found:
                projected.append((projection, found[0] if len(found) == 1 else sorted(chain(*found))))
        return projected


def _rows(events: Sequence[NewEvent], scopes: Sequence[_Scope]) -> list[_Row]:
    event_ids: list[str] = new_ids("evt", len(events))
    if any(event.event_id for event in events):
        event_ids = [event.event_id or new for event, new in zip(events, event_ids, strict=True)]
    keys = [
        None if event.source_event_key is None else dedupe_key(event.channel, event.source_event_key)
        for event in events
    ]
    hints = []
    # Events of one call are often about the same.
    about: tuple[TopicHint, ...] = ()
    written = "[]"
    for event in events:
        if event.topic_hints != about:
            about = event.topic_hints
            written = hints_json(about)
        hints.append(written)
    return list(map(_Row._make, zip(events, event_ids, scopes, keys, hints, strict=True)))


def _incoming(row: _Row) -> Incoming:
    return Incoming(row.event, row.event_id, row.scope.scope_id)


def _stored(row: _Row, event_seq: int) -> Stored:
    return Stored(row.event, row.event_id, row.scope.scope_id, event_seq)


def _new_events(rows: list[_Row]) -> list[tuple[Any, ...]]:
    """Return rows of the type `myria.new_event`."""
    return [
        (
            row.event_id,
            row.scope.scope_id,
            row.event.timestamp,
            row.event.channel,
            row.event.type,
            row.event.context_id,
            row.event.source_event_key,
            row.dedupe_key,
            row.event.internal,
            row.event.payload_json.decode(),
            row.topic_hints,
            row.event.utc_offset,
        )
        for row in rows
    ]


def _in_zone(event: NewEvent, zone: ZoneInfo) -> NewEvent:
    """Return an event with the offset of a zone where nobody gave one; Myria's own are of no place."""
    if event.internal or event.utc_offset is not None:
        return event
    return event._replace(utc_offset=offset_in(zone, event.timestamp))


async def _insert(connection: Connection, tenant: str, rows: list[_Row]) -> dict[str, int]:
    inserted = await connection.fetch(sql("events.append"), tenant, _new_events(rows))
    return {record["event_id"]: record["event_seq"] for record in inserted}


async def _refuse_erased(connection: Connection, tenant: str, rows: list[_Row], lost: list[int]) -> None:
    """Refuse rows that were not inserted because their events were erased.

    Raises:
        EventErased: one was; nothing of the commit is stored.
    """
    keys = [rows[position].dedupe_key for position in lost]
    refused = {row["dedupe_key"] for row in await connection.fetch(sql("erasure.refused"), tenant, keys)}
    for position, key in zip(lost, keys, strict=True):
        if key in refused:
            raise errors.EventErased(
                "an event with this channel and source_event_key was erased; nothing was stored",
                **({"index": position} if len(rows) > 1 else {}),
            )


async def _find_duplicates(
    connection: Connection, tenant: str, rows: list[_Row], skipped: list[int], *, importing: bool
) -> dict[int, asyncpg.Record]:
    chosen = [rows[position] for position in skipped]
    duplicates: dict[int, asyncpg.Record] = {}
    for record in await connection.fetch(
        sql("events.find_duplicates"),
        tenant,
        [row.event_id for row in chosen],
        [row.dedupe_key for row in chosen],
        [row.scope.scope_id for row in chosen],
        [row.event.timestamp for row in chosen],
        [row.event.payload_json.decode() for row in chosen],
        [row.event.channel for row in chosen],
        [row.event.type for row in chosen],
        [row.event.context_id for row in chosen],
        [row.event.source_event_key for row in chosen],
        [row.event.internal for row in chosen],
        [row.topic_hints for row in chosen],
        importing,
    ):
        position = skipped[record["position"] - 1]
        duplicates.setdefault(position, record)
    return duplicates


def _new(row: _Row, event_seq: int) -> AppendResult:
    return AppendResult(
        event_id=row.event_id,
        event_seq=event_seq,
        participants=row.event.participants,
    )


def _existing(row: _Row, known: asyncpg.Record, *, importing: bool, index: int | None) -> AppendResult:
    """Return the acknowledgement of an event that was stored before.

    Raises:
        SourceEventKeyTaken: the new event's participants may not see the stored one. Nothing of it is told.
        EventIdConflict: an import names an event_id, or a key, that stands for other content.
    """
    if not importing and not known["is_visible"]:
        taken = errors.SourceEventKeyTaken(
            "this source_event_key is taken in this channel by an event that these participants may not see; "
            "nothing was stored: use a key of your own",
            field="source_event_key",
        )
        raise taken if index is None else taken.at_index(index)
    differs: bool = known["payload_differs"]
    own = known["event_id"] == row.event_id
    if importing and row.event.event_id is not None and (not own or differs or known["annotations_differ"]):
        what = "with other content" if own else "under another event_id"
        raise errors.EventIdConflict(
            f"event {row.event.event_id} exists already {what}; it was not imported",
            event_id=row.event.event_id,
            existing_event_id=known["event_id"],
        )
    return AppendResult(
        event_id=known["event_id"],
        event_seq=known["event_seq"],
        participants=tuple(known["participants"]),
        # Our own fresh event_id found again is this very append, whose first attempt had committed unseen.
        deduplicated=not own or importing,
        payload_differs=differs,
    )


async def _let_others_join(lane: _Lane) -> None:
    """Return once callers that are about to wait do so: each commit less is work less for all."""
    for _ in range(_JOINING):
        waiting = len(lane.waiting)
        await asyncio.sleep(0)
        if len(lane.waiting) <= waiting:
            return


async def _back_off(attempt: int, deadline: float, error: Exception) -> None:
    delay = min(0.02 * 2**attempt, 0.5) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
    if time.monotonic() + delay >= deadline:
        raise _refusal(error) from error
    await asyncio.sleep(delay)


def _refusal(error: Exception) -> errors.MyriaError:
    if isinstance(error, errors.MyriaError):
        return error
    if isinstance(
        error, asyncpg.DataError | asyncpg.IntegrityConstraintViolationError | asyncpg.ProgramLimitExceededError
    ):
        return errors.InvalidPayload(f"the database refuses this event: {error}")
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError):
        return errors.DatabaseUnavailable(f"the database refused the append: {error}; retry")
    _log.error("an append failed unexpectedly", exc_info=error, extra={"action": "append_failed"})
    return errors.InternalError("the append failed unexpectedly; the log holds the trace")


def _seen(outcome: asyncio.Future[list[AppendResult]]) -> None:
    """A caller that gave up at its deadline leaves an outcome that nobody asks for."""
    if not outcome.cancelled():
        outcome.exception()


def _fail(group: _Group, error: errors.MyriaError) -> None:
    if not group.outcome.done():
        group.outcome.set_exception(error)
