"""Checks subjects: their nodes recompute, they reach only leaves of the tree of time, and their records are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from myria import errors
from myria.builds.events import ScopeReads
from myria.builds.trees import ScopeTree, node_from_row, subject_from_row
from myria.builds.verify.examination import STREAM_ROWS, Check, Examination, ExaminedScope, StoredSnapshot, TreeShape
from myria.builds.verify.snapshots import owned_numbers
from myria.builds.versions import subjects_alike
from myria.db.queries import sql
from myria.settings.planner import PlannerSettings
from myria.topics.identity import subject_node
from myria.topics.model import Description, Node, Outline, Participants
from myria.topics.subjects.holders import Holders
from myria.topics.subjects.keys import SUBJECTS_MOST
from myria.topics.subjects.whole import plan_all_subjects

_DIGITS = 16
"""Most children of a node that divides its subjects by a hexadecimal digit."""

_COMPARED = (
    "rendering_id",
    "node_id",
    "level",
    "topic_id",
    "anchor_seq",
    "anchor_event_id",
    "events",
    "leaves",
    "units",
    "key_timestamp",
    "key_event_id",
    "first_at",
    "last_at",
)
"""Fields of a node that recompute from its children, its words and its prefix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExaminedSubjects:
    """A scope's subjects in a snapshot: their root, and the snapshot number from which on records count."""

    snapshot: StoredSnapshot
    scope: ExaminedScope
    root: bytes | None
    since: int
    name: str
    """Scope and snapshot, for a message."""


async def nodes(exam: Examination, check: Check) -> None:
    """Check that every node of subjects recomputes from its children and its words, and that its children exist."""
    rows: list[Any] = []
    async for row in exam.stream(check, "verify.subject_nodes", await exam.count("subject_nodes")):
        rows.append(row)
        if len(rows) == STREAM_ROWS:
            await _examine_nodes(exam, check, rows)
            rows.clear()
    await _examine_nodes(exam, check, rows)


async def owners(exam: Examination, snapshots: Sequence[StoredSnapshot], check: Check) -> None:
    """Check that every root row has its scope and node, and that snapshots own its number and those of the records."""
    owned = owned_numbers(snapshots)
    async for row in exam.stream(check, "verify.subject_roots"):
        where = f"root of the subjects of scope {row['scope_id']} in snapshot number {row['number']}"
        if not row["has_scope"]:
            check.fail(f"{where}: there is no such scope")
        if row["root_rendering_id"] is not None and row["rendering_scope"] != row["scope_id"]:
            check.fail(f"{where}: its node {row['root_rendering_id'].hex()} is missing, or of another scope")
        if row["number"] not in owned:
            check.fail(f"{where}: no snapshot owns this number; the next build would inherit the row")
        if row["since"] > row["number"]:
            check.fail(f"{where}: it counts records since {row['since']}, which is later")
    async for row in exam.stream(check, "verify.subject_records"):
        if row["number"] not in owned:
            check.fail(
                f"records of who holds a key in scope {row['scope_id']}: no snapshot owns their number {row['number']}"
            )


async def subject_tree(exam: Examination, subjects: ExaminedSubjects, shape: TreeShape) -> None:
    """Compare a scope's subjects in a snapshot with the `shape` of its tree of time; if deep, also plan them again."""
    name, snapshot = subjects.name, subjects.snapshot
    leaves = set(shape.leaves)
    with exam.timed("subject_trees") as check:
        for problem in await _tree_problems(exam, check, subjects, leaves):
            check.fail(f"{name}: {problem}")
        async for key, record in _records(exam, subjects):
            check.examined += 1
            strays = [holder.rendering_id for holder in record.kept if holder.rendering_id not in leaves]
            if strays:
                check.fail(f"{name}: {strays[0].hex()} holds key {key.hex()}, but is no leaf of the tree")
    if not exam.deep:
        return
    with exam.timed("subjects_anew") as check:
        if subjects_alike(snapshot.planner_settings, exam.settings):
            await _replan_subjects(exam, check, subjects)
        elif snapshot.status in ("active", "held"):
            check.fail(
                f"{name}: its subjects were planned by another version or with other settings than these; "
                "run `myria rebuild --full`, or name its --config"
            )


async def _examine_nodes(exam: Examination, check: Check, rows: Sequence[Any]) -> None:
    children = await _stored_children(exam, {child for row in rows for child in row["children"]}, rows)
    for row in rows:
        for problem in _node_problems(row, children, exam.settings):
            check.fail(f"node of subjects {row['rendering_id'].hex()} ({row['label']!r}): {problem}")


async def _stored_children(exam: Examination, rendering_ids: set[bytes], rows: Sequence[Any]) -> dict[bytes, Node]:
    """Return the stored nodes of these ids, subjects or leaves, by rendering; `rows` are the rows of their parents."""
    subject_rows = await exam.connection.fetch(sql("subjects.nodes"), exam.tenant, list(rendering_ids))
    nodes_by_id = {row["rendering_id"]: subject_from_row(row) for row in subject_rows}
    participants: dict[bytes, Participants] = {
        child: tuple(row["participants"] or ()) for row in rows for child in row["children"]
    }
    leaf_rows = await exam.connection.fetch(
        sql("trees.renderings"), exam.tenant, list(rendering_ids - nodes_by_id.keys())
    )
    for row in leaf_rows:
        nodes_by_id[row["rendering_id"]] = node_from_row(row, participants[row["rendering_id"]])
    return nodes_by_id


