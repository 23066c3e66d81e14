"""Computes the vectors that events lack, and keeps them: once per text, in bounded steps that may each be repeated.

Nothing waits for it and nothing is lost by killing it. Only events that are committed are looked at; up to the active
snapshot's cutoff none can still be committed, so once everything there has its vector it is not looked at again.
Vectors of models that are no longer in use are removed some at a time; a model that comes back computes anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import orjson

from myria.access.vault import Secrets
from myria.db.database import ALL_TENANTS, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import ModelFailed
from myria.index.embeddings.choosing import configured
from myria.index.embeddings.model import EmbeddingModel
from myria.llm.waits import Work, note_outcome
from myria.log.payloads import whole_text
from myria.settings import Settings

AT_ONCE: Final = 128
"""Events that are read, computed and kept in one step."""

_DIGEST_BYTES: Final = 16
_DIGESTED_BYTES: Final = 64 * 1024


@asynccontextmanager
async def vector_keeper(database: Database, settings: Settings) -> AsyncIterator[VectorKeeper | None]:
    """Open the vector keeper that the settings configure, and close it at the end; None if they configure no model.

    Raises:
        ConfigurationError: the model cannot be used.
    """
    keeper = VectorKeeper.configured(database, settings)
    try:
        yield keeper
    finally:
        if keeper is not None:
            await keeper.close()


class VectorKeeper:
    """Computes and keeps the vectors of one database's events.

    Args:
        database: connects as a role that may write vectors.
        within_s: seconds that a step's texts may take to compute.
    """

    def __init__(self, database: Database, model: EmbeddingModel, *, within_s: float) -> None:
        self._database = database
        self._model = model
        self._within_s = within_s

    @classmethod
    def configured(cls, database: Database, settings: Settings, secrets: Secrets | None = None) -> VectorKeeper | None:
        """Return the keeper with the model that the settings name, None if they name none.

        Args:
            secrets: what a template may name; left out, those of the settings.

        Raises:
            ConfigurationError: the model cannot be used.
        """
        model = configured(settings, secrets=secrets)
        return None if model is None else cls(database, model, within_s=settings.embeddings.call_timeout_s)

    @property
    def model(self) -> str:
        """The name that vectors are kept under."""
        return self._model.name

    async def close(self) -> None:
        """Close what computes them."""
        await self._model.close()

    async def run(self, tenant: str, most: int, *, newest_first: bool = False) -> int:
        """Compute and store the vectors of up to `most` events that have none; return how many events were looked at.

        Args:
            newest_first: begin with the newest instead of the oldest. Builds do, since the control plane may work from
                the oldest on at the same time, and both would compute the same vectors.

        Raises:
            ModelFailed, UnavailableError: the rest is left for another time.
        """
        looked_at = 0
        try:
            while looked_at < most:
                step_count, is_complete = await self._step(
                    tenant, min(AT_ONCE, most - looked_at), newest_first=newest_first
                )
                looked_at += step_count
                if is_complete:
                    break
        except ModelFailed as failure:
            await note_outcome(self._database, tenant, Work.VECTORS, failure)
            raise
        if looked_at:
            await note_outcome(self._database, tenant, Work.VECTORS, None)
        return looked_at

    async def _step(self, tenant: str, limit: int, *, newest_first: bool) -> tuple[int, bool]:
        """Embed up to `limit` events that have no vector.

        Returns:
            how many events were looked at, and whether no further one is left.
        """
        async with self._database.read(tenant) as connection:
            progress = await connection.fetchrow(sql("vectors.standing"), tenant, self.model)
            if progress is None:
                raise AssertionError("how far vectors are is always one row")
            missing = sql("vectors.missing_newest" if newest_first else "vectors.missing")
            rows = await connection.fetch(missing, tenant, self.model, progress["done_seq"], limit)
            texts = {text_digest(text): text for row in rows if (text := _text(row)).strip()}
            known = await connection.fetch(sql("vectors.known"), tenant, self.model, list(texts))
        for row in known:
            del texts[row["digest"]]
        vectors = await self._model.embed(list(texts.values()), within_s=self._within_s) if texts else []
        vector_of = dict(zip(texts, vectors, strict=True))
        kept = await self._keep(tenant, rows, vector_of) if rows else 0
        is_complete = len(rows) < limit
        if kept == len(rows):
            newest = progress["newest_seq"] if is_complete else 0
            reached = 0 if newest_first else rows[-1]["event_seq"] if rows else 0
            done_seq = progress["cutoff"] if is_complete else min(progress["cutoff"], reached)
            if done_seq > progress["done_seq"] or newest:
                async with self._database.write(tenant) as connection:
                    await connection.execute(sql("vectors.advance"), tenant, self.model, done_seq, newest)
        return len(rows), is_complete

    async def _keep(self, tenant: str, rows: Sequence[asyncpg.Record], vector_of: Mapping[bytes, bytes | None]) -> int:
        """Store events' digests with the computed vectors; return how many events were stored.

        Args:
            vector_of: computed vectors by the digest of their text; None where the model gave none.
        """
        digests: list[bytes | None] = []
        for row in rows:
            text = _text(row)
            digest = text_digest(text) if text.strip() else None
            # A text that the model gives no vector is as one that says nothing.
            digests.append(None if digest is None or (digest in vector_of and vector_of[digest] is None) else digest)
        async with self._database.write(tenant) as connection:
            await connection.execute(sql("vectors.lock"), lock_key("vectors", tenant))
            await connection.execute(sql("vectors.begin"), tenant, self.model)
            kept: int = await connection.fetchval(
                sql("vectors.keep"),
                tenant,
                self.model,
                [row["event_seq"] for row in rows],
                [row["scope_id"] for row in rows],
                digests,
                [None if digest is None else vector_of.get(digest) for digest in digests],
            )
        return kept


def _text(row: asyncpg.Record) -> str:
    return whole_text(orjson.loads(row["payload"]))


def text_digest(text: str) -> bytes:
    """Return the key under which a text's vector is kept: a digest of its first 64 KiB, far more than models read."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > _DIGESTED_BYTES:
        raw = raw[:_DIGESTED_BYTES].decode("utf-8", "ignore").encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).digest()[:_DIGEST_BYTES]


