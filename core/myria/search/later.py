"""What was said later of an event's subjects: their latest states, where these are of a later day than the event.

An answer holds what fits its question best, and that need not be what holds now. Which events are of one subject, and
which of them tells its state, the snapshot knows already; nothing is compared here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.withdrawal.model import NEUTRAL_LABEL
from myria.search.snapshot_view import SnapshotView
from myria.search.topics import TopicReader
from myria.text.dates import DAY_US
from myria.topics.calendar import day_of
from myria.topics.quoting import LATEST, Quoted, taken_apart


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterState:
    """The latest state of a subject, as its summary quotes it with its day."""

    topic_id: str
    label: str
    quoted: Quoted


async def later_states(
    connection: Connection, snapshot: SnapshotView, event_seqs: Sequence[int], topics: TopicReader
) -> Mapping[int, list[LaterState]]:
    """Return, by event, the latest states of the subjects that hold it, of those told on a later day; the best first.

    Events that no subject holds, such as those of the fresh tail, are left out.
    """
    visible = snapshot.visible.ids.tolist()
    placed = []
    for row in await connection.fetch(sql("events.placed"), snapshot.tenant, list(event_seqs), visible):
        scope = snapshot.scope(row["scope_id"])
        if scope is None or scope.root is None:
            continue
        path = await topics.locate(connection, snapshot.tenant, scope, row["event_seq"])
        if path:
            placed.append((row["event_seq"], to_microseconds(row["occurred_at"]) // DAY_US, (scope, path[-1:])))
    leaves = [place for _, _, place in placed]
    words = await topics.found(connection, snapshot.tenant, leaves)
    subjects = await topics.subjects_of(connection, snapshot, leaves, words)
    later: dict[int, list[LaterState]] = {}
    for event_seq, day, (_, (leaf,)) in placed:
        for subject in subjects.of_leaf.get(leaf, ()):
            shown = subjects.topics[subject].shown(snapshot.hidden)
            quoted = _latest(shown["summary"])
            day_told = None if quoted is None else day_of(quoted.day.partition(" ")[2])
            if quoted is not None and day_told is not None and day_told > day and shown["label"] != NEUTRAL_LABEL:
                state = LaterState(topic_id=shown["topic_id"], label=shown["label"], quoted=quoted)
                later.setdefault(event_seq, []).append(state)
    return later


def _latest(summary: str) -> Quoted | None:
    """Return the latest state that a subject's summary tells; None if it tells none."""
    quotes, _ = taken_apart(summary)
    return quotes[0] if quotes and quotes[0].lead == LATEST.strip() else None
