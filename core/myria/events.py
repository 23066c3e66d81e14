"""What identifies an event, and what the other layers read out of its opaque payload."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from myria.canonical import canonical_json, digest, quick_digest

_SPEAKER_FIELDS = ("speaker", "sender", "author", "from", "agent", "tool", "role")
_TASK_FIELDS = ("task_id", "task")
_WITHOUT_FLOATS = frozenset({str, int, bool, type(None)})
"""What most payloads hold and nothing else: they need no search for a float."""


class TopicHint(NamedTuple):
    """An emitter's guess at a topic: a weak signal, never truth."""

    hint: str
    confidence: float


def hints_json(hints: Sequence[TopicHint]) -> str:
    """Return hints as the log stores them."""
    if not hints:
        return "[]"
    return orjson.dumps([{"hint": name, "confidence": confidence} for name, confidence in hints]).decode()


def dedupe_key(channel: str, source_event_key: str) -> bytes:
    """Return the 32-byte idempotency key of (channel, source_event_key)."""
    return hashlib.sha256(canonical_json([channel, source_event_key])).digest()


def content_key(
    *, dedupe: bytes | None, timestamp: int, participants: Sequence[str], payload: dict[str, Any], place: int
) -> bytes:
    """Return the 32 bytes that say what an event is, whatever its id: the planner's boundaries and keys hash them.

    An event with a source key is its channel and that key; any other is its time, participants and payload. Equal
    events of one microsecond and scope differ by their place, so no two events of a scope have the same key.

    Args:
        dedupe: `dedupe_key` of its channel and source_event_key, where it has one.
        timestamp: microseconds since 1970 UTC.
        participants: canonical (see `myria.scopes`).
        payload: as stored.
        place: how many non-internal events of its scope and microsecond were appended before it.
    """
    if dedupe is not None:
        return dedupe
    body = (timestamp, participants, payload, place)
    return quick_digest(body) if _WITHOUT_FLOATS.issuperset(map(type, payload.values())) else digest(body)


def searchable_text(payload: dict[str, Any]) -> str:
    """Return `payload.text`, else every string value in document order.

    All of it: `ingest.payload_bytes` bounds what an event may hold, so nothing that was acknowledged is left out.
    """
    text = payload.get("text")
    return text if isinstance(text, str) else "\n".join(_strings(payload))


def speaker_of(payload: dict[str, Any]) -> str | None:
    """Return who said it, as far as the payload tells: speaker, sender, author, from, agent, tool or role."""
    for name in _SPEAKER_FIELDS:
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()[:200]
    return None


def task_of(payload: dict[str, Any]) -> str | None:
    """Return the task an event belongs to, as far as the payload tells: task_id, or task when it is text."""
    for name in _TASK_FIELDS:
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()[:200]
    return None


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            stack.extend(reversed(item))
