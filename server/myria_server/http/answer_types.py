"""As what a client over MCP sends and takes messages: JSON, or else an answer as the one event of a stream."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.types import Message, Send

from myria_server.http.exchange import EVENTS, JSON, OK, respond

_REFUSED_RANGE = re.compile(rb";\s*q=0(\.0*)?\s*$")


def unusual_headers(headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Return status and text where the headers of a POST do not say that it is JSON and accepts what is answered."""
    if not headers.get(b"content-type", b"").lower().startswith(JSON):
        return 400, "Invalid Content-Type header"
    if answer_type(headers) is None:
        return 406, "send Content-Type and Accept headers that say application/json"
    return None


def answer_type(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return how an answer over MCP is sent: as JSON where that is accepted, else as an event stream of one message.

    Who says nothing of what they accept takes anything (RFC 9110, 12.5.1). None: neither is accepted.
    """
    accept = headers.get(b"accept", b"").lower()
    if not accept:
        return JSON
    accepted = {each.partition(b";")[0].strip() for each in accept.split(b",") if not _REFUSED_RANGE.search(each)}
    for answer_type in (JSON, EVENTS):
        if not accepted.isdisjoint((answer_type, answer_type.partition(b"/")[0] + b"/*", b"*/*")):
            return answer_type
    return None


def as_event_stream(send: Send) -> Send:
    """Return a `send` that makes an answer in JSON the one event of a stream."""
    start: Message = {}
    parts: list[bytes] = []

    async def send_event(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        parts.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body, headers = b"".join(parts), dict(start["headers"])
        if start["status"] != OK or not headers.get(b"content-type", b"").startswith(JSON):
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        kept = [(name, each) for name, each in start["headers"] if name not in (b"content-type", b"content-length")]
        # JSON as it is written here has no line breaks.
        event = b"event: message\ndata: " + body + b"\n\n"
        await respond(send, OK, event, content_type=EVENTS, extra=kept)

    return send_event
