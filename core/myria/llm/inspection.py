"""What a model may look at: subtrees, references, events. Read-only, masked at each call, bounded, in order.

Everything is read from immutable rows below the roots that the workflow pinned, each call in a short transaction of
its own: no transaction is open while a model thinks. The scopes in force are a condition of every statement, and each
row's participants are compared once more before it is shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from pydantic import Field

from myria.db.clock import rfc3339_of, to_microseconds
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import InternalError, ModelFailed
from myria.llm.conversation import Alias, Arguments, Call, Conversation, ModelTool
from myria.llm.failures import Kind, failed
from myria.llm.fencing import Aliases, escaped
from myria.log.masks import Masks
from myria.log.payloads import speaker_of, whole_text
from myria.log.withdrawal.model import NEUTRAL_LABEL, NEUTRAL_SUMMARY

Json = dict[str, Any]
Path = tuple[bytes, ...]

MOST_DEPTH = 4
MOST_NODES = 40
MOST_REFS = 40
MOST_EVENTS = 20
SUMMARY_CHARACTERS = 200
_AROUND = 120
"""Bytes kept free for what stands around the list of a result."""


class InspectSubtree(Arguments):
    """Arguments of inspect_subtree."""

    root: Alias = Field(description="A topic you were shown, e.g. t1")
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)] = Field(default=1, description="Levels below it")
    max_nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(default=16, description="How many topics")
    summaries_only: bool = Field(default=False, description="Without counts and times")
    cursor: Alias | None = Field(default=None, description="The cursor of a truncated result")


class InspectLeafRefs(Arguments):
    """Arguments of inspect_leaf_refs."""

    root: Alias = Field(description="A leaf topic you were shown, e.g. t4")
    max_refs: Annotated[int, Field(ge=1, le=MOST_REFS)] = Field(default=12, description="How many references")
    cursor: Alias | None = Field(default=None, description="The cursor of a truncated result")


class FetchEvents(Arguments):
    """Arguments of fetch_events."""

    event_ids: Annotated[list[Alias], Field(min_length=1, max_length=MOST_EVENTS)] = Field(
        description="Events you were shown, e.g. e1"
    )
    max_bytes: Annotated[int, Field(ge=64, le=1024 * 1024)] = Field(default=4096, description="Bound on the result")


INSPECT_SUBTREE = ModelTool(
    name="inspect_subtree",
    description="Show the topics below a topic, parents first, in order of time: labels and short summaries.",
    arguments=InspectSubtree,
)
INSPECT_LEAF_REFS = ModelTool(
    name="inspect_leaf_refs",
    description="List the events of a leaf topic in order of time, without their text.",
    arguments=InspectLeafRefs,
)
FETCH_EVENTS = ModelTool(
    name="fetch_events",
    description="Show the text of events.",
    arguments=FetchEvents,
)
TOOLS = (INSPECT_SUBTREE, INSPECT_LEAF_REFS, FETCH_EVENTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopesInForce:
    """What a workflow may see: scopes by number, and the masks that opened them; a build's is exactly its one scope.

    Events past `cutoff` are shown only with `fresh`: those of a walk's tail, which the ranking has seen. Withdrawals
    past `floor` are not in the trees: topics that may cover such an event show no words.
    """

    masks: Masks
    scopes: Mapping[int, tuple[str, ...]]
    cutoff: int
    fresh: bool = False
    floor: int = 0

    def check(self, scope_id: int, participants: Sequence[str]) -> None:
        """Check once more that a row's scope is inside the mask.

        Raises:
            InternalError: it is outside, which is a bug; nothing of the row was shown.
        """
        inside = scope_id in self.scopes and tuple(participants) == tuple(self.scopes[scope_id])
        if not inside or not self.masks.sees(participants):
            raise InternalError("a row outside of the mask was about to be shown to a model", scope_id=scope_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownTopic:
    """A topic that has an alias; `path` leads from its scope's root down to it."""

    scope_id: int
    path: Path
    topic_id: str
    is_leaf: bool

    @property
    def rendering_id(self) -> bytes:
        """The topic's rendering."""
        return self.path[-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownEvent:
    """An event that has an alias, and the path of the leaf it hangs from (empty in the fresh tail)."""

    event_seq: int
    event_id: str
    scope_id: int
    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class _Continuation:
    """Where a truncated result continues: the tool, the root it was called for, and what was not shown yet.

    `queue` holds paths still to show, each with its depth; `after` is the number of references shown so far.
    """

    tool: str
    root: bytes
    queue: tuple[tuple[Path, int], ...] = ()
    after: int = 0


@dataclass(slots=True)
class Shown:
    """The aliases of everything that one prompt has shown."""

    topics: Aliases[ShownTopic] = field(default_factory=lambda: Aliases("t", "topic"))
    events: Aliases[ShownEvent] = field(default_factory=lambda: Aliases("e", "event"))
    cursors: Aliases[_Continuation] = field(default_factory=lambda: Aliases("c", "cursor"))

    def topic(self, topic: ShownTopic) -> str:
        """Return a topic's alias."""
        return self.topics.of(topic.path, topic)

    def event(self, event: ShownEvent) -> str:
        """Return an event's alias."""
        return self.events.of(event.event_seq, event)


class Inspector:
    """The three tools over one mask."""

    def __init__(self, database: Database, tenant: str, mask: ScopesInForce, shown: Shown, *, most_bytes: int) -> None:
        self._database = database
        self._tenant = tenant
        self._mask = mask
        self._most_bytes = most_bytes
        self.shown = shown

    async def answer(self, talk: Conversation, call: Call) -> None:
        """Run the inspection tool that a model called, and tell it the result, or why there is none.

        Raises:
            ModelFailed: unknown_id, when no repair is left; budget_bytes.
            DatabaseUnavailable: PostgreSQL is away.
        """
        try:
            result, statement = await self.run(call.arguments)
        except ModelFailed as failure:
            talk.refuse(call, failure)
        else:
            talk.answer(call, result, statements=(statement,))

    async def run(self, arguments: Arguments) -> tuple[Json, str]:
        """Run the inspection tool that takes these arguments; return its result, and the name of the SQL that gave it.

        Raises:
            ModelFailed: unknown_id.
            DatabaseUnavailable: PostgreSQL is away.
        """
        if isinstance(arguments, InspectSubtree):
            return await self._subtree(arguments), "llm.topics"
        if isinstance(arguments, InspectLeafRefs):
            return await self._leaf_refs(arguments), "llm.leaf_refs"
        if isinstance(arguments, FetchEvents):
            return await self._events(arguments), "llm.events"
        raise InternalError("no such tool")

    async def _subtree(self, arguments: InspectSubtree) -> Json:
        """Return topics below a root, level by level, up to its limits of nodes, bytes and depth."""
        root = self.shown.topics.resolve(arguments.root)
        continuation = self._resolve_cursor(arguments.cursor, "inspect_subtree", root.rendering_id)
        waiting = deque(continuation.queue) if continuation is not None else deque(await self._children(root.path, 1))
        topics: list[Json] = []
        size = _AROUND
        while waiting and len(topics) < arguments.max_nodes:
            paths = [waiting.popleft() for _ in range(min(len(waiting), arguments.max_nodes - len(topics)))]
            rows = await self._rows([path[-1] for path, _ in paths])
            for position, (path, depth) in enumerate(paths):
                row = rows.get(path[-1])
                if row is None:
                    continue
                node = self._topic(row, path, summaries_only=arguments.summaries_only)
                size += len(escaped(node).encode()) + 1
                if size > self._most_bytes and topics:
                    waiting.extendleft(reversed(paths[position:]))
                    break
                topics.append(node)
                if depth < arguments.depth:
                    waiting.extend(((*path, child), depth + 1) for child in row["children"])
            if size > self._most_bytes and topics:
                break
        next_part = (
            _Continuation(tool="inspect_subtree", root=root.rendering_id, queue=tuple(waiting)) if waiting else None
        )
        return self._result("topics", topics, next_part)

    async def _leaf_refs(self, arguments: InspectLeafRefs) -> Json:
        """Return the events of a leaf without their texts, up to the limits of references and bytes."""
        root = self.shown.topics.resolve(arguments.root)
        if not root.is_leaf:
            raise failed(Kind.UNKNOWN_ID, f"{arguments.root} is no leaf; inspect its subtree")
        continuation = self._resolve_cursor(arguments.cursor, "inspect_leaf_refs", root.rendering_id)
        after = continuation.after if continuation is not None else 0
        rows = await self._read("llm.leaf_refs", root.rendering_id, list(self._mask.scopes))
        references: list[Json] = []
        size = _AROUND
        next_part = None
        for row in rows[after:]:
            if len(references) >= arguments.max_refs or size > self._most_bytes:
                next_part = _Continuation(
                    tool="inspect_leaf_refs", root=root.rendering_id, after=after + len(references)
                )
                break
            event = ShownEvent(
                event_seq=row["event_seq"], event_id=row["event_id"], scope_id=root.scope_id, path=root.path
            )
            references.append(
                {
                    "id": self.shown.event(event),
                    "at": rfc3339_of(row["occurred_at"], row["utc_offset"]),
                    "channel": row["channel"],
                    "type": row["type"],
                }
            )
            size += len(escaped(references[-1]).encode()) + 1
        return self._result("events", references, next_part)

    async def _events(self, arguments: FetchEvents) -> Json:
        """Return events with their texts, which are cut to fit; `omitted` lists those without room, or not found."""
        shown_events = [self.shown.events.resolve(alias) for alias in dict.fromkeys(arguments.event_ids)]
        rows = await self.events([known_event.event_seq for known_event in shown_events])
        room = min(arguments.max_bytes, self._most_bytes) - _AROUND
        events: list[Json] = []
        omitted: list[str] = []
        for alias, known_event in zip(dict.fromkeys(arguments.event_ids), shown_events, strict=True):
            row = rows.get(known_event.event_seq)
            if row is None or room < _AROUND:
                omitted.append(alias)
                continue
            event = shown_event(row, alias, characters=max(1, room - _AROUND))
            size = len(escaped(event).encode())
            while size > room and event["text"]:
                event["text"], event["cut"] = event["text"][: len(event["text"]) * room // (2 * size)], True
                size = len(escaped(event).encode())
            events.append(event)
            room -= size + 1
        return {"events": events, "truncated": bool(omitted), "omitted": omitted}

    async def events(self, event_seqs: Sequence[int]) -> dict[int, Any]:
        """Return rows of events inside the mask, by number."""
        rows = await self._read("llm.events", list(event_seqs), list(self._mask.scopes))
        return {row["event_seq"]: row for row in rows if self._mask.fresh or row["event_seq"] <= self._mask.cutoff}

    async def describe(self, paths: Sequence[Path], *, summaries_only: bool = False) -> list[Json]:
        """Return the topics at these paths as a model sees them, in that order; those outside the mask are left out."""
        rows = await self._rows([path[-1] for path in paths])
        return [self._topic(rows[path[-1]], path, summaries_only=summaries_only) for path in paths if path[-1] in rows]

    async def nearest_before(self, root: bytes, moment: int) -> list[Path]:
        """Return the paths of the leaves in the unit that holds a moment (microseconds), else in the last before it."""
        path: Path = (root,)
        while True:
            rows = await self._rows([path[-1]])
            row = rows.get(path[-1])
            if row is None:
                return []
            if not row["children"]:
                return [path]
            child_rows = await self._rows(list(row["children"]))
            if row["is_unit"]:
                return [(*path, child) for child in row["children"] if not child_rows[child]["children"]]
            children_before = [
                child for child in row["children"] if to_microseconds(child_rows[child]["first_at"]) <= moment
            ]
            path = (*path, children_before[-1] if children_before else row["children"][0])

    async def _children(self, path: Path, depth: int) -> list[tuple[Path, int]]:
        row = (await self._rows([path[-1]])).get(path[-1])
        return [((*path, child), depth) for child in row["children"]] if row is not None else []

    async def _rows(self, rendering_ids: Sequence[bytes]) -> dict[bytes, Any]:
        rows = await self._read("llm.topics", list(rendering_ids), list(self._mask.scopes), self._mask.floor)
        return {row["rendering_id"]: row for row in rows}

    async def _read(self, statement: str, *arguments: Any) -> list[Any]:
        """Return the rows of a statement; each is checked against the mask once more."""
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql(statement), self._tenant, *arguments)
        for row in rows:
            self._mask.check(row["scope_id"], row["participants"])
        return list(rows)

    def _topic(self, row: Any, path: Path, *, summaries_only: bool) -> Json:
        is_leaf = row["node_type"] == "leaf_topic"
        topic = ShownTopic(scope_id=row["scope_id"], path=path, topic_id=row["topic_id"], is_leaf=is_leaf)
        node: Json = {
            "id": self.shown.topic(topic),
            "kind": "leaf" if is_leaf else "inner",
            "label": NEUTRAL_LABEL if row["covers_withdrawn"] else row["label"],
            "summary": NEUTRAL_SUMMARY if row["covers_withdrawn"] else row["summary"][:SUMMARY_CHARACTERS],
        }
        if len(path) > 1:
            above = self.shown.topics.alias(path[:-1])
            if above is not None:
                node["under"] = above
        if not summaries_only:
            node["from"] = rfc3339_of(row["first_at"])
            node["to"] = rfc3339_of(row["last_at"])
            node["children"] = len(row["children"])
            node["refs"] = row["events"]
        return node

    def _resolve_cursor(self, cursor: str | None, tool: str, root: bytes) -> _Continuation | None:
        """Return what a cursor stands for, None without a cursor; it must be of the same tool and root."""
        continuation = None if cursor is None else self.shown.cursors.resolve(cursor)
        if continuation is not None and (continuation.tool, continuation.root) != (tool, root):
            raise failed(Kind.UNKNOWN_ID, f"cursor {cursor} belongs to another tool or topic")
        return continuation

    def _result(self, name: str, items: list[Json], next_part: _Continuation | None) -> Json:
        cursor = (
            None
            if next_part is None
            else self.shown.cursors.of((next_part.tool, next_part.root, next_part.queue, next_part.after), next_part)
        )
        return {name: items, "truncated": next_part is not None, "cursor": cursor}


def shown_event(row: Any, alias: str, *, characters: int) -> Json:
    """Return an event as a model sees it: its text is cut at `characters`, and says so."""
    payload = orjson.loads(row["payload"])
    text = whole_text(payload)
    event: Json = {
        "id": alias,
        "at": rfc3339_of(row["occurred_at"], row["utc_offset"]),
        "speaker": speaker_of(payload),
        "type": row["type"],
        "text": text[:characters],
    }
    if len(text) > characters:
        event["cut"] = True
    return event
