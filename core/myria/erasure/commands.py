"""The commands on erasures of one tenant: plan, start, carry out, report, and the receipts that callers take away."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, replace
from typing import Any

import orjson

from myria import errors
from myria.access.journal import Act, write_act
from myria.access.principal import Proof
from myria.access.tenants import checked_tenant
from myria.builds.snapshots import Registry
from myria.db.clock import rfc3339_of, rfc3339_or_none
from myria.db.database import Connection, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.erasure.execution import KEY_BYTES, Execution, stored_erasure
from myria.erasure.model import ErasurePlan, ErasureStatus, Receipt, ReceiptProof, Selection, StartBounds
from myria.erasure.receipts import verify_receipt
from myria.erasure.removal import ROWS_AT_ONCE, Progress
from myria.log.canonical import digest
from myria.log.event_log import EventLog
from myria.log.ids import new_id
from myria.log.payloads import dedupe_key
from myria.log.withdrawal.commands import Withdrawals

PAGE_EVENTS = 100
"""Events that one page of a dry run lists."""

LEASE_S = 20.0
"""Seconds after which the work of a process that was killed may be gone on with."""

_ID_DIGITS = 32
"""Of an erasure's id that follows from its caller's key, as many as of any other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    """For whom a serving process begins an erasure; `proof` shows the database that this person may erase.

    Without a proof, the control plane carries the erasure out only where it is set to accept unproved ones; otherwise
    the erasure waits for `myria erase --resume`.
    """

    proof: Proof | None


class _DryRunError(Exception):
    """Raised by a dry run to roll its transaction back."""


