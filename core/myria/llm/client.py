"""Requests to a language model over HTTP: each gives one valid reply, or fails with one named failure.

Transient failures are retried, after growing pauses with jitter or as long as the provider asks (`Retry-After`), but
never beyond what the workflow's meter leaves.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from myria.errors import ModelFailed
from myria.llm.budget import Meter, estimated_tokens
from myria.llm.failures import PROVIDERS, TRANSIENT, Kind, failed, kind_of
from myria.llm.requests import Breaker, Exchange, JsonEndpoint
from myria.llm.template import RequestTemplate
from myria.llm.wire import CHAT_COMPLETIONS, Completion, Dialect, Usage
from myria.settings import LlmSettings

Json = dict[str, Any]

_LONGEST_PAUSE_S = 30.0


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
        url = dialect.url_of(settings.base_url)
        self._endpoint = JsonEndpoint(template, url, reply_bytes=settings.reply_bytes, who="provider")
        self.redactor = self._endpoint.redactor
        self._settings = settings
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_pause_s)
        self._places = asyncio.Semaphore(settings.concurrency)

    @property
    def refusal(self) -> ModelFailed | None:
        """Why no requests are sent to the provider now; None if they are."""
        return self._breaker.refusal() if self._breaker.resting else None

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

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
            exchange = Exchange()
            try:
                return await self._send_admitted(raw, exchange, estimate, number, meter=meter, observer=observer)
            except ModelFailed as failure:
                pause = exchange.retry_after_s if exchange.retry_after_s is not None else self._pause(number)
                is_last = number > self._settings.retries or pause > min(_LONGEST_PAUSE_S, meter.remaining_s)
                if kind_of(failure) not in TRANSIENT or is_last:
                    raise
            await asyncio.sleep(pause)

    async def _send_admitted(
        self, raw: bytes, exchange: Exchange, estimate: int, number: int, *, meter: Meter, observer: Observer
    ) -> Completion:
        """Send one request once there is room: a free place, a closed breaker, and budget on the meter."""
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
            return await self._send_observed(raw, exchange, estimate, number, meter=meter, observer=observer)
        finally:
            self._places.release()

    async def _send_observed(
        self, raw: bytes, exchange: Exchange, estimate: int, number: int, *, meter: Meter, observer: Observer
    ) -> Completion:
        """Send one request, and report its outcome to the breaker, the meter and the observer."""
        started = time.monotonic()
        failure: ModelFailed | None = None
        usage: Usage | None = None
        try:
            within_s = min(self._settings.call_timeout_s, meter.remaining_s)
            await self._endpoint.post(raw, exchange, within_s=within_s)
            completion = self._dialect.parse(bytes(exchange.body))
            usage = completion.usage
            return completion
        except ModelFailed as error:
            failure = self._endpoint.told(error, raw, exchange)
            raise failure from None
        except asyncio.CancelledError:
            failure = failed(Kind.BUDGET_TIME, "nobody waits for the reply any more")
            raise
        finally:
            body = bytes(exchange.body)
            usage = usage or self._dialect.usage_of(body)
            attempt = self._attempt(number, usage, estimate=estimate, body=body, failure=failure, started=started)
            self._report(attempt, failure, meter)
            # Shielded: the audit must have the request even if its caller was cancelled.
            await asyncio.shield(observer(attempt))

    def _attempt(
        self,
        number: int,
        usage: Usage,
        *,
        estimate: int,
        body: bytes,
        failure: ModelFailed | None,
        started: float,
    ) -> Attempt:
        # A provider that tells no usage is estimated; without any reply, no input counts as read.
        tokens_read = usage.input_tokens if usage.input_tokens is not None else (estimate if body else 0)
        tokens_written = usage.output_tokens if usage.output_tokens is not None else estimated_tokens(len(body))
        cost = usage.cost
        if cost is None:
            prices = self._settings
            cost = round(tokens_read * prices.input_usd_per_million + tokens_written * prices.output_usd_per_million)
        return Attempt(
            number=number,
            outcome="ok" if failure is None else kind_of(failure).value,
            message="" if failure is None else failure.message,
            reply=body,
            input_tokens=tokens_read,
            output_tokens=tokens_written,
            cost=cost,
            latency_ms=round((time.monotonic() - started) * 1000),
        )

    def _report(self, attempt: Attempt, failure: ModelFailed | None, meter: Meter) -> None:
        """Count an attempt on the meter, and tell the breaker whether the provider is at fault."""
        meter.end_call(tokens=attempt.input_tokens + attempt.output_tokens, cost=attempt.cost, size=len(attempt.reply))
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
        """Return the seconds to wait after attempt `number` (from 1): doubled each time, with jitter."""
        longest = min(self._settings.retry_base_s * 2 ** (number - 1), _LONGEST_PAUSE_S)
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter
