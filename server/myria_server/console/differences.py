"""The page of what differs between two snapshots, which reads like a change log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from markupsafe import Markup
from starlette.requests import Request

from myria.builds import browse
from myria.builds.change_log import ChangeLine, ScopeChanges, scope_changes
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.withdrawal.model import NEUTRAL_LABEL
from myria_server.console.desk import Desk
from myria_server.console.fields import id_of, whole_number_of
from myria_server.console.forms import Page
from myria_server.console.rendering import told_apart
from myria_server.console.routes import PageRoute, Routes

_SCOPES = 20
_SHOWN_OF_SCOPE = 12
_ENTRIES = 200
"""Lines of a page of one group of people."""

_MOST_NODES = 10_000
"""Topics of one tree that are read for a page; where more differ, a list of them all would help nobody."""

COUNTED_S = 1.0
"""Seconds for which a page that asks waits for the counts of what will change."""

WHAT = {
    "came": "new",
    "went": "gone",
    "renamed": "renamed",
    "resized": "resized",
    "moved": "moved",
}
"""What a person reads for each sort of line."""


def _is_neutral(line: ChangeLine) -> bool:
    """Tell whether a line names a topic by the label that stands for what was withdrawn since."""
    return any(topic is not None and topic.label == NEUTRAL_LABEL for topic in (line.before, line.after))


async def overview(desk: Desk, request: Request) -> Page:
    """Show what differs, group by group; with `scope`, all that differs in that one."""
    desk.principal.need_administrator(what="a diff of snapshots")
    tenant, parameters = desk.tenant, request.query_params
    scope_id, begin = whole_number_of(parameters.get("scope")), whole_number_of(parameters.get("begin"))
    after_scope = max(0, scope_id - 1) if scope_id else whole_number_of(parameters.get("after"))
    async with desk.memory.database.read(tenant) as connection:
        before = await browse.find_snapshot(connection, tenant, id_of(parameters.get("from", "")) or None)
        after = await browse.find_snapshot(connection, tenant, id_of(parameters.get("to", "")) or None)
        differing = browse.differing_scopes(
            connection, tenant, before, after, after_scope=after_scope, most_nodes=_MOST_NODES
        )
        scopes: list[ScopeChanges] = []
        has_more = False
        async for differing_id, difference in differing:
            if scope_id and differing_id != scope_id:
                break
            if len(scopes) == _SCOPES:
                has_more = True
                break
            scopes.append(scope_changes(differing_id, difference))
        shown = {
            one.scope_id: _lines(one)[begin : begin + _ENTRIES] if scope_id else one.entries[:_SHOWN_OF_SCOPE]
            for one in scopes
        }
        event_ids = await _event_ids(connection, tenant, (entry for lines in shown.values() for entry in lines))
    end = begin + _ENTRIES
    registry = desk.memory.registry
    return "diff.html", {
        "before": await registry.snapshot(tenant, before.snapshot_id),
        "after": await registry.snapshot(tenant, after.snapshot_id),
        "neutral": NEUTRAL_LABEL if any(map(_is_neutral, (line for one in scopes for line in _lines(one)))) else None,
        "scopes": scopes,
        "seen_as": {one.scope_id: desk.names_that_see(one.participants) for one in scopes},
        "shown": shown,
        "apart": {one.scope_id: _told_apart(shown[one.scope_id]) for one in scopes},
        "what": WHAT,
        "event_ids": event_ids,
        "scope_id": scope_id,
        "next_begin": end if scope_id and scopes and end < len(_lines(scopes[0])) else None,
        "next_after": scopes[-1].scope_id if has_more else None,
    }


def _lines(scope: ScopeChanges) -> Sequence[ChangeLine]:
    """Return all lines of a group of people, folders of the calendar last."""
    return (*scope.entries, *scope.folders)


def _told_apart(lines: Sequence[ChangeLine]) -> Mapping[tuple[str, str], Markup]:
    """Return what to write behind labels that several topics of a list have, by the topic's id and label."""
    topics = {
        (topic.topic_id, topic.label): {"label": topic.label, "first_at": topic.first_at}
        for line in lines
        for topic in (line.before, line.after)
        if topic is not None
    }
    return dict(zip(topics, told_apart([*topics.values()]), strict=True))


@dataclass(slots=True)
class Summary:
    """How much differs between two snapshots.

    Attributes:
        groups: of people for whom something differs.
        counts: as `ScopeChanges.counts`, of all groups.
        is_whole: all of it is counted; else at least so much differs.
    """

    groups: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    new_events: int = 0
    left_events: int = 0
    is_whole: bool = False

    def add(self, scope: ScopeChanges) -> None:
        """Add what differs for one group."""
        self.groups += 1
        self.counts.update(scope.counts)
        self.new_events += scope.new_events
        self.left_events += scope.left_events


async def summary(desk: Desk, before_id: str, after_id: str) -> Summary:
    """Return how much differs between two snapshots, as far as that is counted within `COUNTED_S`.

    Raises:
        SnapshotNotFound: one of them is not kept.
    """
    total, is_cut = Summary(), False
    with suppress(TimeoutError):
        async with asyncio.timeout(COUNTED_S), desk.memory.database.read(desk.tenant) as connection:
            before = await browse.find_snapshot(connection, desk.tenant, before_id)
            after = await browse.find_snapshot(connection, desk.tenant, after_id)
            async for scope_id, difference in browse.differing_scopes(
                connection, desk.tenant, before, after, most_nodes=_MOST_NODES
            ):
                total.add(scope_changes(scope_id, difference))
                is_cut = is_cut or difference["is_cut"]
            total.is_whole = not is_cut
    return total


async def _event_ids(connection: Connection, tenant: str, entries: Iterable[ChangeLine]) -> Mapping[int, str]:
    """Return the ids of the events that lines name by their numbers."""
    numbers = [number for entry in entries for number in entry.examples]
    if not numbers:
        return {}
    rows = await connection.fetch(sql("browse.event_ids"), tenant, numbers)
    return {row["event_seq"]: row["event_id"] for row in rows}


ROUTES: Routes = (PageRoute("/changes/diff", overview, ("read", "admin")),)
