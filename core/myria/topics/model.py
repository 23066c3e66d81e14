"""The values of a plan: events as the planner sees them, nodes, references, units, and the ladder of levels.

The ladder numbers a node's height; a parent's number is always greater than its children's:

    0            leaf: 2..12 events of one subject
    1..7         part k: sub-groups inside a unit of more than 16 leaves
    8            unit: the events that are planned together
    9..91        group of units that share a calendar prefix; the shorter the prefix, the greater the number
                 (91 everything, 87 year, 86 month, 85 week, 84 day, 83 part of the day, 82 hour, ...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, Protocol

from myria.text import TextWords, words_in
from myria.topics.lines import clip
from myria.topics.quoting import quotes_of

NodeType = Literal["leaf_topic", "internal_topic", "subject"]
LEAF: NodeType = "leaf_topic"
INTERNAL: NodeType = "internal_topic"
SUBJECT: NodeType = "subject"
"""A node of the second hierarchy: a subject, a division of a large one, or a group of subjects."""

_QUOTE_CHARACTERS = 200

LEAF_LEVEL = 0
MAX_PART_LEVEL = 7
UNIT_LEVEL = 8

CALENDAR_NAMES = (
    "all",
    "millennium",
    "century",
    "decade",
    "year",
    "month",
    "week",
    "day",
    "part of day",
    "hour",
    "ten minutes",
    "minute",
    "ten seconds",
    "second",
)
"""Name of a group whose units share the first k digits of their keys, by k; deeper ones are "instant"."""

KEY_DIGITS = len(CALENDAR_NAMES) - 1 + 6 + 64
"""Digits of a unit's key: calendar, microseconds, then the content key of its first event."""

ANALYSED_CHARACTERS = 4096
"""Characters of an event's text that the planner reads: subjects show early, and pasted files must not cost more."""

UnitKey = tuple[int, bytes]
"""(timestamp in microseconds, content key) of a unit's first event; no two events of a scope have the same."""

Participants = tuple[str, ...]

ERASED_LABEL = "Topic with erased events"
ERASED_SUMMARY = "Some events of this topic were erased."
"""Label and summary that replace those of a topic that covered erased events, for good."""


def group_level(shared_digits: int) -> int:
    """Return the ladder number of a group whose units share exactly the first `shared_digits` digits."""
    return UNIT_LEVEL + KEY_DIGITS - shared_digits


def shared_digits(level: int) -> int:
    """Return how many leading digits the units of a group on a level share: the inverse of `group_level`."""
    return UNIT_LEVEL + KEY_DIGITS - level


def level_name(level: int) -> str:
    """Return the name that people read for a level."""
    if level == LEAF_LEVEL:
        return "leaf"
    if level <= MAX_PART_LEVEL:
        return "part"
    if level == UNIT_LEVEL:
        return "unit"
    shared = shared_digits(level)
    return CALENDAR_NAMES[shared] if shared < len(CALENDAR_NAMES) else "instant"


@dataclass(frozen=True, kw_only=True)
class PlanEvent:
    """One non-internal event as the planner sees it.

    `timestamp` is microseconds since 1970 UTC; `key` is the hash of its content, without its id
    (`myria.events.content_key`); `task`, `text`, `speaker` and `described` are what `myria.events` reads out of the
    payload; `hints` are (hint, confidence in permille). `described` and `utc_offset` (minutes east of UTC at the
    place where the event was told) do not affect the plan; the search index uses them.
    """

    event_seq: int
    event_id: str
    key: bytes
    timestamp: int
    type: str | None = None
    context_id: str | None = None
    channel: str = ""
    task: str | None = None
    text: str = ""
    speaker: str | None = None
    hints: tuple[tuple[str, int], ...] = ()
    utc_offset: int = 0
    described: str = ""

    @property
    def position(self) -> tuple[int, int]:
        """The event's place in its scope: (timestamp, event_seq)."""
        return (self.timestamp, self.event_seq)

    @cached_property
    def all_words(self) -> TextWords:
        """The words of the whole text, analysed once for the plan, its descriptions and the search index."""
        return words_in(self.text)

    @cached_property
    def words(self) -> TextWords:
        """The words that end within the first `ANALYSED_CHARACTERS` characters."""
        all_words = self.all_words
        if len(self.text) <= ANALYSED_CHARACTERS:
            return all_words
        return all_words.at([index for index, end in enumerate(all_words.ends) if end <= ANALYSED_CHARACTERS])

    @property
    def terms(self) -> Sequence[str]:
        """The terms of the whole text, as `myria.text.terms` returns them."""
        return self.all_words.terms


