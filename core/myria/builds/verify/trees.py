"""Trees: no child missing or out of place, sums recompute, and each event is in exactly one leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from myria.builds.verify.blocks import block_content, search_blocks
from myria.builds.verify.examination import (
    STREAM_ROWS,
    Examination,
    ExaminedScope,
    Seqs,
    StoredSnapshot,
    TreeShape,
    erased_seqs,
    set_problems,
)
from myria.builds.verify.replan import replanned
from myria.builds.verify.report import Check
from myria.builds.verify.subjects import ExaminedSubjects, subject_tree
from myria.builds.versions import plans_alike
from myria.db.queries import sql
from myria.topics.identity import internal_node_id
from myria.topics.model import LEAF

_SCOPES_AT_ONCE = 200
_SUBTREE_EVENTS = 4096


async def examine_trees(exam: Examination, snapshot: StoredSnapshot, examined: set[tuple[bytes, int, int]]) -> None:
    """Examine every scope's tree in a snapshot; `examined` remembers trees and their numbers of events."""
    is_awaited = snapshot.status in ("active", "held")  # what is archived belongs to the program that planned it
    if exam.deep and is_awaited and not plans_alike(snapshot.planner_settings, exam.settings):
        exam.checks["replan"].fail(
            f"snapshot {snapshot.snapshot_id} was planned by another version or with other settings than these: "
            "it cannot be replanned here; run `myria rebuild --full`, or name its --config"
        )
    after = total = done = 0
    while True:
        rows = await exam.connection.fetch(
            sql("verify.snapshot_scopes"), exam.tenant, snapshot.lineage, after, _SCOPES_AT_ONCE
        )
        total += len(rows)
        for row in rows:
            done += 1
            exam.progress("trees", done, total)
            async with exam.enduring(exam.checks["trees"]):
                await _scope_tree(exam, snapshot, row, examined)
        if len(rows) < _SCOPES_AT_ONCE:
            return
        after = rows[-1]["scope_id"]


async def _scope_tree(
    exam: Examination, snapshot: StoredSnapshot, row: Any, examined: set[tuple[bytes, int, int]]
) -> None:
    """Examine one scope's tree in a snapshot, and its search blocks, unless an equal one was."""
    with exam.timed("coverage") as coverage:
        eligible = await _eligible(exam, row["scope_id"], snapshot)
    stored = await exam.connection.fetchrow(sql("subjects.root"), exam.tenant, row["scope_id"], snapshot.snapshot_id)
    root: bytes | None = row["root_rendering_id"]
    name = f"scope {row['scope_id']} in snapshot {snapshot.snapshot_id}"
    if root is None:
        coverage.examined += len(eligible)
        if len(eligible):
            coverage.fail(f"{name}: {len(eligible)} events, the first {eligible[0]}, are in no tree")
        if stored is not None and stored["root_rendering_id"] is not None:
            exam.checks["subject_trees"].fail(f"{name}: it has subjects, and no tree")
        return
    # Equal trees over equal events were examined with another snapshot.
    mark = (root, len(eligible), stored["number"] if stored is not None else 0)
    if mark in examined:
        return
    examined.add(mark)
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
    views = await search_blocks(exam, scope, eligible, shape, name)
    if exam.deep:
        with exam.timed("block_content") as content:
            await block_content(exam, content, views, name)
        # What held erased events cannot be planned anew: their words are gone.
        is_whole = not np.isin(np.array(shape.seqs, dtype=np.int64), await erased_seqs(exam, scope.scope_id)).any()
        if is_whole and plans_alike(snapshot.planner_settings, exam.settings):
            with exam.timed("replan") as replan:
                await replanned(exam, replan, scope, shape, name)
    if stored is not None:
        subjects = ExaminedSubjects(
            snapshot=snapshot, scope=scope, root=stored["root_rendering_id"], since=stored["since"], name=name
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
    """One tree, examined from the leaves up: subtrees of a few thousand events are read at once, what lies above them
    node by node.
    """

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
        await self._visit(self._scope.root, {})
        return self._shape

    async def _visit(self, rendering_id: bytes, loaded: Mapping[bytes, Any]) -> _Seen | None:
        """Examine what is at and under a rendering; None where it is missing."""
        row = loaded.get(rendering_id) or (await self._load("verify.structure", rendering_id)).get(rendering_id)
        self._check.examined += 1
        if row is None:
            self._fail(rendering_id, "it is missing")
            return None
        if row["scope_id"] != self._scope.scope_id:
            self._fail(rendering_id, f"it belongs to scope {row['scope_id']}")
        first_leaf = len(self._shape.leaf_ids)
        self._shape.level_of[rendering_id] = row["level"]
        if row["node_type"] == LEAF:
            self._leaf(row)
        else:
            if any(child not in loaded for child in row["children"]):
                is_small = row["events"] <= _SUBTREE_EVENTS
                loaded = await self._load("verify.subtrees" if is_small else "verify.structure_below", rendering_id)
            children = [await self._visit_child(child, row, loaded) for child in row["children"]]
            self._internal(row, [child for child in children if child is not None], first_leaf)
        return _Seen(row=row, first_leaf=first_leaf)

    async def _visit_child(self, child: bytes, parent: Any, loaded: Mapping[bytes, Any]) -> _Seen | None:
        known = loaded.get(child)
        if known is not None and known["level"] >= parent["level"]:
            self._fail(child, f"its level {known['level']} is not below its parent's {parent['level']}")
            return None
        self._shape.parent_of[child] = parent["rendering_id"]
        return await self._visit(child, loaded)

    async def _load(self, statement: str, rendering_id: bytes) -> dict[bytes, Any]:
        rows = await self._exam.connection.fetch(sql(statement), self._exam.tenant, [rendering_id])
        return {row["rendering_id"]: row for row in rows}

    def _leaf(self, row: Any) -> None:
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

    def _internal(self, row: Any, children: Sequence[_Seen], first_leaf: int) -> None:
        rendering_id = row["rendering_id"]
        rows = [child.row for child in children]
        if len(rows) != len(row["children"]):
            return  # a missing child was reported; nothing above it can be right
        if not 2 <= len(rows) <= self._exam.settings.max_fan_out:
            self._fail(rendering_id, f"it has {len(rows)} children instead of 2..{self._exam.settings.max_fan_out}")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """An examined rendering, and where its leaves begin in the shape."""

    row: Any
    first_leaf: int


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
