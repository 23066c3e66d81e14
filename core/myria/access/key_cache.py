"""The keys that a serving process knows: verified once, then a dictionary look-up, until something changes.

One row in the database, the epoch, moves with every change of a key or of who may use a tenant. It is read twice a
second; a key that was verified is good while the epoch that was read since is the one of its verification, and that
look began within the last second. So no request is taken that begins over a second after a revocation, on any process,
and none pays for that.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import asyncpg

from myria.access.principal import Principal, Proof
from myria.access.secrets import MadeKey, parse_credential
from myria.access.tenants import checked_tenant
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import CredentialInvalid, DatabaseUnavailable, MyriaError, Overloaded, TenantSuspended

Name = TypeVar("Name")
Entry = TypeVar("Entry")

_log = logging.getLogger(__name__)

POLL_S = 0.5
"""Seconds between two looks at the epoch."""

FRESH_S = 1.0
"""Seconds for which an epoch that was read is good."""

MAX_KNOWN = 10_000
"""Keys remembered by one process, as many refused ones, and as many tenants; the oldest entry goes first."""

LOOKED_AT_ONCE = 256
"""Keys that one statement looks up."""

MAX_WAITING = 4096
"""Keys that may wait for a look."""

USES_EVERY_S = 60.0
"""Seconds between two notes of which keys were used."""

_STATEMENT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What a key's text stands for, as of an epoch: a principal, or why it is refused."""

    epoch: int
    answer: Principal | MyriaError
    expires_at: float | None = None


