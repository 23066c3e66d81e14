"""Vectors that are kept between runs, by model and text: they depend on nothing that a benchmark tries out."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from myria.embeddings.model import EmbeddingModel


class KeptVectors:
    """An embedding model that computes each text once and looks it up in a file afterwards."""

    def __init__(self, model: EmbeddingModel, file: Path) -> None:
        self._model = model
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._open()) as kept, kept:
            kept.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self._model.name

    async def embed(self, texts: Sequence[str], *, within_s: float) -> list[bytes | None]:
        """Return a vector for each text, as the model does."""
        keys = [hashlib.sha256(f"{self.name}\n{text}".encode()).digest() for text in texts]
        with closing(self._open()) as kept:
            asked = ",".join("?" * len(keys))
            known = dict(kept.execute(f"SELECT text, vector FROM vectors WHERE text IN ({asked})", keys))  # noqa: S608
            new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
            if new:
                computed = await self._model.embed(list(new.values()), within_s=within_s)
                known |= zip(new, computed, strict=True)
                with kept:
                    kept.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", [(key, known[key]) for key in new])
        return [known[key] for key in keys]

    async def close(self) -> None:
        """End the model."""
        await self._model.close()

    def _open(self) -> sqlite3.Connection:
        # two processes write: one waits for the other's short transactions
        return sqlite3.connect(self._file, timeout=60.0)
