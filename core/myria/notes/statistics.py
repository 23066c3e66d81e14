"""What the notes that somebody sees come to: how many of each kind and tier, how important, how much used."""

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
"""Notes that are looked at; of more, this many are."""

MAX_TOPICS = 50
"""Topics that are named: those of most notes."""

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
    """Return what the notes that masks see come to; those that end with a session count while it lasts.

    Args:
        now: in microseconds since 1970 UTC.
        model: by which vectors are kept; None where none are.
    """
    async with database.read(tenant) as connection:
        scopes = await scopes_with_notes(connection, tenant, masks)
        rows = await connection.fetch(sql("notes.counted"), tenant, scopes, MAX_COUNTED + 1)
        standing = [row for row in rows[:MAX_COUNTED] if not Lasting.of(row).has_expired(now)]
        embedded: int | None = None
        if model is not None:
            seqs = [row["event_seq"] for row in standing]
            embedded = await connection.fetchval(sql("vectors.count"), tenant, model, seqs)
    summed = partial(_summed, standing, now, embedded=embedded, complete=len(rows) <= MAX_COUNTED)
    return await asyncio.to_thread(summed)


def _summed(standing: Sequence[Any], now: int, *, embedded: int | None, complete: bool) -> NoteStatistics:
    tiers: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    topics: Counter[str] = Counter()
    importance, useful, uses, characters, total = 0.0, 0.0, 0, 0, len(standing)
    for row in standing:
        lasting = Lasting.of(row)
        tiers[lasting.tier(now)] += 1
        kinds[row["kind"]] += 1
        topics[row["topic"]] += 1
        idle_days = max(0, now - lasting.idle_since) / DAY_US
        worth = importance_now(lasting.kind, lasting.importance, anchor=lasting.anchor, idle_days=idle_days)
        importance += worth
        useful += utility(worth, row["uses"], row["worth"])
        uses += row["uses"]
        characters += row["characters"]
    return NoteStatistics(
        total=total,
        tiers=tiers,
        kinds=kinds,
        topics=topics,
        importance=importance / total if total else 0.0,
        utility=useful / total if total else 0.0,
        uses=uses,
        tokens=-(-characters // CHARACTERS_PER_TOKEN),
        complete=complete,
        embedded=embedded,
    )
