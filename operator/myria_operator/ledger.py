"""The operator's access to the database: the core's registry and queue, and the rows that belong to resources."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import asyncpg

from myria import errors
from myria.builds.finish import end_without_result
from myria.builds.model import Outcome, Resource
from myria.builds.queue import automatic_builds_pause, take_up
from myria.builds.snapshots import Registry
from myria.db.database import ALL_TENANTS, Database, TransactionBounds
from myria.db.locks import lock_key
from myria.log.ids import new_id
from myria.settings import Settings
from myria_operator import reasons
from myria_operator.observed import Rebuild, Situation, Target
from myria_rebuilds.report import BuildFacts
from myria_rebuilds.statements import sql

logger = logging.getLogger(__name__)

_MAX_REASON: Final = 1000
_ENDING: Final = TransactionBounds(idle=60.0, total=60.0)
_ENDING_LOCK: Final = lock_key("uninstall", ALL_TENANTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfinished:
    """An unfinished build, with the name and uid of its resource; `idle_s` is the time since a worker last reported."""

    tenant: str
    build_id: str
    name: str | None
    uid: str | None
    alive: bool
    idle_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ToMake:
    """A request that is to become a resource; `name` is set once an operator has chosen the resource's name."""

    tenant: str
    request_id: str
    cause_key: str
    trigger: str
    is_full: bool
    hold: bool
    reason: str | None
    name: str | None
    is_forced: bool = False


