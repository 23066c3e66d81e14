"""Assembling the answer: one rooted tree, bounded in nodes, depth, tokens and bytes.

Hits arrive best first and are taken in that order, so a bounded answer is always a prefix of the ranking and a cursor
can continue it. A hit that fits on no page is shortened; one that still does not fit is skipped, and the answer names
its id. So every page takes at least one hit, and every hit can be reached. A topic with a single child in the answer
is left out, unless it is a scope's root or a leaf: the topics that remain are those where hits branch. What stands
under a subject is its history, in the order of time.

The lean view is the same tree with only what a model reads, without hashes, scores, counts and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from myria.log.payloads import speaker_of, whole_text
from myria.topics.model import SUBJECT

CHARACTERS_PER_TOKEN = 4
"""How tokens are estimated: characters of the answer's JSON, divided by this."""

MAX_SKIPPED = 50
"""Ids of skipped events that one answer may name; a page that would skip more ends there."""

_LEAN_KEEPS = ("type", "truncated", "superseded", "superseded_by", "change", "alike", "signals")
_LEAN_LEAVES_OUT = ("constraints", "counts", "walk")
_ROOT_TOKENS = 20
_CHILDREN_TOKENS = 4

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Leafward:
    """One hit to place: its event as JSON, and the renderings from its scope's root down to its leaf.

    `path` is empty for an event of the fresh tail, which hangs under the root. `shortened` makes the event's shorter
    form, where it has one.
    """

    event: Json
    path: tuple[bytes, ...] = ()
    shortened: Callable[[], Json] | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """The bounds of an answer.

    Args:
        nodes: all nodes of the answer, the root included.
        depth: levels; the root is at depth 0. What lies deeper is cut off.
        tokens: the answer's size, estimated as characters / 4.
        size: the answer's size as JSON in UTF-8, in bytes.
        around: the cost of what the answer holds beside its tree.
        lean: the answer is shown in the lean view, and the bounds count that view.
        as_text: the answer is shown as text. Its tokens do not count signals, of which a text says nothing: who asks
            why sees the text that others get.
    """

    nodes: int
    depth: int | None = None
    tokens: int | None = None
    size: int | None = None
    around: Cost | None = None
    lean: bool = False
    as_text: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What a part of an answer takes: nodes, estimated tokens, bytes."""

    nodes: int = 0
    tokens: int = 0
    size: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.nodes + other.nodes, self.tokens + other.tokens, self.size + other.size)


_CHILDREN = Cost(0, _CHILDREN_TOKENS, _CHILDREN_TOKENS * CHARACTERS_PER_TOKEN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembled:
    """The finished tree, and how many hits of the ranking it accounts for.

    `taken` counts the hits that are placed or skipped: the next page starts after that many. `placed` are the hits as
    shown, whole or shortened; `skipped` are the ids of events that fit on no page.
    """

    root: Json
    taken: int
    placed: tuple[Leafward, ...]
    skipped: tuple[str, ...]
    nodes: int
    cut_by_depth: bool


@dataclass(slots=True)
class _Branch:
    """A topic of the tree; `always`: it is shown even with a single child, as a scope's root or a leaf is."""

    topic: Json
    is_leaf: bool
    always: bool
    children: list[_Branch | Json] = field(default_factory=list)
    branches: dict[bytes, _Branch] = field(default_factory=dict)


