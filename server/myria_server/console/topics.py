"""The pages of what a memory is about: the trees of topics that a visitor may see, and one topic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from starlette.requests import Request

from myria.builds import browse
from myria.errors import SnapshotNotFound
from myria.log.withdrawal.model import NEUTRAL_LABEL
from myria_server.console import timeline
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.fields import whole_number_of
from myria_server.console.forms import Page
from myria_server.console.routes import PageRoute, Routes

_SCOPES = 10
_CHILDREN = 30
_INSIDE = 200
_HISTORY = 60
"""Nodes of an answer about a subject or a leaf, most of them events."""

_WIDTH, _HEIGHT, _LEAST_MARK = 1_000, 60, 4
"""Of a drawn line of time, and of its smallest mark, in units of its own."""

VIEWS = {"subject": "By subject", "time": "By time", "timeline": "Timeline"}
"""The ways to look at topics, by their parameter in the address."""


async def topic(desk: Desk, request: Request) -> Page:
    """Show a topic: what is in it, the newest first, and of subjects and leaves what each event replaced."""
    topic_id = request.path_params["topic_id"]
    answer = await desk.ask("get_topic", topic_id=topic_id)
    shown = answer["topic"]
    is_history = shown["node_type"] in {"subject", "leaf_topic"}
    tree = await desk.ask(
        "query_references",
        root=topic_id,
        order="newest",
        max_nodes=_HISTORY if is_history else _INSIDE,
        cursor=request.query_params.get("cursor") if is_history else None,
        **({} if is_history else {"max_depth": 2}),
    )
    inside = _newest_first(events_in(tree["root"])) if is_history else []
    if not is_history:
        inside = _newest_first(next((node["children"] for node in tree["root"]["children"]), []))
    older: Mapping[int, list[Json]] = {}
    if is_history and inside:
        older = await desk.memory.retrieval.older_states(
            desk.tenant, [node["event_seq"] for node in inside], desk.masks
        )
    return "topic.html", {
        "topic": shown,
        "neutral": NEUTRAL_LABEL,
        "above": await _label_of(desk, shown.get("parent_topic_id")),
        "snapshot_id": answer["snapshot_id"],
        "made": await desk.memory.registry.freshness(desk.tenant, answer["snapshot_id"]),
        "is_history": is_history,
        "inside": inside,
        "states": [(node, older[node["event_seq"]]) for node in inside if node["event_seq"] in older]
        if is_history
        else [],
        "marks": _marks(inside),
        "next_cursor": tree["next_cursor"] if is_history else None,
        "is_cut": not is_history and len(inside) < max(shown["counts"]["children"], 1),
    }


async def overview(desk: Desk, request: Request) -> Page:
    """Show the first levels of the trees that the visitor may see, a tree for each group of participants."""
    desk.principal.need_api("core")
    parameters = request.query_params
    if parameters.get("view") == "timeline":
        return await timeline.view(desk, request, VIEWS)
    view = "time" if parameters.get("view") == "time" else "subject"
    after = whole_number_of(parameters.get("after"))
    status = await desk.call("get_snapshot_status")
    participants = desk.participants
    trees, next_after = await trees_of(desk, participants, view=view, after=after, most=_SCOPES)
    return "topics.html", {
        "view": view,
        "views": VIEWS,
        "trees": trees,
        "next_after": next_after,
        "status": status,
    }


async def trees_of(
    desk: Desk, participants: Sequence[str], *, view: str, after: int, most: int
) -> tuple[list[Json], int | None]:
    """Return trees with the first levels of each, and after which scope there are more, None where there are not.

    Args:
        participants: only trees that all of these may see.
        view: one of `VIEWS`.
        after: only trees of greater scope ids.
        most: how many trees at most.
    """
    tenant = desk.tenant
    trees: list[Json] = []
    async with desk.memory.database.read(tenant) as connection:
        try:
            snapshot = await browse.find_snapshot(connection, tenant, None)
        except SnapshotNotFound:
            return [], None
        reader = await browse.ShownTrees.of(connection, tenant, snapshot)
        scopes = browse.scope_roots(connection, tenant, snapshot, participants=participants, after=after)
        async for scope in scopes:
            if len(trees) == most:
                return trees, trees[-1]["scope_id"]
            root = scope.root
            if view == "subject":
                root = await browse.subject_root(connection, tenant, snapshot, scope.scope_id) or root
            [whole] = await reader.nodes([scope.root])
            if not whole.events:
                continue
            [top] = await reader.nodes([root])
            inside = await _subjects_or_topics(reader, top)
            trees.append(
                {
                    "scope_id": scope.scope_id,
                    "participants": scope.participants,
                    "top": top.to_json(),
                    # Subjects share events and leave others out: only the tree of time holds each event once.
                    "whole": whole.to_json(),
                    "inside": [node.to_json() for node in inside[:_CHILDREN]],
                    "more": len(inside) > _CHILDREN,
                }
            )
    return trees, None


async def _label_of(desk: Desk, topic_id: str | None) -> str:
    """Return what a topic is called, in general words where it is gone meanwhile."""
    if topic_id is None:
        return ""
    try:
        label: str = (await desk.ask("get_topic", topic_id=topic_id))["topic"]["label"]
    except ToolRefused:
        return "a larger topic"
    return label


async def _subjects_or_topics(reader: browse.ShownTrees, top: browse.TreeNode) -> list[browse.TreeNode]:
    """Return what stands below the top of a tree, the newest first: its topics, or in a tree of subjects its subjects.

    Groups of subjects have no meaning of their own, so they are opened, until there are more subjects than are shown.
    """
    if top.is_subject and top.units == 1:
        return [top]  # below the only subject there are parts of it, which have no page of their own
    found: list[browse.TreeNode] = []
    groups = [top]
    while groups and len(found) <= _CHILDREN:
        children = [child for group in groups for child in group.children]
        nodes = [node for node in await reader.nodes(children[: 2 * _CHILDREN]) if node.events]
        groups = [node for node in nodes if node.is_subject and node.units > 1]
        found += [node for node in nodes if not (node.is_subject and node.units > 1)]
    return sorted(found, key=lambda node: node.last_at, reverse=True)


def events_in(node: Json) -> list[Json]:
    """Return the events below a node of an answer, each once."""
    found: dict[str, Json] = {}
    waiting = [node]
    while waiting:
        for child in waiting.pop().get("children", ()):
            if "event_id" in child:
                found.setdefault(child["event_id"], child)
            else:
                waiting.append(child)
    return list(found.values())


def _newest_first(nodes: Sequence[Json]) -> list[Json]:
    return sorted(nodes, key=lambda node: _second(node, "last_at"), reverse=True)


def in_reading_order(nodes: Sequence[Json], *, is_top: bool = True) -> list[Json]:
    """Return nodes of an answer as a person reads them: the best topics first, and what is in each by time.

    What is in a topic comes oldest first, as a talk does; newest first where a newer event replaced an older one.
    """
    ordered = [
        {**node, "children": in_reading_order(node["children"], is_top=False)} if node.get("children") else node
        for node in nodes
    ]
    if any(node.get("superseded") or node.get("change") for node in ordered):
        return _newest_first(ordered)
    return ordered if is_top else sorted(ordered, key=lambda node: _second(node, "first_at"))


def _marks(nodes: Sequence[Json]) -> list[Json]:
    """Return where topics or events stand on a drawn line of time, and how wide and high their marks are.

    An event that would be drawn over another one counts as one `more` of its mark.
    """
    spans = [(_second(node, "first_at"), _second(node, "last_at")) for node in nodes]
    if not spans:
        return []
    start, end = min(first for first, _ in spans), max(last for _, last in spans)
    width = max(end - start, 1.0)
    most = max(_events_of(node) for node in nodes)
    marks: list[Json] = [
        {
            "node": node,
            "at": round((first - start) / width * (_WIDTH - _LEAST_MARK)),
            "width": max(_LEAST_MARK, round((last - first) / width * _WIDTH)),
            "height": max(_LEAST_MARK, round(math.sqrt(_events_of(node) / most) * _HEIGHT)),
            "more": 0,
        }
        for node, (first, last) in zip(nodes, spans, strict=True)
    ]
    drawn: list[Json] = []
    for mark in sorted(marks, key=lambda mark: mark["at"]):
        if drawn and "event_id" in mark["node"] and mark["at"] < drawn[-1]["at"] + drawn[-1]["width"]:
            drawn[-1]["more"] += 1
        else:
            drawn.append(mark)
    return drawn


def _second(node: Json, name: str) -> float:
    return datetime.fromisoformat(node.get(name) or node["timestamp"]).timestamp()


def _events_of(node: Json) -> int:
    return node["counts"]["events"] if "counts" in node else 1


ROUTES: Routes = (
    PageRoute("/topics", overview, is_as_somebody=True),
    PageRoute("/topics/{topic_id}", topic, is_as_somebody=True),
)
