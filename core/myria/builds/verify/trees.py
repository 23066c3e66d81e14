"""Checks trees: ids recompute, no node is missing or misplaced, each event is in one leaf, planning again agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from myria import errors
from myria.builds.compilation import replay_scope
from myria.builds.model import RunningBuild, Task
from myria.builds.verify.blocks import block_content, search_blocks
from myria.builds.verify.examination import (
    STREAM_ROWS,
    Check,
    Examination,
    ExaminedScope,
    Seqs,
    StoredSnapshot,
    TreeShape,
    erased_seqs,
    set_problems,
)
from myria.builds.verify.subjects import ExaminedSubjects, subject_tree
from myria.builds.versions import plans_alike
from myria.db.queries import sql
from myria.settings.planner import PlannerSettings
from myria.topics.identity import internal_node_id, leaf_node_id, rendering_id, settings_digest, topic_id
from myria.topics.model import ERASED_LABEL, ERASED_SUMMARY, LEAF, PlanEvent
from myria.topics.shaped import UnitShape, plan_shaped, unit_digest

_SCOPES_AT_ONCE = 200
_SUBTREE_EVENTS = 4096
"""A subtree of at most so many events is read at once."""

_WHOLE = 1000
"""A depth that no tree has: reads all nodes of a subtree."""


async def leaf_refs(exam: Examination, check: Check) -> None:
    """Check that every leaf's refs resolve to events of its own scope, in order, none internal; node_ids recompute."""
    async for row in exam.stream(check, "verify.nodes", await exam.count("nodes")):
        if row["participants"] is None:
            check.fail(f"node {row['node_id'].hex()}: its scope {row['scope_id']} does not exist")
        elif row["node_type"] == LEAF:
            for problem in _leaf_problems(row):
                check.fail(f"leaf {row['node_id'].hex()}: {problem}")


async def renderings(exam: Examination, check: Check) -> None:
    """Check that every rendering's id recomputes, its children, identity, topic and anchor event exist."""
    async for row in exam.stream(check, "verify.renderings", await exam.count("renderings")):
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
    elif not 2 <= len(row["children"]) <= settings.max_children:
        yield f"it has {len(row['children'])} children instead of 2..{settings.max_children}"


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


async def examine_trees(exam: Examination, snapshot: StoredSnapshot, examined: set[tuple[bytes, int, int]]) -> None:
    """Examine every scope's tree in a snapshot.

    `examined` holds the trees that were examined with other snapshots (see `_scope_tree`); this adds its own.
    """
    must_replan = snapshot.status in ("active", "held")  # an archived one may stem from another planner
    if exam.deep and must_replan and not plans_alike(snapshot.planner_settings, exam.settings):
        exam.checks["replan"].fail(
            f"snapshot {snapshot.snapshot_id} was planned by another version or with other settings than these: "
            "it cannot be replanned here; run `myria rebuild --full`, or name its --config"
        )
    after_scope = total = done = 0
    while True:
        rows = await exam.connection.fetch(
            sql("verify.snapshot_scopes"), exam.tenant, snapshot.lineage, after_scope, _SCOPES_AT_ONCE
        )
        total += len(rows)
        for row in rows:
            done += 1
            exam.progress("trees", done, total)
            async with exam.enduring(exam.checks["trees"]):
                await _scope_tree(exam, snapshot, row, examined)
        if len(rows) < _SCOPES_AT_ONCE:
            return
        after_scope = rows[-1]["scope_id"]


async def _scope_tree(
    exam: Examination, snapshot: StoredSnapshot, row: Any, examined: set[tuple[bytes, int, int]]
) -> None:
    """Examine one scope's tree in a snapshot, its search blocks and its subjects, unless an equal tree was examined."""
    with exam.timed("coverage") as coverage:
        eligible = await _eligible(exam, row["scope_id"], snapshot)
    subjects_row = await exam.connection.fetchrow(
        sql("subjects.root"), exam.tenant, row["scope_id"], snapshot.snapshot_id
    )
    root: bytes | None = row["root_rendering_id"]
    name = f"scope {row['scope_id']} in snapshot {snapshot.snapshot_id}"
    if root is None:
        coverage.examined += len(eligible)
        if len(eligible):
            coverage.fail(f"{name}: {len(eligible)} events, the first {eligible[0]}, are in no tree")
        if subjects_row is not None and subjects_row["root_rendering_id"] is not None:
            exam.checks["subject_trees"].fail(f"{name}: it has subjects, and no tree")
        return
    # Equal trees over equal events were examined with another snapshot.
    tree_key = (root, len(eligible), subjects_row["number"] if subjects_row is not None else 0)
    if tree_key in examined:
        return
    examined.add(tree_key)
    scope = ExaminedScope(
        scope_id=row["scope_id"],
        participants=tuple(row["participants"]),
        root=root,
        blocks=tuple(row["blocks"]),
        cutoff=snapshot.cutoff,
    )
    with exam.timed("trees") as trees:
        walk = _Walk(exam, scope=scope, check=trees, name=name)
        shape = await walk.run()
    with exam.timed("coverage"):
        _compare_coverage(coverage, name, eligible, shape)
    readable_blocks = await search_blocks(exam, scope, eligible, shape, name)
    if exam.deep:
        with exam.timed("block_content") as content:
            await block_content(exam, content, readable_blocks, name)
        # What held erased events cannot be planned anew: their words are gone.
        is_whole = not np.isin(np.array(shape.seqs, dtype=np.int64), await erased_seqs(exam, scope.scope_id)).any()
        if is_whole and plans_alike(snapshot.planner_settings, exam.settings):
            with exam.timed("replan") as replan:
                await _check_replan(exam, replan, scope, shape, name)
    if subjects_row is not None:
        subjects = ExaminedSubjects(
            snapshot=snapshot,
            scope=scope,
            root=subjects_row["root_rendering_id"],
            since=subjects_row["since"],
            name=name,
        )
        await subject_tree(exam, subjects, shape)