class KeyCache:
    """Turns keys, and access tokens that were granted with one, into principals.

    Args:
        database: where keys are looked up; a pool of which reads cannot take all connections.
        appends_for_anyone: see `Principal`.
        now: seconds since 1970.
        ticks: a steady clock, in seconds.
        sleep: waits for seconds, between two looks at the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
        appends_for_anyone: bool = False,
        now: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._sleep = sleep
        self._appends_for_anyone = appends_for_anyone
        self._now = now
        self._ticks = ticks
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        # Bad keys are remembered apart: a flood of guesses must not push good ones out.
        self._refused: OrderedDict[bytes, _Known] = OrderedDict()
        self._wanted: dict[bytes, tuple[MadeKey, asyncio.Future[_Known]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._epoch = -1
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._used: defaultdict[str, set[str]] = defaultdict(set)
        self._tenants: OrderedDict[str, tuple[int, MyriaError | None]] = OrderedDict()
        self.looks = 0

    async def principal(self, text: str) -> Principal:
        """Return the principal of a key.

        Raises:
            CredentialInvalid: it is malformed, unknown, expired or revoked.
            TenantSuspended: its tenant is suspended.
            DatabaseUnavailable: nobody can tell now.
            Overloaded: too many unknown keys wait to be looked at.
        """
        made = parse_credential(text)
        if made is None:
            raise CredentialInvalid("this is no key of Myria; it reads myr_<id>_<secret>")
        if self._ticks() - self._read_at > FRESH_S:
            await self._read_epoch()
        name = hashlib.sha256(text.encode()).digest()
        entry = self._known.get(name) or self._refused.get(name)
        if entry is None or entry.epoch != self._epoch:
            entry = await self._looked_up(name, made)
        return self._answer(entry)

    async def check_tenant(self, tenant: str) -> None:
        """Return when the credentials of a tenant are good that somebody else verifies.

        Raises:
            CredentialInvalid: there is no such tenant.
            TenantSuspended: it is suspended.
            DatabaseUnavailable: nobody can tell now.
        """
        if self._ticks() - self._read_at > FRESH_S:
            await self._read_epoch()
        epoch, refusal = self._tenants.get(tenant, (None, None))
        if epoch != self._epoch:
            refusal = await self._look_at_tenant(tenant)
        if refusal is not None:
            raise refusal.with_traceback(None)

    async def _look_at_tenant(self, tenant: str) -> MyriaError | None:
        """Return why a tenant's credentials are refused, None where they are good."""
        self.looks += 1
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("access.tenant_state"), tenant, timeout=_STATEMENT_S)
        if row is None:
            raise DatabaseUnavailable("the tenants cannot be looked at now; retry")
        refusal: MyriaError | None = None
        if not row["found"]:
            refusal = CredentialInvalid("the tenant of this credential is not known here")
        elif row["suspended_at"] is not None:
            refusal = TenantSuspended("the tenant of this credential is suspended")
        _remember(self._tenants, tenant, (row["epoch"], refusal))
        return refusal

    async def run(self) -> None:
        """Look at the epoch, and note which keys are used, until cancelled."""
        noted_at = self._ticks()
        try:
            while True:
                with suppress(MyriaError):
                    await self._read_epoch()
                if self._ticks() - noted_at >= USES_EVERY_S:
                    noted_at = self._ticks()
                    await self.note_uses()
                await self._sleep(POLL_S)
        finally:
            with suppress(Exception):
                await asyncio.wait_for(asyncio.shield(self.note_uses()), 2.0)

    async def note_uses(self) -> None:
        """Write down which keys were used since the last time; losing that when the database is away is allowed."""
        used, self._used = self._used, defaultdict(set)
        for tenant, keys in used.items():
            try:
                async with self._database.write(tenant) as connection:
                    await connection.execute(sql("access.note_uses"), tenant, sorted(keys))
            except MyriaError as error:
                _log.debug("the uses of keys were not noted: %s", error)

    async def _looked_up(self, name: bytes, made: MadeKey) -> _Known:
        """Return what the database says of a key.

        One look is under way at a time, on one connection, and takes all keys that came meanwhile: a flood of bad keys
        costs a bounded share of the database, and a good key among them is still looked at.
        """
        wanted = self._wanted.get(name)
        if wanted is None:
            if len(self._wanted) >= MAX_WAITING:
                raise Overloaded("too many unknown keys wait to be looked at; retry")
            wanted = self._wanted[name] = (made, asyncio.get_running_loop().create_future())
            wanted[1].add_done_callback(_seen)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(wanted[1])

    async def _look(self) -> None:
        """Look keys up until none is wanted."""
        while self._wanted:
            wanted = dict(islice(self._wanted.items(), LOOKED_AT_ONCE))
            try:
                rows = await self._rows([made for made, _ in wanted.values()])
                entries = [self._judged(row, made) for row, (made, _) in zip(rows, wanted.values(), strict=True)]
            except Exception as error:  # noqa: BLE001 - goes to whoever waits
                for name, (_, answer) in wanted.items():
                    del self._wanted[name]
                    answer.set_exception(error)
                continue
            for (name, (_, answer)), entry in zip(wanted.items(), entries, strict=True):
                del self._wanted[name]
                is_good = isinstance(entry.answer, Principal)
                (self._refused if is_good else self._known).pop(name, None)
                _remember(self._known if is_good else self._refused, name, entry)
                answer.set_result(entry)

    async def _rows(self, keys: list[MadeKey]) -> list[asyncpg.Record]:
        self.looks += 1
        ids, digests = [made.key_id for made in keys], [made.digest for made in keys]
        async with self._database.connection() as connection:
            rows = await connection.fetch(sql("access.find_keys"), ids, digests, timeout=_STATEMENT_S)
        if len(rows) != len(keys):
            raise DatabaseUnavailable("the keys cannot be looked at now; retry")
        return rows

    def _answer(self, entry: _Known) -> Principal:
        if not isinstance(entry.answer, Principal):
            raise entry.answer.with_traceback(None)  # else the kept error would grow by a frame with each request
        if entry.expires_at is not None and self._now() >= entry.expires_at:
            raise CredentialInvalid("this key has expired; make a new one", reason="expired")
        if entry.answer.credential is not None:
            self._used[entry.answer.tenant].add(entry.answer.credential)
        return entry.answer

    def _judged(self, row: asyncpg.Record, made: MadeKey) -> _Known:
        epoch, expires_at = row["epoch"], row["expires_at"]
        if row["key_id"] is None:
            return _Known(epoch, CredentialInvalid("this key is not known, or is not whole"))
        if row["revoked_at"] is not None:
            return _Known(epoch, CredentialInvalid("this key was revoked", reason="revoked"))
        if row["suspended_at"] is not None:
            return _Known(epoch, TenantSuspended("the tenant of this key is suspended"))
        return _Known(epoch, self._principal(row, made), None if expires_at is None else expires_at.timestamp())

    def _principal(self, row: asyncpg.Record, made: MadeKey) -> Principal:
        return Principal(
            tenant=checked_tenant(row["tenant_id"]),
            actor=f"key:{row['key_id']}",
            credential=row["key_id"],
            roles=frozenset(row["roles"]),
            faces=frozenset(row["faces"]),
            own=tuple(row["own_participants"]),
            may_ask=tuple(row["may_ask"]),
            channels=None if row["channels"] is None else tuple(row["channels"]),
            appends_for_anyone=self._appends_for_anyone,
            requests_per_s=row["requests_per_s"],
            concurrency=row["concurrency"],
            text_format=row["text_format"],
            proof=Proof(key_id=made.key_id, digest=made.digest),
        )

    async def _read_epoch(self) -> None:
        """Read the epoch; those who want it at the same time share one look."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._look_at_epoch())
            self._reading.add_done_callback(_seen)
        await asyncio.shield(self._reading)

    async def _look_at_epoch(self) -> None:
        asked_at = self._ticks()
        async with self._database.connection() as connection:
            epoch = await connection.fetchval(sql("access.epoch"), timeout=_STATEMENT_S)
        self._epoch, self._read_at = epoch, asked_at


def _remember(entries: OrderedDict[Name, Entry], name: Name, entry: Entry) -> None:
    entries[name] = entry
    entries.move_to_end(name)
    if len(entries) > MAX_KNOWN:
        entries.popitem(last=False)


def _seen(task: asyncio.Future[Any]) -> None:
    """Whoever waited may be gone; its failure is then nobody's."""
    if not task.cancelled():
        task.exception()
