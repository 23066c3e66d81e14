"""Bounds how many streams are open at once: each holds a task and a connection for as long as its reader likes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from myria.access.principal import Principal
from myria.db.fairness import Caller
from myria.errors import Overloaded, RateLimited

MAX_STREAMS = 256
"""Streams of one kind that may be open at once in a process."""

STREAMS_EACH = 32
"""Streams of one kind that one credential may have open in a process: no one takes them all."""

BEAT_S = 15.0
"""Seconds after which a stream that has nothing to say sends a comment, so that no proxy takes it for dead."""


class OpenStreams:
    """Counts the open streams of one kind in a process.

    Args:
        instead: what to use where no stream is left, for the refusal.
    """

    def __init__(self, *, instead: str) -> None:
        self._instead = instead
        self._open: Counter[Caller] = Counter()

    @property
    def total(self) -> int:
        """How many are open."""
        return self._open.total()

    @contextmanager
    def one_of(self, principal: Principal) -> Iterator[None]:
        """Count a stream of a principal while the block runs.

        Raises:
            RateLimited: the credential has `STREAMS_EACH` open.
            Overloaded: the process has `MAX_STREAMS` open.
        """
        if principal.credential is not None and self._open[principal.caller] >= STREAMS_EACH:
            raise RateLimited(
                f"this credential has {STREAMS_EACH} streams open; close one, or {self._instead}",
                limit="streams",
                value=STREAMS_EACH,
                retry_after_s=1,
            )
        if self._open.total() >= MAX_STREAMS:
            raise Overloaded(f"{MAX_STREAMS} streams are open; {self._instead}, which needs none")
        self._open[principal.caller] += 1
        try:
            yield
        finally:
            self._open[principal.caller] -= 1
            self._open += Counter()  # adding nothing drops the callers whose count is zero
