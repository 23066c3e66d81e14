"""Limits over HTTP: of a credential's requests, and of those who fail to prove who they are."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from myria.access.addresses import Proxies
from myria.access.journal import Journal
from myria.access.limits import REFUSED_AT_ONCE_PER_S, CredentialUsage, Failures
from myria.access.store import AccessStore
from myria.errors import CredentialMissing, RateLimited
from myria.log.quotas import BURST_S
from myria.memory import Memory
from myria.settings import AuditSettings, AuthSettings, Settings
from myria_server.http.failure_limiter import CROWD, DELAY_S, MAX_DELAYED, MOST_CROWDED, PROMPT_PER_S, FailureLimiter
from tests.server.wire import Served, call, headers, serving
from tests.support.clock import Clock
from tests.support.keys import make_key

NAME = "myria_query_event_nodes"
NOBODY = "myr_aaaaaaaaaaaa_" + "a" * 32


def keyed(**auth: Any) -> Settings:
    """Return settings that ask for keys."""
    return Settings(auth=AuthSettings(mode="keys", **auth))


async def ask(served: Served, text: str, *, body: Any = None, **more: str) -> httpx.Response:
    """Ask a question with a key."""
    version = None if isinstance(body, list) else "2026-07-28"
    sent = headers(NAME, version=version) | {"authorization": f"Bearer {text}"} | more
    return await served.post(call(NAME, {}) if body is None else body, sent)


def code(response: httpx.Response) -> tuple[int, str]:
    """Return a refusal's status and code."""
    return response.status_code, response.json()["error"]["data"]["code"]


