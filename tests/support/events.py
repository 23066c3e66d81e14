"""Events for tests: appended as a client would, or loaded by the hundred thousand."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson

from myria.db.clock import to_datetime
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent, parse_event
from myria.log.ids import new_id
from myria.log.limits import Limits
from myria.log.payloads import dedupe_key
from myria.log.scopes import canonical_participants, scope_key
from myria.notes.folding import event_log

TENANT = "default"
START = 1_767_225_600_000_000
"""2026-01-01, in microseconds since 1970."""

_WORDS = (
    *("garden", "tomato", "seed", "water", "bridge", "river", "stone", "bread", "oven", "flour", "piano", "lesson"),
    *("music", "train", "ticket", "station", "doctor", "appointment", "school", "homework", "essay", "camera", "lens"),
    *("photo", "film", "hiking", "trail", "mountain", "tent", "budget", "invoice", "tax", "account", "server"),
    *("database", "backup", "index", "migration", "coffee", "espresso", "grinder", "yoga", "stretch", "breath"),
    *("kitten", "vet", "vaccine", "harbour"),
)
_SPEAKERS = ("Ana", "Ben", "Chloé", "agent_1")


def event(
    at: int,
    text: str = "",
    *,
    participants: Sequence[str] = ("ana", "ben"),
    channel: str = "test",
    key: str | None = None,
    internal: bool = False,
    **fields: Any,
) -> NewEvent:
    """Return one event `at` seconds after the start."""
    arguments: dict[str, Any] = {
        "timestamp": to_datetime(START + round(at * 1_000_000)).isoformat(),
        "channel": channel,
        "participants": list(participants),
        "payload": fields.pop("payload", {"text": text}),
        "internal": internal,
        **fields,
    }
    if key is not None:
        arguments["source_event_key"] = key
    return parse_event(arguments, Limits())


def conversation(
    size: int,
    *,
    seed: int = 1,
    participants: Sequence[str] = ("ana", "ben"),
    start: int = 0,
    internal_share: float = 0.0,
) -> list[NewEvent]:
    """Return a made-up conversation in order of time: sessions, subjects, hints, a few internal events."""
    chosen = random.Random(seed)
    at = start
    events = []
    subject = chosen.sample(_WORDS, 4)
    for number in range(size):
        gap = chosen.random()
        at += 4000 if gap < 0.05 else 200 if gap < 0.15 else chosen.randint(1, 60)
        if chosen.random() < 0.2:
            subject = chosen.sample(_WORDS, 4)
        words = chosen.choices(subject, k=4) + chosen.choices(_WORDS, k=3)
        fields: dict[str, Any] = {}
        if chosen.random() < 0.1:
            fields["topic_hints"] = [{"hint": subject[0], "confidence": 0.8}]
        if chosen.random() < 0.02:
            fields["type"] = "topic_marker"
        events.append(
            event(
                at,
                participants=participants,
                internal=chosen.random() < internal_share,
                payload={"text": f"{number}: " + " ".join(words), "speaker": chosen.choice(_SPEAKERS)},
                **fields,
            )
        )
    return events


async def append(dsn: str, events: Sequence[NewEvent], *, tenant: str = TENANT) -> list[AppendResult]:
    """Append events through the real write path, at most 500 at a time; return their acknowledgements."""
    results: list[AppendResult] = []
    async with Database(dsn) as database:
        ingest = event_log(database)
        for at in range(0, len(events), 500):
            results.extend(await ingest.append_events(tenant, events[at : at + 500]))
        await ingest.close()
    return results


async def load(dsn: str, events: Iterable[dict[str, Any]], *, tenant: str = TENANT) -> int:
    """Load raw events (as append_event takes them, already sound) with COPY; return how many."""
    count = 0
    async with Database(dsn) as database:
        scopes: dict[tuple[str, ...], int] = {}
        rows: list[tuple[Any, ...]] = []
        for raw in events:
            participants = canonical_participants(raw["participants"])
            if participants not in scopes:
                async with database.write(tenant) as connection:
                    await connection.execute(sql("scopes.ensure_tenant"), tenant)
                    scopes[participants] = await connection.fetchval(
                        sql("scopes.ensure"), tenant, scope_key(participants), list(participants)
                    )
            key = raw.get("source_event_key")
            rows.append(
                (
                    new_id("evt"),
                    scopes[participants],
                    (moment := datetime.fromisoformat(raw["timestamp"])),
                    raw["channel"],
                    raw.get("type"),
                    raw.get("context_id"),
                    key,
                    dedupe_key(raw["channel"], key) if key else None,
                    bool(raw.get("internal")),
                    orjson.dumps(raw["payload"]).decode(),
                    orjson.dumps(raw.get("topic_hints") or []).decode(),
                    (moment.utcoffset() or timedelta()) // timedelta(minutes=1),
                )
            )
            if len(rows) == 5000:
                await _insert(database, tenant, rows)
                count += len(rows)
                rows = []
        await _insert(database, tenant, rows)
    return count + len(rows)


async def _insert(database: Database, tenant: str, rows: list[tuple[Any, ...]]) -> None:
    async with database.append(tenant) as connection:
        await connection.execute(sql("events.append"), tenant, rows)
