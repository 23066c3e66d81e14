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
    """Lend what gives events their vectors, None where nothing does.

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
        """Return what the settings name, None where nothing gives events their vectors.

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
        """Give events without a vector theirs, `most` of them at most; return how many were looked at.

        Args:
            newest_first: begin with the newest instead of the oldest. Builds do: what the control plane gives vectors
                at the same time, from the oldest on, would be computed twice.

        Raises:
            ModelFailed: the rest is left for another time.
            UnavailableError: as above.
        """
        done = 0
        try:
            while done < most:
                looked_at, is_complete = await self._step(tenant, min(AT_ONCE, most - done), newest_first=newest_first)
                done += looked_at
                if is_complete:
                    break
        except ModelFailed as failure:
            await note_outcome(self._database, tenant, Work.VECTORS, failure)
            raise
        if done:
            await note_outcome(self._database, tenant, Work.VECTORS, None)
        return done

    async def _step(self, tenant: str, limit: int, *, newest_first: bool) -> tuple[int, bool]:
        """Embed some events; return how many, and whether that leaves none."""
        async with self._database.read(tenant) as connection:
            standing = await connection.fetchrow(sql("vectors.standing"), tenant, self.model)
            if standing is None:
                raise AssertionError("how far vectors are is always one row")
            missing = sql("vectors.missing_newest" if newest_first else "vectors.missing")
            rows = await connection.fetch(missing, tenant, self.model, standing["done_seq"], limit)
            texts = {text_digest(text): text for row in rows if (text := _text(row)).strip()}
            known = await connection.fetch(sql("vectors.known"), tenant, self.model, list(texts))
        for row in known:
            del texts[row["digest"]]
        vectors = await self._model.embed(list(texts.values()), within_s=self._within_s) if texts else []
        made = dict(zip(texts, vectors, strict=True))
        kept = await self._keep(tenant, rows, made) if rows else 0
        is_complete = len(rows) < limit
        if kept == len(rows):
            newest = standing["newest_seq"] if is_complete else 0
            reached = 0 if newest_first else rows[-1]["event_seq"] if rows else 0
            last = standing["cutoff"] if is_complete else min(standing["cutoff"], reached)
            if last > standing["done_seq"] or newest:
                async with self._database.write(tenant) as connection:
                    await connection.execute(sql("vectors.advance"), tenant, self.model, last, newest)
        return len(rows), is_complete

    async def _keep(self, tenant: str, rows: Sequence[asyncpg.Record], made: Mapping[bytes, bytes | None]) -> int:
        digests: list[bytes | None] = []
        for row in rows:
            text = _text(row)
            digest = text_digest(text) if text.strip() else None
            # A text that the model gives no vector is as one that says nothing.
            digests.append(None if digest is None or (digest in made and made[digest] is None) else digest)
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
                [None if digest is None else made.get(digest) for digest in digests],
            )
        return kept


def _text(row: asyncpg.Record) -> str:
    return whole_text(orjson.loads(row["payload"]))


def text_digest(text: str) -> bytes:
    """Return what the vector of a text is kept under: a digest of much more of its beginning than models read."""
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
    left = MOST_STEPS
    for row in rows:
        while left:
            left -= 1
            gone = await _remove_some(database, row["tenant_id"], row["model"])
            removed += gone
            if not gone:
                break
    return removed


async def _remove_some(database: Database, tenant: str, model: str) -> int:
    async with database.write(tenant) as connection:
        await connection.execute(sql("vectors.lock"), lock_key("vectors", tenant))
        gone: int = await connection.fetchval(sql("vectors.remove_some"), tenant, model, REMOVED_AT_ONCE)
        if not gone:
            await connection.execute(sql("vectors.forget"), tenant, model)
    return gone
