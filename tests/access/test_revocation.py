"""Within a second: no process takes a key on the word of a look that began over a second before.

Clocks stand still here until a test moves them, so these tests prove the second and measure nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from myria.access.key_cache import FRESH_S, POLL_S, KeyCache
from myria.access.store import AccessStore
from myria.db.database import Database as Pool
from myria.errors import CredentialInvalid
from tests.support.clock import Clock
from tests.support.keys import make_key
from tests.support.postgres import Database


class Slow(Pool):
    """A pool on whose connections things happen after a statement was answered, before its caller knows the answer."""

    meanwhile: Callable[[], Awaitable[None]] | None = None
    used = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Lend a connection."""
        self.used += 1
        async with super().connection() as connection:
            yield connection
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Slow]:
    """The serving role's connections."""
    pool = Slow(database.server_dsn)
    async with pool:
        yield pool


async def test_a_look_counts_from_its_beginning(store: AccessStore, pool: Slow) -> None:
    """A slow look that saw the key before its revocation is believed for a second from when it was asked."""
    clock = Clock()
    cache = KeyCache(pool, ticks=clock)
    text = await make_key(store, "ada")
    await cache.principal(text)
    clock.at += FRESH_S + 0.001
    asked_at = clock.at

    async def revoke() -> None:
        await store.revoke_key(text.split("_")[1])
        clock.at += 0.75

    pool.meanwhile = revoke
    assert (await cache.principal(text)).own == ("ada",)
    clock.at = asked_at + FRESH_S
    assert (await cache.principal(text)).own == ("ada",), "a second has not passed yet"
    clock.at = asked_at + FRESH_S + 0.001
    with pytest.raises(CredentialInvalid):
        await cache.principal(text)


async def test_the_epoch_is_looked_at_twice_a_second_without_any_request(store: AccessStore, pool: Slow) -> None:
    """Between two looks a process sleeps for half of the time that a look is good for; the next look ends the key."""
    clock = Clock()
    slept: list[float] = []
    looks: list[int] = []

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        looks.append(pool.used)
        clock.at += seconds
        if len(slept) == 4:
            await store.revoke_key(text.split("_")[1])
        if len(slept) == 5:
            with pytest.raises(CredentialInvalid):  # the first look after the revocation has seen it
                await cache.principal(text)
            raise Enough
        await cache.principal(text)

    cache = KeyCache(pool, ticks=clock, sleep=sleep)
    text = await make_key(store, "ada")
    await cache.principal(text)
    clock.at += FRESH_S * 10
    with pytest.raises(Enough):
        await cache.run()
    assert slept == [POLL_S] * 5
    assert POLL_S * 2 <= FRESH_S
    assert [later - earlier for earlier, later in pairwise(looks)] == [1] * 4
