"""The journal of access: administrative acts, refused attempts, and one record per call without its content.

What somebody forgets or restores counts as an act. An act is written in the transaction that does it. Refused attempts
and calls are kept in memory and written by one background task in batches: requests never wait for that, memory and
database load are bounded, and records that find no room are dropped and counted.
Nothing here holds a secret, or a word of an event but what an administrator gives as a reason.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson

from myria.access.principal import ApiName, Principal, Proof
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
"""Stands for the tenant of an attempt whose tenant is unknown; no real tenant can have this name."""

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
    """One administrative act, or one refused attempt; equal attempts of about a second are one row.

    `action` is what was done, or the tool or endpoint that was asked for. `target` names what it changed: a key's id, a
    tenant, a snapshot. `outcome` is `ok` or a refusal's code, `address` the client's if the request came over HTTP.
    """

    tenant: str
    actor: str
    action: str
    target: str | None = None
    outcome: str = "ok"
    face: str | None = None
    address: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


async def write_act(connection: Connection, act: Act) -> None:
    """Write an act into the journal, in the caller's transaction."""
    details = orjson.dumps(dict(act.details), default=str).decode()
    row = (act.tenant, act.actor, act.action, act.target, act.outcome, act.face, details, act.address)
    await connection.execute(sql("audit.write_act"), *row)


