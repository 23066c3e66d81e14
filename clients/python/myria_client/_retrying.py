"""When a call is tried again. Every call that this package makes may be repeated."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from myria_client._calls import Call
from myria_client._errors import (
    Busy,
    Conflict,
    Duplicate,
    Invalid,
    MyriaClientError,
    NotAllowed,
    NotFound,
    Refused,
    Unreachable,
    Unreadable,
)

T = TypeVar("T")

_LONGEST_PAUSE_S = 5.0
_BY_STATUS: Mapping[int, type[Refused]] = {
    400: Invalid,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    405: Invalid,
    409: Conflict,
    413: Invalid,
    415: Invalid,
    422: Invalid,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a call is tried again that did not reach the server, or that the server could not do then.

    Args:
        times: tries after the first.
        first_pause_s: about how long it waits before the second try; each further pause is twice as long, at most 5 s.
        longest_wait_s: the longest pause that the server may ask for; where it asks for more, `Busy` is raised at once
            and says for how long.
    """

    times: int = 6
    first_pause_s: float = 0.1
    longest_wait_s: float = 30.0

    def pause_s(self, tried: int, wanted_s: float | None) -> float:
        """Return how long to wait after so many tries; the server may have asked for longer."""
        pause = min(_LONGEST_PAUSE_S, self.first_pause_s * 2.0 ** min(tried - 1, 30)) * random.uniform(0.5, 1.5)  # noqa: S311
        return pause if wanted_s is None else max(pause, wanted_s)


@dataclass(slots=True)
class Attempts:
    """The tries of one call. `pause_s` tells how long to wait before the next."""

    retry: Retry
    tried: int = 0
    pause_s: float = 0.0
    may_have_arrived: bool = False

    def answered(self, call: Call[T], response: httpx.Response) -> tuple[T] | None:
        """Return what the server answered, as a tuple of one, and None where the call is to be tried again.

        Raises:
            Refused: it does not do this; Busy where it was tried often enough.
            Unreadable: what it says is not understood.
        """
        body, is_json = _body(response)
        error = _refusal(response, body, is_json=is_json, also=call.also)
        if error is None:
            return (_read(call, body),)
        if isinstance(error, NotFound) and call.absent_is_done and self.may_have_arrived:
            return (_read(call, None),)
        if not isinstance(error, Busy):
            raise error
        self.may_have_arrived = True
        wanted_s = error.retry_after_s
        if wanted_s is not None and wanted_s > self.retry.longest_wait_s:
            raise error
        self._next(error, wanted_s)
        return None

    def failed(self, error: httpx.RequestError) -> None:
        """Note that no answer came.

        Raises:
            Unreachable: it was tried often enough, or the address can never answer.
        """
        unreachable = Unreachable(f"{type(error).__name__}: {error}")
        unreachable.__cause__ = error
        if isinstance(error, httpx.UnsupportedProtocol):
            raise unreachable
        self.may_have_arrived = self.may_have_arrived or not isinstance(error, httpx.ConnectError | httpx.PoolTimeout)
        self._next(unreachable, None)

    def _next(self, error: MyriaClientError, wanted_s: float | None) -> None:
        self.tried += 1
        if self.tried > self.retry.times:
            raise error
        self.pause_s = self.retry.pause_s(self.tried, wanted_s)


def _body(response: httpx.Response) -> tuple[Any, bool]:
    if not response.content:
        return None, True
    try:
        return response.json(), True
    except ValueError:
        return None, False


def _read(call: Call[T], body: Any) -> T:
    try:
        return call.read(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(
            f"{call.method} {call.path} answered what this version does not know: {type(error).__name__} {error}"
        ) from error


def _refusal(response: httpx.Response, body: Any, *, is_json: bool, also: tuple[int, ...]) -> Refused | None:
    status = response.status_code
    about: Any = body if isinstance(body, dict) else {}
    if is_json and (status in also or (response.is_success and "retryable" not in about)):
        return None
    if status < httpx.codes.BAD_REQUEST and "retryable" not in about:
        shown = response.headers.get("content-type", "no type")
        raise Unreadable(f"{response.request.url} answered {status} with {shown}: no answer of Myria")
    if isinstance(about.get("error"), dict):
        about = about["error"]
    error = about.get("error")
    code = str(about.get("code", f"HTTP_{status}"))
    message = str(about.get("message") or (error if isinstance(error, str) else "") or "the server gave no reason")
    details: dict[str, Any] = {
        name: value
        for name, kind in (("hint", str), ("field", str), ("index", int))
        if isinstance(value := about.get(name), kind)
    }
    if isinstance(about.get("id"), str):
        details["memory_id"] = about["id"]
    if about.get("retryable", status in (408, 429, 500, 502, 503, 504)):
        return Busy(code, message, status, retry_after_s=_seconds(response.headers), **details)
    kind = Duplicate if code == "duplicate_memory" else _BY_STATUS.get(status, Refused)
    return kind(code, message, status, **details)


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return what the header Retry-After asks for: seconds, or a date."""
    text = headers.get("retry-after", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
