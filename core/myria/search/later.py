"""What was said later of an event's subjects: their latest states, where these are of a later day than the event.

An answer holds what fits its question best, and that need not be what holds now. Which events are of one subject, and
which of them tells its state, the snapshot knows already. A subject holds whole leaves, so one counts only where the
event itself names it: events beside it may speak of something else. And its state must share a word with the event
that is not the subject's name: without one the two are rarely about the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.withdrawal.model import NEUTRAL_LABEL
from myria.search.snapshot_view import SnapshotView
from myria.search.topics import TopicReader
from myria.text import is_stopword, terms
from myria.text.dates import DAY_US
from myria.topics.calendar import day_of
from myria.topics.quoting import LATEST, Quoted, taken_apart
from myria.topics.subjects.statements import hinted_keys, names
from myria.topics.subjects.trie import keys_of


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterState:
    """The latest state of a subject, as its summary quotes it with its day."""

    topic_id: str
    label: str
    quoted: Quoted


async def later_states(
    connection: Connection, snapshot: SnapshotView, texts: Mapping[int, str], topics: TopicReader
) -> Mapping[int, list[LaterState]]:
    """Return, by event, the latest states of the subjects that it names, of those told on a later day in like words.

    The best subject's comes first. What two subjects of an event both quote is returned once. Events that no subject
    holds, such as those of the fresh tail, are left out.

    Args:
        texts: what each event says, by its event_seq.
    """
    visible = snapshot.visible.ids.tolist()
    placed = []
    for row in await connection.fetch(sql("events.placed"), snapshot.tenant, list(texts), visible):
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
        said, hinted = frozenset(terms(texts[event_seq])), hinted_keys(words[leaf].metadata)
        by_words: dict[str, LaterState] = {}
        for subject in subjects.of_leaf.get(leaf, ()):
            topic = subjects.topics[subject]
            key = keys_of(topic.metadata["prefix"])[0]
            state = _later_than(day, topic.shown(snapshot.hidden)) if key in hinted or names(said, key) else None
            if state is not None and _shared(said, state.quoted.words).difference(key.split(" ")):
                by_words.setdefault(state.quoted.words, state)
        if by_words:
            later[event_seq] = list(by_words.values())
    return later


def _shared(said: frozenset[str], words: str) -> set[str]:
    """Return the terms of a text, but for stop words, that stand in a quote, too."""
    return {term for term in terms(words) if term in said and not is_stopword(term)}


def _later_than(day: int, subject: Mapping[str, Any]) -> LaterState | None:
    """Return the latest state of a subject, as it is shown, if that was told after a day (since 1970)."""
    quotes, _ = taken_apart(subject["summary"])
    if not quotes or quotes[0].lead != LATEST.strip() or subject["label"] == NEUTRAL_LABEL:
        return None
    day_told = day_of(quotes[0].day.partition(" ")[2])
    if day_told is None or day_told <= day:
        return None
    return LaterState(topic_id=subject["topic_id"], label=subject["label"], quoted=quotes[0])
