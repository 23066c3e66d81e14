"""The keys that a serving process has verified: once in the database, then by a dictionary look-up until a change.

One row in the database, the epoch, changes with every change of a key or of who may use a tenant. It is read twice a
second. A cached key is valid while the epoch is still that of its verification, and was read within the last second.
So no process accepts a request that begins over a second after a revocation, and no request waits for the check.
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

from myria.access.console_sessions import SealedToken
from myria.access.principal import Principal, Proof
from myria.access.secrets import MadeKey, MadeSession, parse_credential
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
    """The verdict on a key's text, as of an epoch: a principal, a session's token, or the error that refuses it."""

    epoch: int
    answer: Principal | SealedToken | MyriaError
    expires_at: float | None = None
    was_replaced: bool = False


class KeyCache:
    """Turns keys, and the access tokens and sessions of the console that came from one, into principals.

    Args:
        database: where keys are looked up; a pool whose connections reads cannot all take.
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
        self._accepted: OrderedDict[bytes, _Known] = OrderedDict()
        # Bad keys are remembered apart: a flood of guesses must not push good ones out.
        self._refused: OrderedDict[bytes, _Known] = OrderedDict()
        self._waiting: dict[bytes, tuple[MadeKey, asyncio.Future[_Known]]] = {}
        self._lookup_task: asyncio.Task[None] | None = None
        self._epoch = -1
        self._read_at = float("-inf")
        self._epoch_task: asyncio.Task[None] | None = None
        self._used_keys: defaultdict[str, set[str]] = defaultdict(set)
        self._tenants: OrderedDict[str, tuple[int, MyriaError | None]] = OrderedDict()
        self.looks = 0

    async def principal(self, text: str) -> Principal:
        """Return the principal of a key.

        Raises:
            CredentialInvalid: it is malformed, unknown, expired, replaced or revoked.
            TenantSuspended: its tenant is suspended.
            DatabaseUnavailable: the key cannot be checked now.
            Overloaded: too many unknown keys wait to be looked at.
        """
        made = parse_credential(text)
        if made is None:
            raise CredentialInvalid("this is no key of Myria; it reads myr_<id>_<secret>")
        answer = await self._verdict(text, made)
        if isinstance(answer, SealedToken):  # kept by sessions alone, which are no credentials
            raise CredentialInvalid("this key is not known, or is not whole")
        return answer

    async def signed_in(self, session: MadeSession) -> Principal | SealedToken:
        """Return what a session of the console stands for.

        That is the principal of the key with which somebody signed in, or the issuer's token that is to be verified.

        Raises:
            CredentialInvalid: it is unknown, expired or ended, or its key is.
            TenantSuspended, DatabaseUnavailable, Overloaded: as `principal`.
        """
        return await self._verdict(session.text, session)

    async def _verdict(self, text: str, made: MadeKey) -> Principal | SealedToken:
        if self._ticks() - self._read_at > FRESH_S:
            await self._read_epoch()
        text_digest = hashlib.sha256(text.encode()).digest()
        entry = self._accepted.get(text_digest) or self._refused.get(text_digest)
        if entry is None or entry.epoch != self._epoch:
            entry = await self._looked_up(text_digest, made)
        return self._answer(entry)

    async def check_tenant(self, tenant: str) -> None:
        """Check that a tenant accepts credentials, for credentials that other code verifies (tokens of issuers).

        Raises:
            CredentialInvalid: there is no such tenant.
            TenantSuspended: it is suspended.
            DatabaseUnavailable: the tenant cannot be checked now.
        """
        if self._ticks() - self._read_at > FRESH_S:
            await self._read_epoch()
        epoch, refusal = self._tenants.get(tenant, (None, None))
        if epoch != self._epoch:
            refusal = await self._look_at_tenant(tenant)
        if refusal is not None:
            raise refusal.with_traceback(None)

    async def _look_at_tenant(self, tenant: str) -> MyriaError | None:
        """Read the state of a tenant, and cache it; return why its credentials are refused, None where they are not."""
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
        """Read the epoch twice a second, and write down which keys were used, until cancelled."""
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
        """Write down which keys were used since the last call; if the database is unreachable, that is lost."""
        used, self._used_keys = self._used_keys, defaultdict(set)
        for tenant, keys in used.items():
            try:
                async with self._database.write(tenant) as connection:
                    await connection.execute(sql("access.note_uses"), tenant, sorted(keys))
            except MyriaError as error:
                _log.debug("the uses of keys were not noted: %s", error)

    async def _looked_up(self, text_digest: bytes, made: MadeKey) -> _Known:
        """Return the database's verdict on a key; requests with the same key share one look-up.

        One statement runs at a time, on one connection, and takes the keys that came meanwhile: a flood of bad keys
        costs a bounded share of the database, and a good key among them is still looked up.
        """
        waiting = self._waiting.get(text_digest)
        if waiting is None:
            if len(self._waiting) >= MAX_WAITING:
                raise Overloaded("too many unknown keys wait to be looked at; retry")
            waiting = self._waiting[text_digest] = (made, asyncio.get_running_loop().create_future())
            waiting[1].add_done_callback(_retrieve_error)
        if self._lookup_task is None or self._lookup_task.done():
            self._lookup_task = asyncio.create_task(self._look())
        return await asyncio.shield(waiting[1])

    async def _look(self) -> None:
        """Look up waiting keys, up to `LOOKED_AT_ONCE` at a time, until none waits."""
        while self._waiting:
            batch = dict(islice(self._waiting.items(), LOOKED_AT_ONCE))
            try:
                rows = await self._find_keys([made for made, _ in batch.values()])
                entries = [self._judged(row, made) for row, (made, _) in zip(rows, batch.values(), strict=True)]
            except Exception as error:  # noqa: BLE001 - goes to whoever waits
                for text_digest, (_, answer) in batch.items():
                    del self._waiting[text_digest]
                    answer.set_exception(error)
                continue
            for (text_digest, (_, answer)), entry in zip(batch.items(), entries, strict=True):
                del self._waiting[text_digest]
                is_good = not isinstance(entry.answer, MyriaError)
                (self._refused if is_good else self._accepted).pop(text_digest, None)
                _remember(self._accepted if is_good else self._refused, text_digest, entry)
                answer.set_result(entry)

    async def _find_keys(self, keys: list[MadeKey]) -> list[asyncpg.Record]:
        self.looks += 1
        ids, digests = [made.key_id for made in keys], [made.digest for made in keys]
        async with self._database.connection() as connection:
            rows = await connection.fetch(sql("access.find_keys"), ids, digests, timeout=_STATEMENT_S)
        if len(rows) != len(keys):
            raise DatabaseUnavailable("the keys cannot be looked at now; retry")
        return rows

    def _answer(self, entry: _Known) -> Principal | SealedToken:
        """Return what a verdict grants, or raise its refusal; also refuse a key or session that has expired since."""
        if isinstance(entry.answer, MyriaError):
            raise entry.answer.with_traceback(None)  # else the kept error would grow by a frame with each request
        if entry.expires_at is not None and self._now() >= entry.expires_at:
            if entry.was_replaced:
                raise CredentialInvalid("this key was replaced; ask for the one that replaces it", reason="replaced")
            raise CredentialInvalid("this key has expired; make a new one", reason="expired")
        if isinstance(entry.answer, Principal) and entry.answer.credential is not None:
            self._used_keys[entry.answer.tenant].add(entry.answer.credential)
        return entry.answer

    def _judged(self, row: asyncpg.Record, made: MadeKey) -> _Known:
        """Return the verdict on a key, from its row."""
        epoch, expires_at = row["epoch"], row["expires_at"]
        if row["sealed_token"] is not None:
            if row["sealed_ended_at"] is not None:
                return _Known(epoch, CredentialInvalid("this session has ended; sign in again", reason="revoked"))
            return _Known(epoch, SealedToken(row["sealed_token"]), row["sealed_until"].timestamp())
        if row["key_id"] is None:
            return _Known(epoch, CredentialInvalid("this key is not known, or is not whole"))
        if row["revoked_at"] is not None:
            return _Known(epoch, CredentialInvalid("this key was revoked", reason="revoked"))
        if row["suspended_at"] is not None:
            return _Known(epoch, TenantSuspended("the tenant of this key is suspended"))
        principal = Principal(
            tenant=checked_tenant(row["tenant_id"]),
            actor=f"key:{row['key_id']}",
            name=row["name"],
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
            proof=Proof(tenant=row["tenant_id"], key_id=made.key_id, digest=made.digest),
        )
        return _Known(epoch, principal, None if expires_at is None else expires_at.timestamp(), row["was_replaced"])

    async def _read_epoch(self) -> None:
        """Read the epoch; concurrent callers share one statement."""
        if self._epoch_task is None or self._epoch_task.done():
            self._epoch_task = asyncio.create_task(self._look_at_epoch())
            self._epoch_task.add_done_callback(_retrieve_error)
        await asyncio.shield(self._epoch_task)

    async def _look_at_epoch(self) -> None:
        asked_at = self._ticks()  # before the statement: a change during it must not count as seen
        async with self._database.connection() as connection:
            epoch = await connection.fetchval(sql("access.epoch"), timeout=_STATEMENT_S)
        self._epoch, self._read_at = epoch, asked_at


def _remember(entries: OrderedDict[Name, Entry], name: Name, entry: Entry) -> None:
    """Add an entry as the newest; drop the oldest above `MAX_KNOWN`."""
    entries[name] = entry
    entries.move_to_end(name)
    if len(entries) > MAX_KNOWN:
        entries.popitem(last=False)


def _retrieve_error(task: asyncio.Future[Any]) -> None:
    """Retrieve a future's error, so that asyncio does not warn if everybody who waited for it was cancelled."""
    if not task.cancelled():
        task.exception()
