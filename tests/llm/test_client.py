"""Calls over real HTTP: retries, deadlines, bounds, the breaker, and what is counted."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import orjson
import pytest

from myria.errors import ModelFailed
from myria.llm.budget import Budget, Meter
from myria.llm.client import Attempt
from myria.llm.client import Provider as Client
from myria.llm.failures import Kind
from myria.llm.requests import PostedEndpoint
from myria.llm.template import RequestTemplate
from myria.llm.wire import Completion
from myria.settings import LlmSettings
from tests.llm.conftest import KEY, Configuring, Starting
from tests.llm.provider import Answer, Asked, completion

PLENTY = Budget(rounds=100, calls=100, tokens=10**7, bytes=10**8, seconds=3600, cost=10**9)
SAYING = [{"role": "user", "content": "hello"}]


class Asking:
    """One client with what its observer saw."""

    def __init__(self, settings: LlmSettings) -> None:
        import os

        assert settings.template is not None
        self.client = Client(RequestTemplate.load(settings.template, os.environ), settings)
        self.attempts: list[Attempt] = []

    async def ask(self, meter: Meter | None = None, **extra: Any) -> Completion:
        """Ask once."""

        async def observe(attempt: Attempt) -> None:
            self.attempts.append(attempt)

        return await self.client.complete(SAYING, meter=meter or Meter(PLENTY), observer=observe, extra=extra)

    async def kind(self, meter: Meter | None = None) -> str:
        """Ask once, and return how it failed."""
        with pytest.raises(ModelFailed) as caught:
            await self.ask(meter)
        kind: str = caught.value.details["kind"]
        assert KEY not in str(caught.value.to_json())
        return kind

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


async def test_a_sound_reply_is_counted(provide: Starting, configured: Configuring) -> None:
    """The key goes as a header, the reply comes back, tokens and cost are what the provider says."""
    provider = provide(lambda _: Answer(body=completion(content="fine")))
    meter = Meter(PLENTY)

    async with Asking(configured(provider)) as asking:
        reply = await asking.ask(meter, tools=[{"type": "function", "function": {"name": "x"}}])

    (asked,) = provider.asked
    assert reply.text == "fine"
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body["provider"] == {"sort": "throughput"}
    assert asked.tools == ["x"]
    assert (meter.calls, meter.tokens, meter.cost) == (1, 120, 100)
    assert [(attempt.outcome, attempt.cost) for attempt in asking.attempts] == [("ok", 100)]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 408])
async def test_what_passes_is_tried_again(provide: Starting, configured: Configuring, status: int) -> None:
    """After 429, 408 and 5xx the same request is sent again, as often as configured."""
    provider = provide(
        lambda asked: Answer(status=status) if asked.number < 3 else Answer(body=completion(content="x"))
    )

    async with Asking(configured(provider, retries=2)) as asking:
        assert (await asking.ask()).text == "x"

    assert len(provider.asked) == 3
    assert provider.asked[0].raw == provider.asked[2].raw
    assert [attempt.number for attempt in asking.attempts] == [1, 2, 3]


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "http_4xx"), (401, "http_4xx"), (404, "http_4xx"), (302, "http_3xx")]
)
async def test_what_does_not_pass_is_not_tried_again(
    provide: Starting, configured: Configuring, status: int, kind: str
) -> None:
    """Other statuses fail at once; a redirect is not followed, so credentials go nowhere else."""
    provider = provide(lambda _: Answer(status=status, headers={"Location": "http://127.0.0.1:1/steal"}))

    async with Asking(configured(provider, retries=3)) as asking:
        assert await asking.kind() == kind

    assert len(provider.asked) == 1


@pytest.mark.parametrize("as_date", [False, True])
async def test_retry_after_is_honoured(provide: Starting, configured: Configuring, as_date: bool) -> None:
    """The provider's own wish counts instead of our pause, as seconds or as a date."""

    def script(asked: Asked) -> Answer:
        if asked.number > 1:
            return Answer(body=completion(content="x"))
        wish = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True) if as_date else "1"
        return Answer(status=429, headers={"Retry-After": wish})

    async with Asking(configured(provide(script))) as asking:
        started = time.monotonic()
        await asking.ask()

    assert time.monotonic() - started >= 0.9


