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
from myria.errors import InternalError
from myria.llm.conversation import Alias, Arguments, ModelTool
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
        """Compare a row's scope with the mask once more.

        Raises:
            InternalError: the row lies outside: a bug, and nothing of it was shown.
        """
        inside = scope_id in self.scopes and tuple(participants) == tuple(self.scopes[scope_id])
        if not inside or not self.masks.sees(participants):
            raise InternalError("a row outside of the mask was about to be shown to a model", scope_id=scope_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownTopic:
    """A topic that has an alias: where it stands, from its scope's root down."""

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
class _Rest:
    """Where a truncated result goes on: the same tool, the same root, what had not been shown."""

    tool: str
    root: bytes
    queue: tuple[tuple[Path, int], ...] = ()
    after: int = 0


@dataclass(slots=True)
class Shown:
    """Everything that one prompt has named."""

    topics: Aliases[ShownTopic] = field(default_factory=lambda: Aliases("t", "topic"))
    events: Aliases[ShownEvent] = field(default_factory=lambda: Aliases("e", "event"))
    cursors: Aliases[_Rest] = field(default_factory=lambda: Aliases("c", "cursor"))

    def topic(self, topic: ShownTopic) -> str:
        """Return a topic's alias."""
        return self.topics.of(topic.path, topic)

    def event(self, event: ShownEvent) -> str:
        """Return an event's alias."""
        return self.events.of(event.event_seq, event)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspected:
    """A tool's result, and the names of the SQL that gave it."""

    result: Json
    statements: tuple[str, ...]


class Inspector:
    """The three tools over one mask."""

    def __init__(self, database: Database, tenant: str, mask: ScopesInForce, shown: Shown, *, most_bytes: int) -> None:
        self._database = database
        self._tenant = tenant
        self._mask = mask
        self._most_bytes = most_bytes
        self.shown = shown

    async def run(self, arguments: Arguments) -> Inspected:
        """Do what one of the tools was asked for.

        Raises:
            ModelFailed: unknown_id.
            DatabaseUnavailable: PostgreSQL is away.
        """
        if isinstance(arguments, InspectSubtree):
            return await self._subtree(arguments)
        if isinstance(arguments, InspectLeafRefs):
            return await self._leaf_refs(arguments)
        if isinstance(arguments, FetchEvents):
            return await self._events(arguments)
        raise InternalError("no such tool")

    async def _subtree(self, arguments: InspectSubtree) -> Inspected:
        root = self.shown.topics.resolve(arguments.root)
        rest = self._rest(arguments.cursor, "inspect_subtree", root.rendering_id)
        waiting = deque(rest.queue) if rest is not None else deque(await self._children(root.path, 1))
        topics: list[Json] = []
        size = _AROUND
        while waiting and len(topics) < arguments.max_nodes:
            paths = [waiting.popleft() for _ in range(min(len(waiting), arguments.max_nodes - len(topics)))]
            rows = await self._rows([path[-1] for path, _ in paths])
            for at, (path, depth) in enumerate(paths):
                row = rows.get(path[-1])
                if row is None:
                    continue
                node = self._topic(row, path, summaries_only=arguments.summaries_only)
                size += len(escaped(node).encode()) + 1
                if size > self._most_bytes and topics:
                    waiting.extendleft(reversed(paths[at:]))
                    break
                topics.append(node)
                if depth < arguments.depth:
                    waiting.extend(((*path, child), depth + 1) for child in row["children"])
            if size > self._most_bytes and topics:
                break
        left = _Rest(tool="inspect_subtree", root=root.rendering_id, queue=tuple(waiting)) if waiting else None
        return Inspected(result=self._result("topics", topics, left), statements=("llm.topics",))

    async def _leaf_refs(self, arguments: InspectLeafRefs) -> Inspected:
        root = self.shown.topics.resolve(arguments.root)
        if not root.is_leaf:
            raise failed(Kind.UNKNOWN_ID, f"{arguments.root} is no leaf; inspect its subtree")
        rest = self._rest(arguments.cursor, "inspect_leaf_refs", root.rendering_id)
        after = rest.after if rest is not None else 0
        rows = await self._read("llm.leaf_refs", root.rendering_id, list(self._mask.scopes))
        references: list[Json] = []
        size = _AROUND
        left = None
        for row in rows[after:]:
            if len(references) >= arguments.max_refs or size > self._most_bytes:
                left = _Rest(tool="inspect_leaf_refs", root=root.rendering_id, after=after + len(references))
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
        return Inspected(result=self._result("events", references, left), statements=("llm.leaf_refs",))

    async def _events(self, arguments: FetchEvents) -> Inspected:
        wanted = [self.shown.events.resolve(alias) for alias in dict.fromkeys(arguments.event_ids)]
        rows = await self.events([target.event_seq for target in wanted])
        room = min(arguments.max_bytes, self._most_bytes) - _AROUND
        events: list[Json] = []
        omitted: list[str] = []
        for alias, target in zip(dict.fromkeys(arguments.event_ids), wanted, strict=True):
            row = rows.get(target.event_seq)
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
        result = {"events": events, "truncated": bool(omitted), "omitted": omitted}
        return Inspected(result=result, statements=("llm.events",))

    async def events(self, event_seqs: Sequence[int]) -> dict[int, Any]:
        """Return rows of events inside the mask, by number."""
        rows = await self._read("llm.events", list(event_seqs), list(self._mask.scopes))
        return {row["event_seq"]: row for row in rows if self._mask.fresh or row["event_seq"] <= self._mask.cutoff}

    async def describe(self, paths: Sequence[Path], *, summaries_only: bool = False) -> list[Json]:
        """Return topics as a model sees them, by their paths, in that order; what is outside the mask is left out."""
        rows = await self._rows([path[-1] for path in paths])
        return [self._topic(rows[path[-1]], path, summaries_only=summaries_only) for path in paths if path[-1] in rows]

    async def nearest_before(self, root: bytes, moment: int) -> list[Path]:
        """Return the paths of the leaves of the unit that holds, or comes last before, a moment (microseconds)."""
        path: Path = (root,)
        while True:
            rows = await self._rows([path[-1]])
            row = rows.get(path[-1])
            if row is None:
                return []
            if not row["children"]:
                return [path]
            below = await self._rows(list(row["children"]))
            if row["is_unit"]:
                return [(*path, child) for child in row["children"] if not below[child]["children"]]
            before = [child for child in row["children"] if to_microseconds(below[child]["first_at"]) <= moment]
            path = (*path, before[-1] if before else row["children"][0])

    async def _children(self, path: Path, depth: int) -> list[tuple[Path, int]]:
        row = (await self._rows([path[-1]])).get(path[-1])
        return [((*path, child), depth) for child in row["children"]] if row is not None else []

    async def _rows(self, rendering_ids: Sequence[bytes]) -> dict[bytes, Any]:
        rows = await self._read("llm.topics", list(rendering_ids), list(self._mask.scopes), self._mask.floor)
        return {row["rendering_id"]: row for row in rows}

    async def _read(self, statement: str, *arguments: Any) -> list[Any]:
        """Return the rows of a statement, each compared with the mask once more."""
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

    def _rest(self, cursor: str | None, tool: str, root: bytes) -> _Rest | None:
        rest = None if cursor is None else self.shown.cursors.resolve(cursor)
        if rest is not None and (rest.tool, rest.root) != (tool, root):
            raise failed(Kind.UNKNOWN_ID, f"cursor {cursor} belongs to another tool or topic")
        return rest

    def _result(self, name: str, items: list[Json], left: _Rest | None) -> Json:
        cursor = None if left is None else self.shown.cursors.of((left.tool, left.root, left.queue, left.after), left)
        return {name: items, "truncated": left is not None, "cursor": cursor}


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
