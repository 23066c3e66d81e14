"""Statistics of the notes that a caller sees: how many of each kind and tier, how important, how much used."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from myria.db.database import Database
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.notes.expiry import DAY_US, Lasting
from myria.notes.kinds import importance_now, utility
from myria.notes.scopes import scopes_with_notes

MAX_COUNTED = 20_000
"""Notes that are counted at most."""

MAX_TOPICS = 50
"""Topics that are shown at most: those with most notes."""

CHARACTERS_PER_TOKEN = 4
"""By which `tokens` are estimated, as Memento's contract does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteStatistics:
    """What notes come to at a moment. `complete` is false where there are more than were looked at; `embedded` counts
    those that have a vector, None where none are kept."""

    total: int
    tiers: Counter[str]
    kinds: Counter[str]
    topics: Counter[str]
    importance: float
    utility: float
    uses: int
    tokens: int
    complete: bool
    embedded: int | None


async def statistics(
    database: Database, tenant: str, masks: Masks, *, now: int, model: str | None = None
) -> NoteStatistics:
    """Return statistics of the notes that masks see; notes that end with a session count while it lasts.

    Args:
        now: in microseconds since 1970 UTC.
        model: the embedding model whose vectors are kept; None where none are.
    """
    async with database.read(tenant) as connection:
        scopes = await scopes_with_notes(connection, tenant, masks)
        rows = await connection.fetch(sql("notes.counted"), tenant, scopes, MAX_COUNTED + 1)
        live_rows = [row for row in rows[:MAX_COUNTED] if not Lasting.of(row).has_expired(now)]
        embedded: int | None = None
        if model is not None:
            event_seqs = [row["event_seq"] for row in live_rows]
            embedded = await connection.fetchval(sql("vectors.count"), tenant, model, event_seqs)
    summarise = partial(_summed, live_rows, now, embedded=embedded, complete=len(rows) <= MAX_COUNTED)
    return await asyncio.to_thread(summarise)


def _summed(live_rows: Sequence[Any], now: int, *, embedded: int | None, complete: bool) -> NoteStatistics:
    tiers: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    topics: Counter[str] = Counter()
    importance_sum, utility_sum, uses, characters, total = 0.0, 0.0, 0, 0, len(live_rows)
    for row in live_rows:
        lasting = Lasting.of(row)
        tiers[lasting.tier(now)] += 1
        kinds[row["kind"]] += 1
        topics[row["topic"]] += 1
        idle_days = max(0, now - lasting.idle_since) / DAY_US
        present_importance = importance_now(
            lasting.kind, lasting.importance, anchor=lasting.anchor, idle_days=idle_days
        )
        importance_sum += present_importance
        utility_sum += utility(present_importance, row["uses"], row["worth"])
        uses += row["uses"]
        characters += row["characters"]
    return NoteStatistics(
        total=total,
        tiers=tiers,
        kinds=kinds,
        topics=topics,
        importance=importance_sum / total if total else 0.0,
        utility=utility_sum / total if total else 0.0,
        uses=uses,
        tokens=-(-characters // CHARACTERS_PER_TOKEN),
        complete=complete,
        embedded=embedded,
    )
