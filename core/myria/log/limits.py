"""What one request may hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from myria.settings import Settings


MAX_CHANNEL = MAX_CONTEXT_ID = MAX_TYPE = MAX_HINT = 200
"""Characters (code points)."""

MAX_SOURCE_EVENT_KEY = 512
MAX_TOPIC_HINTS = 32
MAX_TYPES = 32
MAX_QUERY = 10_000
MAX_ID = 200
MAX_CURSOR = 16_384
MAX_REASON = 1_000
MAX_WITHDRAWN = 500
"""Events that one withdrawal, or one successor, may name."""

DEFAULT_LIMIT, MAX_LIMIT = 20, 200
DEFAULT_NODES, MAX_NODES = 60, 500
MAX_TREE_DEPTH = 64
MAX_TOKENS = 1_000_000
DEFAULT_SNAPSHOTS, MAX_SNAPSHOTS = 50, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits and ingest policy an operator may set (settings section `ingest`, see `limits_of`).

    By default everything is as in the settings, but that no clock is asked.

    Args:
        payload_bytes: largest payload, measured on its canonical JSON.
        payload_depth: deepest payload; `{}` has depth 1.
        batch_events: most events in one append_events.
        future_seconds: how far a timestamp may lie ahead of the server's clock; None or 0 for any distance.
        internal_types: event types stored as internal whatever their flag says.
    """

    payload_bytes: int = 256 * 1024
    payload_depth: int = 32
    batch_events: int = 500
    future_seconds: float | None = None
    internal_types: frozenset[str] = frozenset()


def limits_of(settings: Settings, *, any_time: bool = False) -> Limits:
    """Return the limits that the settings describe.

    Args:
        any_time: let timestamps lie ahead as far as they like (an import that asks for it).
    """
    ingest = settings.ingest
    return Limits(
        payload_bytes=ingest.payload_bytes,
        payload_depth=ingest.payload_depth,
        batch_events=ingest.batch_events,
        future_seconds=None if any_time else ingest.future_limit_s,
        internal_types=frozenset(ingest.internal_types),
    )