class Assembly:
    """An answer that is being put together, hit by hit.

    Args:
        topics: the JSON of every rendering on a path, without children; it may grow between two hits.
        asked_by: the query's participants, carried by a root without children.
    """

    def __init__(self, room: Room, *, topics: Mapping[bytes, Json], asked_by: Sequence[str]) -> None:
        self._room = room
        self._topics = topics
        self._asked_by = asked_by
        around = room.around or Cost()
        names_cost = Cost() if room.lean else cost_of(asked_by, nodes=0)
        self._empty = Cost(1, _ROOT_TOKENS, _ROOT_TOKENS * CHARACTERS_PER_TOKEN) + around + names_cost
        self._used = self._empty
        self._top = _root()
        self._leaves: dict[tuple[bytes, ...], _Branch] = {(): self._top}
        self._listed_names = set(asked_by)
        self._placed: list[Leafward] = []
        self._skipped: list[str] = []

    @property
    def taken(self) -> int:
        """How many hits are placed or skipped so far."""
        return len(self._placed) + len(self._skipped)

    def take(self, hit: Leafward) -> bool:
        """Place a hit, shortened if it fits no other way, or skip it if it fits on no page.

        Returns:
            False if there is no room left and the hit belongs on the next page.
        """
        existing_branch = self._leaves.get(hit.path)
        for form in _forms(hit):
            cost = self._cost(self._top, self._listed_names, form, existing_branch)
            used = self._used + cost
            if self._fits(used):
                self._used = used
                self._listed_names.update(form.event["participants"])
                if existing_branch is None:
                    self._leaves[form.path] = _insert(self._top, form, self._topics)
                else:
                    existing_branch.children.append(form.event)
                self._placed.append(form)
                return True
            cost_alone = self._cost(_root(), set(self._asked_by), form)
            if self._fits(self._empty + cost_alone):
                return False
        return self.skip(hit.event["event_id"])

    def finish(self) -> Assembled:
        """Return the answer of the hits taken so far."""
        cut = [False]  # set by `_render` if the depth bound leaves something out
        children, node_count = _render(self._top, 1, self._room.depth, cut)
        shown_names = sorted({name for child in children for name in child["participants"]})
        root = {
            "kind": "root",
            "label": "query_result",
            "participants": shown_names or list(self._asked_by),
            "children": children,
        }
        return Assembled(
            root=root,
            taken=self.taken,
            placed=tuple(self._placed),
            skipped=tuple(self._skipped),
            nodes=1 + node_count,
            cut_by_depth=cut[0],
        )

    def skip(self, event_id: str) -> bool:
        """Leave out an event that fits on no page, and name its id in the answer.

        Returns:
            False if the id has no room in this answer: then the next page must name it.
        """
        id_cost = cost_of(event_id, nodes=0)
        is_first = not self._placed and not self._skipped
        # If not even an answer without hits fits, the bound is broken anyway: ids need not keep it then.
        if not is_first and (
            len(self._skipped) >= MAX_SKIPPED or (self._fits(self._empty) and not self._fits(self._used + id_cost))
        ):
            return False
        self._used += id_cost
        self._skipped.append(event_id)
        return True

    def _fits(self, cost: Cost) -> bool:
        room = self._room
        return (
            cost.nodes <= room.nodes
            and (room.tokens is None or cost.tokens <= room.tokens)
            and (room.size is None or cost.size <= room.size)
        )

    def _cost(
        self, top: _Branch, listed_names: set[str], hit: Leafward, existing_branch: _Branch | None = None
    ) -> Cost:
        """Return the cost of inserting a hit.

        Args:
            top: the root of the tree so far.
            listed_names: the participants whom the answer lists so far.
            existing_branch: the branch at the end of the hit's path, if the tree has it already.
        """
        event = self._as_shown(hit.event)
        cost = cost_of(event)
        if self._room.as_text and "signals" in event:
            said = {name: value for name, value in event.items() if name != "signals"}
            cost = replace(cost, tokens=cost_of(said).tokens)
        if existing_branch is None:
            cost += self._path_cost(top, hit.path)
        participants = hit.event["participants"]
        if not self._room.lean and not listed_names.issuperset(participants):
            cost += cost_of(sorted(set(participants) - listed_names), nodes=0)
        return cost

    def _topic_cost(self, rendering_id: bytes) -> Cost:
        """Return the cost of a topic with the list of its children."""
        return cost_of(self._as_shown(self._topics[rendering_id])) + _CHILDREN

    def _as_shown(self, node: Json) -> Json:
        return lean_node(node) if self._room.lean else node

    def _path_cost(self, top: _Branch, path: tuple[bytes, ...]) -> Cost:
        """Return the cost of the topics that will be shown because a hit is placed at the end of a path.

        A topic with one child is not shown, so a second child makes it appear and costs it, too.
        """
        cost = Cost()
        branch: _Branch | None = top
        above = b""
        leaf_depth = len(path) - 1
        for depth, rendering_id in enumerate(path):
            child = branch.branches.get(rendering_id) if branch is not None else None
            if child is None:
                if branch is not None and not branch.always and len(branch.branches) == 1:
                    cost += self._topic_cost(above)
                if depth in (0, leaf_depth):
                    cost += self._topic_cost(rendering_id)
            branch, above = child, rendering_id
        return cost


