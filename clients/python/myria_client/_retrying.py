"""When a call is tried again. Every call that this package makes may be repeated: it names its turn."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from myria_client._errors import Busy, MyriaClientError, Refused, Unreachable

Json = dict[str, Any]

_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a call is tried again that did not reach the server, or that the server could not do then.

    Args:
        times: tries after the first.
        first_pause_s: about how long it waits before the second try; each further pause is twice as long, at most 5 s.
    """

    times: int = 6
    first_pause_s: float = 0.1

    def pause_s(self, tried: int, wanted_s: float | None) -> float:
        """Return how long to wait after so many tries; the server may have asked for longer."""
        pause = min(_LONGEST_PAUSE_S, self.first_pause_s * 2.0 ** min(tried - 1, 30)) * random.uniform(0.5, 1.5)  # noqa: S311
        return pause if wanted_s is None else max(pause, min(wanted_s, _LONGEST_PAUSE_S))


@dataclass(slots=True)
class Attempts:
    """The tries of one call. `pause_s` tells how long to wait before the next."""

    retry: Retry
    tried: int = 0
    pause_s: float = 0.0

    def answered(self, response: httpx.Response) -> Json | None:
        """Return what the server answered, None where the call is to be tried again.

        Raises:
            Refused, Busy: it does not do this.
        """
        error = _refusal(response)
        if error is None:
            body: Json = response.json()
            return body
        if not isinstance(error, Busy):
            raise error
        self._next(error, _seconds(response.headers))
        return None

    def failed(self, error: httpx.TransportError) -> None:
        """Note that no answer came.

        Raises:
            Unreachable: it was tried often enough.
        """
        unreachable = Unreachable(f"{type(error).__name__}: {error}")
        unreachable.__cause__ = error
        self._next(unreachable, None)

    def _next(self, error: MyriaClientError, wanted_s: float | None) -> None:
        self.tried += 1
        if self.tried > self.retry.times:
            raise error
        self.pause_s = self.retry.pause_s(self.tried, wanted_s)


def _refusal(response: httpx.Response) -> Refused | None:
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.status_code == httpx.codes.OK and isinstance(body, dict) and "retryable" not in body:
        return None
    about: Any = body if isinstance(body, dict) else {}
    about = about["error"] if isinstance(about.get("error"), dict) else about
    code, message = str(about.get("code", f"HTTP_{response.status_code}")), str(about.get("message", ""))
    may_retry = about.get("retryable", response.status_code in (408, 429, 500, 502, 503, 504))
    return (Busy if may_retry else Refused)(code, message or "the server gave no reason", response.status_code)


def _seconds(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return None
