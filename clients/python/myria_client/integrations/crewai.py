"""Storage for CrewAI's memory on Myria: extra `crewai`.

CrewAI asks storages by embeddings alone. `MyriaStorage.embedder` stands in their place: it makes no embeddings but
notes of the texts, by which the storage asks Myria in words. So no model and no key are needed for them:

    storage = MyriaStorage(Client())
    memory = Memory(storage=storage, embedder=storage.embedder)
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from crewai.memory.types import MemoryRecord, ScopeInfo

from myria_client import Client
from myria_client._shelves import Shelf, Space, Thing

_NOTES = 10_000
"""Texts that were embedded last and are known by their notes."""

_NUMBERS = 32
_OVERSAMPLE = 4


class MyriaStorage:
    """A storage backend; its scopes are paths such as `/crew/research`.

    Args:
        client: sends; it is not closed.
        agent: as whom records are kept; storages of one agent hold the same.
    """

    def __init__(self, client: Client, *, agent: str = "crewai") -> None:
        self._client = client
        self._shelf = Shelf(agent, "crewai_record")
        self._texts: OrderedDict[tuple[float, ...], str] = OrderedDict()
        self._lock = threading.Lock()

    def embedder(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a note of each text: numbers by which `search` knows it again."""
        notes = [_note(text) for text in texts]
        with self._lock:
            for note, text in zip(notes, texts, strict=True):
                self._texts[note] = text
                self._texts.move_to_end(note)
            while len(self._texts) > _NOTES:
                self._texts.popitem(last=False)
        return [list(note) for note in notes]

    def save(self, records: list[MemoryRecord]) -> None:
        """Keep records; one whose id is there already takes its place."""
        for record in records:
            self._client.run(self._shelf.put(_space(record.scope), record.id, _kept(record), record.content))

    def search(  # noqa: PLR0917 - CrewAI's protocol
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records that are most about a text, in Myria's order; the score is how many words they share.

        Raises:
            ValueError: the embedding is none of this storage's embedder.
        """
        with self._lock:
            text = self._texts.get(tuple(query_embedding))
        if text is None:
            raise ValueError("give the memory this storage's embedder: Memory(storage=s, embedder=s.embedder)")
        narrowed = bool(categories or metadata_filter)
        most = limit * _OVERSAMPLE if narrowed else limit
        found = []
        for thing in self._client.run(self._shelf.search(_space(scope_prefix), text, most)):
            record = _record(thing)
            score = _alike(text, record.content)
            if _is_wanted(record, categories, metadata_filter) and score >= min_score:
                found.append((record, score))
        return found[:limit]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Take records away that are all that is said of them; return how many."""
        deleted = 0
        for thing in self._things(scope_prefix):
            record = _record(thing)
            if record_ids is not None and record.id not in record_ids:
                continue
            if older_than is not None and _aware(record.created_at) >= _aware(older_than):
                continue
            if _is_wanted(record, categories, metadata_filter):
                deleted += self._client.run(self._shelf.delete(thing.space, thing.key))
        return deleted

    def update(self, record: MemoryRecord) -> None:
        """Put a record in the place of the one with its id, also where its scope is another now."""
        before = self._find(record.id)
        self.save([record])
        if before is not None and before.space != _space(record.scope):
            self._client.run(self._shelf.delete(before.space, before.key))

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record, None where there is none."""
        thing = self._find(record_id)
        return None if thing is None else _record(thing)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Return records of a scope and those below it, newest first."""
        return [_record(thing) for thing in self._things(scope_prefix)[offset : offset + limit]]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return what is in a scope and below it."""
        records = self.list_records(scope, limit=1 << 62)
        times = [record.created_at for record in records]
        return ScopeInfo(
            path=scope,
            record_count=len(records),
            categories=sorted({category for record in records for category in record.categories}),
            oldest_record=min(times, default=None, key=_aware),
            newest_record=max(times, default=None, key=_aware),
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes right below one."""
        above = _space(parent)
        children = {thing.space[: len(above) + 1] for thing in self._things(parent) if len(thing.space) > len(above)}
        return sorted("/" + "/".join(child) for child in children)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return the categories in a scope and below it, and how many records have each."""
        records = self.list_records(scope_prefix, limit=1 << 62)
        return dict(Counter(category for record in records for category in record.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        """Return how many records are in a scope and below it."""
        return len(self._things(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Take away all records of a scope and below it."""
        self.delete(scope_prefix)

    async def asave(self, records: list[MemoryRecord]) -> None:
        """Keep records; see `save`."""
        await asyncio.to_thread(self.save, records)

    async def asearch(self, query_embedding: list[float], **named: Any) -> list[tuple[MemoryRecord, float]]:
        """Return the records that are most about a text; see `search`."""
        return await asyncio.to_thread(self.search, query_embedding, **named)

    async def adelete(self, **named: Any) -> int:
        """Take records away; see `delete`."""
        return await asyncio.to_thread(self.delete, **named)

    def _things(self, scope: str | None) -> list[Thing]:
        return self._client.run(self._shelf.each(_space(scope)))

    def _find(self, record_id: str) -> Thing | None:
        return self._client.run(self._shelf.first(record_id))


def _space(scope: str | None) -> Space:
    return tuple(part for part in (scope or "/").split("/") if part)


def _kept(record: MemoryRecord) -> dict[str, Any]:
    held: dict[str, Any] = record.model_dump(mode="json", exclude={"embedding"})
    return held


def _record(thing: Thing) -> MemoryRecord:
    return MemoryRecord(**thing.value)


def _is_wanted(record: MemoryRecord, categories: list[str] | None, metadata: dict[str, Any] | None) -> bool:
    if categories and not set(categories) & set(record.categories):
        return False
    return all(record.metadata.get(name) == value for name, value in (metadata or {}).items())


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _note(text: str) -> tuple[float, ...]:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return tuple((byte + 1) / 256 for byte in digest[:_NUMBERS])


def _alike(one: str, other: str) -> float:
    """Return the cosine of two texts' words, from 0 to 1."""
    first, second = (Counter(re.findall(r"\w+", text.casefold())) for text in (one, other))
    shared = sum(count * second[word] for word, count in first.items())
    size = math.sqrt(sum(n * n for n in first.values()) * sum(n * n for n in second.values()))
    return shared / size if size else 0.0