@pytest.mark.parametrize("wish", ["3600", "999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_retry_after_is_bounded(provide: Starting, configured: Configuring, wish: str) -> None:
    """A wish beyond what is left is not waited for."""
    provider = provide(lambda _: Answer(status=429, headers={"Retry-After": wish}))

    async with Asking(configured(provider, retries=5)) as asking:
        assert await asking.kind() == "rate_limited"

    assert len(provider.asked) == 1


@pytest.mark.parametrize("wish", ["-5", "soon", "", "nan", "1e400"])
async def test_nonsense_in_retry_after_is_passed_over(provide: Starting, configured: Configuring, wish: str) -> None:
    """What is no wish leaves our own pause."""
    provider = provide(
        lambda asked: (
            Answer(status=429, headers={"Retry-After": wish})
            if asked.number < 2
            else Answer(body=completion(content="x"))
        )
    )
    async with Asking(configured(provider)) as asking:
        await asking.ask()
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(hang=True), "timeout"),
        (Answer(body=completion(content="x" * 200), drip=1, pause_s=0.05), "timeout"),
        (Answer(body=completion(content="x"), cut=40), "connection"),
        (Answer(raw=b""), "connection"),
        (Answer(raw=b"SSH-2.0-OpenSSH\r\n\r\n"), "connection"),
        (Answer(body=b"<html>Bad gateway</html>"), "malformed_json"),
        (Answer(body=b""), "malformed_json"),
        (Answer(body=b"\xff\xfe\x00"), "malformed_json"),
        (Answer(body=b"[" * 100_000), "malformed_json"),
        (Answer(body=b"null"), "malformed_reply"),
        (Answer(body=b"[]"), "malformed_reply"),
        (Answer(body=b'{"choices": 7}'), "malformed_reply"),
        (Answer(body=b'{"choices": [{"message": {"content": {"a": 1}}}]}'), "malformed_reply"),
        (Answer(body=b'{"choices": []}'), "empty_choices"),
        (Answer(body=b"{}"), "empty_choices"),
        (Answer(body=b'{"error": {"code": 401, "message": "no"}}'), "http_4xx"),
        (Answer(body=b'{"error": {"code": 429}}'), "rate_limited"),
        (Answer(body=b'{"error": "boom"}'), "http_5xx"),
        (Answer(body=b" " * 200_000), "too_large"),
        (Answer(body=b"x", headers={"Content-Encoding": "gzip"}), "malformed_json"),
    ],
)
async def test_failures_have_names(provide: Starting, configured: Configuring, answer: Answer, kind: str) -> None:
    """Each way of failing has a name of its own, and none takes longer than the call's deadline."""
    deadline = 0.5 if kind == "timeout" else 3600.0
    settings = configured(provide(lambda _: answer), retries=0, call_timeout_s=deadline, reply_bytes=150_000)

    async with Asking(settings) as asking:
        assert await asking.kind() == kind  # dripped to its end the reply would be a sound one

    assert [attempt.outcome for attempt in asking.attempts] == [kind]


async def test_nobody_listens(configured: Configuring) -> None:
    """A refused connection is a named failure too."""
    async with Asking(configured("http://127.0.0.1:1/v1")) as asking:
        assert await asking.kind() == "connection"


async def test_a_providers_count_is_believed_within_reason(provide: Starting, configured: Configuring) -> None:
    """Negative, absurd or missing usage is replaced by the estimate; the money then comes from the prices."""
    lies: list[Any] = [
        {"prompt_tokens": -5, "completion_tokens": 10**15, "cost": -1},
        {"prompt_tokens": "many", "cost": "free"},
        {"prompt_tokens": True, "completion_tokens": 1.5, "cost": float(10**300)},
        "lots",
        [],
    ]
    provider = provide(lambda asked: Answer(body=completion(content="x", usage=lies[asked.number - 1])))
    meter = Meter(PLENTY)

    async with Asking(configured(provider, input_usd_per_million=1.0, output_usd_per_million=2.0)) as asking:
        for _ in lies:
            before = meter.tokens
            await asking.ask(meter)
            assert 10 < meter.tokens - before < 500
    assert 0 < meter.cost < 5000


async def test_the_budget_is_asked_before_each_attempt(provide: Starting, configured: Configuring) -> None:
    """Calls, tokens, money, bytes and time each stop the next request by name, and nothing is sent."""
    provider = provide(lambda _: Answer(body=completion(content="x")))
    async with Asking(configured(provider, max_output_tokens=16)) as asking:
        for limits, kind in (
            ({"calls": 0}, Kind.BUDGET_CALLS),
            ({"tokens": 10}, Kind.BUDGET_TOKENS),
            ({"cost": 0}, Kind.BUDGET_COST),
            ({"bytes": 0}, Kind.BUDGET_BYTES),
        ):
            fields = dataclasses.asdict(PLENTY) | limits
            assert await asking.kind(Meter(Budget(**fields))) == kind
        assert not provider.asked
        once = Meter(Budget(rounds=9, calls=9, tokens=10**6, bytes=10**6, seconds=9, cost=50))
        await asking.ask(once)
        assert await asking.kind(once) == Kind.BUDGET_COST
    assert len(provider.asked) == 1