@dataclass(frozen=True, kw_only=True, slots=True)
class Ref:
    """A leaf's reference to one event; `weight` (0..1000) says how central the event is to its leaf."""

    event_seq: int
    event_id: str
    weight: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a person reads about a node; `metadata` holds integers and strings only, and is bounded."""

    label: str
    summary: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeBase:
    """The fields that a node and its outline share: identity, label, and totals of what lies beneath.

    `rendering_id` identifies all but the anchor, the event beneath that arrived first. `units` counts the units beneath
    (1 for the top node of a unit, 0 inside one; subjects where it is a node of subjects). `key_timestamp`,
    `key_digest` and `key_event_id` are time, content key and id of the first event: the key of a unit, or of a group's
    first unit.
    """

    rendering_id: bytes
    node_id: bytes
    node_type: NodeType
    level: int
    label: str
    events: int
    leaves: int
    units: int
    is_unit: bool
    key_timestamp: int
    key_digest: bytes
    key_event_id: str
    first_at: int
    last_at: int
    anchor_seq: int
    anchor_event_id: str

    @property
    def key(self) -> UnitKey:
        """(timestamp, content key) of the first event."""
        return (self.key_timestamp, self.key_digest)

    @property
    def is_leaf(self) -> bool:
        """Whether the node is a leaf."""
        return self.node_type == LEAF


@dataclass(frozen=True, kw_only=True, slots=True)
class Node(NodeBase):
    """One rendering with its identity, as it is stored.

    `child_leaves` gives, in the order of `children`, the node_id of a child that is a leaf, else b"".
    """

    topic_id: str
    summary: str
    metadata: Mapping[str, Any]
    children: tuple[bytes, ...] = ()
    child_leaves: tuple[bytes, ...] = ()
    refs: tuple[Ref, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline(NodeBase):
    """What a parent needs to know of a child: small enough to keep one per unit of a long scope."""

    keywords: tuple[tuple[str, int], ...]
    phrases: tuple[tuple[str, int], ...]
    speakers: tuple[tuple[str, int], ...]
    hints: tuple[tuple[str, int], ...]
    subjects: tuple[tuple[str, int], ...]
    said: str
    """The first quote of the node's summary, with its speaker, and its day where the talk lasted for several; the whole
    summary if a model wrote it."""

    language: str

    @classmethod
    def of(cls, node: Node) -> Outline:
        """Return the outline of a node."""
        metadata = node.metadata
        return cls(
            **{name: getattr(node, name) for name in _SHARED_FIELDS},
            keywords=_pairs(metadata["keywords"]),
            phrases=_pairs(metadata["phrases"]),
            speakers=_pairs(metadata["speakers"]),
            hints=_pairs(metadata["hints"]),
            subjects=_pairs(metadata.get("subjects", ())),
            said=_first_quote(node),
            language=metadata.get("language", ""),
        )


_SHARED_FIELDS = tuple(field.name for field in fields(NodeBase))


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A planned unit as the groups above it see it: its top node's outline and its leaves' joined node_ids."""

    top: Outline
    leaf_ids: bytes

    @property
    def key(self) -> UnitKey:
        """(timestamp, content key) of the unit's first event."""
        return self.top.key

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Unit:
        """Return the unit that `plan_unit` planned; `nodes` is its result, the top node last."""
        return cls(
            top=Outline.of(nodes[-1]),
            leaf_ids=b"".join([node.node_id for node in nodes if node.node_type == LEAF]),
        )


def leaf_ids_of(top: Node) -> bytes | None:
    """Return the joined node_ids of a unit's leaves, given its top node; None if some leaves are in parts below it."""
    if not top.children:
        return top.node_id
    return b"".join(top.child_leaves) if all(top.child_leaves) else None


class NodeReader(Protocol):
    """Stored nodes of one scope, in PostgreSQL or in memory."""

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order."""
        ...


class TreeReader(NodeReader, Protocol):
    """The old tree of one scope."""

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        """Return the node_ids of all leaves under (or at) a rendering, one after the other in any order."""
        ...


class EventReader(Protocol):
    """The events of one scope that a build may take: not internal, at or below its cutoff, old and new."""

    async def before(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly before (timestamp, event_seq), in ascending order."""
        ...

    async def after(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly after (timestamp, event_seq), in ascending order."""
        ...


def _pairs(value: Sequence[Sequence[Any]]) -> tuple[tuple[str, int], ...]:
    return tuple([(name, weight) for name, weight in value])


def _first_quote(node: Node) -> str:
    if node.metadata.get("written_by"):
        return clip(node.summary, _QUOTE_CHARACTERS)
    quotes = quotes_of(node.summary)
    return quotes[0].dated if quotes else ""
