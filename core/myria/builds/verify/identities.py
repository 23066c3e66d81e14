"""Nodes and renderings: their ids recompute from what they name, and what they name exists."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson

from myria.builds.verify.examination import Examination
from myria.builds.verify.report import Check
from myria.settings.planner import PlannerSettings
from myria.topics.identity import leaf_node_id, rendering_id, topic_id
from myria.topics.model import ERASED_LABEL, ERASED_SUMMARY, LEAF


async def leaf_refs(exam: Examination, check: Check) -> None:
    """Every leaf's refs resolve to events of its own scope, in order, none internal; node_ids recompute."""
    async for row in exam.stream(check, "verify.nodes", await exam.count("verify.count_nodes")):
        if row["participants"] is None:
            check.fail(f"node {row['node_id'].hex()}: its scope {row['scope_id']} does not exist")
        elif row["node_type"] == LEAF:
            for problem in _leaf_problems(row):
                check.fail(f"leaf {row['node_id'].hex()}: {problem}")


async def renderings(exam: Examination, check: Check) -> None:
    """Every rendering's id recomputes, its children, identity, topic and anchor event exist."""
    async for row in exam.stream(check, "verify.renderings", await exam.count("verify.count_renderings")):
        for problem in _rendering_problems(row, exam.settings):
            check.fail(f"rendering {row['rendering_id'].hex()} ({row['label']!r}): {problem}")


def _leaf_problems(row: Any) -> Iterator[str]:
    """Yield what is wrong with a row of `verify.nodes` that is a leaf."""
    seqs, ids, times = list(row["event_seqs"]), list(row["event_ids"]), list(row["times"])
    lost = [seq for seq, event_id in zip(seqs, ids, strict=True) if event_id is None]
    if lost:
        yield f"its ref {lost[0]} resolves to no event"
        return
    if any(scope_id != row["scope_id"] for scope_id in row["scope_ids"]):
        yield "a ref leads to an event of another scope"
    if any(row["internal"]):
        yield "a ref leads to an internal event"
    positions = list(zip(times, seqs, strict=True))
    if any(before >= after for before, after in pairwise(positions)):
        yield "its refs are not in the order of the scope"
    if any(not 0 <= weight <= 1000 for weight in row["weights"]):
        yield "a weight is outside 0..1000"
    if leaf_node_id(tuple(row["participants"]), ids) != row["node_id"]:
        yield "node_id is not the hash of its participants and events"


def _rendering_problems(row: Any, settings: PlannerSettings) -> Iterator[str]:
    """Yield what is wrong with a row of `verify.renderings`."""
    if row["participants"] is None:
        yield f"its scope {row['scope_id']} does not exist"
        return
    computed = rendering_id(
        node_id=row["node_id"],
        level=row["level"],
        label=row["label"],
        summary=row["summary"],
        metadata=orjson.loads(row["metadata"]),
        children=list(row["children"]),
    )
    if row["is_erased"]:
        if (row["label"], row["summary"]) != (ERASED_LABEL, ERASED_SUMMARY):
            yield "it was erased, and says something"
    elif computed != row["rendering_id"]:
        yield "rendering_id is not the hash of its content"
    if row["identity_type"] != row["node_type"] or row["identity_scope"] != row["scope_id"]:
        yield "its node is missing, or of another kind or scope"
    if row["children_found"] != len(row["children"]):
        yield f"{len(row['children']) - row['children_found']} of its children are missing"
    if len(row["child_leaves"]) != len(row["children"]):
        yield "child_leaves and children differ in length"
    if row["anchor_found"] != row["anchor_event_id"] or row["anchor_scope"] != row["scope_id"]:
        yield f"its anchor {row['anchor_event_id']} is not event {row['anchor_seq']} of its scope"
    participants = tuple(row["participants"])
    if (
        not row["is_erased"]
        and topic_id(participants, row["node_type"], row["level"], row["anchor_event_id"]) != row["topic_id"]
    ):
        yield "topic_id is not the hash of its scope, kind, level and anchor"
    if not row["has_topic"]:
        yield f"its topic {row['topic_id']} is missing"
    if row["node_type"] == LEAF:
        yield from _leaf_rendering_problems(row)
    elif not 2 <= len(row["children"]) <= settings.max_fan_out:
        yield f"it has {len(row['children'])} children instead of 2..{settings.max_fan_out}"


def _leaf_rendering_problems(row: Any) -> Iterator[str]:
    seqs = row["event_seqs"] or ()
    if row["children"] or len(seqs) != row["events"]:
        yield "its children or its number of events are not those of its leaf"
    if row["first_at"] != row["first_occurred"] or row["last_at"] != row["last_occurred"]:
        yield "its span of time is not that of its events"
    if row["key_event_id"] != row["first_event_id"] or row["key_at"] != row["first_occurred"]:
        yield "its key is not its first event"
    if seqs and row["anchor_seq"] != min(seqs):
        yield "its anchor is not its event of lowest event_seq"
