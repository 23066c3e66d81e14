"""The two clients: one connection pool each, the same calls."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack

import httpx

from myria_client import _flows as flows
from myria_client import _routes as routes
from myria_client._async_resources import AsyncAgents, AsyncMemories, AsyncSessions
from myria_client._calls import Call, Json
from myria_client._flows import Flow
from myria_client._resources import Agents, Memories, Sessions
from myria_client._retrying import Attempts, Retry
from myria_client._routes import RecallFilters
from myria_client.records import Health, Memory, MemoryType, NewMemory
from myria_client.turns import AsyncTurns, Turns

T = TypeVar("T")

_TIMEOUT_S = 30.0
DEFAULT_URL = "http://127.0.0.1:8321"


class MemoryFields(TypedDict, total=False):
    """What a memory may have beside its content; see `NewMemory`."""

    agent_id: str
    session_id: str | None
    memory_type: MemoryType | None
    event_type: str | None
    metadata: dict[str, Any] | None
    tags: list[str]
    dedup_key: str | None
    importance: float | None
    parent_id: str | None


class _Base:
    """What both clients are told, and the requests that they make."""

    def __init__(self, url: str, key: str | None, agent: str, timeout_s: float, retry: Retry | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self.agent = agent

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        """Return the arguments of `request` of both of httpx's clients."""
        headers = dict(self._headers)
        content = call.content()
        if content is not None:
            headers["content-type"] = "application/json"
        if call.key is not None:
            headers["idempotency-key"] = call.key
        return {
            "method": call.method,
            "url": self._url + call.path,
            "params": call.parameters(),
            "content": content,
            "headers": headers,
            "timeout": self._timeout_s,
        }

    def draft(self, content: str, fields: MemoryFields) -> NewMemory:
        """Return a memory as `remember` keeps it."""
        fields.setdefault("agent_id", self.agent)
        return NewMemory(content=content, **fields)


class Client(_Base):
    """A client that waits for answers; threads may share it.

    Args:
        url: where the server is, e.g. `http://127.0.0.1:8321`.
        key: a key that opens the faces that are used (`myria key create NAME --face rest --face turns`); None where
            none is asked for.
        agent: who keeps what `remember` is given.
        timeout_s: how long one try may take.
        retry: how often a call is tried again.
        http: a client of one's own to send with; it is not closed.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        agent: str = "agent",
        timeout_s: float = _TIMEOUT_S,
        retry: Retry | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(url, key, agent, timeout_s, retry)
        self._own = http is None
        self._http = http or httpx.Client()
        self.memories = Memories(self)
        self.agents = Agents(self)
        self.sessions = Sessions(self)
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

    def remember(self, content: str, **fields: Unpack[MemoryFields]) -> Memory:
        """Keep a memory, and return it; where the same was kept a while ago, return that one.

        Raises:
            Refused, Unreachable.
        """
        return self.run(flows.remember(self.draft(content, fields), None))

    def recall(self, about: str | None = None, *, limit: int = 10, **filters: Unpack[RecallFilters]) -> list[Memory]:
        """Return what memory holds about something, best first; without `about`, the newest.

        Args:
            about: a question, or words, in any language.
            limit: at most so many.

        Raises:
            Refused, Unreachable.
        """
        return list(self.send(routes.recall(about, limit, filters)).memories)

    def forget(self, memory_id: str) -> None:
        """Take a memory out of every answer.

        Raises:
            NotFound: it is not there, or not for this key.
        """
        self.memories.withdraw(memory_id)

    def health(self) -> Health:
        """Return how the server is; no key is needed."""
        return self.send(routes.health())

    def ready(self) -> Health:
        """Return whether the server takes requests; no key is needed."""
        return self.send(routes.ready())

    def send(self, call: Call[T]) -> T:
        """Send a call, again where that helps, and return what was answered."""
        attempts = Attempts(self._retry)
        request = self._request(call)
        while True:
            try:
                response = self._http.request(**request)
            except httpx.RequestError as error:
                attempts.failed(error)
            else:
                answer = attempts.answered(call, response)
                if answer is not None:
                    return answer[0]
            time.sleep(attempts.pause_s)

    def run(self, flow: Flow[T]) -> T:
        """Run what takes several calls, and return its result."""
        try:
            call = next(flow)
            while True:
                try:
                    answer = self.send(call)
                except Exception as error:  # noqa: BLE001 - the flow decides
                    call = flow.throw(error)
                else:
                    call = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _post(self, path: str, body: Json) -> Json:
        return self.send(routes.post(path, body))


class AsyncClient(_Base):
    """A client whose calls are awaited. Its arguments are those of `Client`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        agent: str = "agent",
        timeout_s: float = _TIMEOUT_S,
        retry: Retry | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(url, key, agent, timeout_s, retry)
        self._own = http is None
        self._http = http or httpx.AsyncClient()
        self.memories = AsyncMemories(self)
        self.agents = AsyncAgents(self)
        self.sessions = AsyncSessions(self)
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

    async def remember(self, content: str, **fields: Unpack[MemoryFields]) -> Memory:
        """Keep a memory, and return it; see `Client.remember`."""
        return await self.run(flows.remember(self.draft(content, fields), None))

    async def recall(
        self, about: str | None = None, *, limit: int = 10, **filters: Unpack[RecallFilters]
    ) -> list[Memory]:
        """Return what memory holds about something, best first; see `Client.recall`."""
        return list((await self.send(routes.recall(about, limit, filters))).memories)

    async def forget(self, memory_id: str) -> None:
        """Take a memory out of every answer; see `Client.forget`."""
        await self.memories.withdraw(memory_id)

    async def health(self) -> Health:
        """Return how the server is; no key is needed."""
        return await self.send(routes.health())

    async def ready(self) -> Health:
        """Return whether the server takes requests; no key is needed."""
        return await self.send(routes.ready())

    async def send(self, call: Call[T]) -> T:
        """Send a call, again where that helps, and return what was answered."""
        attempts = Attempts(self._retry)
        request = self._request(call)
        while True:
            try:
                response = await self._http.request(**request)
            except httpx.RequestError as error:
                attempts.failed(error)
            else:
                answer = attempts.answered(call, response)
                if answer is not None:
                    return answer[0]
            await asyncio.sleep(attempts.pause_s)

    async def run(self, flow: Flow[T]) -> T:
        """Run what takes several calls, and return its result."""
        try:
            call = next(flow)
            while True:
                try:
                    answer = await self.send(call)
                except Exception as error:  # noqa: BLE001 - the flow decides
                    call = flow.throw(error)
                else:
                    call = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _post(self, path: str, body: Json) -> Json:
        return await self.send(routes.post(path, body))
