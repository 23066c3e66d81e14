"""Bounds pages of rows in bytes as well as in rows: a row may hold a payload of a quarter of a megabyte."""

from __future__ import annotations

ROWS_TOGETHER = 32
"""Rows that are fetched together at first: bounds the memory for rows that turn out to have no room on the page."""

_AROUND_BYTES = 300
"""Bytes of an answer for each row beside its payload, such as ids and times."""


class PageRoom:
    """Counts how much room one page has left.

    Args:
        limit: how many rows it may hold.
        most_bytes: about how many bytes of JSON it may hold; the first row is always taken.
    """

    def __init__(self, *, limit: int, most_bytes: int) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._rows = 0
        self._bytes = 0

    def take(self, payload: str | bytes) -> bool:
        """Take a row with this JSON payload; return False, and take nothing, when it belongs on the next page."""
        if isinstance(payload, str) and not payload.isascii():
            payload = payload.encode()
        size = _AROUND_BYTES + len(payload)
        if self._rows and (self._rows == self._limit or self._bytes + size > self._most_bytes):
            return False
        self._rows += 1
        self._bytes += size
        return True

    @property
    def further(self) -> int:
        """How many rows more to fetch together: as many as probably have room, at least one."""
        if not self._rows:
            return ROWS_TOGETHER
        return max(1, (self._most_bytes - self._bytes) * self._rows // self._bytes)