class Erasures:
    """Erases events of one tenant, for a caller who may.

    Args:
        database: connects as the control plane, which may erase; as serving, it may only plan, start, withdraw and
            report status.
        registry: of the same database; ends builds that began before the events were withdrawn.
        log: where withdrawals are appended.
        tenant: whose events; nothing of another is read or changed.
        actor: who erases, for the record and the receipt.
        lease_s: see `LEASE_S`.
        asker: for whom a serving process begins erasures; None where this process may carry them out itself.
    """

    def __init__(
        self,
        database: Database,
        registry: Registry,
        log: EventLog,
        tenant: str,
        *,
        actor: str,
        lease_s: float = LEASE_S,
        asker: Asker | None = None,
    ) -> None:
        self._database = database
        self._registry = registry
        self._withdrawals = Withdrawals(log)
        self._tenant = checked_tenant(tenant)
        self._actor = actor
        self._lease_s = lease_s
        self._asker = asker

    async def plan(self, selection: Selection, *, after: int = 0, limit: int = PAGE_EVENTS) -> ErasurePlan:
        """Return what an erasure would remove, and change nothing.

        The events are listed as an erasure would list them, in a transaction that is rolled back.

        Args:
            after: `next_after` of the page before.
            limit: events of a page.

        Raises:
            Overloaded: another selection of the tenant is being looked up; retry.
        """
        plan: ErasurePlan | None = None
        try:
            async with self._database.write(self._tenant) as connection:
                erasure_id = new_id("era")
                await self._begin_listing(connection)
                shared = await self._list_events(connection, erasure_id, selection)
                arguments = (self._tenant, erasure_id)
                rows = await connection.fetch(sql("erasure.listed"), *arguments, after, limit + 1)
                counts = await connection.fetchrow(sql("erasure.count"), *arguments)
                plan = ErasurePlan(
                    counts=dict(counts or {}),
                    events=tuple(
                        {
                            "event_id": row["event_id"],
                            "timestamp": rfc3339_of(row["occurred_at"]),
                            "participants": list(row["participants"]),
                        }
                        for row in rows[:limit]
                    ),
                    next_after=rows[limit - 1]["event_seq"] if len(rows) > limit else None,
                    shared_events=shared,
                )
                raise _DryRunError
        except _DryRunError:
            pass
        async with self._database.write(self._tenant) as connection:
            await write_act(connection, self._act("erase.plan", **selection.summary()))
        if plan is None:
            raise errors.InternalError("a dry run gave no plan")
        return plan

    async def start(
        self,
        selection: Selection,
        *,
        reason: str,
        bounds: StartBounds = StartBounds(),  # noqa: B008
        key: str | None = None,
    ) -> str:
        """Store the list of events to erase, and return the erasure's id. Later events are not part of it.

        Args:
            bounds: limits that the erasure must keep; none where the caller owns the machine.
            key: the caller's own name for this call: a repeat, with the same selection, begins no other erasure, and
                returns the first one's id.

        Raises:
            EventNotFound: nothing is chosen that is not erased already.
            ErasureChanged: these are not as many events as `bounds` says.
            ErasureTooLarge: they are more than `bounds` allows, or too many erasures are not done.
            Overloaded: another selection of the tenant is being looked up; retry.
        """
        try:
            return await self._start(selection, reason, bounds, key)
        except errors.MyriaError as error:
            async with self._database.write(self._tenant) as connection:
                await write_act(connection, replace(self._act("erase.start"), outcome=error.code))
            raise

    async def _start(self, selection: Selection, reason: str, bounds: StartBounds, key: str | None) -> str:
        # The id tells nothing of the selection to whoever does not know the key.
        named = None if key is None else digest([self._tenant, self._actor, key, repr(selection)]).hex()[:_ID_DIGITS]
        erasure_id = new_id("era") if named is None else f"era_{named}"
        async with self._database.write(self._tenant) as connection:
            await self._begin_listing(connection)
            if named is not None and await connection.fetchval(sql("erasures.is_begun"), self._tenant, erasure_id):
                return erasure_id
            shared = await self._list_events(connection, erasure_id, selection)
            counts = await connection.fetchrow(sql("erasure.count"), self._tenant, erasure_id)
            if counts is None or not counts["events"]:
                raise errors.EventNotFound("nothing that is not erased already was chosen; nothing was changed")
            bounds.check(counts["events"], await connection.fetchval(sql("erasures.count_open"), self._tenant))
            chosen = selection.summary()
            if selection.participants:
                chosen["shared_events"] = {"removed" if selection.shared == "remove" else "kept": shared}
            await connection.execute(
                sql("erasure.create"),
                self._tenant,
                erasure_id,
                orjson.dumps(chosen).decode(),
                self._actor,
                reason,
                os.urandom(KEY_BYTES),
                self._asker is None,
            )
            if self._asker is not None and (proof := self._asker.proof) is not None:
                await connection.execute(sql("erasure.prove"), self._tenant, erasure_id, proof.key_id, proof.digest)
            await write_act(connection, self._act("erase.start", erasure_id=erasure_id, events=counts["events"]))
        return erasure_id

    async def withdraw(self, erasure_id: str) -> None:
        """Withdraw the events of an erasure, so that no answer shows them. Safe to rerun; `run` does this first."""
        await self._execution(erasure_id).withdraw()

    async def run(self, erasure_id: str, *, at_once: int = ROWS_AT_ONCE, progress: Progress = lambda _: None) -> None:
        """Carry an erasure out, from where it stands, and return when it is done; see `Execution.run`."""
        await self._execution(erasure_id).run(at_once=at_once, progress=progress)

    def _execution(self, erasure_id: str) -> Execution:
        return Execution(
            self._database,
            self._registry,
            self._withdrawals,
            self._tenant,
            erasure_id,
            actor=self._actor,
            lease_s=self._lease_s,
        )

    async def status(self, erasure_id: str) -> ErasureStatus:
        """Return how far an erasure is; once it is done, the status has its receipt, without the key.

        Raises:
            ErasureNotFound: there is none of this id.
        """
        found = await self._statuses(erasure_id, 1)
        if not found:
            raise errors.ErasureNotFound(f"there is no erasure {erasure_id}", id=erasure_id)
        return found[0]

    async def newest(self, limit: int) -> list[ErasureStatus]:
        """Return how far the newest erasures are."""
        return await self._statuses(None, limit)

    async def _statuses(self, erasure_id: str | None, limit: int) -> list[ErasureStatus]:
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("erasures.status"), self._tenant, erasure_id, limit)
        return [_status(row) for row in rows]

    async def event_ids(self, erasure_id: str) -> list[str]:
        """Return the ids of an erasure's events: to erase again after an older backup was restored.

        Raises:
            ErasureNotFound: there is none of this id.
        """
        await self.status(erasure_id)
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("erasures.event_ids"), self._tenant, erasure_id)
        return [row["event_id"] for row in rows]

    async def shown_receipt(self, erasure_id: str) -> Receipt | None:
        """Return the receipt of an erasure for its caller, None while it is not done.

        It holds the key only for the actor who asked for the erasure, and only for five minutes after the first call.

        Raises:
            ErasureNotFound: there is none of this id.
        """
        receipt = (await self.status(erasure_id)).receipt
        if receipt is None:
            return None
        async with self._database.write(self._tenant) as connection:
            key = await connection.fetchval(sql("erasures.show_key"), self._tenant, erasure_id, self._actor)
        return replace(receipt, key=None if key is None else base64.b64encode(key).decode())

    async def receipt(self, erasure_id: str) -> Receipt:
        """Return the receipt of an erasure that is done; it holds the key until `handed_over` was called.

        Raises:
            ErasureNotFound: there is none of this id, or it is not done.
        """
        row = await stored_erasure(self._database, self._tenant, erasure_id)
        if row["receipt"] is None:
            raise errors.ErasureNotFound(f"erasure {erasure_id} is not done; go on with it first", id=erasure_id)
        key = row["receipt_key"]
        return Receipt(
            content=orjson.loads(row["receipt"]),
            mac=row["mac"].hex(),
            key=None if key is None else base64.b64encode(key).decode(),
        )

    async def handed_over(self, erasure_id: str) -> None:
        """Forget the key of a receipt: from now on only its caller can look for erased words."""
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.handed_over"), self._tenant, erasure_id)

    async def verify(self, receipt: Receipt) -> ReceiptProof:
        """Prove that a receipt was issued here, and that what it names is gone; nothing is written."""
        return await verify_receipt(self._database, self._tenant, receipt)

    async def admit(self, sources: list[tuple[str, str]]) -> None:
        """Let events of these (channel, source_event_key) be appended again although they were erased."""
        keys = [dedupe_key(channel, key) for channel, key in sources]
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.admit"), self._tenant, keys)
            await write_act(connection, self._act("erase.admit", keys=len(keys)))

    async def _begin_listing(self, connection: Connection) -> None:
        """Let no other selection of the tenant be looked up until the transaction ends.

        Raises:
            Overloaded: another one is being looked up.
        """
        if not await connection.fetchval(sql("erasures.try_listing"), lock_key("list erasure", self._tenant)):
            raise errors.Overloaded("another selection of this tenant is being looked up; retry")

    async def _list_events(self, connection: Connection, erasure_id: str, selection: Selection) -> int:
        """Store the events of a selection as those of an erasure; return how many are shared with other people."""
        listing = (self._tenant, erasure_id)
        keys = [dedupe_key(channel, key) for channel, key in selection.sources]
        if selection.events or keys:
            await connection.execute(sql("erasure.list_named"), *listing, list(selection.events), keys)
        shared = 0
        if selection.participants:
            names = list(selection.participants)
            await connection.execute(sql("erasure.list_of_scopes"), *listing, names, selection.shared == "remove")
            shared = await connection.fetchval(sql("erasure.count_shared"), self._tenant, names)
        if selection.notes or selection.contexts or selection.query.strip():
            await connection.execute(
                sql("erasure.list_matching"),
                *listing,
                list(selection.notes),
                list(selection.contexts),
                selection.query.strip(),
            )
        await connection.execute(sql("erasure.expand"), *listing)
        return shared

    def _act(self, action: str, **details: Any) -> Act:
        return Act(
            tenant=self._tenant,
            actor=self._actor,
            action=action,
            target=details.get("erasure_id"),
            details={name: value for name, value in details.items() if name != "erasure_id"},
        )


def _status(row: Any) -> ErasureStatus:
    receipt = row["receipt"]
    return ErasureStatus(
        erasure_id=row["erasure_id"],
        state=row["state"],
        events=row["events"],
        withdrawn=row["withdrawn"],
        erased=row["erased"],
        rows=orjson.loads(row["counts"]),
        selected=orjson.loads(row["selected"]),
        by=row["actor"],
        reason=row["reason"],
        asked_at=rfc3339_of(row["created_at"]),
        done_at=rfc3339_or_none(row["finished_at"]),
        is_worked_on=row["is_worked_on"],
        failure=None if row["failure"] is None else orjson.loads(row["failure"]),
        receipt=None if receipt is None else Receipt(content=orjson.loads(receipt), mac=row["mac"].hex()),
    )
