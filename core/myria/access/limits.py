"""Limits on the requests of one credential, and on failed authentications. Pure rules.

Each process counts alone: with N processes behind a Service, a credential may use up to N times as much. Nothing here
waits or reads a database; the clock is passed in.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NoReturn

from myria.access.principal import Principal
from myria.errors import RateLimited
from myria.log.quotas import BURST_S, TokenBucket

REFUSED_AT_ONCE_PER_S = 5.0
"""Refusals of one credential that are answered at once, per second."""

MAX_REMEMBERED = 10_000
"""Credentials, and addresses and ids that failed, remembered by one process; the one seen longest ago goes first."""

Header = tuple[bytes, bytes]


class CredentialUsage:
    """The requests of one credential on one process, and its limits."""

    __slots__ = ("_bucket", "_concurrency", "_in_flight", "_prompt", "_ticks")

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._in_flight = 0
        self._bucket: TokenBucket | None = None
        self._concurrency: float = math.inf
        self._prompt = TokenBucket(REFUSED_AT_ONCE_PER_S, REFUSED_AT_ONCE_PER_S * BURST_S, ticks())

    @property
    def has_rate(self) -> bool:
        """Whether a rate limit applies, so that answers carry headers about it."""
        return self._bucket is not None

    @property
    def idle(self) -> bool:
        """Whether no request of the credential is under way."""
        return not self._in_flight

    def allow(self, principal: Principal, requests_per_s: float | None, concurrency: int | None) -> None:
        """Set the limits of a principal, or else these defaults; an unchanged rate keeps what was used of it."""
        rate = principal.requests_per_s or requests_per_s
        self._concurrency = principal.concurrency or concurrency or math.inf
        if rate is None:
            self._bucket = None
        elif self._bucket is None or self._bucket.rate != rate:
            self._bucket = TokenBucket(rate, max(1.0, rate * BURST_S), self._ticks())

    def begin(self) -> None:
        """Count one request that begins; call `end` when it is over.

        Raises:
            RateLimited: too many requests a second, or at once; nothing was counted.
        """
        if self._in_flight >= self._concurrency:
            raise RateLimited(
                f"this credential has {self._in_flight} requests under way, as many as it may; wait for one to end",
                limit="concurrency",
                value=int(self._concurrency),
                retry_after_s=1,
            )
        if self._bucket is not None:
            self._take(self._bucket, 1)
        self._in_flight += 1

    def more(self, messages: int) -> None:
        """Count further messages of a request that has begun.

        Raises:
            RateLimited: too many messages for now; none was counted.
        """
        if self._bucket is not None and messages > 0:
            self._take(self._bucket, messages)

    def end(self) -> None:
        """Count one request that is over."""
        self._in_flight -= 1

    def refused_often(self) -> bool:
        """Count one refusal; return whether there were so many lately that its answer may be delayed."""
        return self._prompt.take(1, self._ticks()) > 0

    def headers(self) -> tuple[Header, ...]:
        """Return headers that tell a client how many requests are left; none if no rate limit applies.

        They are those of draft-ietf-httpapi-ratelimit-headers-11, and the three of its revisions up to 06, which more
        clients read.
        """
        bucket = self._bucket
        if bucket is None:
            return ()
        now = self._ticks()
        limit, left, reset = math.floor(bucket.burst), bucket.left(now), math.ceil(bucket.full_in(now))
        return (
            (b"ratelimit-policy", b'"credential";q=%d;w=%d' % (limit, math.ceil(bucket.burst / bucket.rate))),
            (b"ratelimit", b'"credential";r=%d;t=%d' % (left, reset)),
            (b"ratelimit-limit", b"%d" % limit),
            (b"ratelimit-remaining", b"%d" % left),
            (b"ratelimit-reset", b"%d" % reset),
        )

    def _take(self, bucket: TokenBucket, count: int) -> None:
        wait_s = bucket.take(count, self._ticks())
        if wait_s:
            _refuse_rate(
                f"this credential may send {bucket.rate:g} requests a second; slow down and retry",
                wait_s,
                limit="requests_per_s",
                value=bucket.rate,
            )


class CredentialLimits:
    """The usage of all credentials of one process.

    Args:
        requests_per_s: for credentials without a rate of their own; None for no limit.
        concurrency: requests at once, for credentials without a number of their own; None for no limit.
        ticks: a steady clock, in seconds.
    """

    def __init__(
        self,
        *,
        requests_per_s: float | None = None,
        concurrency: int | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests_per_s = requests_per_s
        self._concurrency = concurrency
        self._ticks = ticks
        self._usages: OrderedDict[tuple[str, str], CredentialUsage] = OrderedDict()

    def of(self, principal: Principal) -> CredentialUsage | None:
        """Return the usage of a principal's credential; None for the local principal, which has no limits."""
        if principal.credential is None:
            return None
        credential_key = (principal.tenant, principal.credential)
        usage = self._usages.get(credential_key)
        if usage is None:
            usage = self._usages[credential_key] = CredentialUsage(self._ticks)
            self._forget()
        else:
            self._usages.move_to_end(credential_key)
        usage.allow(principal, self._requests_per_s, self._concurrency)
        return usage

    def _forget(self) -> None:
        """Forget the oldest idle credentials above `MAX_REMEMBERED`; one with requests under way stays."""
        for _ in range(len(self._usages) - MAX_REMEMBERED):
            credential_key = next(iter(self._usages))
            if self._usages[credential_key].idle:
                del self._usages[credential_key]
            else:
                self._usages.move_to_end(credential_key)