async def _eligible(exam: Examination, scope_id: int, snapshot: StoredSnapshot) -> Seqs:
    """Return the numbers of a scope's events that a snapshot must hold."""
    parts = []
    cursor = exam.connection.cursor(
        sql("verify.eligible_seqs"),
        exam.tenant,
        scope_id,
        snapshot.cutoff,
        prefetch=10 * STREAM_ROWS,
    )
    part: list[int] = []
    async for row in cursor:
        part.append(row[0])
        if len(part) == 65_536:
            parts.append(np.array(part, dtype=np.int64))
            part.clear()
    parts.append(np.array(part, dtype=np.int64))
    return np.concatenate(parts)


class _Walk:
    """Examines one tree from the leaves up. Small subtrees are read at once, the nodes above them one by one."""

    def __init__(
        self,
        exam: Examination,
        *,
        scope: ExaminedScope,
        check: Check,
        name: str,
    ) -> None:
        self._exam = exam
        self._scope = scope
        self._check = check
        self._name = name
        self._shape = TreeShape()

    async def run(self) -> TreeShape:
        """Examine the whole tree and return what it holds."""
        await self._visit(self._scope.root, {})
        return self._shape

    async def _visit(self, rendering_id: bytes, loaded: Mapping[bytes, Any]) -> Any | None:
        """Examine a rendering and all under it; return its row, None where it is missing.

        `loaded` holds the rows that were read with its ancestors.
        """
        row = loaded.get(rendering_id) or (await self._load(rendering_id, depth=0)).get(rendering_id)
        self._check.examined += 1
        if row is None:
            self._fail(rendering_id, "it is missing")
            return None
        if row["scope_id"] != self._scope.scope_id:
            self._fail(rendering_id, f"it belongs to scope {row['scope_id']}")
        first_leaf = len(self._shape.leaf_ids)
        self._shape.level_of[rendering_id] = row["level"]
        if row["node_type"] == LEAF:
            self._examine_leaf(row)
        else:
            if any(child not in loaded for child in row["children"]):
                is_small = row["events"] <= _SUBTREE_EVENTS
                loaded = await self._load(rendering_id, depth=_WHOLE if is_small else 1)
            children = [await self._visit_child(child, row, loaded) for child in row["children"]]
            self._examine_internal(row, [child for child in children if child is not None], first_leaf)
        return row

    async def _visit_child(self, child: bytes, parent: Any, loaded: Mapping[bytes, Any]) -> Any | None:
        known = loaded.get(child)
        if known is not None and known["level"] >= parent["level"]:
            self._fail(child, f"its level {known['level']} is not below its parent's {parent['level']}")
            return None
        self._shape.parent_of[child] = parent["rendering_id"]
        return await self._visit(child, loaded)

    async def _load(self, rendering_id: bytes, *, depth: int) -> dict[bytes, Any]:
        rows = await self._exam.connection.fetch(sql("verify.structure"), self._exam.tenant, rendering_id, depth)
        return {row["rendering_id"]: row for row in rows}

    def _examine_leaf(self, row: Any) -> None:
        rendering_id = row["rendering_id"]
        seqs = row["event_seqs"] or ()
        shape = self._shape
        if len(seqs) != row["events"] or row["leaves"] != 1 or row["level"] != 0 or row["children"]:
            self._fail(rendering_id, "its counts, level or children are not those of a leaf")
        if len(seqs) > self._exam.settings.leaf_max:
            self._fail(rendering_id, f"it holds {len(seqs)} events, more than {self._exam.settings.leaf_max}")
        shape.seqs.extend(seqs)
        shape.leaf_of.extend([len(shape.leaves)] * len(seqs))
        shape.leaves.append(rendering_id)
        shape.leaf_ids.append(row["node_id"])

    def _examine_internal(self, row: Any, rows: Sequence[Any], first_leaf: int) -> None:
        rendering_id = row["rendering_id"]
        if len(rows) != len(row["children"]):
            return  # a missing child was reported; nothing above it can be right
        if not 2 <= len(rows) <= self._exam.settings.max_children:
            self._fail(rendering_id, f"it has {len(rows)} children instead of 2..{self._exam.settings.max_children}")
        for at, child in enumerate(rows):
            if row["child_leaves"][at] != (child["node_id"] if child["node_type"] == LEAF else b""):
                self._fail(rendering_id, f"child_leaves[{at}] is not its child's node_id")
        for column, expected in _sums(row, rows).items():
            if row[column] != expected:
                self._fail(rendering_id, f"{column} is {row[column]}, its children give {expected}")
        if internal_node_id(self._scope.participants, b"".join(self._shape.leaf_ids[first_leaf:])) != row["node_id"]:
            self._fail(rendering_id, "node_id is not the hash of its participants and leaves")

    def _fail(self, rendering_id: bytes, problem: str) -> None:
        self._check.fail(f"{self._name}: rendering {rendering_id.hex()}: {problem}")


