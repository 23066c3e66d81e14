"""Pages of rows that are bounded in bytes, too: a row may hold a payload of a quarter of a megabyte."""

from __future__ import annotations

ROWS_TOGETHER = 32
"""Rows that are fetched together: bounds what is held of rows that turn out to have no room."""

_AROUND_BYTES = 300
"""What an answer says of a row beside its payload, such as ids and times."""


class PageRoom:
    """The room of one page.

    Args:
        limit: most rows.
        most_bytes: most bytes of their JSON, about; one row is always taken.
    """

    def __init__(self, *, limit: int, most_bytes: int) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._rows = 0
        self._bytes = 0

    def take(self, payload: str | bytes) -> bool:
        """Take a row with a payload of JSON; False when it belongs on the next page."""
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
