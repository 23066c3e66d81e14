"""The identity of an event, and what other layers read from its opaque payload."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from myria.log.canonical import canonical_json, digest, quick_digest

_SPEAKER_FIELDS = ("speaker", "sender", "author", "from", "agent", "tool", "role")
_TASK_FIELDS = ("task_id", "task")
_DESCRIBES = re.compile(r"(?:^|_)(?:caption|alt|alt_?te?xt|description|transcript)s?$")
_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
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
    """Return the 32-byte identity of an event, independent of its id; the planner hashes it for boundaries and keys.

    An event with a source key is identified by channel and key; any other by time, participants and payload. Equal
    events of one microsecond and scope differ by `place`, so no two events of a scope have the same key.

    Args:
        dedupe: `dedupe_key` of its channel and source_event_key; None without a source key.
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


def described(payload: dict[str, Any]) -> str:
    """Return descriptions of pictures and recordings in a payload, each on a line; weaker evidence than its text.

    These are all strings under a name that is, or ends in, caption, alt, alt_text, description or transcript, at any
    depth: `image_caption`, `attachments[].altText`. Returns "" without `payload.text`, since then all strings are its
    text. `payload.note`, which Myria itself writes, is skipped.
    """
    if not isinstance(payload.get("text"), str):
        return ""
    lines = (text for name, item in payload.items() if name != "note" for text in _descriptions(name, item))
    return "\n".join(dict.fromkeys(lines))


def whole_text(payload: dict[str, Any]) -> str:
    """Return the searchable text, followed by its `described` in brackets; this is shown, and embedded as a vector."""
    text, descriptions = searchable_text(payload), described(payload)
    return "\n".join(filter(None, (text, f"[{descriptions}]"))) if descriptions else text


def speaker_of(payload: dict[str, Any]) -> str | None:
    """Return the speaker: the first of speaker, sender, author, from, agent, tool and role in the payload, or None."""
    for name in _SPEAKER_FIELDS:
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()[:200]
    return None


def task_of(payload: dict[str, Any]) -> str | None:
    """Return the task that an event belongs to: task_id, or task if it is text, or None."""
    for name in _TASK_FIELDS:
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()[:200]
    return None


def _descriptions(name: str, item: Any) -> Iterator[str]:
    stack = [(name, item)]
    while stack:
        name, item = stack.pop()
        if isinstance(item, str):
            if item.strip() and _describes(name):
                yield item.strip()
        elif isinstance(item, dict):
            stack.extend(reversed(item.items()))
        elif isinstance(item, list):
            stack.extend((name, part) for part in reversed(item))


@lru_cache(maxsize=4096)
def _describes(name: str) -> bool:
    return _DESCRIBES.search(_INNER_CAPITAL.sub("_", name).replace("-", "_").lower()) is not None


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
