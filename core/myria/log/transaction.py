"""The append transaction: one commit of events, and of the projections folded from them.

It takes the tenant's append lock shared, allocates sequence numbers in input order, inserts in the order of dedupe
keys, and reads the events that were stored before in a separate statement. Projections (`myria.log.projections`) are
folded in the same transaction.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import asyncpg

from myria import errors
from myria.db.database import NOT_NEW, TENANT_REMADE, Connection, Database
from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.payloads import dedupe_key, hints_json
from myria.log.projections import Incoming, Projection, Stored
from myria.log.scopes import scope_key

_CACHED_SCOPES = 100_000


class ScopesGone(Exception):
    """Scopes cached by this process no longer exist: their tenant was deleted, and perhaps created again."""


class _Scope(NamedTuple):
    """A cached scope. `tenant_since` is when its tenant was created; it differs once a tenant was created again."""

    scope_id: int
    tenant_since: str


class AppendTransaction:
    """Appends the events of one commit.

    Args:
        projections: what is folded from the events of a commit, in its transaction (`folding.every_projection`).
        on_commit: called with the tenant and the number of events of each commit, for metrics.
    """

    def __init__(
        self,
        database: Database,
        projections: Sequence[Projection],
        *,
        on_commit: Callable[[str, int], None] | None = None,
    ) -> None:
        self._database = database
        self._projections = tuple(projections)
        self._on_commit = on_commit or (lambda _tenant, _events: None)
        self._scopes: OrderedDict[tuple[str, tuple[str, ...]], _Scope] = OrderedDict()

    async def append(
        self, tenant: str, events: Sequence[tuple[NewEvent, str]], *, importing: bool
    ) -> list[AppendResult]:
        """Append events in one transaction, all or none; return their results in input order.

        Args:
            events: each with its event_id, which must stay the same when the call is repeated.

        Raises:
            ScopesGone: the tenant was deleted; call `forget_scopes`, and try again.
            EventErased, SourceEventKeyTaken, EventIdConflict: see `GroupCommit.append`.
            ConflictError: a projection forbids one of them.
            asyncpg.PostgresError, DatabaseUnavailable, DeadlineExceeded: from the database.
        """
        rows, since = await self._with_scopes(tenant, events)
        foldings = [
            (projection, positions)
            for projection in self._projections
            if projection.folds_imports or not importing
            if (positions := [position for position, row in enumerate(rows) if row.event.type in projection.types])
        ]
        try:
            results = None if foldings or importing else await self._append_new(tenant, since, rows)
            if results is None:
                async with self._database.append(tenant, since) as connection:
                    results = await self._append(connection, tenant, rows, foldings, importing=importing)
        except asyncpg.UnknownPostgresError as error:
            if error.sqlstate == TENANT_REMADE:
                raise ScopesGone from error
            raise
        self._on_commit(tenant, len(rows))
        return results

    def forget_scopes(self, tenant: str) -> None:
        """Drop the cached scopes of a tenant, so that they are looked up again."""
        for cached_key in [key for key in self._scopes if key[0] == tenant]:
            self._scopes.pop(cached_key, None)

    async def _with_scopes(self, tenant: str, events: Sequence[tuple[NewEvent, str]]) -> tuple[list[Incoming], str]:
        """Return the events with their scopes (new ones are created), and when the tenant was created."""
        rows, since = [], set()
        for event, event_id in events:
            scope = self._scopes.get((tenant, event.participants)) or await self._scope(tenant, event.participants)
            rows.append(Incoming(event, event_id, scope.scope_id))
            since.add(scope.tenant_since)
        if len(since) > 1:  # some cached scopes are of a tenant that was deleted meanwhile
            raise ScopesGone
        return rows, since.pop()

    async def _scope(self, tenant: str, participants: tuple[str, ...]) -> _Scope:
        row = None
        while row is None:  # another process makes it at this moment, or deletes the tenant
            async with self._database.write(tenant) as connection:
                await connection.execute(sql("scopes.ensure_tenant"), tenant)
                row = await connection.fetchrow(
                    sql("scopes.ensure"), tenant, scope_key(participants), list(participants)
                )
        scope = self._scopes[tenant, participants] = _Scope(row["scope_id"], row["tenant_since"].isoformat())
        if len(self._scopes) > _CACHED_SCOPES:
            self._scopes.popitem(last=False)
        return scope

    async def _append_new(self, tenant: str, since: str, rows: Sequence[Incoming]) -> list[AppendResult] | None:
        """Append events that no projection folds, in one round trip: half the time of `_append`.

        Returns:
            None if an event is not new; then nothing was stored.
        """
        try:
            records = await self._database.append_alone(tenant, since, [_new_event(row) for row in rows])
        except asyncpg.UnknownPostgresError as error:
            if error.sqlstate == NOT_NEW:
                return None
            raise
        numbers = {record["event_id"]: record["event_seq"] for record in records}
        return [_acknowledged(row, numbers[row.event_id]) for row in rows]

    async def _append(
        self,
        connection: Connection,
        tenant: str,
        rows: Sequence[Incoming],
        folding: Sequence[tuple[Projection, list[int]]],
        *,
        importing: bool,
    ) -> list[AppendResult]:
        """Append events and fold projections in the transaction of `connection`; return results in input order."""
        for projection, positions in folding:
            await projection.prepare(
                connection, tenant, [rows[position] for position in positions], importing=importing
            )
        records = await connection.fetch(sql("events.append"), tenant, [_new_event(row) for row in rows])
        inserted = {record["event_id"]: record["event_seq"] for record in records}
        existing = await _find_existing(connection, tenant, rows, inserted, importing=importing)
        stored = {
            position: Stored(*row, inserted[row.event_id])
            for position, row in enumerate(rows)
            if position not in existing
        }
        for projection, positions in folding:
            new = [stored[position] for position in positions if position in stored]
            if new:
                await projection.fold(connection, tenant, new)
        return [
            existing[position] if position in existing else _acknowledged(row, inserted[row.event_id])
            for position, row in enumerate(rows)
        ]


def _acknowledged(row: Incoming, event_seq: int) -> AppendResult:
    return AppendResult(row.event_id, event_seq, row.event.participants)


def _new_event(row: Incoming) -> tuple[Any, ...]:
    """Return a row of the type `myria.new_event`."""
    event = row.event
    return (
        row.event_id,
        row.scope_id,
        event.timestamp,
        event.channel,
        event.type,
        event.context_id,
        event.source_event_key,
        _dedupe_key_of(event),
        event.internal,
        event.payload_json.decode(),
        hints_json(event.topic_hints),
        event.utc_offset,
    )


def _dedupe_key_of(event: NewEvent) -> bytes | None:
    return None if event.source_event_key is None else dedupe_key(event.channel, event.source_event_key)


async def _find_existing(
    connection: Connection, tenant: str, rows: Sequence[Incoming], inserted: dict[str, int], *, importing: bool
) -> dict[int, AppendResult]:
    """Return the acknowledgements of events that were stored before, by their position in `rows`.

    Raises:
        as `AppendTransaction.append`.
    """
    # An import may give one event_id twice; then only the content tells which of the two was inserted.
    id_counts = Counter(row.event_id for row in rows) if importing else {}
    skipped = [
        position
        for position, row in enumerate(rows)
        if row.event_id not in inserted or id_counts.get(row.event_id, 1) > 1
    ]
    if not skipped:
        return {}
    duplicates = await _find_duplicates(connection, tenant, rows, skipped, importing=importing)
    lost = [position for position in skipped if rows[position].event_id not in inserted and position not in duplicates]
    if lost:
        await _refuse_erased(connection, tenant, rows, lost)
        raise ScopesGone
    return {
        position: _acknowledge_stored(
            rows[position], record, importing=importing, index=position if len(rows) > 1 else None
        )
        for position, record in sorted(duplicates.items())
    }


async def _refuse_erased(connection: Connection, tenant: str, rows: Sequence[Incoming], lost: list[int]) -> None:
    """Refuse rows (`lost` are their positions) that were not inserted because their events were erased.

    Raises:
        EventErased: one was erased; nothing of the commit is stored.
    """
    keys = [_dedupe_key_of(rows[at].event) for at in lost]
    refused = {row["dedupe_key"] for row in await connection.fetch(sql("erasure.refused"), tenant, keys)}
    for at, key in zip(lost, keys, strict=True):
        if key in refused:
            raise errors.EventErased(
                "an event with this channel and source_event_key was erased; nothing was stored",
                **({"index": at} if len(rows) > 1 else {}),
            )


async def _find_duplicates(
    connection: Connection, tenant: str, rows: Sequence[Incoming], skipped: list[int], *, importing: bool
) -> dict[int, asyncpg.Record]:
    """Return the stored events that the skipped rows duplicate, by position in `rows`; the first match counts."""
    duplicates: dict[int, asyncpg.Record] = {}
    for record in await connection.fetch(
        sql("events.find_duplicates"), tenant, [_new_event(rows[at]) for at in skipped], importing
    ):
        duplicates.setdefault(skipped[record["position"] - 1], record)
    return duplicates


def _acknowledge_stored(row: Incoming, stored: asyncpg.Record, *, importing: bool, index: int | None) -> AppendResult:
    """Return the acknowledgement of an event that was stored before.

    Raises:
        SourceEventKeyTaken: the new event's participants may not see the stored one; the error reveals nothing of it.
        EventIdConflict: an event_id or key of an import was stored with other content.
    """
    if not importing and not stored["is_visible"]:
        refusal = errors.SourceEventKeyTaken(
            "this source_event_key is taken in this channel by an event that these participants may not see; "
            "nothing was stored: use a key of your own",
            field="source_event_key",
        )
        raise refusal if index is None else refusal.at_index(index)
    differs: bool = stored["payload_differs"]
    same_id = stored["event_id"] == row.event_id
    if importing and row.event.event_id is not None and (not same_id or differs or stored["annotations_differ"]):
        conflict = "with other content" if same_id else "under another event_id"
        raise errors.EventIdConflict(
            f"event {row.event.event_id} exists already {conflict}; it was not imported",
            event_id=row.event.event_id,
            existing_event_id=stored["event_id"],
        )
    return AppendResult(
        event_id=stored["event_id"],
        event_seq=stored["event_seq"],
        participants=tuple(stored["participants"]),
        # A stored event with our own new event_id is this very append: an earlier attempt committed unnoticed.
        deduplicated=not same_id or importing,
        payload_differs=differs,
    )