def assemble(
    hits: Iterable[Leafward], room: Room, *, topics: Mapping[bytes, Json], asked_by: Sequence[str]
) -> Assembled:
    """Return an answer of as many hits, in order, as the bounds allow."""
    assembly = Assembly(room, topics=topics, asked_by=asked_by)
    for hit in hits:
        if not assembly.take(hit):
            break
    return assembly.finish()


def cost_of(part: Any, *, nodes: int = 1) -> Cost:
    """Return the cost of a part of an answer, such as a node, as JSON, with what separates it from the next part."""
    text = orjson.dumps(part, option=orjson.OPT_PASSTHROUGH_DATETIME)
    characters = len(text) if text.isascii() else len(text.decode("utf-8"))
    return Cost(nodes, -(-characters // CHARACTERS_PER_TOKEN) + 1, len(text) + CHARACTERS_PER_TOKEN)


def _root() -> _Branch:
    return _Branch(topic={}, is_leaf=False, always=True)


def _forms(hit: Leafward) -> Iterable[Leafward]:
    """Yield the forms in which a hit may be placed: whole, then shortened (made only when it is needed)."""
    yield hit
    if hit.shortened is not None:
        yield replace(hit, event=hit.shortened(), shortened=None)


def _insert(top: _Branch, hit: Leafward, topics: Mapping[bytes, Json]) -> _Branch:
    """Put a hit at the end of its path, and return the branch there."""
    branch = top
    for depth, rendering_id in enumerate(hit.path):
        below = branch.branches.get(rendering_id)
        if below is None:
            is_leaf = depth == len(hit.path) - 1
            below = _Branch(topic=topics[rendering_id], is_leaf=is_leaf, always=is_leaf or depth == 0)
            branch.branches[rendering_id] = below
            branch.children.append(below)
        branch = below
    branch.children.append(hit.event)
    return branch


def _render(branch: _Branch, depth: int, max_depth: int | None, cut: list[bool]) -> tuple[list[Json], int]:
    """Return the JSON of a branch's children, and how many nodes that is.

    Args:
        depth: the level of the children; beyond `max_depth` they are left out.
        cut: its only item is set to True if something is left out for that.
    """
    if max_depth is not None and depth > max_depth:
        cut[0] = cut[0] or bool(branch.children)
        return [], 0
    rendered: list[Json] = []
    node_count = 0
    for child in branch.children:
        if not isinstance(child, _Branch):
            rendered.append(child)
            node_count += 1
        elif not child.always and len(child.branches) < 2:
            grandchildren, count = _render(child, depth, max_depth, cut)
            rendered.extend(grandchildren)
            node_count += count
        else:
            grandchildren, count = _render(child, depth + 1, max_depth, cut)
            if child.topic["kind"] == SUBJECT:
                grandchildren.sort(key=lambda leaf: (leaf["first_at"], leaf["topic_id"]))
            rendered.append({**child.topic, "children": grandchildren})
            node_count += count + 1
    return rendered, node_count


def lean_node(node: Json) -> Json:
    """Return one node, without its children, as the lean view shows it."""
    if node["kind"] in ("event", "event_ref"):
        payload = node.get("payload")
        speaker = node.get("speaker") if payload is None else speaker_of(payload)
        lean: Json = {"kind": node["kind"], "event_id": node["event_id"], "timestamp": node["timestamp"]}
        if speaker is not None:
            lean["speaker"] = speaker
        lean["text"] = node["snippet"] if payload is None else whole_text(payload)
        return lean | {name: node[name] for name in _LEAN_KEEPS if node.get(name) is not None}
    if node["kind"] == "root":
        return {"kind": "root", "label": node["label"]}
    return {name: node[name] for name in ("kind", "topic_id", "label", "summary", "first_at", "last_at")}


def lean_tree(node: Json) -> Json:
    """Return a tree as the lean view shows it."""
    shown = lean_node(node)
    if "children" in node:
        shown["children"] = [lean_tree(child) for child in node["children"]]
    return shown


def lean_answer(answer: Json) -> Json:
    """Return a query's answer as the lean view shows it: what is null is left out too."""
    shown = {name: value for name, value in answer.items() if name not in _LEAN_LEAVES_OUT and value is not None}
    return {**shown, "root": lean_tree(answer["root"])}
