"""The journal of access: administrative acts, refused attempts, and one record per call without its content.

Acts are written with the act. Refused attempts and calls are noted in memory and written beside the requests, by one
task, a batch at a time: a request never waits for them, what they take is bounded, and what finds no room is counted.
Nothing here holds a secret or a word of an event.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson

from myria.access.principal import Face, Principal
from myria.db.clock import rfc3339_of
from myria.db.database import ALL_TENANTS, Connection, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import MyriaError
from myria.log.quotas import TokenBucket

if TYPE_CHECKING:
    from myria.settings import AuditSettings

Json = dict[str, Any]

NO_TENANT = "-"
"""Under this name, which no tenant can have, attempts are kept of which nobody knows the tenant."""

NOBODY = "nobody"
"""The actor of an attempt that proved nothing."""

FLUSH_S = 1.0
"""Seconds between two writings."""

MAX_WAITING = 10_000
"""Records of calls that wait to be written."""

MAX_KINDS = 1_000
"""Different refused attempts between two writings; equal ones are counted together."""

_REFUSALS_PER_S = 10.0
_CALL_BURST_S = 10.0
_WRITTEN_AT_ONCE = 1_000
_FORGOTTEN_AT_ONCE = 5_000
_MAX_CONTEXT = 200
_MAX_TARGET = 200

_log = logging.getLogger(__name__)

Dropped = Literal["calls", "refusals"]

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """One administrative act. `target` names what it was done to: a key's id, a tenant, a snapshot.

    `address` is from where it was asked for, where that was over HTTP.
    """

    tenant: str
    actor: str
    action: str
    target: str | None = None
    outcome: str = "ok"
    face: str | None = None
    address: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedAttempt:
    """A refused attempt; equal ones of about a second are one row.

    `action` is the tool or the endpoint that was asked for, `outcome` the code of the refusal.
    """

    tenant: str
    actor: str
    action: str
    outcome: str
    target: str | None = None
    face: str | None = None
    address: str | None = None


@dataclass(slots=True)
class _Repeats:
    at: float
    times: int


async def write_act(connection: Connection, act: Act) -> None:
    """Write an act down within the transaction that does it."""
    details = orjson.dumps(dict(act.details), default=str).decode()
    row = (act.tenant, act.actor, act.action, act.target, act.outcome, act.face, details, act.address)
    await connection.execute(sql("audit.write_act"), *row)


class Journal:
    """What one serving process notes.

    Args:
        database: where it is written; a pool of which reads cannot take all connections.
        settings: which calls are recorded.
        dropped: told how many records found no room, and of which sort.
        ticks: a steady clock, in seconds.
        now: seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        settings: AuditSettings,
        *,
        dropped: Callable[[Dropped, int], None] = lambda _sort, _count: None,
        ticks: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._share = settings.calls
        self._dropped = dropped
        self._ticks = ticks
        self._now = now
        rate = settings.calls_per_s
        self._room = TokenBucket(rate, max(1.0, rate * _CALL_BURST_S), ticks())
        self._refusal_room = TokenBucket(_REFUSALS_PER_S, MAX_KINDS, ticks())
        self._calls: deque[tuple[str, Row]] = deque()
        self._writing = asyncio.Lock()
        self._attempts: dict[RefusedAttempt, _Repeats] = {}

    def call(
        self, principal: Principal, *, face: Face, tool: str, arguments: Any, seconds: float, outcome: str
    ) -> None:
        """Note one call, if it is one of those that are recorded.

        Of its arguments only the context is kept: context_id, or the project and session of a turn.
        """
        if self._share is None:
            if principal.credential is None:
                return
        elif self._share < 1 and random.random() >= self._share:  # noqa: S311 - a sample
            return
        if len(self._calls) >= MAX_WAITING or self._room.take(1, self._ticks()):
            self._dropped("calls", 1)
            return
        context = _context_of(face, arguments) if isinstance(arguments, dict) else None
        if not (isinstance(context, str) and len(context) <= _MAX_CONTEXT and context.isprintable()):
            context = None
        at, request_id = datetime.fromtimestamp(self._now(), UTC), f"req_{random.getrandbits(128):032x}"
        row = (at, request_id, principal.actor, face, tool, context, seconds * 1000, outcome)
        self._calls.append((principal.tenant, row))

    def refused(self, attempt: RefusedAttempt) -> None:
        """Note a refused attempt."""
        seen = self._attempts.get(attempt)
        if seen is not None:
            seen.times += 1
        elif len(self._attempts) >= MAX_KINDS or self._refusal_room.take(1, self._ticks()):
            self._dropped("refusals", 1)
        else:
            self._attempts[attempt] = _Repeats(self._now(), 1)

    async def act(self, act: Act) -> None:
        """Write an act down that was done already; a database that is away costs the entry, not the act."""
        try:
            async with self._database.write(act.tenant) as connection:
                await write_act(connection, act)
        except MyriaError as error:
            _log.error(
                "an administrative act was not written down: %s",
                error.message,
                extra={"action": "audit_failed", "act": act.action, "actor": act.actor, "tenant": act.tenant},
            )

    async def done(
        self,
        tenant: str,
        actor: str,
        action: str,
        outcome: str,
        *,
        named: Mapping[str, Any],
        answer: Mapping[str, Any],
        face: Face | None = None,
        address: str | None = None,
    ) -> None:
        """Write an administrative command down that was carried out, or refused.

        Args:
            named: its arguments. They, or else its answer, say what it was done to.
        """
        given = (
            *(named.get(field) for field in ("snapshot_id", "to", "erasure_id")),
            *(answer.get(field) for field in ("snapshot_id", "request_id", "erasure_id")),
        )
        target = next((value for value in given if isinstance(value, str)), None)
        if target is not None:
            target = target[:_MAX_TARGET].encode("ascii", "replace").decode().replace("\0", "?")
        await self.act(
            Act(
                tenant=tenant,
                actor=actor,
                action=action,
                target=target,
                outcome=outcome,
                face=face,
                address=address,
            )
        )

    async def run(self) -> None:
        """Write what was noted, every second, until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await asyncio.shield(self.flush())  # what is being written when the server ends is written to its end
        finally:
            with suppress(Exception):
                await asyncio.wait_for(asyncio.shield(self.flush()), 2.0)

    async def flush(self) -> None:
        """Write what was noted, after what is being written; what the database does not take is lost, and counted."""
        async with self._writing:
            await self._flush()

    async def _flush(self) -> None:
        attempts, self._attempts = self._attempts, {}
        refusals: dict[str, list[Row]] = {}
        for attempt, seen in attempts.items():
            row = (
                attempt.actor,
                attempt.action,
                attempt.target,
                attempt.outcome,
                attempt.face,
                attempt.address,
                seen.times,
                datetime.fromtimestamp(seen.at, UTC),
            )
            refusals.setdefault(attempt.tenant, []).append(row)
        for tenant, rows in refusals.items():
            await self._write("audit.write_refusals", tenant, rows, "refusals")
        while self._calls:
            calls: dict[str, list[Row]] = {}
            for _ in range(min(_WRITTEN_AT_ONCE, len(self._calls))):
                tenant, row = self._calls.popleft()
                calls.setdefault(tenant, []).append(row)
            for tenant, rows in calls.items():
                await self._write("audit.write_calls", tenant, rows, "calls")

    async def _write(self, statement: str, tenant: str, rows: list[Row], sort: Dropped) -> None:
        try:
            async with self._database.write(tenant) as connection:
                if sort == "calls":
                    # An erasure waits for this transaction, and a later one sees the erasure.
                    await connection.execute(sql("llm.share_audit_lock"), lock_key("audit", tenant))
                await connection.execute(sql(statement), tenant, *map(list, zip(*rows, strict=True)))
        except MyriaError as error:
            self._dropped(sort, len(rows))
            _log.debug("the journal of access was not written: %s", error)
        except Exception:  # noqa: BLE001 - a bug here must not end the writing of what comes later
            self._dropped(sort, len(rows))
            _log.exception("the journal of access was not written", extra={"action": "audit_failed"})


def _context_of(face: Face, arguments: Json) -> Any:
    """Return what arguments say of where a call belongs: names that callers give, nothing of what is said."""
    if face != "turns":
        return arguments.get("context_id")
    names = [arguments.get(name) for name in ("project", "session_id")]
    return "/".join(name if isinstance(name, str) and name.strip() else "default" for name in names)


async def entries(database: Database, tenant: str | None, limit: int) -> list[Json]:
    """Return acts and refused attempts, newest first, of one tenant, or of all and of none."""
    async with database.read(ALL_TENANTS) as connection:
        rows = await connection.fetch(sql("audit.entries"), tenant, limit)
    return [
        {
            **dict(row),
            "at": rfc3339_of(row["at"]),
            "tenant": None if row["tenant"] == NO_TENANT else row["tenant"],
            "details": orjson.loads(row["details"]),
        }
        for row in rows
    ]


async def calls(database: Database, tenant: str | None, limit: int) -> list[Json]:
    """Return recorded calls, newest first, of one tenant, or of all."""
    async with database.read(ALL_TENANTS) as connection:
        rows = await connection.fetch(sql("audit.calls"), tenant, limit)
    return [{**dict(row), "at": rfc3339_of(row["at"])} for row in rows]


async def forget(database: Database, settings: AuditSettings) -> int:
    """Remove what is older than retention keeps, a batch at a time; return how many rows. For the control plane."""
    removed = 0
    for statement, age_s in (
        ("audit.forget_entries", settings.keep_access_s),
        ("audit.forget_calls", settings.keep_calls_s),
    ):
        while True:
            async with database.write(ALL_TENANTS) as connection:
                status = await connection.execute(sql(statement), age_s, _FORGOTTEN_AT_ONCE)
            batch = int(status.rpartition(" ")[2])
            removed += batch
            if batch < _FORGOTTEN_AT_ONCE:
                break
    return removed
