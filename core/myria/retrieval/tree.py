"""Assembling the answer: one rooted tree, bounded in nodes, depth and tokens (§14.3, §16, trap 5).

Hits arrive best first and are inserted in that order, so a bounded answer is always a prefix of the ranking and a
cursor can continue it. A topic with a single child in the answer says nothing and is left out, unless it is a
scope's root or a leaf: what remains is where the hits part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

CHARACTERS_PER_TOKEN = 4
"""How tokens are estimated: characters of the answer's JSON, divided by this."""

_ROOT_TOKENS = 20
_CHILDREN_TOKENS = 4

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leafward:
    """One hit to place: its event as JSON, and the renderings from its scope's root down to its leaf.

    `path` is empty for an event of the fresh tail, which hangs under the root.
    """

    event: Json
    path: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The tree, and how many hits it holds: the next page starts after that many."""

    root: Json
    placed: int
    nodes: int
    cut_by_depth: bool


@dataclass(slots=True)
class _Branch:
    topic: Json
    is_leaf: bool
    always: bool
    children: list[_Branch | Json] = field(default_factory=list)
    branches: dict[bytes, _Branch] = field(default_factory=dict)


def assemble(
    hits: Sequence[Leafward],
    *,
    topics: Mapping[bytes, Json],
    asked_by: Sequence[str],
    max_nodes: int,
    max_depth: int | None,
    max_tokens: int | None,
    around_tokens: int = 0,
) -> Assembled:
    """Place as many hits, in order, as the bounds allow.

    Args:
        topics: the JSON of every rendering on a path, without children.
        asked_by: the query's participants, carried by a root without children.
        max_nodes: bound on all nodes of the answer, the root included.
        max_depth: bound on depth; the root is at depth 0.
        max_tokens: bound on the answer's size, estimated as characters / 4.
        around_tokens: what the answer holds beside its tree, counted into that bound.
    """
    top = _Branch(topic={}, is_leaf=False, always=True)
    nodes, tokens, placed = 1, _ROOT_TOKENS + around_tokens + estimated_tokens(asked_by), 0
    named = set(asked_by)
    for hit in hits:
        more_nodes, more_tokens = _cost(top, hit, topics)
        if not named.issuperset(hit.event["participants"]):
            more_tokens += estimated_tokens(sorted(set(hit.event["participants"]) - named))
        if nodes + more_nodes > max_nodes or (max_tokens is not None and tokens + more_tokens > max_tokens):
            break
        nodes += more_nodes
        tokens += more_tokens
        placed += 1
        named.update(hit.event["participants"])
        _insert(top, hit, topics)
    cut = [False]
    children, shown = _render(top, 1, max_depth, cut)
    union = sorted({name for child in children for name in child["participants"]})
    root = {
        "kind": "root",
        "label": "query_result",
        "participants": union or list(asked_by),
        "children": children,
    }
    return Assembled(root=root, placed=placed, nodes=1 + shown, cut_by_depth=cut[0])


def estimated_tokens(part: Any) -> int:
    """Return the estimated tokens of a part of an answer as JSON, such as a node, rounded up."""
    text = orjson.dumps(part, option=orjson.OPT_PASSTHROUGH_DATETIME).decode("utf-8")
    return -(-len(text) // CHARACTERS_PER_TOKEN) + 1


def _cost(top: _Branch, hit: Leafward, topics: Mapping[bytes, Json]) -> tuple[int, int]:
    """Return the nodes and tokens that inserting a hit would add."""
    nodes, tokens = 1, estimated_tokens(hit.event)
    branch: _Branch | None = top
    for depth, rendering_id in enumerate(hit.path):
        below = branch.branches.get(rendering_id) if branch is not None else None
        if below is None:
            if branch is not None and not branch.always and len(branch.branches) == 1:
                nodes += 1
                tokens += estimated_tokens(branch.topic) + _CHILDREN_TOKENS
            if depth == 0 or depth == len(hit.path) - 1:
                nodes += 1
                tokens += estimated_tokens(topics[rendering_id]) + _CHILDREN_TOKENS
        branch = below
    return nodes, tokens


def _insert(top: _Branch, hit: Leafward, topics: Mapping[bytes, Json]) -> None:
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


def _render(branch: _Branch, depth: int, max_depth: int | None, cut: list[bool]) -> tuple[list[Json], int]:
    if max_depth is not None and depth > max_depth:
        cut[0] = cut[0] or bool(branch.children)
        return [], 0
    rendered: list[Json] = []
    shown = 0
    for child in branch.children:
        if not isinstance(child, _Branch):
            rendered.append(child)
            shown += 1
        elif not child.always and len(child.branches) < 2:
            below, count = _render(child, depth, max_depth, cut)
            rendered.extend(below)
            shown += count
        else:
            below, count = _render(child, depth + 1, max_depth, cut)
            rendered.append({**child.topic, "children": below})
            shown += count + 1
    return rendered, shown
