"""The two clients: one connection pool each, the same calls."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any

import httpx

from myria_client._errors import Refused
from myria_client._retrying import Attempts, Json, Retry
from myria_client.turns import AsyncTurns, Turns

_TIMEOUT_S = 30.0


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


class Client:
    """A client that waits for answers; threads may share it.

    Args:
        url: where the server is, e.g. `http://127.0.0.1:8321`.
        key: a key that opens the face `turns` (`myria key create NAME --face turns`); None where none is asked for.
        timeout_s: how long one try may take.
        retry: how often a call is tried again.
        http: a client of one's own to send with; it is not closed.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8321",
        *,
        key: str | None = None,
        timeout_s: float = _TIMEOUT_S,
        retry: Retry | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._retry = retry or Retry()
        self._headers = _headers(key)
        self._timeout_s = timeout_s
        self._own = http is None
        self._http = http or httpx.Client()
        self.turns = Turns(self._post)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._own:
            self._http.close()

    def _post(self, path: str, body: Json) -> Json:
        attempts = Attempts(self._retry)
        while True:
            try:
                response = self._http.post(
                    self._url + path, json=_checked(body), headers=self._headers, timeout=self._timeout_s
                )
            except httpx.TransportError as error:
                attempts.failed(error)
            else:
                answer = attempts.answered(response)
                if answer is not None:
                    return answer
            time.sleep(attempts.pause_s)


class AsyncClient:
    """A client whose calls are awaited. Its arguments are those of `Client`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8321",
        *,
        key: str | None = None,
        timeout_s: float = _TIMEOUT_S,
        retry: Retry | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._retry = retry or Retry()
        self._headers = _headers(key)
        self._timeout_s = timeout_s
        self._own = http is None
        self._http = http or httpx.AsyncClient()
        self.turns = AsyncTurns(self._post)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._own:
            await self._http.aclose()

    async def _post(self, path: str, body: Json) -> Json:
        attempts = Attempts(self._retry)
        while True:
            try:
                response = await self._http.post(
                    self._url + path, json=_checked(body), headers=self._headers, timeout=self._timeout_s
                )
            except httpx.TransportError as error:
                attempts.failed(error)
            else:
                answer = attempts.answered(response)
                if answer is not None:
                    return answer
            await asyncio.sleep(attempts.pause_s)


def _checked(body: Json) -> Any:
    """Return a body that can be sent.

    Raises:
        Refused: a text holds half of a surrogate pair, which is no character.
    """
    pending: list[Any] = [body]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Refused("INVALID_ARGUMENT", "a text holds half of a surrogate pair", 400) from error
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value
    return body