REMOVED_AT_ONCE: Final = 5_000
"""Events, and texts, whose vectors one transaction removes."""

MOST_STEPS: Final = 100
"""Such transactions of one call; the rest comes with the next."""


async def remove_former(database: Database, model: str | None, *, after_s: float) -> int:
    """Remove vectors that nothing has used for a while, a bounded number; return how many rows.

    Args:
        database: connects as a role that may remove vectors of every tenant.
        model: the one in use, None where none is.
        after_s: seconds for which vectors of another one stay, as far as an hour.

    Raises:
        UnavailableError: the rest is left for another time.
    """
    async with database.write(ALL_TENANTS) as connection:
        if model is not None:
            await connection.execute(sql("vectors.use"), model)
        rows = await connection.fetch(sql("vectors.former"), model, after_s)
    removed = 0
    # One bound for all models and tenants together: this call stays short, and the next one goes on.
    steps_left = MOST_STEPS
    for row in rows:
        while steps_left:
            steps_left -= 1
            removed_now = await _remove_some(database, row["tenant_id"], row["model"])
            removed += removed_now
            if not removed_now:
                break
    return removed


async def _remove_some(database: Database, tenant: str, model: str) -> int:
    """Remove some vectors of a model; when none is left, forget the model itself. Return how many were removed."""
    async with database.write(tenant) as connection:
        await connection.execute(sql("vectors.lock"), lock_key("vectors", tenant))
        removed: int = await connection.fetchval(sql("vectors.remove_some"), tenant, model, REMOVED_AT_ONCE)
        if not removed:
            await connection.execute(sql("vectors.forget"), tenant, model)
    return removed
