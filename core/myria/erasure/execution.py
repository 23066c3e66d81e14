"""Carrying an erasure out: its events vanish from answers, late writers end, places are emptied, a receipt is written.

Every step may be repeated. The state is stored (planned, withdrawn, erasing, done), so another process can go on where
one was killed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from contextlib import suppress

import asyncpg
import orjson

from myria import errors
from myria.access.journal import Act, write_act
from myria.builds.snapshots import Registry
from myria.builds.verify.log import named
from myria.db.clock import rfc3339_of
from myria.db.database import Database, TransactionBounds
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.erasure.leases import ErasureLease
from myria.erasure.model import Json
from myria.erasure.pace import Pace
from myria.erasure.receipts import READING, chained, remaining
from myria.erasure.removal import ROWS_AT_ONCE, Progress, Removal
from myria.log.canonical import canonical_json
from myria.log.high_water import high_water_mark
from myria.log.limits import MAX_WITHDRAWN
from myria.log.withdrawal.commands import Withdrawals

KEY_BYTES = 32
"""Bytes of a key, or of a secret, with which digests of erased words are made."""

WITHDRAWN_AT_ONCE = 100_000, 2_000
"""The most events that one commit withdraws, and the most scopes: it holds a lock of each scope."""

WITHDRAWN_WITHIN_S = 25.0
"""Seconds that such a commit may take; one that takes longer is tried with fewer events."""

_WORKERS_END_WITHIN_S = 4000.0
_LOOK_EVERY_S = 0.2
_SAMPLING = TransactionBounds(statement=600.0, idle=60.0, lock=60.0, total=900.0)


async def stored_erasure(database: Database, tenant: str, erasure_id: str) -> asyncpg.Record:
    """Return the row of an erasure.

    Raises:
        ErasureNotFound: there is none of this id.
    """
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("erasure.get"), tenant, erasure_id)
    if row is None:
        raise errors.ErasureNotFound(f"there is no erasure {erasure_id}", id=erasure_id)
    return row


class Execution:
    """Carries one erasure out.

    Args:
        database: connects as the control plane, which may erase; as serving, it may only withdraw.
        registry: of the same database; ends builds that began before the events were withdrawn.
        withdrawals: append to the log.
        actor: who erases, for the record.
        lease_s: seconds after which the work of a process that was killed may be gone on with.
    """

    def __init__(
        self,
        database: Database,
        registry: Registry,
        withdrawals: Withdrawals,
        tenant: str,
        erasure_id: str,
        *,
        actor: str,
        lease_s: float,
    ) -> None:
        self._database = database
        self._registry = registry
        self._withdrawals = withdrawals
        self._tenant = tenant
        self._erasure_id = erasure_id
        self._actor = actor
        self._lease = ErasureLease(database, tenant, erasure_id, lease_s)

    async def withdraw(self) -> None:
        """Withdraw the events, so that no answer shows them.

        Events of one commit (at most `WITHDRAWN_AT_ONCE`) vanish at one moment; all vanish before any is removed.
        """
        most_events, most_scopes = WITHDRAWN_AT_ONCE
        while True:
            async with self._database.read(self._tenant) as connection:
                rows = await connection.fetch(sql("erasure.to_withdraw"), self._tenant, self._erasure_id, most_events)
            if not rows:
                return
            chosen_scopes = set(list(dict.fromkeys(row["scope_id"] for row in rows))[:most_scopes])
            try:
                await self._withdrawals.forget(self._tenant, [row for row in rows if row["scope_id"] in chosen_scopes])
            except errors.DeadlineExceeded:
                if most_events <= MAX_WITHDRAWN:
                    raise
                most_events, most_scopes = max(MAX_WITHDRAWN, most_events // 4), max(1, most_scopes // 4)

    async def run(self, *, at_once: int, progress: Progress) -> None:
        """Carry the erasure out from where it stands; while another process works on it, wait and report its progress.

        Args:
            at_once: the most rows that one transaction changes.
            progress: called after each transaction with the rows removed so far, by place.

        Raises:
            ErasureNotFound: there is none of this id.
            LogBusy: a build that began before did not end; ask again.
            LeaseLost: another process took it over; ask again.
        """
        while (row := await self._row())["state"] != "done":
            if await self._lease.take():
                async with self._lease.held():
                    await self._run(await self._row(), at_once, progress)
                return
            progress(orjson.loads(row["counts"]))
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _run(self, row: asyncpg.Record, at_once: int, progress: Progress) -> None:
        """Take every step that is left, of the erasure in this row. Needs the lease."""
        if row["state"] == "done":
            return
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.ensure_secret"), self._tenant, os.urandom(KEY_BYTES))
            await connection.execute(sql("erasure.ensure_receipt_secret"), self._tenant, os.urandom(KEY_BYTES))
        while True:
            await self.withdraw()
            async with self._database.write(self._tenant) as connection:
                status = await connection.execute(sql("erasure.expand"), self._tenant, self._erasure_id)
            if status.endswith(" 0"):  # the list did not grow, so all of it is withdrawn
                break
        if row["state"] == "planned":
            await self._reach("withdrawn")
        await self._end_late_writers()
        # Again: a late append may have restored a listed event.
        await self.withdraw()
        await self._end_older_build()
        await self._reach("erasing")
        pace = Pace()
        removal = Removal(
            self._database,
            self._tenant,
            self._erasure_id,
            key=row["receipt_key"],
            counts=Counter(orjson.loads(row["counts"])),
            at_once=at_once,
            progress=progress,
            pace=pace,
        )
        await removal.run()
        await self._refresh_statistics(pace)
        await self._drop_shared_phrases(row["receipt_key"], pace)
        await self._write_receipt(removal.counts)

    async def _row(self) -> asyncpg.Record:
        return await stored_erasure(self._database, self._tenant, self._erasure_id)

    async def _reach(self, state: str) -> None:
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.reach"), self._tenant, self._erasure_id, state, None)

    async def _end_late_writers(self) -> None:
        """Wait until every append and audit write that began before the events were listed has ended.

        Such an append may restore a listed event; the caller withdraws it again afterwards.

        Raises:
            LogBusy: appends did not leave the log alone.
        """
        await high_water_mark(self._database, self._tenant)
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("llm.own_audit_lock"), lock_key("audit", self._tenant))

    async def _end_older_build(self) -> None:
        """Abort each build that was captured before the withdrawal, and wait until its workers have stopped.

        Workers of this release cannot write what they read before (`myria.db.fence`). Those of older releases do not
        check that; this waits until their leases end. The publish lock orders captures: this sees every build captured
        before it, and every later build sees the withdrawal (`builds.any_erased_since`).
        """
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("session.own_publish_lock"), lock_key("publish", self._tenant))
            newest = await connection.fetchval(sql("erasure.newest_withdrawal"), self._tenant, self._erasure_id)
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

    async def _drop_shared_phrases(self, key: bytes, pace: Pace) -> None:
        """Delete digests of phrases that other events hold too; the receipt promises the absence of the others only."""
        async with self._database.read(self._tenant, READING) as connection:
            rows = await connection.fetch(sql("erasure.words"), self._tenant, self._erasure_id)
            sieve_by_digest = {row["digest"]: row["sieve"] for row in rows}
            place_by_digest = await remaining(
                connection, self._tenant, key, sieve_by_digest, examined=Counter(), pace=pace
            )
        shared_digests = sorted(place_by_digest)
        for at in range(0, len(shared_digests), 10 * ROWS_AT_ONCE):
            async with self._database.write(self._tenant) as connection:
                await connection.execute(
                    sql("erasure.drop_words"),
                    self._tenant,
                    self._erasure_id,
                    shared_digests[at : at + 10 * ROWS_AT_ONCE],
                )

    async def _write_receipt(self, counts: Counter[str]) -> None:
        """Write the receipt, chained to the tenant's receipt before it, and mark the erasure as done."""
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.lock"), lock_key("erase", self._tenant))
            row = await connection.fetchrow(sql("erasure.get"), self._tenant, self._erasure_id)
            if row is None or row["state"] == "done":
                return
            previous = await connection.fetchrow(sql("erasure.last_receipt"), self._tenant)
            secret = await connection.fetchval(sql("erasure.receipt_secret"), self._tenant)
            done_at = await connection.fetchval(sql("erasure.now"))
            content: Json = {
                "version": 1,
                "tenant": self._tenant,
                "erasure_id": self._erasure_id,
                "number": 1 if previous is None else previous["number"] + 1,
                "previous": None if previous is None else previous["mac"].hex(),
                "asked_at": rfc3339_of(row["created_at"]),
                "done_at": rfc3339_of(done_at),
                "by": row["actor"],
                "reason": row["reason"],
                "selected": orjson.loads(row["selected"]),
                "rows": dict(+counts),
                "lists": await named(connection, self._tenant, self._erasure_id),
            }
            content_json = canonical_json(content)
            await connection.execute(
                sql("erasure.finish"),
                self._tenant,
                self._erasure_id,
                content["number"],
                content_json.decode(),
                chained(secret, None if previous is None else previous["mac"], content_json),
                orjson.dumps(dict(+counts)).decode(),
            )
            act = Act(
                tenant=self._tenant,
                actor=self._actor,
                action="erase.done",
                target=self._erasure_id,
                details=dict(counts),
            )
            await write_act(connection, act)
