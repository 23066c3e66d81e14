"""Requests to a language model over HTTP: one request in, one sound reply or one named failure out.

A request is tried again after failures that pass, with growing pauses and jitter or as long as the provider asks
(`Retry-After`), never beyond what the workflow's meter leaves. Replies are read up to a bound of bytes. Redirects are
not followed: they would carry the credentials elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import orjson

from myria.errors import ModelFailed
from myria.llm.breaker import Breaker
from myria.llm.budget import Meter, estimated_tokens
from myria.llm.failures import PROVIDERS, TRANSIENT, Kind, failed, kind_of
from myria.llm.saying import said
from myria.llm.secrets import Redactor
from myria.llm.template import RequestTemplate
from myria.llm.wire import CHAT_COMPLETIONS, Completion, Dialect, Usage, of_status
from myria.settings import LlmSettings

Json = dict[str, Any]

_LONGEST_PAUSE_S = 30.0
_ANSWERED = frozenset({Kind.HTTP_3XX, Kind.HTTP_4XX, Kind.HTTP_5XX, Kind.RATE_LIMITED})
"""Failures that a provider reports itself, and may say more about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One HTTP request with its outcome: `ok` or a kind of failure. `reply` is what was read of the body."""

    number: int
    outcome: str
    message: str
    reply: bytes
    input_tokens: int
    output_tokens: int
    cost: int
    latency_ms: int


Observer = Callable[[Attempt], Awaitable[None]]


class Provider:
    """One OpenAI-compatible endpoint, shared by all workflows of a process."""

    def __init__(self, template: RequestTemplate, settings: LlmSettings, dialect: Dialect = CHAT_COMPLETIONS) -> None:
        self.template = template
        self._dialect = dialect
        self.redactor: Redactor = template.redactor
        self._settings = settings
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_pause_s)
        self._places = asyncio.Semaphore(settings.concurrency)
        self._client: httpx.AsyncClient | None = None
        # Its debug lines quote what a provider sends instead of HTTP, which may be the key it was given.
        logging.getLogger("httpcore").setLevel(logging.WARNING)

    @property
    def refusal(self) -> ModelFailed | None:
        """Why the provider is left alone now, None where it is not."""
        return self._breaker.refusal() if self._breaker.resting else None

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def complete(
        self,
        messages: Sequence[Json],
        *,
        meter: Meter,
        observer: Observer,
        extra: Mapping[str, Any],
    ) -> Completion:
        """Return the reply to `messages`; `extra` are the fields of the request that belong to this call.

        Raises:
            ModelFailed: by its kind; budget_* when the meter leaves no room for another attempt.
        """
        body = self._dialect.body_of(self.template, messages, self._settings.max_output_tokens, extra)
        raw = orjson.dumps(body)
        estimate = estimated_tokens(len(raw.decode("utf-8", "replace")))
        number = 0
        while True:
            number += 1
            try:
                return await self._admitted(raw, estimate, number, meter=meter, observer=observer)
            except _RetryLaterError as later:
                pause = later.pause_s if later.pause_s is not None else self._pause(number)
                if number > self._settings.retries or pause > min(_LONGEST_PAUSE_S, meter.remaining_s):
                    raise later.failure from None
                await asyncio.sleep(pause)

    async def _admitted(
        self, raw: bytes, estimate: int, number: int, *, meter: Meter, observer: Observer
    ) -> Completion:
        try:
            async with asyncio.timeout(meter.remaining_s):
                await self._places.acquire()
        except TimeoutError:
            raise failed(Kind.BUSY, f"all {self._settings.concurrency} places at the provider are taken") from None
        try:
            self._breaker.admit()
            try:
                meter.begin_call(estimate + self._settings.max_output_tokens)
            except ModelFailed:
                self._breaker.abandoned()
                raise
            return await self._observed(raw, estimate, number, meter=meter, observer=observer)
        finally:
            self._places.release()

    async def _observed(
        self, raw: bytes, estimate: int, number: int, *, meter: Meter, observer: Observer
    ) -> Completion:
        """Send one request, and tell the breaker, the meter and the observer what became of it."""
        started = time.monotonic()
        exchange = _Exchange()
        completion: Completion | None = None
        failure: ModelFailed | None = None
        try:
            await self._exchange(raw, exchange, min(self._settings.call_timeout_s, meter.remaining_s))
            completion = self._dialect.parse(bytes(exchange.body))
        except ModelFailed as error:
            words = said(bytes(exchange.body), raw, self.redactor) if kind_of(error) in _ANSWERED else ""
            failure = ModelFailed(self.redactor.text(error.message) + (f": {words}" if words else ""), **error.details)
        except asyncio.CancelledError:
            failure = failed(Kind.BUDGET_TIME, "nobody waits for the reply any more")
            raise
        finally:
            usage = completion.usage if completion is not None else self._dialect.usage_of(bytes(exchange.body))
            attempt = self._attempt(
                number, usage, estimate=estimate, exchange=exchange, failure=failure, started=started
            )
            self._tell(attempt, failure, meter, len(exchange.body))
            await asyncio.shield(observer(attempt))
        if failure is not None:
            if kind_of(failure) in TRANSIENT:
                raise _RetryLaterError(failure, exchange.retry_after_s)
            raise failure
        if completion is None:
            raise AssertionError("a request without failure has a reply")
        return completion

    async def _exchange(self, raw: bytes, exchange: _Exchange, seconds: float) -> None:
        if self._client is None:
            # Loading the certificates of all authorities takes as long as planning a conversation.
            encrypted = self._settings.base_url.startswith("https://")
            self._client = httpx.AsyncClient(timeout=self._settings.call_timeout_s, trust_env=False, verify=encrypted)
        url = self._dialect.url_of(self._settings.base_url)
        headers = {name: value.reveal() for name, value in self.template.headers.items()}
        headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream("POST", url, content=raw, headers=headers) as response,
            ):
                exchange.retry_after_s = _retry_after(response.headers.get("retry-after"))
                async for chunk in response.aiter_raw(65_536):
                    exchange.body += chunk
                    if len(exchange.body) > self._settings.reply_bytes:
                        raise failed(Kind.TOO_LARGE, f"the reply is larger than {self._settings.reply_bytes} bytes")
                if response.status_code != httpx.codes.OK:
                    raise failed(of_status(response.status_code), f"the provider answered {response.status_code}")
        except TimeoutError:
            raise failed(Kind.TIMEOUT, f"no reply within {seconds:.1f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Not `from error`: it holds the request with its headers.
            raise failed(Kind.CONNECTION, f"{type(error).__name__}: {error}") from None

    def _attempt(
        self,
        number: int,
        usage: Usage,
        *,
        estimate: int,
        exchange: _Exchange,
        failure: ModelFailed | None,
        started: float,
    ) -> Attempt:
        answered = bool(exchange.body)
        read = usage.input_tokens if usage.input_tokens is not None else (estimate if answered else 0)
        written = usage.output_tokens if usage.output_tokens is not None else estimated_tokens(len(exchange.body))
        cost = usage.cost
        if cost is None:
            prices = self._settings
            cost = round(read * prices.input_usd_per_million + written * prices.output_usd_per_million)
        return Attempt(
            number=number,
            outcome="ok" if failure is None else kind_of(failure).value,
            message="" if failure is None else failure.message,
            reply=bytes(exchange.body),
            input_tokens=read,
            output_tokens=written,
            cost=cost,
            latency_ms=round((time.monotonic() - started) * 1000),
        )

    def _tell(self, attempt: Attempt, failure: ModelFailed | None, meter: Meter, size: int) -> None:
        meter.end_call(tokens=attempt.input_tokens + attempt.output_tokens, cost=attempt.cost, size=size)
        if failure is None:
            self._breaker.succeeded()
            return
        kind = kind_of(failure)
        if kind is Kind.BUDGET_TIME:
            self._breaker.abandoned()
        elif kind in PROVIDERS:
            self._breaker.failed(failure.message)
        else:
            self._breaker.succeeded()

    def _pause(self, number: int) -> float:
        longest = min(self._settings.retry_base_s * 2 ** (number - 1), _LONGEST_PAUSE_S)
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter


@dataclass(slots=True)
class _Exchange:
    body: bytearray
    retry_after_s: float | None

    def __init__(self) -> None:
        self.body = bytearray()
        self.retry_after_s = None


class _RetryLaterError(Exception):
    """A failure that may pass, and how long the provider asks to wait."""

    def __init__(self, failure: ModelFailed, pause_s: float | None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.pause_s = pause_s


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(text)) if text.strip().isdigit() else _until(parsedate_to_datetime(text))
    except (ValueError, TypeError, OverflowError):
        return None


def _until(moment: datetime) -> float:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