class Ledger:
    """Everything the operator reads and writes in PostgreSQL; each method is one transaction and can be repeated."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._registry = Registry(database, settings)
        self._installation: str | None = None
        self._clock: tuple[datetime, float] | None = None
        self._horizon = "0"
        self._seen: set[tuple[str, str]] = set()

    async def _fetch_rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self._database.read(ALL_TENANTS) as connection:
            return await connection.fetch(sql(statement), *arguments)

    async def _write(self, statement: str, *arguments: Any) -> Any:
        """Run a statement that writes; return the value it returns, None where it found nothing to write."""
        async with self._database.write(ALL_TENANTS) as connection:
            return await connection.fetchval(sql(statement), *arguments)

    async def installation(self) -> str:
        """Return the id of this installation's database."""
        if self._installation is None:
            ((self._installation,),) = await self._fetch_rows("rebuilds.installation")
        return self._installation

    async def look(self, rebuild: Rebuild) -> tuple[Situation, BuildFacts | None]:
        """Read a resource's situation and its build in one transaction; the build is None before there is one."""
        turn_s, overtime_builds = self._settings.builder.turn_s, self._settings.operator.overtime_builds
        async with self._database.read(ALL_TENANTS) as connection:
            row = await connection.fetchrow(
                sql("rebuilds.situation"), rebuild.tenant, rebuild.uid, turn_s, overtime_builds
            )
            if row is None:
                raise errors.InternalError("a resource's situation gave no row")
            values = dict(row)
            self._clock = values.pop("now"), time.monotonic()
            situation = Situation(**values)
            facts = None
            if situation.build_id is not None:
                facts = await connection.fetchrow(sql("rebuilds.facts"), situation.build_tenant_id, situation.build_id)
        return situation, BuildFacts.from_row(facts) if facts is not None else None

    def now(self) -> datetime:
        """Return the time of the database's clock; before the database first answered, of ours, which may be wrong."""
        if self._clock is None:
            return datetime.now(UTC)
        database_time, read_at = self._clock
        return database_time + timedelta(seconds=time.monotonic() - read_at)

    async def target(self, rebuild: Rebuild, situation: Situation) -> Target:
        """Return the snapshot to which a rollback goes, or why there is none.

        Once `previous` was resolved, the status holds that snapshot's id, and the same snapshot is returned again.
        """
        snapshot_id = rebuild.rollback_to
        resolved_id = rebuild.status.get("snapshotID")
        if resolved_id is not None:
            snapshot_id = str(resolved_id)
        elif snapshot_id == "previous":
            if situation.previous_snapshot_id is None:
                message = "no snapshot before the active one is kept that differs from it"
                if situation.active_snapshot_id is None:
                    message = "no snapshot is active yet, so there is none to go back to"
                return Target(problem=reasons.NO_PREVIOUS_SNAPSHOT, message=message)
            snapshot_id = situation.previous_snapshot_id
        try:
            snapshot = await self._registry.snapshot(rebuild.tenant, snapshot_id or "")
        except errors.SnapshotNotFound:
            if rebuild.rollback_to == "previous" and resolved_id is None:
                message = "the snapshot before the active one is no longer kept"
                return Target(problem=reasons.NO_PREVIOUS_SNAPSHOT, message=message)
            message = f"the tenant has no snapshot {snapshot_id}; `myria snapshots` lists those that are kept"
            return Target(problem=reasons.UNKNOWN_SNAPSHOT, message=message)
        if snapshot["status"] not in {"active", "archived"}:
            message = (
                f"snapshot {snapshot_id} is {snapshot['status']}, and only one that was active can be gone back to"
            )
            return Target(problem=reasons.SNAPSHOT_NOT_RESTORABLE, message=message)
        return Target(snapshot_id=snapshot_id)

    async def ask(self, rebuild: Rebuild) -> None:
        """Write the request that a resource makes for a build, unless it is already written."""
        build = rebuild.build
        await self._write(
            "rebuilds.ask",
            rebuild.tenant,
            new_id("req"),
            rebuild.trigger,
            bool(build.get("full")),
            build.get("publish") == "Hold",
            _reason(rebuild),
            _actor(rebuild),
            rebuild.name,
            rebuild.uid,
            rebuild.author,
            rebuild.wants("suspend"),
            bool(build.get("force")),
        )

    async def adopt(self, tenant: str, request_id: str, name: str, uid: str) -> bool:
        """Tie a resource to the request from which it was made.

        Returns False when the request belongs to another resource, or is closed.
        """
        return await self._write("rebuilds.adopt", tenant, request_id, name, uid) is not None

    async def suspend_request(self, rebuild: Rebuild, *, suspended: bool) -> None:
        """Suspend a waiting request, so that the queue skips it, or let the queue consider it again."""
        await self._write("rebuilds.suspend_request", rebuild.uid, suspended)

    async def suspend_build(self, build: BuildFacts, *, suspended: bool) -> None:
        """Suspend a build, so that it gives up its slot of the installation, or let it compete for a slot again."""
        await self._write("rebuilds.suspend_build", build.tenant, build.row.build_id, suspended)

    async def close_request(self, uid: str) -> None:
        """Close the request of a resource that has ended, so that no build takes it up."""
        await self._write("rebuilds.close_request", uid)

    async def give_up(self, rebuild: Rebuild) -> None:
        """Make sure that an ended rollback or held build never moves the pointer; one that has moved it stays."""
        async with self._database.write(rebuild.tenant) as connection:
            # The lock that publishing takes: no pointer moves between the check and the mark.
            await connection.execute(sql("session.own_publish_lock"), lock_key("publish", rebuild.tenant))
            await connection.execute(
                sql("rebuilds.give_up"),
                rebuild.tenant,
                new_id("req"),
                _reason(rebuild),
                _actor(rebuild),
                rebuild.name,
                rebuild.uid,
                rebuild.author,
            )

    async def take_up(self, tenant: str) -> None:
        """Turn the tenant's next request into its build."""
        await take_up(self._database, tenant, only_resources=True)

    async def note_job(self, build: BuildFacts, uid: str) -> bool:
        """Record the only Job that a build may ever have; return False when another Job was recorded before."""
        return await self._write("rebuilds.note_job", build.tenant, build.row.build_id, uid) in {uid, None}

    async def scopes_to_build(self, build: BuildFacts, limit: int) -> int:
        """Return how many scopes a build will work on, counted up to a limit."""
        statement = "rebuilds.all_scopes" if build.row.is_full else "rebuilds.dirty_scopes"
        ((scopes,),) = await self._fetch_rows(statement, build.tenant, limit)
        return int(scopes)

    async def end_build(self, tenant: str, build_id: str, reason: str, message: str) -> None:
        """Mark a build as failed that no worker will end; a build that has ended is unchanged."""
        error = errors.BuildInterrupted(message, reason=reason, transient=reason in reasons.TRANSIENT)
        await end_without_result(
            self._database, tenant, build_id, Outcome.FAILED, error=error, settings=self._settings.builder
        )

    async def abort(self, tenant: str, build_id: str, *, name: str, reason: str) -> None:
        """Give up the unfinished or held build of a resource; a build that ended otherwise is unchanged.

        Args:
            build_id: the build, or a request that waits, which becomes a build that was given up.
        """
        with suppress(errors.BuildEnded):
            await self._registry.abort(tenant, build_id, actor=f"MyriaRebuild {name}", reason=reason)
        await self._registry.tidy(tenant)

    async def publish(self, rebuild: Rebuild, build: BuildFacts) -> None:
        """Publish a held build; where the pointer moved meanwhile, or it was given up, nothing happens."""
        if build.row.snapshot_id is None:
            return
        resource = Resource(name=rebuild.name, uid=rebuild.uid, manager=rebuild.manager_of("approve"))
        try:
            await self._registry.publish(
                build.tenant, build.row.snapshot_id, actor=_actor(rebuild), reason=_reason(rebuild), resource=resource
            )
        except (errors.ConflictError, errors.NotFoundError) as error:
            logger.info(
                "not published: %s", error.message, extra={"action": "publish_refused", "resource": rebuild.name}
            )

    async def roll_back(self, rebuild: Rebuild, target: str) -> None:
        """Move the pointer back once; where that is not possible any more, nothing happens."""
        resource = Resource(name=rebuild.name, uid=rebuild.uid, manager=rebuild.manager_of("rollback"))
        try:
            await self._registry.rollback(
                rebuild.tenant, target, actor=_actor(rebuild), reason=_reason(rebuild), resource=resource
            )
        except (errors.ConflictError, errors.NotFoundError) as error:
            logger.info("not moved: %s", error.message, extra={"action": "rollback_refused", "resource": rebuild.name})

    async def changed(self) -> set[str]:
        """Return the names of resources whose build or request changed since the last call; the first call returns all.

        If a build has ended, the names of all resources that wait for their turn are added.
        """
        rows = await self._fetch_rows("rebuilds.changes", self._horizon)
        self._horizon = rows[0]["horizon"]
        rows = [row for row in rows if row["kind"] is not None]
        new_rows = [row for row in rows if (row["id"], row["revision"]) not in self._seen]
        self._seen = {(row["id"], row["revision"]) for row in rows}
        names = {row["resource_name"] for row in new_rows if row["resource_name"] is not None}
        if any(row["ended"] for row in new_rows):
            names |= {name for name, _ in await self.waiting()}
        return names

    async def waiting(self) -> list[tuple[str, str]]:
        """Return (name, uid) of the resources that wait for their turn."""
        return [(row["resource_name"], row["resource_uid"]) for row in await self._fetch_rows("rebuilds.waiting")]

    async def unfinished(self) -> list[Unfinished]:
        """Return every unfinished build."""
        return [Unfinished(**dict(row)) for row in await self._fetch_rows("rebuilds.unfinished")]

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[None]:
        """Show for the block that this operator ends builds for good, and writes that down; see `is_ending`."""
        async with self._database.write(ALL_TENANTS, _ENDING) as connection:
            await connection.execute(sql("rebuilds.show_ending"), _ENDING_LOCK)
            yield

    async def is_ending(self) -> bool:
        """Tell whether an operator ends builds for good at this moment."""
        ((is_ending,),) = await self._fetch_rows("rebuilds.is_ending", _ENDING_LOCK)
        return bool(is_ending)

    async def of_name(self, name: str) -> list[tuple[str, str | None, str]]:
        """Return all unfinished work of resources of a name, as (tenant, build id, resource's uid).

        The build id is None for a request that has no build yet.
        """
        rows = await self._fetch_rows("rebuilds.of_resource_name", name)
        return [(row["tenant_id"], row["build_id"], row["resource_uid"]) for row in rows]

    async def made(self, uids: Iterable[str]) -> set[str]:
        """Return the uids, out of these, of the resources that the operator made."""
        return {row["resource_uid"] for row in await self._fetch_rows("rebuilds.made_resources", list(uids))}

    async def next_to_make(self, tenant: str) -> ToMake | None:
        """Return the tenant's request that is to become a resource now, if any."""
        async with self._database.read(tenant) as connection:
            is_paused = await automatic_builds_pause(connection, tenant)
            row = await connection.fetchrow(sql("rebuilds.next_to_make"), tenant, is_paused)
        return ToMake(**dict(row)) if row is not None else None

    async def has_waiting(self, tenant: str) -> bool:
        """Tell whether a resource of the tenant waits for its build."""
        ((is_waiting,),) = await self._fetch_rows("rebuilds.has_waiting", tenant)
        return bool(is_waiting)

    async def name_resource(self, made: ToMake, name: str) -> bool:
        """Record the name of the resource about to be made; return False when the request was taken up meanwhile."""
        return await self._write("rebuilds.name_resource", made.tenant, made.request_id, name) is not None


def _actor(rebuild: Rebuild) -> str:
    return f"MyriaRebuild {rebuild.name}"


def _reason(rebuild: Rebuild) -> str | None:
    reason = rebuild.spec.get("reason")
    return str(reason)[:_MAX_REASON] if reason is not None else None
