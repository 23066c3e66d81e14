"""The directories of a session as memory-tools lays them out, computed from the log and the active snapshot.

There are no files: reading writes nothing. Abstracts say what is there, from facts, turns and topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import asyncpg

from myria.db.clock import to_microseconds, to_rfc3339
from myria.db.queries import sql
from myria.errors import InvalidArgument
from myria.log.masks import Masks
from myria.notes.model import NOTE_TYPE
from myria.notes.recalling import Reads
from myria.notes.turns.facts import KnownFact, Tier, facts_in
from myria.notes.turns.items import Json
from myria.notes.turns.model import Session, visible_scopes
from myria.search.found import EventFinder
from myria.search.queries import EventNodesQuery

_MOST_TURNS = 10_000
_NAMED_FACTS = 5
_TOPICS_FROM = 200
_TOPICS = 5
_TIERS: Mapping[Tier, str] = {
    "L0": "Facts that stay",
    "L1": "Facts of the day",
    "L2": "Facts of the week",
}


async def directories_below(
    read: Reads, tenant: str, session: Session, path: str, *, depth: int, limit: int, now: int
) -> list[Json]:
    """Return a directory and those below it as JSON of the contract, by path; none for a session without turns.

    Args:
        read: finds events.
        path: below the session's root, or absolute; empty for the root.
        depth: how many levels below it.
        limit: how many directories at most.
        now: in microseconds since 1970 UTC: facts that have expired by then are not counted.

    Raises:
        InvalidArgument: the path leads out of the session.
    """
    directory = _absolute(path, session)
    masks = Masks.containing(session.participants)
    all_directories = await read(tenant, masks, partial(_every_directory, session, masks, now))
    inside = [
        all_directories[path]
        for path in sorted(all_directories)
        if path == directory or (path.startswith(f"{directory}/") and path.count("/") - directory.count("/") <= depth)
    ]
    return inside[:limit]


async def _every_directory(session: Session, masks: Masks, now: int, reader: EventFinder) -> dict[str, Json]:
    connection, tenant = reader.connection, reader.tenant
    scopes = await visible_scopes(connection, tenant, session)
    if not scopes:
        return {}
    days = await connection.fetch(sql("turns.days"), tenant, session.owner, session.context_id, scopes, _MOST_TURNS)
    facts = await facts_in(connection, tenant, session.context_id, scopes, now=now)
    query = EventNodesQuery(masks=masks, context_id=session.context_id, order="newest", limit=_TOPICS_FROM)
    found = await reader.find(query)
    topics = await reader.topics(found, among=_TOPICS_FROM, at_least=1, without=NOTE_TYPE)
    labels = [topic.label for topic in topics[:_TOPICS]]
    return _layout(f"/memory/{session.session_id}", days, facts, labels)


def _absolute(path: str, session: Session) -> str:
    """Return the absolute path of a directory, given relative to the session's root or absolute."""
    root = f"/memory/{session.session_id}"
    given = path.strip().rstrip("/")
    if ".." in given.split("/"):
        raise InvalidArgument("path must not hold '..'", field="path")
    absolute = given if given.startswith("/") else f"{root}/{given}".rstrip("/")
    if absolute != root and not absolute.startswith(f"{root}/"):
        raise InvalidArgument(f"path must lie below {root}", field="path")
    return absolute


def _layout(
    root: str, days: Sequence[asyncpg.Record], facts: Sequence[KnownFact], labels: Sequence[str]
) -> dict[str, Json]:
    """Return every directory of a session by its path.

    Args:
        days: rows of `turns.days`.
        labels: of its newest topics.
    """
    turns, items = sum(row["turns"] for row in days), sum(row["items"] for row in days)
    last = max((to_microseconds(row["last_at"]) for row in days), default=0)
    topic_text = f" About {'; '.join(labels)}." if labels else ""
    directories: dict[str, Json] = {}

    def add(path: str, abstract: str, at: int = last, *, overview: bool = False) -> None:
        full_path = f"{root}/{path}" if path else root
        directories[full_path] = {
            "path": full_path,
            "abstract": abstract,
            "updated_at": to_rfc3339(at),
            "has_overview": overview,
        }

    add("", f"{turns} turns with {items} items, {len(facts)} facts.{topic_text}", overview=bool(labels))
    add("meta", f"The session has {turns} turns.")
    add("runtime", "What comes into the next prompt.")
    add("runtime/context", f"The last of {items} items.")
    add("events", f"{items} items of {turns} turns.{topic_text}", overview=bool(labels))
    add("events/raw", f"{items} items of {turns} turns, by day.")
    add("events/compact", topic_text.strip() or "Nothing is summed up yet.", overview=bool(labels))
    add("events/archive", "Nothing: the log keeps every item where it is.")
    add("memory_tiers", f"{len(facts)} facts.", overview=bool(facts))
    add("insights", "What the history of facts comes to; computed when a turn begins.")
    add("indexes", f"{len(facts)} active facts.")
    for tier, title in _TIERS.items():
        of_tier = [known for known in facts if known.fact.tier == tier]
        at = max((known.at for known in of_tier), default=last)
        add(f"memory_tiers/{tier}", f"{title}: {_named(of_tier)}.", at, overview=bool(of_tier))
    # The prefixes of a day's path "2026-02-24" name its year, its month and the day.
    for date_prefix in dict.fromkeys(row["day"][:length] for row in days for length in (4, 7, 10)):
        rows_of_name = [row for row in days if row["day"].startswith(date_prefix)]
        abstract = (
            f"{sum(row['items'] for row in rows_of_name)} items of {sum(row['turns'] for row in rows_of_name)} turns."
        )
        add(f"events/raw/{date_prefix}", abstract, max(to_microseconds(row["last_at"]) for row in rows_of_name))
    return directories


def _named(facts: Sequence[KnownFact]) -> str:
    named = [known.fact.key for known in facts]
    more = f" and {len(named) - _NAMED_FACTS} more" if len(named) > _NAMED_FACTS else ""
    return ", ".join(named[:_NAMED_FACTS]) + more if named else "none"
