"""Memories that wait on disk to be sent: an SQLite file, written through before `add` returns.

What is sent together is a batch with a key of its own, which stands in the file before the first try. After a crash,
also of the machine, the same batch goes out with the same key, and the server knows it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from myria_client._calls import Json, new_key

_SCHEMA = """
CREATE TABLE IF NOT EXISTS waiting (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    body TEXT NOT NULL,
    batch TEXT
);
CREATE INDEX IF NOT EXISTS waiting_batch ON waiting (batch, id);
CREATE TABLE IF NOT EXISTS refused (
    id INTEGER PRIMARY KEY,
    body TEXT NOT NULL,
    error TEXT NOT NULL
);
"""
_LOCKED_S = 30.0
BATCH = 100
BATCH_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Memories that go out together, always the same under its key."""

    key: str
    ids: tuple[int, ...]
    bodies: tuple[Json, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedMemory:
    """A memory that the server refused for good, and why; it stays in the file until it is dropped."""

    number: int
    memory: Json
    error: str


class Outbox:
    """The file. Threads and processes may share it: what two of them send at once has one key, and is kept once.

    Raises:
        sqlite3.Error: it cannot be opened, written or read; nothing that was added before is lost by that.
    """

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.Lock()
        self._file = sqlite3.connect(path, timeout=_LOCKED_S, isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def add(self, bodies: Sequence[Json]) -> None:
        """Write memories to disk, all or none."""
        rows = [(json.dumps(body, allow_nan=False),) for body in bodies]
        with self._lock, _Transaction(self._file):
            self._file.executemany("INSERT INTO waiting (body) VALUES (?)", rows)

    def next_batch(self, most: int = BATCH) -> Batch | None:
        """Return the oldest batch that was begun, else make one of what waits longest; None where nothing waits."""
        with self._lock, _Transaction(self._file):
            begun = self._file.execute(
                "SELECT batch FROM waiting WHERE batch IS NOT NULL ORDER BY id LIMIT 1"
            ).fetchone()
            key = self._begin(most) if begun is None else str(begun[0])
            if key is None:
                return None
            rows = self._file.execute("SELECT id, body FROM waiting WHERE batch = ? ORDER BY id", (key,)).fetchall()
        return Batch(
            key=key, ids=tuple(number for number, _ in rows), bodies=tuple(json.loads(body) for _, body in rows)
        )

    def _begin(self, most: int) -> str | None:
        chosen: list[int] = []
        size = 0
        for number, length in self._file.execute(
            "SELECT id, length(CAST(body AS BLOB)) FROM waiting WHERE batch IS NULL ORDER BY id LIMIT ?", (most,)
        ):
            size += length
            if chosen and size > BATCH_BYTES:
                break
            chosen.append(number)
        if not chosen:
            return None
        key = new_key()
        self._file.executemany("UPDATE waiting SET batch = ? WHERE id = ?", [(key, number) for number in chosen])
        return key

    def settle(self, batch: Batch, refused: dict[int, str]) -> None:
        """Take a batch out of the file; memories that were refused, by their place in it, are kept aside."""
        with self._lock, _Transaction(self._file):
            self._file.executemany(
                "INSERT OR IGNORE INTO refused SELECT id, body, ? FROM waiting WHERE id = ? AND batch = ?",
                [(error, batch.ids[place], batch.key) for place, error in refused.items()],
            )
            self._file.execute("DELETE FROM waiting WHERE batch = ?", (batch.key,))

    def part(self, batch: Batch) -> None:
        """Make two batches of one of which the server took nothing."""
        half = batch.ids[: len(batch.ids) // 2]
        with self._lock, _Transaction(self._file):
            for ids in (half, batch.ids[len(half) :]):
                key = new_key()
                self._file.executemany(
                    "UPDATE waiting SET batch = ? WHERE id = ? AND batch = ?",
                    [(key, number, batch.key) for number in ids],
                )

    @property
    def waiting(self) -> int:
        """How many memories are not yet at the server."""
        with self._lock:
            return int(self._file.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def refused(self) -> list[RefusedMemory]:
        """Return what the server refused for good."""
        with self._lock:
            rows = self._file.execute("SELECT id, body, error FROM refused ORDER BY id").fetchall()
        return [RefusedMemory(number=number, memory=json.loads(body), error=error) for number, body, error in rows]

    def drop(self, number: int) -> None:
        """Forget a refused memory."""
        with self._lock, _Transaction(self._file):
            self._file.execute("DELETE FROM refused WHERE id = ?", (number,))


class _Transaction:
    """A transaction that writes: it ends with the block, and is undone where that fails."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file

    def __enter__(self) -> None:
        self._file.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.execute("COMMIT" if kind is None else "ROLLBACK")
