"""Sends what changes by itself to the pages that show it, as server-sent events (HTML standard, 9.2).

However many pages show one thing, a process asks the database for it once per round. A stream ends with its session,
and at once when the process shuts down: its browser then connects again, to another process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from myria.access.principal import Role
from myria.db.fairness import caller
from myria.errors import AccessError, MyriaError
from myria_server.console.desk import Desk, Json
from myria_server.console.rendering import render
from myria_server.console.visitors import Visitors
from myria_server.http.streams import BEAT_S, OpenStreams

ROUND_S = 1.0
"""Seconds after which a stream checks whether it must end, and whether there is news."""

LOOK_S = 2.0
"""Seconds for which an answer of the database counts."""

_SHARE = 100
"""An answer counts for at least this many times as long as it took: so asking takes a hundredth of a core at most."""

RETRY_MS = 2_000
"""Milliseconds after which a browser connects again when its stream has ended."""


_HEADERS = {"x-accel-buffering": "no"}
"""nginx passes each event on as it comes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LivePart:
    """A part of a page that changes by itself.

    Attributes:
        about: what it shows; the same for all pages of a tenant that show the same.
        template: makes it of the visitor's `desk` and `names`, and of the values of a look.
        look: looks in the database. Its value `is_over` says that nothing will change any more.
        roles: who may see it.
    """

    about: str
    template: str
    look: Callable[[], Awaitable[Json]]
    roles: Sequence[Role]


@dataclass(slots=True, weakref_slot=True)
class _Seen:
    """What a look saw last."""

    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    good_until: float = float("-inf")
    values: Json = field(default_factory=dict)


class LiveParts:
    """The streams of all visitors.

    Args:
        is_leaving: tells whether this process shuts down.
    """

    def __init__(self, visitors: Visitors, *, is_leaving: Callable[[], bool]) -> None:
        self._visitors = visitors
        self._is_leaving = is_leaving
        self._seen: WeakValueDictionary[tuple[str, str], _Seen] = WeakValueDictionary()
        self._open = OpenStreams(instead="reload the page")

    def response(self, desk: Desk, request: Request, part: LivePart) -> Response:
        """Return the stream of a part for a visitor.

        Raises:
            RateLimited, Overloaded: too many streams are open.
        """
        counted = ExitStack()
        counted.enter_context(self._open.one_of(desk.principal))
        return _CountedStream(self._events(desk, request, part), counted)

    async def _events(self, desk: Desk, request: Request, part: LivePart) -> AsyncIterator[bytes]:
        """Yield the part whenever it changed, and comments in between.

        This ends at a shutdown, and where the database does not answer. The last event says so where the session has
        ended, and where nothing will change any more.
        """
        yield b"retry: %d\n\n" % RETRY_MS
        caller.set(desk.principal.caller)
        seen = self._seen.setdefault((desk.principal.tenant, part.about), _Seen())
        shown, sent_at = "", time.monotonic()
        while not self._is_leaving():
            try:
                (await self._visitors.visitor(request)).principal.need(part.roles, what="this page")
                values = await self._shared(part, seen)
            except AccessError:
                yield _event("", name="ended")
                return
            except MyriaError:
                return
            html = render(part.template, {"desk": desk, "names": desk.names, **values})
            if html != shown:
                shown, sent_at = html, time.monotonic()
                yield _event(html)
            elif time.monotonic() - sent_at >= BEAT_S:
                sent_at = time.monotonic()
                yield b": still here\n\n"
            if values.get("is_over"):
                yield _event("", name="over")
                return
            await asyncio.sleep(ROUND_S)

    async def _shared(self, part: LivePart, seen: _Seen) -> Json:
        """Return the values that all streams of a part share, no older than they may be."""
        async with seen.looking:
            began = time.monotonic()
            if began >= seen.good_until:
                seen.values = await part.look()
                took_s = time.monotonic() - began
                seen.good_until = began + max(LOOK_S, _SHARE * took_s)
        return seen.values


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


def _event(text: str, *, name: str | None = None) -> bytes:
    """Return an event of a stream: each line of its text stands after a name, so no text can end it."""
    lines = ["data: " + line for line in text.splitlines()] or ["data:"]
    return "\n".join([*([] if name is None else [f"event: {name}"]), *lines, "", ""]).encode()
