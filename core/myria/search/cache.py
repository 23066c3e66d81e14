"""A cache bounded in bytes, least recently used first out; for things that never change, but may be erased."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class ByteCache:
    """Values by key, each with its size in bytes; the sum stays within `limit`.

    One value larger than the limit is simply not kept. Not for several threads at once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def figures(self) -> dict[str, int]:
        """Return the bytes held, and hits and misses since the start."""
        return {"bytes": self.bytes, "hits": self.hits, "misses": self.misses}

    def get(self, key: Hashable) -> Any | None:
        """Return the value of a key, or None, and count it."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def peek(self, key: Hashable) -> Any | None:
        """Return the value of a key, or None, without counting it or its use."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value, replacing the key's former one and dropping the least recently used ones."""
        former = self._entries.pop(key, None)
        if former is not None:
            self.bytes -= former[1]
        if size > self.limit:
            return
        self._entries[key] = (value, size)
        self.bytes += size
        while self.bytes > self.limit:
            _, (_, dropped) = self._entries.popitem(last=False)
            self.bytes -= dropped

    def drop(self, which: Callable[[Hashable], bool]) -> None:
        """Forget the values of the keys of which `which` is true."""
        for key in [key for key in self._entries if which(key)]:
            self.bytes -= self._entries.pop(key)[1]
