"""What differs between two snapshots, scope by scope, as a person reads it: pure, over `browse.differing_scopes`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from myria.log.withdrawal.model import NEUTRAL_LABEL

Json = dict[str, Any]

What = Literal["came", "went", "renamed", "resized", "moved"]

EXAMPLES = 3
"""Events that are named of those that moved from one topic to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTopic:
    """A topic or subject of one snapshot; its first and last event are from `first_at` and `last_at` (RFC 3339).

    `is_folder`: it stands above topics, as a conversation, a day or a month.
    """

    topic_id: str
    label: str
    summary: str
    events: int
    is_subject: bool
    is_folder: bool
    first_at: str
    last_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLine:
    """One line of a change log.

    `what` is came, went, renamed or resized for a topic, and moved for events that stand in another topic: `events` of
    them, some by number in `examples`.
    """

    what: What
    before: ChangedTopic | None
    after: ChangedTopic | None
    events: int = 0
    examples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeChanges:
    """What changed in one scope: the lines, in the order to read them, and how many events are new in topics, or left.

    `folders` are the lines of what stands above the topics: a build makes many of these, and they tell little.
    `is_cut`: so much differs that topics are listed from the top down to some level, and events not at all; then
    folders are lines like others.
    """

    scope_id: int
    participants: tuple[str, ...]
    entries: tuple[ChangeLine, ...]
    folders: tuple[ChangeLine, ...]
    new_events: int
    left_events: int
    is_cut: bool

    @property
    def counts(self) -> Mapping[str, int]:
        """How many lines there are of each sort; of events that moved, how many events."""
        counts: Counter[str] = Counter()
        for entry in self.entries:
            counts[entry.what] += entry.events if entry.what == "moved" else 1
        return counts


def scope_changes(scope_id: int, difference: Json) -> ScopeChanges:
    """Return the change log of one scope, of what `differing_scopes` yields for it."""
    topics, subjects, events = difference["topics"], difference["subjects"], difference["events"]
    lines = [entry for change in (*subjects, *_without_tops(topics)) for entry in _of_topic(change)]
    # Stable: within one sort subjects come first, and the order of the trees stays, in order of time.
    lines.sort(key=lambda entry: _ORDER.index(entry.what))
    folders = [] if difference["is_cut"] else [entry for entry in lines if _is_folder(entry)]
    entries = [entry for entry in lines if difference["is_cut"] or not _is_folder(entry)]
    return ScopeChanges(
        scope_id=scope_id,
        participants=tuple(difference["participants"]),
        entries=(*entries, *_moves(topics, events)),
        folders=tuple(folders),
        new_events=sum(event["before"] is None for event in events),
        left_events=sum(event["after"] is None for event in events),
        is_cut=difference["is_cut"],
    )


def _is_folder(entry: ChangeLine) -> bool:
    return any(topic is not None and topic.is_folder for topic in (entry.before, entry.after))


def _without_tops(topics: Sequence[Json]) -> Sequence[Json]:
    """Return the changes of topics, but not that one top of a tree went and another came.

    The top stands for the whole conversation, and is the first topic on its side. It gets another id whenever the tree
    grows at the top. Where only one side has a tree, its top stays: then all of the tree came or went.
    """
    top_before = next((change for change in topics if change["before"] is not None), None)
    top_after = next((change for change in topics if change["after"] is not None), None)
    if top_before is None or top_after is None:
        return topics
    return [change for change in topics if change not in (top_before, top_after) or not _is_group_of_one_side(change)]


def _is_group_of_one_side(change: Json) -> bool:
    nodes = [node for node in (change["before"], change["after"]) if node is not None]
    return len(nodes) == 1 and nodes[0]["kind"] == "internal_topic"


_ORDER: tuple[What, ...] = ("came", "went", "renamed", "resized")


def _of_topic(change: Json) -> Iterable[ChangeLine]:
    """Yield the line of a topic; none where nothing changed that is seen of it.

    Whatever changes in a leaf changes the size of all topics above it, which says nothing new.
    """
    before, after = _topic(change["before"]), _topic(change["after"])
    if before is None:
        yield ChangeLine(what="came", before=None, after=after)
    elif after is None:
        yield ChangeLine(what="went", before=before, after=None)
    elif before.label != after.label and NEUTRAL_LABEL not in (before.label, after.label):
        yield ChangeLine(what="renamed", before=before, after=after)
    elif before.events != after.events and change["after"]["kind"] != "internal_topic":
        yield ChangeLine(what="resized", before=before, after=after)


def _moves(topics: Iterable[Json], events: Iterable[Json]) -> Iterable[ChangeLine]:
    """Yield a line for each pair of topics between which events moved, those with the most events first."""
    sides = [{change["topic_id"]: _topic(change[side]) for change in topics} for side in ("before", "after")]
    moved: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        if event["before"] is not None and event["after"] is not None:
            moved[event["before"], event["after"]].append(event["event_seq"])
    for (before, after), numbers in sorted(moved.items(), key=lambda pair: (-len(pair[1]), pair[1])):
        yield ChangeLine(
            what="moved",
            before=sides[0][before],
            after=sides[1][after],
            events=len(numbers),
            examples=tuple(numbers[:EXAMPLES]),
        )


def _topic(node: Json | None) -> ChangedTopic | None:
    if node is None:
        return None
    return ChangedTopic(
        topic_id=node["topic_id"],
        label=node["label"],
        summary=node["summary"],
        events=node["events"],
        is_subject=node["kind"] == "subject",
        is_folder=node["kind"] == "internal_topic",
        first_at=node["first_at"],
        last_at=node["last_at"],
    )