class Rates:
    """Limits how often something may happen under one name: an address, a key or a tenant.

    Args:
        per_minute: how often under one name, all of them at once if need be; None for no limit.
        limit: the name of the setting, for the refusal.
        message: the text of the refusal.
        ticks: a steady clock, in seconds.
    """

    def __init__(
        self, per_minute: float | None, *, limit: str, message: str, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = per_minute
        self._limit = limit
        self._message = message
        self._ticks = ticks
        burst = max(1.0, per_minute or 1.0)
        # The name seen longest ago goes first.
        self._bucket = lru_cache(MAX_REMEMBERED)(lambda _name: TokenBucket((per_minute or 1.0) / 60, burst, ticks()))

    def __len__(self) -> int:
        return self._bucket.cache_info().currsize

    def note(self, names: Sequence[str]) -> None:
        """Count one occurrence under each name.

        Raises:
            RateLimited: there were too many under one of the names.
        """
        if self._per_minute is None:
            return
        wait_s = max((self._bucket(name).take(1, self._ticks()) for name in names), default=0.0)
        if wait_s:
            _refuse_rate(self._message, wait_s, limit=self._limit, value=self._per_minute)


class Failures(Rates):
    """Failed authentications, by address and by the id of the key.

    Note one only after a credential was found to be bad: a good one must not be refused for the failures of others.
    """

    def __init__(self, per_minute: float | None, *, ticks: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            per_minute,
            limit="failures_per_minute",
            message="too many credentials were refused that came from this address, or named this key; use a good one, "
            "or wait",
            ticks=ticks,
        )


def network_of(address: str, *, site: bool = False) -> str:
    """Return the network under which an address is counted: the IPv4 address itself, or the /64 of an IPv6 address.

    One host may own a whole /64, and one customer a whole /48. A text that is no address is returned unchanged.

    Args:
        site: count IPv6 by its /48.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 48 if site else 64), strict=False)) if parsed.version == 6 else str(parsed)


def retry_headers(error: RateLimited) -> tuple[Header, ...]:
    """Return the header that tells a client when to come again (RFC 9110, 10.2.3)."""
    return ((b"retry-after", b"%d" % error.details["retry_after_s"]),)


def _refuse_rate(message: str, wait_s: float, *, limit: str, value: float) -> NoReturn:
    raise RateLimited(message, limit=limit, value=value, retry_after_s=max(1, math.ceil(wait_s)))
