"""Subjects: their nodes recompute, they reach leaves of the tree of time alone, and who holds which key is right."""

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
"""A node divides by a hexadecimal digit."""

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
"""What of a node its children, its words and its place give."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExaminedSubjects:
    """The subjects that a scope has in a snapshot: their root, and since which number records count."""

    snapshot: StoredSnapshot
    scope: ExaminedScope
    root: bytes | None
    since: int
    name: str
    """Scope and snapshot, for a message."""


async def nodes(exam: Examination, check: Check) -> None:
    """Every node of subjects is what its children and its words give, and its children exist."""
    rows: list[Any] = []
    async for row in exam.stream(check, "verify.subject_nodes", await exam.count("subject_nodes")):
        rows.append(row)
        if len(rows) == STREAM_ROWS:
            await _nodes(exam, check, rows)
            rows.clear()
    await _nodes(exam, check, rows)


async def owners(exam: Examination, snapshots: Sequence[StoredSnapshot], check: Check) -> None:
    """Every root row has its scope and node, and a snapshot owns its number and those of the records."""
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
    """Compare a scope's subjects in a snapshot with its tree of time, as `shape`; with `deep`, plan them anew."""
    name, snapshot = subjects.name, subjects.snapshot
    leaves = set(shape.leaves)
    with exam.timed("subject_trees") as check:
        for problem in await _strays(exam, check, subjects, leaves):
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
            await _anew(exam, check, subjects)
        elif snapshot.status in ("active", "held"):
            check.fail(
                f"{name}: its subjects were planned by another version or with other settings than these; "
                "run `myria rebuild --full`, or name its --config"
            )


async def _nodes(exam: Examination, check: Check, rows: Sequence[Any]) -> None:
    children = await _read(exam, {child for row in rows for child in row["children"]}, rows)
    for row in rows:
        for problem in _node_problems(row, children, exam.settings):
            check.fail(f"node of subjects {row['rendering_id'].hex()} ({row['label']!r}): {problem}")


async def _read(exam: Examination, wanted: set[bytes], rows: Sequence[Any]) -> dict[bytes, Node]:
    """Return those of some nodes that are stored, of subjects or leaves; `rows` name them as children."""
    stored = await exam.connection.fetch(sql("subjects.nodes"), exam.tenant, list(wanted))
    found = {row["rendering_id"]: subject_from_row(row) for row in stored}
    participants: dict[bytes, Participants] = {
        child: tuple(row["participants"] or ()) for row in rows for child in row["children"]
    }
    others = await exam.connection.fetch(sql("trees.renderings"), exam.tenant, list(wanted - found.keys()))
    for row in others:
        found[row["rendering_id"]] = node_from_row(row, participants[row["rendering_id"]])
    return found


def _node_problems(row: Any, stored: dict[bytes, Node], settings: PlannerSettings) -> Iterator[str]:
    """Yield what is wrong with a row of `verify.subject_nodes`."""
    if row["participants"] is None:
        yield f"its scope {row['scope_id']} does not exist"
        return
    missing = [child for child in row["children"] if child not in stored]
    if missing:
        yield f"{len(missing)} of its children are missing, the first {missing[0].hex()}"
        return
    most = max(settings.max_fan_out, _DIGITS)
    if not 2 <= len(row["children"]) <= most:
        yield f"it has {len(row['children'])} children instead of 2..{most}"
        return
    node = subject_from_row(row)
    prefix = node.metadata.get("prefix")
    if not isinstance(prefix, str):
        yield "it does not say which prefix it stands for"
        return
    given = subject_node(
        tuple(row["participants"]),
        Description(label=node.label, summary=node.summary, metadata=node.metadata),
        prefix=prefix,
        children=[stored[child] for child in node.children],
        is_subject=node.is_unit,
    )
    wrong = [name for name in _COMPARED if getattr(node, name) != getattr(given, name)]
    if wrong:
        yield f"its {', '.join(wrong)} are not what its children and its words give"


async def _strays(exam: Examination, check: Check, subjects: ExaminedSubjects, leaves: set[bytes]) -> list[str]:
    """Return how what a root of subjects reaches differs from leaves of the tree, each under few subjects."""
    if subjects.root is None:
        return []
    problems = []
    filed: Counter[bytes] = Counter()
    cursor = exam.connection.cursor(
        sql("verify.subjects_beneath"), exam.tenant, subjects.scope.scope_id, subjects.root, prefetch=STREAM_ROWS
    )
    async for row in cursor:
        check.examined += 1
        if row["children"] is not None:
            filed.update(child for child in row["children"] if child in leaves)
        elif row["rendering_id"] not in leaves:
            problems.append(f"its subjects reach {row['rendering_id'].hex()}, which is no leaf of the tree, or missing")
    problems.extend(
        f"leaf {leaf.hex()} is under {times} subjects" for leaf, times in filed.items() if times > SUBJECTS_MOST
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


async def _anew(exam: Examination, check: Check, subjects: ExaminedSubjects) -> None:
    """The subjects planned anew from all leaves of the stored tree are what is stored."""
    check.examined += 1
    scope, name = subjects.scope, subjects.name
    reader = ScopeTree(ScopeReads(exam.database, exam.tenant, within=exam.connection), scope.participants)
    try:
        (root,) = await reader.nodes([scope.root])
        planned = await plan_all_subjects(
            Outline.of(root), reader, _forget, participants=scope.participants, settings=exam.settings
        )
    except errors.InternalError as error:
        check.fail(f"{name}: its leaves cannot be read: {error.message}")
        return
    given = planned.root.rendering_id if planned.root is not None else None
    if given != subjects.root:
        check.fail(f"{name}: the root of its subjects is {_named(subjects.root)}, anew {_named(given)}")
    anew = planned.records()
    awaited = next(anew, None)
    async for key, record in _records(exam, subjects):
        check.examined += 1
        while awaited is not None and awaited[0] < key:
            check.fail(f"{name}: there is no record of key {awaited[0].hex()}, which leaves hold")
            awaited = next(anew, None)
        whole = Holders()
        if awaited is not None and awaited[0] == key:
            whole, awaited = awaited[1], next(anew, None)
        if not record.is_part_of(whole):
            check.fail(f"{name}: the record of key {key.hex()} is not what its leaves give")
    while awaited is not None:
        check.fail(f"{name}: there is no record of key {awaited[0].hex()}, which leaves hold")
        awaited = next(anew, None)


async def _forget(nodes: Sequence[Node]) -> None:
    """Keep nothing of nodes: the root tells them all."""


def _named(rendering_id: bytes | None) -> str:
    return rendering_id.hex() if rendering_id is not None else "nothing"