async def test_time_left_bounds_a_call(provide: Starting, configured: Configuring) -> None:
    """A hanging provider costs what the workflow has left, not the call's own deadline; then nothing is sent."""
    provider = provide(lambda _: Answer(hang=True))
    meter = Meter(Budget(rounds=9, calls=9, tokens=10**6, bytes=10**6, seconds=0.3, cost=10**6))
    async with Asking(configured(provider, call_timeout_s=3600, retries=5)) as asking:
        assert await asking.kind(meter) in {"timeout", Kind.BUDGET_TIME}
        assert await asking.kind(meter) in {Kind.BUDGET_TIME, Kind.BUSY}


async def test_a_failing_provider_is_left_alone(provide: Starting, configured: Configuring) -> None:
    """After so many failures in a row requests fail at once; after the pause one tries, and a success ends it."""
    healthy = False
    provider = provide(lambda _: Answer(body=completion(content="x")) if healthy else Answer(status=500))
    async with Asking(configured(provider, retries=0, breaker_failures=3, breaker_pause_s=60)) as asking:
        now = [0.0]
        asking.client._breaker._clock = lambda: now[0]
        for _ in range(3):
            assert await asking.kind() == "http_5xx"
        assert await asking.kind() == "provider_resting"
        assert len(provider.asked) == 3
        now[0] += 61
        assert await asking.kind() == "http_5xx"
        assert await asking.kind() == "provider_resting"
        healthy = True
        now[0] += 61
        await asking.ask()
        await asking.ask()
    assert len(provider.asked) == 6


async def test_few_requests_at_once(provide: Starting, configured: Configuring) -> None:
    """No more requests than configured are with the provider; one without time to wait is told that it is busy."""
    release = threading.Event()
    provider = provide(lambda _: Answer(body=completion(content="x"), release=release))
    async with Asking(configured(provider, concurrency=2, call_timeout_s=3600)) as asking:
        asks = [asyncio.create_task(asking.ask()) for _ in range(4)]
        while len(provider.asked) < 2:
            await asyncio.sleep(0.01)
        hasty = Meter(Budget(rounds=9, calls=9, tokens=10**6, bytes=10**6, seconds=0.05, cost=10**6))
        assert await asking.kind(hasty) == "busy"
        assert len(provider.asked) == 2
        release.set()
        await asyncio.gather(*asks)
    assert len(provider.asked) == 4


async def test_the_key_is_never_shown(
    provide: Starting, configured: Configuring, caplog: pytest.LogCaptureFixture
) -> None:
    """A provider that throws the key back at us in bodies, statuses and broken HTTP finds it in no message and log."""
    caplog.set_level(logging.DEBUG)
    answers = [
        Answer(status=401, body=f"bad key {KEY}".encode()),
        Answer(body=f"bad key {KEY}".encode()),
        Answer(body=orjson.dumps({"choices": [{"message": {KEY: KEY, "content": 7}}]})),
        Answer(raw=f"{KEY}\r\n\r\n".encode()),
        Answer(raw=f"HTTP/1.1 {KEY} {KEY}\r\n\r\n".encode()),
        Answer(raw=f"HTTP/1.1 200 OK\r\n{KEY} {KEY}\r\n\r\n".encode()),
    ]
    provider = provide(lambda asked: answers[asked.number - 1])
    shown = []
    async with Asking(configured(provider, retries=0, breaker_failures=100)) as asking:
        for _ in answers:
            with pytest.raises(ModelFailed) as caught:
                await asking.ask()
            shown += [str(caught.value.to_json()), repr(caught.value), repr(caught.value.__cause__)]
        shown += [attempt.message for attempt in asking.attempts]
        shown += [repr(asking.client.template), repr(asking.client.redactor)]
    shown.append(caplog.text)
    assert KEY not in "".join(shown)


async def test_what_cannot_be_sent_is_no_trial(provide: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is no JSON takes no place of the one trial by which a resting endpoint comes back."""
    monkeypatch.setattr("myria.llm.requests._POSTED_FAILURES", 1)
    monkeypatch.setattr("myria.llm.requests._POSTED_PAUSE_S", 0.0)
    provider = provide(lambda _: Answer(status=500))
    endpoint = PostedEndpoint(RequestTemplate(model="m", body={}, headers={}, secrets=()), provider.url)
    try:
        with pytest.raises(ModelFailed):
            await endpoint.ask({}, within_s=60.0, parse=bytes)
        with pytest.raises(TypeError):
            await endpoint.ask({"no": object()}, within_s=60.0, parse=bytes)
        provider.script = lambda _: Answer(body=b"{}")
        assert await endpoint.ask({}, within_s=60.0, parse=bytes) == b"{}"
    finally:
        await endpoint.close()