def _sums(row: Any, children: Sequence[Any]) -> dict[str, Any]:
    """Return what an internal rendering's columns must be, from its children's rows."""
    return {
        "events": sum(child["events"] for child in children),
        "leaves": sum(child["leaves"] for child in children),
        "units": 1 if row["is_unit"] else sum(child["units"] for child in children),
        "anchor_seq": min(child["anchor_seq"] for child in children),
        "key_at": children[0]["key_at"],
        "key_event_id": children[0]["key_event_id"],
        "first_at": min(child["first_at"] for child in children),
        "last_at": max(child["last_at"] for child in children),
    }


def _compare_coverage(check: Check, name: str, eligible: Seqs, shape: TreeShape) -> None:
    check.examined += len(eligible)
    placed = np.array(shape.seqs, dtype=np.int64)
    for problem in set_problems(placed, eligible, "leaf"):
        check.fail(f"{name}: {problem}")
    if len(eligible) > 1:
        counts = np.bincount(np.array(shape.leaf_of, dtype=np.int64), minlength=len(shape.leaves))
        for at in np.flatnonzero(counts == 1).tolist():
            check.fail(f"{name}: leaf {shape.leaves[at].hex()} holds a single event where a merge is possible")


async def _check_replan(exam: Examination, check: Check, scope: ExaminedScope, shape: TreeShape, name: str) -> None:
    """Check that planning a scope again gives the root of its stored tree."""
    check.examined += 1
    build = RunningBuild(
        tenant=exam.tenant, build_id="", snapshot_id="", number=0, cutoff=scope.cutoff, is_full=True, parent=None
    )
    task = Task(scope_id=scope.scope_id, participants=scope.participants, attempt=0, failures=0, eligible=None)
    shaper = _ShapesOfTree(exam, scope, shape, await _unit_plans(exam, scope))
    try:
        root = await replay_scope(exam.database, build, task, exam.settings, shaper=shaper, within=exam.connection)
    except errors.BuildInvalid as error:
        check.fail(f"{name}: planning anew breaks a rule: {error.message}")
        return
    if root != scope.root:
        planned_root = "nothing" if root is None else root.hex()
        check.fail(f"{name}: its root is {scope.root.hex()}, planning anew gives {planned_root}")


async def _unit_plans(exam: Examination, scope: ExaminedScope) -> Mapping[bytes, str]:
    """Return the stored plans of a scope's units, by unit."""
    if await exam.connection.fetchval(sql("verify.has_plans"), exam.tenant) is None:
        return {}
    planner = settings_digest(exam.settings)
    rows = await exam.connection.fetch(sql("llm.plans"), exam.tenant, scope.scope_id, planner)
    return {row["unit"]: row["plan"] for row in rows}


class _ShapesOfTree:
    """Shapes a unit by its stored plan where the tree holds that plan's result; reports the events on the way."""

    is_degraded = False

    def __init__(self, exam: Examination, scope: ExaminedScope, tree: TreeShape, plans: Mapping[bytes, str]) -> None:
        self._exam = exam
        self._scope = scope
        self._tree = tree
        self._plans = plans
        self._events = self._reported = 0

    async def shape(self, events: Sequence[PlanEvent], old_root: bytes | None) -> UnitShape | None:
        """Return the shape that the tree has of a unit; None where the planner divided it."""
        self._events += len(events)
        if self._events - self._reported >= 4 * STREAM_ROWS:
            self._reported = self._events
            self._exam.progress("replan", self._events, 0)
        plan = self._plans.get(unit_digest(events)) if self._plans else None
        if plan is None:
            return None
        shape = UnitShape.from_json(orjson.loads(plan))
        nodes = plan_shaped(self._scope.participants, events, shape, self._exam.settings)
        return shape if nodes[-1].rendering_id in self._tree.level_of else None
