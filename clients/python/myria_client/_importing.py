"""A stream of memories in batches, whose place is written down, so that a run that was cut off goes on.

A batch is sent under a key made of the import's name, its place and what it holds: one that arrived before the cut is
known by it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from myria_client._calls import Json
from myria_client.records import NewMemory

BATCH = 100
BATCH_BYTES = 512 * 1024


class Stream:
    """What came of a stream so far.

    Args:
        name: of the import: the same name, stream and `batch` again keep nothing twice.
        checkpoint: a file that says how far an import of this name came; None for none.
        batch: memories that go out together; a checkpoint's own holds.

    Raises:
        ValueError: the checkpoint is of another import, or none.
        OSError: it cannot be read.
    """

    def __init__(self, name: str, checkpoint: Path | str | None, batch: int) -> None:
        self._name = name
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._batch = batch
        self._done = 0
        self._skipped = 0
        self._bodies: list[Json] = []
        self._bytes = 0
        if self._checkpoint is not None and self._checkpoint.exists():
            self._resume(self._checkpoint)

    def _resume(self, checkpoint: Path) -> None:
        try:
            held = json.loads(checkpoint.read_text(encoding="utf-8"))
            name, done, batch = str(held["name"]), int(held["done"]), int(held["batch"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{checkpoint} is no checkpoint of an import; remove it to begin anew") from error
        if name != self._name:
            raise ValueError(f"{checkpoint} is of the import {name}, not {self._name}")
        self._done, self._batch = done, batch

    def add(self, memory: NewMemory) -> bool:
        """Take the next memory of the stream; return whether a batch is full."""
        if self._skipped < self._done:
            self._skipped += 1
            return False
        body = memory.to_json()
        self._bodies.append(body)
        self._bytes += len(json.dumps(body))
        return len(self._bodies) >= self._batch or self._bytes >= BATCH_BYTES

    @property
    def bodies(self) -> list[Json]:
        """The batch that goes out next."""
        return self._bodies

    @property
    def start(self) -> int:
        """The place of its first memory in the stream."""
        return self._done

    @property
    def key(self) -> str:
        """The key of the batch."""
        said = json.dumps([self._name, self._done, self._bodies], sort_keys=True)
        return f"import-{hashlib.sha256(said.encode()).hexdigest()[:40]}"

    def sent(self) -> None:
        """Write down that the batch arrived."""
        self._done += len(self._bodies)
        self._skipped = self._done
        self._bodies = []
        self._bytes = 0
        if self._checkpoint is None:
            return
        held = json.dumps({"name": self._name, "done": self._done, "batch": self._batch})
        beside = self._checkpoint.with_name(self._checkpoint.name + ".new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(held)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._checkpoint)