class Journal:
    """The journal of one serving process.

    Args:
        database: where it is written; a pool whose connections reads cannot all take.
        settings: which calls are recorded.
        dropped: called with the sort and number of records that were lost.
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
        self._recorded_share = settings.calls
        self._dropped = dropped
        self._ticks = ticks
        self._now = now
        rate = settings.calls_per_s
        self._call_rate = TokenBucket(rate, max(1.0, rate * _CALL_BURST_S), ticks())
        self._refusal_rate = TokenBucket(_REFUSALS_PER_S, MAX_KINDS, ticks())
        self._calls: deque[tuple[str, Row]] = deque()
        self._writing = asyncio.Lock()
        self._attempts: dict[Act, tuple[float, int]] = {}
        """By refused attempt: when it was first made, and how often."""

    def call(
        self, principal: Principal, *, face: ApiName, tool: str, arguments: Any, seconds: float, outcome: str
    ) -> None:
        """Queue the record of one call, if the settings say that it is recorded.

        Of the arguments, only the context is kept: context_id, or the project and session of a turn.
        """
        if self._recorded_share is None:  # the settings record calls with credentials only
            if principal.credential is None:
                return
        elif self._recorded_share < 1 and random.random() >= self._recorded_share:  # noqa: S311 - a sample
            return
        if len(self._calls) >= MAX_WAITING or self._call_rate.take(1, self._ticks()):
            self._dropped("calls", 1)
            return
        context = _context_of(face, arguments) if isinstance(arguments, dict) else None
        if not (isinstance(context, str) and len(context) <= _MAX_CONTEXT and context.isprintable()):
            context = None
        at, request_id = datetime.fromtimestamp(self._now(), UTC), f"req_{random.getrandbits(128):032x}"
        row = (at, request_id, principal.actor, face, tool, context, seconds * 1000, outcome)
        self._calls.append((principal.tenant, row))

    def refused(self, attempt: Act) -> None:
        """Queue a refused attempt, or count it with equal ones that wait."""
        if attempt in self._attempts:
            first_at, times = self._attempts[attempt]
            self._attempts[attempt] = first_at, times + 1
        elif len(self._attempts) >= MAX_KINDS or self._refusal_rate.take(1, self._ticks()):
            self._dropped("refusals", 1)
        else:
            self._attempts[attempt] = self._now(), 1

    async def act(self, act: Act) -> None:
        """Write an act that was done already. If the database is unreachable, the entry is lost and the log says so."""
        try:
            async with self._database.write(act.tenant) as connection:
                await write_act(connection, act)
        except MyriaError as error:
            _log.error(
                "an administrative act was not written down: %s",
                error.message,
                extra={"action": "audit_failed", "act": act.action, "actor": act.actor, "tenant": act.tenant},
            )

    async def command(self, act: Act, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Write an administrative command that was carried out or refused; its arguments name its target and reason.

        A decision about several notes is an act for each that it changed, or that was refused. A rollback to what is
        active already changed nothing, and is none.
        """
        is_ok = act.outcome == "ok"
        if act.action == "rollback" and is_ok and answer["snapshot_id"] == answer["previous_snapshot_id"]:
            return
        # Of a refused command the reason was not checked: PostgreSQL might not even take it.
        reason = arguments.get("reason") if is_ok else None
        details = {"reason": reason} if reason else {}
        decided = answer.get("decided")
        if isinstance(arguments.get("decision"), str) and isinstance(decided, list):
            for note in decided:
                outcome = (note.get("error") or {}).get("code", act.outcome)
                if note.get("changed") or outcome != "ok":
                    of_note = {"decision": arguments["decision"], **details}
                    await self.act(replace(act, target=_target(note["note_id"]), outcome=outcome, details=of_note))
            return
        possible_targets = (
            *(arguments.get(field) for field in ("snapshot_id", "to", "build_id", "erasure_id")),
            *(answer.get(field) for field in ("snapshot_id", "request_id", "erasure_id")),
        )
        target = next((value for value in possible_targets if isinstance(value, str)), None)
        if target is not None:
            target = _target(target)
        await self.act(replace(act, target=target, details=details))

    async def run(self) -> None:
        """Write queued records every second until cancelled, then once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await asyncio.shield(self.flush())  # what is being written when the server ends is written to its end
        finally:
            with suppress(Exception):
                await asyncio.wait_for(asyncio.shield(self.flush()), 2.0)

    async def flush(self) -> None:
        """Write all queued records, once a write under way has ended; those that cannot be written count as lost."""
        async with self._writing:
            attempts, self._attempts = self._attempts, {}
            refusals: defaultdict[str, list[Row]] = defaultdict(list)
            for act, (first_at, times) in attempts.items():
                row = (act.actor, act.action, act.target, act.outcome, act.face, act.address, times)
                refusals[act.tenant].append((*row, datetime.fromtimestamp(first_at, UTC)))
            for tenant, rows in refusals.items():
                await self._write("audit.write_refusals", tenant, rows, "refusals")
            while self._calls:
                calls: defaultdict[str, list[Row]] = defaultdict(list)
                for _ in range(min(_WRITTEN_AT_ONCE, len(self._calls))):
                    tenant, row = self._calls.popleft()
                    calls[tenant].append(row)
                for tenant, rows in calls.items():
                    await self._write("audit.write_calls", tenant, rows, "calls")

    async def _write(self, statement: str, tenant: str, rows: list[Row], sort: Dropped) -> None:
        try:
            async with self._database.write(tenant) as connection:
                if sort == "calls":
                    # With this shared lock, an erasure waits for this transaction, and a later transaction sees the
                    # erasure: no call is written that an erasure would miss.
                    await connection.execute(sql("llm.share_audit_lock"), lock_key("audit", tenant))
                await connection.execute(sql(statement), tenant, *map(list, zip(*rows, strict=True)))
        except MyriaError as error:
            self._dropped(sort, len(rows))
            _log.debug("the journal of access was not written: %s", error)
        except Exception:  # noqa: BLE001 - a bug here must not end the writing of what comes later
            self._dropped(sort, len(rows))
            _log.exception("the journal of access was not written", extra={"action": "audit_failed"})


def _target(text: str) -> str:
    """Return what names the target of an act, as the journal keeps it."""
    return text[:_MAX_TARGET].encode("ascii", "replace").decode().replace("\0", "?")


def _context_of(face: ApiName, arguments: Json) -> Any:
    """Return the name of the conversation that a call belongs to, as its arguments give it; never its content."""
    if face != "turns":
        return arguments.get("context_id")
    names = [arguments.get(name) for name in ("project", "session_id")]
    return "/".join(name if isinstance(name, str) and name.strip() else "default" for name in names)


async def entries(database: Database, tenant: str | None, limit: int) -> list[Json]:
    """Return acts and refused attempts, newest first: of one tenant, or, for None, of all and of unknown tenants."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """Which entries of the journal are sought: an empty text, and None, mean any.

    `text` stands anywhere in an entry, `actor` in its actor, both also in the names of keys and in any case; `outcome`
    is whole. `text_actions` are found for the text too, as a page shows them in words that hold it. An action is its
    name; or, of a decision, `decide_notes.approve`; or the tool that an API refused. `since` is the first moment,
    `until` the first that is too late.
    """

    text: str = ""
    text_actions: tuple[str, ...] = ()
    actor: str = ""
    actions: tuple[str, ...] = ()
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None


async def entries_for(
    database: Database, proof: Proof, sought: Sought, *, before: int | None, limit: int
) -> tuple[list[Json], int | None]:
    """Return acts and refused attempts of the tenant whose administrator shows a proof, newest first.

    Serving may call this, which cannot read the entries by itself. A call looks at 10,000 entries at most; the second
    value is the `before` with which to go on, None at the end.

    Args:
        before: only entries of lower ids.

    Raises:
        CredentialInvalid: the proof is not, or no longer, an administrator's.
    """
    wanted = (
        sought.text,
        sought.text_actions,
        sought.actor,
        sought.actions,
        sought.outcome,
        sought.since,
        sought.until,
    )
    async with database.read(proof.tenant) as connection:
        rows = await connection.fetch(
            sql("audit.for_administrator"), proof.key_id, proof.digest, *wanted, before, limit
        )
    found = [
        {**entry, "at": rfc3339_of(entry["at"]), "details": orjson.loads(entry["details"])}
        for entry in ({name: value for name, value in row.items() if name != "looked_to"} for row in rows)
        if entry["entry_id"] is not None
    ]
    if len(found) == limit:
        return found, found[-1]["entry_id"]
    return found, rows[0]["looked_to"] if rows else None


async def calls(database: Database, tenant: str | None, limit: int) -> list[Json]:
    """Return recorded calls, newest first: of one tenant, or of all for None."""
    async with database.read(ALL_TENANTS) as connection:
        rows = await connection.fetch(sql("audit.calls"), tenant, limit)
    return [{**dict(row), "at": rfc3339_of(row["at"])} for row in rows]


async def forget(database: Database, settings: AuditSettings) -> int:
    """Remove rows older than the retention, in batches, and return how many. Needs the control plane's rights."""
    removed = 0
    for statement, age_s in (
        ("audit.forget_entries", settings.keep_access_s),
        ("audit.forget_calls", settings.keep_calls_s),
    ):
        while True:
            async with database.write(ALL_TENANTS) as connection:
                status = await connection.execute(sql(statement), age_s, _FORGOTTEN_AT_ONCE)
            batch = int(status.rpartition(" ")[2])  # PostgreSQL answers `DELETE 123`
            removed += batch
            if batch < _FORGOTTEN_AT_ONCE:
                break
    return removed
