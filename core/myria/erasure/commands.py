"""Erasing, in four stored states: planned, withdrawn, erasing, done.

An erasure whose process was killed can be resumed by another process, from its stored state.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from myria import errors
from myria.access.journal import Act, write_act
from myria.access.principal import Proof
from myria.access.tenants import checked_tenant
from myria.builds.snapshots import Registry
from myria.builds.verify.log import named
from myria.db.clock import rfc3339_of
from myria.db.database import Connection, Database, TransactionBounds
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.erasure.model import ErasurePlan, ErasureStatus, Json, Receipt, ReceiptProof, Selection, StartBounds
from myria.erasure.pace import Pace
from myria.erasure.receipts import chained, prove, remaining
from myria.erasure.removal import ROWS_AT_ONCE, Progress, Removal
from myria.log.canonical import canonical_json, digest
from myria.log.event_log import EventLog
from myria.log.high_water import high_water_mark
from myria.log.ids import new_id
from myria.log.limits import MAX_WITHDRAWN
from myria.log.payloads import dedupe_key
from myria.log.withdrawal.commands import Withdrawals

PAGE_EVENTS = 100
"""Events that one page of a dry run lists."""

LEASE_S = 20.0
"""Seconds after which the work of a process that was killed may be gone on with."""

WITHDRAWN_AT_ONCE = 100_000, 2_000
"""The most events that one commit withdraws, and the most scopes: it holds a lock of each scope."""

WITHDRAWN_WITHIN_S = 25.0
"""Seconds that such a commit may take; one that takes longer is tried with fewer events."""

_ID_DIGITS = 32
"""Of an erasure's id that follows from its caller's key, as many as of any other."""

_KEY_BYTES = 32
_WORKERS_END_WITHIN_S = 4000.0
_LOOK_EVERY_S = 0.2
_SAMPLING = TransactionBounds(statement=600.0, idle=60.0, lock=60.0, total=900.0)
_PROOF = TransactionBounds(statement=86_400.0, idle=3_600.0, lock=20.0, total=86_400.0)


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
        self._worker = new_id("wrk")

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
                os.urandom(_KEY_BYTES),
                self._asker is None,
            )
            if self._asker is not None and (proof := self._asker.proof) is not None:
                await connection.execute(sql("erasure.prove"), self._tenant, erasure_id, proof.key_id, proof.digest)
            await write_act(connection, self._act("erase.start", erasure_id=erasure_id, events=counts["events"]))
        return erasure_id

    async def withdraw(self, erasure_id: str) -> None:
        """Withdraw the events of an erasure, so that no answer shows them. Safe to rerun; `run` does this first.

        Events of one commit (at most `WITHDRAWN_AT_ONCE`) vanish at one moment; all vanish before any is removed.
        """
        most_events, most_scopes = WITHDRAWN_AT_ONCE
        while True:
            async with self._database.read(self._tenant) as connection:
                rows = await connection.fetch(sql("erasure.to_withdraw"), self._tenant, erasure_id, most_events)
            if not rows:
                return
            chosen_scopes = set(list(dict.fromkeys(row["scope_id"] for row in rows))[:most_scopes])
            try:
                await self._withdrawals.forget(self._tenant, [row for row in rows if row["scope_id"] in chosen_scopes])
            except errors.DeadlineExceeded:
                if most_events <= MAX_WITHDRAWN:
                    raise
                most_events, most_scopes = max(MAX_WITHDRAWN, most_events // 4), max(1, most_scopes // 4)

    async def run(self, erasure_id: str, *, at_once: int = ROWS_AT_ONCE, progress: Progress = lambda _: None) -> None:
        """Carry an erasure out, from where it stands, and return when it is done.

        While another process works on it, wait for that process and report its progress.

        Args:
            at_once: the most rows that one transaction changes.
            progress: called after each transaction with the rows removed so far, by place.

        Raises:
            ErasureNotFound: there is none of this id.
            LogBusy: a build that began before did not end; ask again.
            LeaseLost: another process took it over; ask again.
        """
        while (row := await self._erasure_row(erasure_id))["state"] != "done":
            if await self._claim(erasure_id):
                async with self._leased(erasure_id):
                    await self._run(await self._erasure_row(erasure_id), at_once, progress)
                return
            progress(orjson.loads(row["counts"]))
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _run(self, row: Any, at_once: int, progress: Progress) -> None:
        """Carry out the erasure of this row: withdraw, stop late writers, empty, write the receipt. Needs the lease."""
        erasure_id = row["erasure_id"]
        if row["state"] == "done":
            return
        counts: Counter[str] = Counter(orjson.loads(row["counts"]))
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.ensure_secret"), self._tenant, os.urandom(_KEY_BYTES))
            await connection.execute(sql("erasure.ensure_receipt_secret"), self._tenant, os.urandom(_KEY_BYTES))
        while True:
            await self.withdraw(erasure_id)
            async with self._database.write(self._tenant) as connection:
                status = await connection.execute(sql("erasure.expand"), self._tenant, erasure_id)
            if status.endswith(" 0"):  # the list did not grow, so all of it is withdrawn
                break
        if row["state"] == "planned":
            await self._set_state(erasure_id, "withdrawn")
        await self._end_late_writers()
        # Again: a late append may have restored a listed event.
        await self.withdraw(erasure_id)
        await self._end_older_build(erasure_id)
        await self._set_state(erasure_id, "erasing")
        pace = Pace()
        removal = Removal(
            self._database,
            self._tenant,
            erasure_id,
            key=row["receipt_key"],
            counts=counts,
            at_once=at_once,
            progress=progress,
            pace=pace,
        )
        await removal.run()
        await self._refresh_statistics(pace)
        await self._drop_shared_phrases(erasure_id, row["receipt_key"], pace)
        await self._write_receipt(erasure_id, removal.counts)

    async def _claim(self, erasure_id: str) -> bool:
        """Take the lease of an erasure; return False where another process holds it."""
        async with self._database.write(self._tenant) as connection:
            status = await connection.execute(
                sql("erasures.claim"), self._tenant, erasure_id, self._worker, self._lease_s
            )
        return status.endswith(" 1")

    @asynccontextmanager
    async def _leased(self, erasure_id: str) -> AsyncIterator[None]:
        """Renew the lease of an erasure during the block; release it afterwards, and store why the block failed.

        Raises:
            LeaseLost: this process stood still for so long that another one took the lease.
        """
        block_task = asyncio.current_task()
        lease_errors: list[errors.MyriaError] = []

        async def renew() -> None:
            try:
                while True:
                    await asyncio.sleep(self._lease_s / 4)
                    async with self._database.write(self._tenant) as connection:
                        status = await connection.execute(
                            sql("erasures.renew"), self._tenant, erasure_id, self._worker, self._lease_s
                        )
                    if not status.endswith(" 1"):
                        raise errors.LeaseLost("another process has taken this erasure over; ask again")
            except errors.MyriaError as error:
                lease_errors.append(error)
                if block_task is not None:
                    block_task.cancel()  # it must not write without the lease

        renewing = asyncio.create_task(renew())
        failure: Json | None = None
        try:
            yield
        except asyncio.CancelledError:
            if not lease_errors:
                raise
            # The cancellation was our own (`renew`): undo it, and raise the reason instead.
            if block_task is not None:
                block_task.uncancel()
            raise lease_errors[0] from None
        except errors.MyriaError as error:
            failure = {"code": error.code, "message": error.message}
            raise
        except Exception:
            failure = {"code": errors.InternalError.code, "message": "its log has the details"}
            raise
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(errors.MyriaError):
                async with self._database.write(self._tenant) as connection:
                    text = None if failure is None else orjson.dumps(failure).decode()
                    await connection.execute(sql("erasures.release"), self._tenant, erasure_id, self._worker, text)

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
        row = await self._erasure_row(erasure_id)
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

    async def _erasure_row(self, erasure_id: str) -> Any:
        async with self._database.read(self._tenant) as connection:
            row = await connection.fetchrow(sql("erasure.get"), self._tenant, erasure_id)
        if row is None:
            raise errors.ErasureNotFound(f"there is no erasure {erasure_id}", id=erasure_id)
        return row

    async def _set_state(self, erasure_id: str, state: str) -> None:
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.reach"), self._tenant, erasure_id, state, None)

    async def _end_late_writers(self) -> None:
        """Wait until every append and audit write that began before the events were listed has ended.

        Such an append may restore a listed event; the caller withdraws it again afterwards.

        Raises:
            LogBusy: appends did not leave the log alone.
        """
        await high_water_mark(self._database, self._tenant)
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("llm.own_audit_lock"), lock_key("audit", self._tenant))

    async def _end_older_build(self, erasure_id: str) -> None:
        """Abort each build that was captured before the withdrawal, and wait until its workers have stopped.

        Workers of this release cannot write what they read before (`myria.db.fence`). Those of older releases do not
        check that; this waits until their leases end. The publish lock orders captures: this sees every build captured
        before it, and every later build sees the withdrawal (`builds.any_erased_since`).
        """
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("session.own_publish_lock"), lock_key("publish", self._tenant))
            newest = await connection.fetchval(sql("erasure.newest_withdrawal"), self._tenant, erasure_id)
        give_up = time.monotonic() + _WORKERS_END_WITHIN_S
        while True:
            async with self._database.read(self._tenant) as connection:
                row = await connection.fetchrow(sql("erasure.older_build"), self._tenant, newest)
            if row is None:
                return
            if row["is_open"]:
                with suppress(errors.BuildEnded):
                    await self._registry.abort(
                        self._tenant, row["build_id"], actor="erasure", reason="events are erased"
                    )
            elif time.monotonic() > give_up:
                raise errors.LogBusy(f"workers of build {row['build_id']} are still at work; ask again")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _refresh_statistics(self, pace: Pace) -> None:
        """Refresh PostgreSQL's statistics of every table: they may quote values of erased rows."""
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("erasure.places"))
        for row in rows:
            async with self._database.write(self._tenant, _SAMPLING) as connection:
                await connection.execute(sql("erasure.sample_anew"), row["place"])
            await pace.rest()

    async def _drop_shared_phrases(self, erasure_id: str, key: bytes, pace: Pace) -> None:
        """Delete digests of phrases that other events hold too; the receipt promises the absence of the others only."""
        async with self._database.read(self._tenant, _PROOF) as connection:
            rows = await connection.fetch(sql("erasure.words"), self._tenant, erasure_id)
            sieve_by_digest = {row["digest"]: row["sieve"] for row in rows}
            place_by_digest = await remaining(
                connection, self._tenant, key, sieve_by_digest, examined=Counter(), pace=pace
            )
        shared_digests = sorted(place_by_digest)
        for at in range(0, len(shared_digests), 10 * ROWS_AT_ONCE):
            async with self._database.write(self._tenant) as connection:
                await connection.execute(
                    sql("erasure.drop_words"), self._tenant, erasure_id, shared_digests[at : at + 10 * ROWS_AT_ONCE]
                )

    async def _write_receipt(self, erasure_id: str, counts: Counter[str]) -> None:
        """Write the receipt, chained to the tenant's receipt before it, and mark the erasure as done."""
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.lock"), lock_key("erase", self._tenant))
            row = await connection.fetchrow(sql("erasure.get"), self._tenant, erasure_id)
            if row is None or row["state"] == "done":
                return
            previous = await connection.fetchrow(sql("erasure.last_receipt"), self._tenant)
            secret = await connection.fetchval(sql("erasure.receipt_secret"), self._tenant)
            done_at = await connection.fetchval(sql("erasure.now"))
            content: Json = {
                "version": 1,
                "tenant": self._tenant,
                "erasure_id": erasure_id,
                "number": 1 if previous is None else previous["number"] + 1,
                "previous": None if previous is None else previous["mac"].hex(),
                "asked_at": rfc3339_of(row["created_at"]),
                "done_at": rfc3339_of(done_at),
                "by": row["actor"],
                "reason": row["reason"],
                "selected": orjson.loads(row["selected"]),
                "rows": dict(+counts),
                "lists": await named(connection, self._tenant, erasure_id),
            }
            content_json = canonical_json(content)
            await connection.execute(
                sql("erasure.finish"),
                self._tenant,
                erasure_id,
                content["number"],
                content_json.decode(),
                chained(secret, None if previous is None else previous["mac"], content_json),
                orjson.dumps(dict(+counts)).decode(),
            )
            await write_act(connection, self._act("erase.done", erasure_id=erasure_id, **counts))

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
        done_at=None if row["finished_at"] is None else rfc3339_of(row["finished_at"]),
        is_worked_on=row["is_worked_on"],
        failure=None if row["failure"] is None else orjson.loads(row["failure"]),
        receipt=None if receipt is None else Receipt(content=orjson.loads(receipt), mac=row["mac"].hex()),
    )


async def verify_receipt(database: Database, tenant: str, receipt: Receipt) -> ReceiptProof:
    """Check that a receipt was issued by this database (or the one it is a copy of), and that nothing it names is left.

    Raises:
        InvalidArgument: the receipt's key is malformed.
    """
    async with database.read(tenant, _PROOF) as connection:
        return await prove(connection, tenant, receipt)