def _node_problems(row: Any, stored: dict[bytes, Node], settings: PlannerSettings) -> Iterator[str]:
    """Yield what is wrong with a row of `verify.subject_nodes`."""
    if row["participants"] is None:
        yield f"its scope {row['scope_id']} does not exist"
        return
    missing = [child for child in row["children"] if child not in stored]
    if missing:
        yield f"{len(missing)} of its children are missing, the first {missing[0].hex()}"
        return
    max_children = max(settings.max_children, _DIGITS)
    if not 2 <= len(row["children"]) <= max_children:
        yield f"it has {len(row['children'])} children instead of 2..{max_children}"
        return
    node = subject_from_row(row)
    prefix = node.metadata.get("prefix")
    if not isinstance(prefix, str):
        yield "it does not say which prefix it stands for"
        return
    computed = subject_node(
        tuple(row["participants"]),
        Description(label=node.label, summary=node.summary, metadata=node.metadata),
        prefix=prefix,
        children=[stored[child] for child in node.children],
        is_subject=node.is_unit,
    )
    wrong_fields = [name for name in _COMPARED if getattr(node, name) != getattr(computed, name)]
    if wrong_fields:
        yield f"its {', '.join(wrong_fields)} are not what its children and its words give"


async def _tree_problems(exam: Examination, check: Check, subjects: ExaminedSubjects, leaves: set[bytes]) -> list[str]:
    """Return the problems below a root of subjects: what is no leaf of the tree, and leaves under too many subjects."""
    if subjects.root is None:
        return []
    problems = []
    subjects_of_leaf: Counter[bytes] = Counter()
    cursor = exam.connection.cursor(
        sql("verify.subjects_beneath"), exam.tenant, subjects.scope.scope_id, subjects.root, prefetch=STREAM_ROWS
    )
    async for row in cursor:
        check.examined += 1
        if row["children"] is not None:
            subjects_of_leaf.update(child for child in row["children"] if child in leaves)
        elif row["rendering_id"] not in leaves:
            problems.append(f"its subjects reach {row['rendering_id'].hex()}, which is no leaf of the tree, or missing")
    problems.extend(
        f"leaf {leaf.hex()} is under {times} subjects"
        for leaf, times in subjects_of_leaf.items()
        if times > SUBJECTS_MOST
    )
    return problems


async def _records(exam: Examination, subjects: ExaminedSubjects) -> AsyncIterator[tuple[bytes, Holders]]:
    """Yield the records of a scope that count in a snapshot; one that cannot be read fails its check."""
    cursor = exam.connection.cursor(
        sql("verify.holders_within"),
        exam.tenant,
        subjects.scope.scope_id,
        subjects.snapshot.lineage,
        subjects.since,
        prefetch=STREAM_ROWS,
    )
    async for row in cursor:
        try:
            yield row["key"], Holders.from_bytes(row["holders"], row["subject"])
        except errors.InternalError as error:
            exam.checks["subject_trees"].fail(f"{subjects.name}: key {row['key'].hex()}: {error.message}")


async def _replan_subjects(exam: Examination, check: Check, subjects: ExaminedSubjects) -> None:
    """Check that planning the subjects again from all leaves of the stored tree gives what is stored.

    The planned and the stored records both come in order of their keys, and are compared side by side.
    """
    check.examined += 1
    scope, name = subjects.scope, subjects.name
    reader = ScopeTree(ScopeReads(exam.database, exam.tenant, within=exam.connection), scope.participants)
    try:
        (root,) = await reader.nodes([scope.root])
        planned = await plan_all_subjects(
            Outline.of(root), reader, _keep_nothing, participants=scope.participants, settings=exam.settings
        )
    except errors.InternalError as error:
        check.fail(f"{name}: its leaves cannot be read: {error.message}")
        return
    planned_root = planned.root.rendering_id if planned.root is not None else None
    if planned_root != subjects.root:
        check.fail(f"{name}: the root of its subjects is {_id_text(subjects.root)}, anew {_id_text(planned_root)}")
    planned_records = planned.records()
    next_planned = next(planned_records, None)
    async for key, record in _records(exam, subjects):
        check.examined += 1
        while next_planned is not None and next_planned[0] < key:
            check.fail(f"{name}: there is no record of key {next_planned[0].hex()}, which leaves hold")
            next_planned = next(planned_records, None)
        planned_record = Holders()
        if next_planned is not None and next_planned[0] == key:
            planned_record, next_planned = next_planned[1], next(planned_records, None)
        if not record.is_part_of(planned_record):
            check.fail(f"{name}: the record of key {key.hex()} is not what its leaves give")
    while next_planned is not None:
        check.fail(f"{name}: there is no record of key {next_planned[0].hex()}, which leaves hold")
        next_planned = next(planned_records, None)


async def _keep_nothing(nodes: Sequence[Node]) -> None:
    """Drop planned nodes: comparing the roots compares all nodes under them."""


def _id_text(rendering_id: bytes | None) -> str:
    return rendering_id.hex() if rendering_id is not None else "nothing"
