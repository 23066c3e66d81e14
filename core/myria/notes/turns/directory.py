"""The directories of a session as memory-tools lays them out, computed from the log and the active snapshot.

There are no files: reading writes nothing. Abstracts say what is there, from facts, turns and topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from myria.db.clock import to_microseconds, to_rfc3339
from myria.db.queries import sql
from myria.errors import InvalidArgument
from myria.log.masks import Masks
from myria.notes.expiry import Lasting
from myria.notes.model import NOTE_TYPE
from myria.notes.recalling import Reads
from myria.notes.turns.facts import KnownFact, Tier
from myria.notes.turns.keeping import known_fact
from myria.notes.turns.model import Session
from myria.notes.turns.storing import visible_scopes
from myria.search.found import EventFinder
from myria.search.queries import EventNodesQuery

_MOST_FACTS = 1_000
_MOST_TURNS = 10_000
_NAMED_FACTS = 5
_TOPICS_FROM = 200
_TOPICS = 5
_TIERS: Mapping[Tier, str] = {
    "L0": "Facts that stay",
    "L1": "Facts of the day",
    "L2": "Facts of the week",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectorySummary:
    """One directory; `updated_at` in microseconds since 1970 UTC."""

    path: str
    abstract: str
    updated_at: int
    has_overview: bool

    def to_json(self) -> dict[str, Any]:
        """Return it with the contract's keys."""
        return {
            "path": self.path,
            "abstract": self.abstract,
            "updated_at": to_rfc3339(self.updated_at),
            "has_overview": self.has_overview,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Day:
    """The turns of one day in UTC, `name` being YYYY/MM/DD."""

    name: str
    turns: int
    items: int
    last_at: int


class Directories:
    """Lists the directories of sessions.

    Args:
        read: how events are found.
    """

    def __init__(self, read: Reads) -> None:
        self._read = read

    async def below(
        self, tenant: str, session: Session, path: str, *, depth: int, limit: int, now: int
    ) -> Sequence[DirectorySummary]:
        """Return a directory and those below it, by path. A session without turns has none.

        Args:
            path: below the session's root, or absolute; empty for the root.
            depth: how many levels below it.
            limit: how many directories at most.
            now: in microseconds since 1970 UTC: facts that have expired by then are not counted.

        Raises:
            InvalidArgument: the path leads out of the session.
        """
        wanted = _absolute(path, session)
        masks = Masks.containing(session.participants)
        found = await self._read(tenant, masks, partial(self._all, session, masks, now))
        inside = [
            summary
            for summary in found
            if summary.path == wanted
            or (summary.path.startswith(f"{wanted}/") and summary.path.count("/") - wanted.count("/") <= depth)
        ]
        return sorted(inside, key=lambda summary: summary.path)[:limit]

    async def _all(self, session: Session, masks: Masks, now: int, reader: EventFinder) -> list[DirectorySummary]:
        connection, tenant = reader.connection, reader.tenant
        scopes = await visible_scopes(connection, tenant, session)
        if not scopes:
            return []
        rows = await connection.fetch(sql("turns.days"), tenant, session.owner, session.context_id, scopes, _MOST_TURNS)
        days = [
            _Day(
                name=row["day"],
                turns=row["turns"],
                items=row["items"],
                last_at=to_microseconds(row["last_at"]),
            )
            for row in rows
        ]
        rows = await connection.fetch(sql("turns.facts"), tenant, session.context_id, scopes, _MOST_FACTS)
        facts = [known_fact(row) for row in rows if not Lasting.of(row).has_expired(now)]
        query = EventNodesQuery(masks=masks, context_id=session.context_id, order="newest", limit=_TOPICS_FROM)
        found = await reader.find(query)
        topics = await reader.topics(found, among=_TOPICS_FROM, at_least=1, without=NOTE_TYPE)
        labels = [topic.label for topic in topics[:_TOPICS]]
        return _layout(f"/memory/{session.session_id}", days, facts, labels)


def _absolute(path: str, session: Session) -> str:
    root = f"/memory/{session.session_id}"
    given = path.strip().rstrip("/")
    if ".." in given.split("/"):
        raise InvalidArgument("path must not hold '..'", field="path")
    absolute = given if given.startswith("/") else f"{root}/{given}".rstrip("/")
    if absolute != root and not absolute.startswith(f"{root}/"):
        raise InvalidArgument(f"path must lie below {root}", field="path")
    return absolute


def _layout(
    root: str, days: Sequence[_Day], facts: Sequence[KnownFact], labels: Sequence[str]
) -> list[DirectorySummary]:
    last = max((day.last_at for day in days), default=0)
    turns, items = sum(day.turns for day in days), sum(day.items for day in days)
    about = f" About {'; '.join(labels)}." if labels else ""

    def summary(path: str, abstract: str, at: int = last, *, overview: bool = False) -> DirectorySummary:
        return DirectorySummary(
            path=f"{root}/{path}" if path else root, abstract=abstract, updated_at=at, has_overview=overview
        )

    listed = [
        summary("", f"{turns} turns with {items} items, {len(facts)} facts.{about}", overview=bool(labels)),
        summary("meta", f"The session has {turns} turns."),
        summary("runtime", "What comes into the next prompt."),
        summary("runtime/context", f"The last of {items} items."),
        summary("events", f"{items} items of {turns} turns.{about}", overview=bool(labels)),
        summary("events/raw", f"{items} items of {turns} turns, by day."),
        summary("events/compact", about.strip() or "Nothing is summed up yet.", overview=bool(labels)),
        summary("events/archive", "Nothing: the log keeps every item where it is."),
        summary("memory_tiers", f"{len(facts)} facts.", overview=bool(facts)),
        summary("insights", "What the history of facts comes to; computed when a turn begins."),
        summary("indexes", f"{len(facts)} active facts."),
    ]
    for tier, title in _TIERS.items():
        of_tier = [known for known in facts if known.fact.tier == tier]
        at = max((known.at for known in of_tier), default=last)
        listed.append(summary(f"memory_tiers/{tier}", f"{title}: {_named(of_tier)}.", at, overview=bool(of_tier)))
    above: dict[str, list[_Day]] = {}
    for day in days:
        parts = day.name.split("/")
        for length in range(1, len(parts) + 1):
            above.setdefault("/".join(parts[:length]), []).append(day)
    for name, of_name in above.items():
        abstract = f"{sum(day.items for day in of_name)} items of {sum(day.turns for day in of_name)} turns."
        listed.append(summary(f"events/raw/{name}", abstract, max(day.last_at for day in of_name)))
    return listed


def _named(facts: Iterable[KnownFact]) -> str:
    named = [known.fact.key for known in facts]
    more = f" and {len(named) - _NAMED_FACTS} more" if len(named) > _NAMED_FACTS else ""
    return ", ".join(named[:_NAMED_FACTS]) + more if named else "none"
