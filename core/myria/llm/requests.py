"""One POST of JSON to an endpoint of a model: what came back, or one named failure.

Replies are read up to a bound of bytes, redirects are not followed (they would carry the credentials elsewhere), an
endpoint that fails again and again is left alone for a while, and no message shows a credential.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx
import orjson

from myria.errors import ModelFailed
from myria.llm.failures import Kind, failed, kind_of, of_status
from myria.llm.saying import said
from myria.llm.template import RequestTemplate

_LONGEST_S = 3_600.0
"""Seconds after which a request ends in any case; the caller's own limit is shorter."""

_POSTED_BYTES = 32 * 1024 * 1024
_POSTED_FAILURES = 3
_POSTED_PAUSE_S = 30.0

T = TypeVar("T")

_ANSWERED = frozenset({Kind.HTTP_3XX, Kind.HTTP_4XX, Kind.HTTP_5XX, Kind.RATE_LIMITED})
"""Failures with an HTTP reply, whose body may explain more."""


class Breaker:
    """A circuit breaker: stops requests to an endpoint that keeps failing.

    After `failures` failures in a row it refuses requests for `pause_s` seconds, then admits one as a trial; a success
    admits all again.
    """

    def __init__(self, failures: int, pause_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures_to_open = failures
        self._pause_s = pause_s
        self._clock = clock
        self._failures = 0
        self._refuses_until = 0.0
        self._trial_under_way = False
        self._last_failure = ""

    @property
    def resting(self) -> bool:
        """Whether requests are refused now: the pause is not over, or a trial request is under way."""
        return self._failures >= self._failures_to_open and (
            self._clock() < self._refuses_until or self._trial_under_way
        )

    def admit(self) -> None:
        """Let a request through.

        Raises:
            ModelFailed: provider_resting.
        """
        if self._failures < self._failures_to_open:
            return
        if self.resting:
            raise self.refusal()
        self._trial_under_way = True

    def refusal(self) -> ModelFailed:
        """Return the error for a request that is refused now; it says why the last request failed."""
        return failed(
            Kind.RESTING,
            f"the provider failed {self._failures} times in a row and is left alone; last: {self._last_failure}",
        )

    def succeeded(self) -> None:
        """Note a request that the provider answered soundly."""
        self._failures, self._trial_under_way = 0, False

    def failed(self, why: str) -> None:
        """Note a request that failed by the provider's fault; `why` must hold no secret."""
        self._last_failure = why
        self._failures += 1
        self._trial_under_way = False
        if self._failures >= self._failures_to_open:
            self._refuses_until = self._clock() + self._pause_s

    def abandoned(self) -> None:
        """Note a request that was given up before its outcome was known: it counts neither way."""
        self._trial_under_way = False


@dataclass(slots=True)
class Exchange:
    """What was received so far, so that the beginning of a reply that breaks off is not lost."""

    body: bytearray = field(default_factory=bytearray)
    retry_after_s: float | None = None


class JsonEndpoint:
    """One address, asked with a template's headers.

    Args:
        template: has the headers.
        url: the endpoint's whole address, with its path.
        reply_bytes: how large a reply may be.
        who: what error messages call the endpoint.
    """

    def __init__(self, template: RequestTemplate, url: str, *, reply_bytes: int, who: str) -> None:
        self.redactor = template.redactor
        self._headers = template.headers
        self._url = url
        self._reply_bytes = reply_bytes
        self._who = who
        self._client: httpx.AsyncClient | None = None
        # Its debug lines quote what a provider sends instead of HTTP, which may be the key it was given.
        logging.getLogger("httpcore").setLevel(logging.WARNING)

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def post(self, content: bytes, exchange: Exchange, *, within_s: float) -> None:
        """Send a request and read what comes back into `exchange`.

        Raises:
            ModelFailed: timeout, connection, http_*, rate_limited, too_large.
        """
        if self._client is None:
            # Without TLS nothing needs verifying, and loading the certificates would take as long as planning a
            # conversation.
            encrypted = self._url.startswith("https://")
            self._client = httpx.AsyncClient(timeout=_LONGEST_S, trust_env=False, verify=encrypted)
        headers = {name: value.reveal() for name, value in self._headers.items()}
        # Uncompressed: the bound on a reply counts what is read, and a bomb unpacks to far more.
        headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(within_s),
                self._client.stream("POST", self._url, content=content, headers=headers) as response,
            ):
                exchange.retry_after_s = _retry_after(response.headers.get("retry-after"))
                async for chunk in response.aiter_raw(65_536):
                    exchange.body += chunk
                    if len(exchange.body) > self._reply_bytes:
                        raise failed(Kind.TOO_LARGE, f"the reply is larger than {self._reply_bytes} bytes")
                if response.status_code != httpx.codes.OK:
                    raise failed(of_status(response.status_code), f"the {self._who} answered {response.status_code}")
        except TimeoutError:
            raise failed(Kind.TIMEOUT, f"no reply within {within_s:.1f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Not `from error`: it holds the request with its headers.
            raise failed(Kind.CONNECTION, f"{type(error).__name__}: {error}") from None

    def told(self, failure: ModelFailed, content: bytes, exchange: Exchange) -> ModelFailed:
        """Return a failure with the endpoint's own explanation added, and without credentials."""
        explanation = said(bytes(exchange.body), content, self.redactor) if kind_of(failure) in _ANSWERED else ""
        return ModelFailed(
            self.redactor.text(failure.message) + (f": {explanation}" if explanation else ""), **failure.details
        )


class PostedEndpoint:
    """One endpoint other than chat completions, such as that of vectors, shared by all its callers in a process.

    Args:
        url: the endpoint's whole address, with its path.
    """

    def __init__(self, template: RequestTemplate, url: str) -> None:
        self._endpoint = JsonEndpoint(template, url, reply_bytes=_POSTED_BYTES, who="endpoint")
        self._breaker = Breaker(_POSTED_FAILURES, _POSTED_PAUSE_S)

    async def ask(self, fields: Mapping[str, Any], *, within_s: float, parse: Callable[[bytes], T]) -> T:
        """Post these fields as JSON, and return what `parse` makes of the reply.

        Raises:
            ModelFailed: timeout, connection, http_*, too_large, provider_resting, and what `parse` raises.
        """
        content = orjson.dumps(dict(fields))  # before the breaker admits: what cannot be sent is no trial
        self._breaker.admit()
        exchange = Exchange()
        try:
            await self._endpoint.post(content, exchange, within_s=within_s)
            parsed = parse(bytes(exchange.body))
        except ModelFailed as failure:
            explained_failure = self._endpoint.told(failure, content, exchange)
            self._breaker.failed(explained_failure.message)
            raise explained_failure from None
        except BaseException:  # cancelled, or a bug here: neither is the endpoint's fault
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return parsed

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


def _retry_after(text: str | None) -> float | None:
    """Return how many seconds a Retry-After header (a number, or a date) asks for; None if it says nothing usable."""
    if text is None:
        return None
    try:
        if text.strip().isdigit():
            return float(text)
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