async def test_a_credential_is_held_to_its_rate(memory: Memory, store: AccessStore) -> None:
    """With 429, when to come again, and how much is left; another credential goes on."""
    clock = Clock()
    slow, other = await make_key(store, "ada", requests_per_s=2.0), await make_key(store, "ada")
    async with serving(memory, keyed(), ticks=clock) as served:
        answers = [await ask(served, slow) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
        assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["3", "2", "1", "0", "0", "0"]
        assert answers[0].headers["ratelimit-limit"] == "4"
        refused = answers[-1]
        assert code(refused) == (429, "rate_limited")
        data = refused.json()["error"]["data"]
        assert data["retryable"] is True
        assert refused.headers["retry-after"] == str(data["details"]["retry_after_s"]) == "1"
        unlimited = await ask(served, other)
        assert unlimited.status_code == 200
        assert "ratelimit-limit" not in unlimited.headers
        clock.at += 1
        assert [(await ask(served, slow)).status_code for _ in range(3)] == [200, 200, 429]


async def test_every_message_of_a_batch_counts(memory: Memory, store: AccessStore) -> None:
    """A batch is not a way around the rate."""
    text = await make_key(store, "ada", requests_per_s=2.0)
    batch = [call(NAME, {}, version=None, request_id=number) for number in range(3)]
    async with serving(memory, keyed(), ticks=Clock()) as served:
        assert (await ask(served, text, body=batch)).status_code == 200
        refused = await ask(served, text, body=batch)
        assert code(refused) == (429, "rate_limited")
        assert refused.headers["retry-after"]


async def test_a_setting_limits_keys_that_have_no_limit(memory: Memory, store: AccessStore) -> None:
    """And only those."""
    plain, own = await make_key(store, "ada"), await make_key(store, "ada", requests_per_s=3.0)
    async with serving(memory, keyed(requests_per_s=1.0), ticks=Clock()) as served:
        assert [(await ask(served, plain)).status_code for _ in range(3)] == [200, 200, 429]
        assert [(await ask(served, own)).status_code for _ in range(7)] == [200] * 6 + [429]


async def _begin(port: int, head: bytes) -> tuple[asyncio.StreamWriter, asyncio.Task[bytes]]:
    """Send the beginning of a request; return the connection, and the first byte of the answer to come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    await writer.drain()
    return writer, asyncio.create_task(reader.read(1))


async def test_requests_at_once_are_limited_while_they_last(memory: Memory, store: AccessStore) -> None:
    """A body that never ends holds its place, and gives it back."""
    text = await make_key(store, "ada", concurrency=1)
    head = (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json\r\n"
        b"authorization: Bearer %s\r\ncontent-length: 100\r\n\r\n{" % text.encode()
    )
    async with serving(memory, keyed()) as served:
        writer, answered = await _begin(served.port, head)
        while (response := await ask(served, text)).status_code == 200:
            if answered.done():  # it came while this question held the place, and was refused itself
                writer.close()
                writer, answered = await _begin(served.port, head)
        assert code(response) == (429, "rate_limited")
        assert response.json()["error"]["data"]["details"]["limit"] == "concurrency"
        assert not answered.done()
        writer.close()
        await answered
        while (response := await ask(served, text)).status_code == 429:
            pass
        assert response.status_code == 200


async def test_failures_of_an_address_end_in_429_and_a_good_key_goes_on(memory: Memory, store: AccessStore) -> None:
    """Known to this process or not: whoever shares an address with a guesser is not refused for it."""
    known, unknown = await make_key(store, "ada"), await make_key(store, "ada")
    async with serving(memory, keyed(failures_per_minute=3), ticks=Clock()) as served:
        assert (await ask(served, known)).status_code == 200
        answers = [await ask(served, f"myr_aaaaaaaaaaa{number}_" + "a" * 32) for number in range(5)]
        assert [code(answer) for answer in answers] == [(401, "credential_invalid")] * 3 + [(429, "rate_limited")] * 2
        assert answers[-1].headers["retry-after"] == "20"
        assert (await ask(served, known)).status_code == 200
        assert (await ask(served, unknown)).status_code == 200
        missing = await served.post(call(NAME, {}), headers(NAME))
        assert code(missing) == (401, "credential_missing")


async def test_failures_of_a_keys_id_end_in_429_and_the_key_goes_on(memory: Memory, store: AccessStore) -> None:
    """From however many addresses they come; the id is public, so nobody can lock a key out by it."""
    text = await make_key(store, "ada")
    settings = keyed(failures_per_minute=3, proxies=("127.0.0.0/8",))
    async with serving(memory, settings, ticks=Clock()) as served:
        guess = text.rpartition("_")[0] + "_" + "a" * 32
        answers = [await ask(served, guess, **{"x-forwarded-for": f"198.51.100.{number}"}) for number in range(5)]
        assert [answer.status_code for answer in answers] == [401] * 3 + [429] * 2
        assert (await ask(served, text)).status_code == 200


async def test_only_a_configured_proxy_says_from_where_a_failure_comes(memory: Memory) -> None:
    """Else a guesser would come from a new address each time."""
    guesses = [f"myr_aaaaaaaaaaa{number}_" + "a" * 32 for number in range(5)]
    for proxies, last in (((), 429), (("127.0.0.1",), 401)):
        settings = keyed(failures_per_minute=3, proxies=proxies)
        async with serving(memory, settings, ticks=Clock()) as served:
            statuses = [
                (await ask(served, guess, **{"x-forwarded-for": f"198.51.100.{number}"})).status_code
                for number, guess in enumerate(guesses)
            ]
            assert statuses == [401] * 3 + [last] * 2


async def test_without_credentials_nothing_is_limited(memory: Memory) -> None:
    """The local principal is this machine's own."""
    settings = Settings(auth=AuthSettings(requests_per_s=1.0, concurrency=1))
    async with serving(memory, settings, ticks=Clock()) as served:
        for _ in range(5):
            response = await ask(served, NOBODY)
            assert response.status_code == 200
            assert "ratelimit-limit" not in response.headers


async def test_floods_of_refusals_are_answered_later(memory: Memory) -> None:
    """Of many refusals for too many requests in a second some wait, a bounded number at once; no other one does."""
    slept: list[float] = []
    awake = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await awake.wait()

    clock = Clock()
    journal = Journal(memory.appending, AuditSettings())
    limiter = FailureLimiter(Failures(None, ticks=clock), Proxies(()), journal, ticks=clock, sleep=sleep)
    limited, prompt = RateLimited("slowly"), int(PROMPT_PER_S)
    for _ in range(prompt):
        await limiter.delay(limited)
    for _ in range(prompt):
        await limiter.delay(CredentialMissing("who?"))
    assert not slept
    waiting = [asyncio.create_task(limiter.delay(limited)) for _ in range(MAX_DELAYED + 30)]
    await asyncio.sleep(0)
    assert len(slept) == MAX_DELAYED
    assert all(DELAY_S[0] <= seconds <= DELAY_S[1] for seconds in slept[:CROWD])
    assert all(DELAY_S[0] <= seconds / MOST_CROWDED <= DELAY_S[1] for seconds in slept[-CROWD:])
    assert len(set(slept)) > MAX_DELAYED // 2, "those refused together come again together"
    assert sum(task.done() for task in waiting) == 30
    awake.set()
    await asyncio.gather(*waiting)
    clock.at += 1
    await limiter.delay(limited)
    assert len(slept) == MAX_DELAYED


async def test_refusals_of_one_credential_wait_and_those_of_another_do_not(memory: Memory) -> None:
    """Who is refused again and again is answered later, and uses up nothing that others are answered at once."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    clock = Clock()
    limiter = FailureLimiter(
        Failures(None), Proxies(()), Journal(memory.appending, AuditSettings()), ticks=clock, sleep=sleep
    )
    noisy, quiet = CredentialUsage(clock), CredentialUsage(clock)
    prompt = int(REFUSED_AT_ONCE_PER_S * BURST_S)
    for _ in range(prompt + 200):
        await limiter.delay(RateLimited("slowly"), noisy)
    assert len(slept) == 200
    for _ in range(prompt):
        await limiter.delay(RateLimited("slowly"), quiet)
    assert len(slept) == 200
