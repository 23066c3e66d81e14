"""Sends what builds do now to the pages that show it, as server-sent events (HTML standard, 9.2).

However many pages are open, a process asks the database once per tenant and round. A stream ends with its session, and
at once when the process shuts down: its browser then connects again, to another process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from myria.db.fairness import caller
from myria.errors import AccessError, MyriaError
from myria.memory import Memory
from myria_server.console.desk import Json
from myria_server.console.rendering import render
from myria_server.console.visitors import Visitor, Visitors
from myria_server.http.streams import BEAT_S, OpenStreams

ROUND_S = 1.0
"""Seconds after which a stream checks whether it must end, and whether there is news."""

STATUS_S = 2.0
"""Seconds for which an answer of the database counts."""

_SHARE = 100
"""An answer counts for at least this many times as long as it took: so asking takes a hundredth of a core at most."""

RETRY_MS = 2_000
"""Milliseconds after which a browser connects again when its stream has ended."""


_HEADERS = {"x-accel-buffering": "no"}
"""nginx passes each event on as it comes."""


@dataclass(slots=True, weakref_slot=True)
class _Seen:
    """What a tenant's builds did when the database was asked last."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    good_until: float = float("-inf")
    status: Json = field(default_factory=dict)


class LiveBuilds:
    """What builds do now, for the pages of all visitors.

    Args:
        is_leaving: tells whether this process shuts down.
    """

    def __init__(self, memory: Memory, visitors: Visitors, *, is_leaving: Callable[[], bool]) -> None:
        self._memory = memory
        self._visitors = visitors
        self._is_leaving = is_leaving
        self._seen: WeakValueDictionary[str, _Seen] = WeakValueDictionary()
        self._open = OpenStreams(instead="reload the page")

    async def status(self, tenant: str) -> Json:
        """Return what builds do now: `get_snapshot_status`, with `phase`, `seconds`, `tasks` and `tasks_done`."""
        status = await self._memory.registry.status(tenant)
        newest = status["last_build"]
        now: Json = {"phase": "idle", "seconds": None, "tasks": None, "tasks_done": None}
        if newest is not None and newest["finished_at"] is None:
            progress = (await self._memory.registry.build(tenant, newest["build_id"]))["progress"]
            now = {**progress, "phase": phase_of(newest, progress), "seconds": _seconds_since(newest["started_at"])}
        return {**status, **now}

    def response(self, visitor: Visitor, request: Request) -> Response:
        """Return the stream for a visitor.

        Raises:
            RateLimited, Overloaded: too many streams are open.
        """
        counted = ExitStack()
        counted.enter_context(self._open.one_of(visitor.principal))
        return _CountedStream(self._events(visitor, request), counted)

    async def _events(self, visitor: Visitor, request: Request) -> AsyncIterator[bytes]:
        """Yield the part of the page whenever it changed, and comments in between.

        This ends at a shutdown, and where the database does not answer; if the session has ended, its last event says
        so.
        """
        yield b"retry: %d\n\n" % RETRY_MS
        tenant = visitor.principal.tenant
        caller.set(visitor.principal.caller)
        seen = self._seen.setdefault(tenant, _Seen())
        shown, sent_at = "", time.monotonic()
        while not self._is_leaving():
            try:
                principal = (await self._visitors.visitor(request)).principal
                principal.need(("read", "admin"), what="this page")
                part = render("changes_now.html", {"status": await self._shared_status(tenant, seen)})
            except AccessError:
                yield _event("", name="ended")
                return
            except MyriaError:
                return
            if part != shown:
                shown, sent_at = part, time.monotonic()
                yield _event(part)
            elif time.monotonic() - sent_at >= BEAT_S:
                sent_at = time.monotonic()
                yield b": still here\n\n"
            await asyncio.sleep(ROUND_S)

    async def _shared_status(self, tenant: str, seen: _Seen) -> Json:
        """Return the status that all streams of a tenant share, no older than it may be."""
        async with seen.asking:
            began = time.monotonic()
            if began >= seen.good_until:
                seen.status = await self.status(tenant)
                took_s = time.monotonic() - began
                seen.good_until = began + max(STATUS_S, _SHARE * took_s)
        return seen.status


class _CountedStream(StreamingResponse):
    """A stream that counts as open until it has ended."""

    def __init__(self, events: AsyncIterator[bytes], counted: ExitStack) -> None:
        super().__init__(events, media_type="text/event-stream", headers=_HEADERS)
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until either side ends the stream."""
        with self._counted:
            await super().__call__(scope, receive, send)


def ended() -> Response:
    """Return the stream for a browser whose session has ended: its page loads again, and so leads to signing in."""
    return Response(_event("", name="ended"), media_type="text/event-stream")


def phase_of(build: Json, progress: Json) -> str:
    """Return what a build that has not ended does now.

    waiting: for a builder; listing: which groups of people have something new; building: their topics; checking: what
    was built, to publish it.

    Args:
        build: with its `status` and `started_at`.
        progress: how many `tasks` it has, and `tasks_done`.
    """
    if build["status"] == "queued":
        return "waiting" if build["started_at"] is None else "listing"
    return "checking" if progress["tasks_done"] >= progress["tasks"] else "building"


def _seconds_since(moment: str | None) -> int | None:
    if moment is None:
        return None
    return max(0, int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()))


def _event(text: str, *, name: str | None = None) -> bytes:
    """Return an event of a stream: each line of its text stands after a name, so no text can end it."""
    lines = ["data: " + line for line in text.splitlines()] or ["data:"]
    return "\n".join([*([] if name is None else [f"event: {name}"]), *lines, "", ""]).encode()
