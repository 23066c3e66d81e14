"""Compiles one scope in a build: read what changed, plan it, check it, write it.

Where the parent snapshot has a tree of the scope, only the units whose events changed are read and planned, and the
paths above them. Otherwise the whole scope is planned while its events stream in. Both give the same root, so the
choice is a matter of cost alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from myria import errors
from myria.builds.blocks import BLOCKS_AT_ONCE, BlockNodes, HeldBlocks, PlannedDocs, block_nodes, make_blocks
from myria.builds.events import ScopeEvents, ScopeReads
from myria.builds.model import DEGRADED_STANDING, RunningBuild, Task, TaskPart
from myria.builds.parts import Parts
from myria.builds.subjects import CompiledSubjects, ScopeSubjects
from myria.builds.trees import ScopeTree, TreeWriter
from myria.db.clock import to_microseconds
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.index.searchable import Covered, covered
from myria.settings.planner import PlannerSettings
from myria.topics.model import LEAF, Node, Outline, Participants, PlanEvent, Unit, UnitKey
from myria.topics.scope_plan import UnitSplitter, changed_units, plan_unit, units_between
from myria.topics.segments import BEFORE
from myria.topics.shaped import UnitShape, plan_shaped
from myria.topics.subjects.update import PlacedLeaf, leaves_of
from myria.topics.trie import assemble
from myria.topics.validation import Candidate, Violation, validate, validate_unit

_INCREMENTAL_EVENTS = 20_000
"""New events up to which a scope is always updated in place; beyond, it is planned anew once a quarter is new."""

_CHANGES_AT_ONCE = 256
"""Changes of a scope that are planned within one transaction, which saves round trips; more would keep it open long."""

_GROUPS_AT_ONCE = 32
"""Groups of units that are read and checked together."""

_VIOLATIONS_KEPT = 20

_WAIT_S = 0.1
"""Seconds between two looks at parts that other workers have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """A scope's new tree, all of whose nodes are written: what its task commits."""

    root: bytes | None
    blocks: list[bytes]
    degraded: frozenset[bytes]
    """The top renderings of its units that were planned without the model that was asked for."""
    changed: bool
    """False when the parent's row says the same already, or there is none and nothing to write."""
    subjects: CompiledSubjects | None = None
    """What to write of the scope's subjects; None for nothing."""
    was_shared: bool = False
    """Whether there are parts of the task, which go with its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _OldTree:
    """The tree of a scope in the parent; `root` is None where all that it had was withdrawn."""

    root: bytes | None = None
    blocks: list[bytes] = field(default_factory=list)
    degraded: frozenset[bytes] = frozenset()
    events: int = 0


_Positions = list[tuple[int, int]]
"""Places of events in their scope: (timestamp, event_seq)."""


class UnitShaper(Protocol):
    """Decides how a unit is divided, such as a model with its stored plans.

    `is_degraded`: the last call of `shape` left its unit to the planner because the model failed.
    """

    is_degraded: bool

    async def shape(self, events: Sequence[PlanEvent], old_root: bytes | None) -> UnitShape | None:
        """Return a shape that keeps every rule, None to leave the unit to the deterministic planner.

        `old_root` is the root of the scope's tree in the parent, None where it has none.
        """
        ...


async def compile_scope(
    database: Database,
    build: RunningBuild,
    task: Task,
    settings: PlannerSettings,
    counts: Counter[str],
    *,
    shaper: UnitShaper | None = None,
    parts: Parts | None = None,
) -> Compiled:
    """Compile one scope up to the build's cutoff; write all its nodes and blocks, but not its root row.

    The root row, which makes them visible, is written by `tasks.finish` from the returned value.

    Args:
        database: where the log and the trees are.
        build: the build.
        task: the scope's task.
        settings: the planner's settings.
        counts: updated on the way: events, units and leaves planned, rows written by table, milliseconds by phase.
        shaper: divides units; without it every unit is planned deterministically.
        parts: lets other workers plan parts of a big scope; not used together with `shaper`.

    Raises:
        BuildInvalid: the plan breaks a validation rule; nothing of it can be reached.
    """
    work = _Work(database, build, task, settings, counts, shaper=shaper, parts=parts if shaper is None else None)
    return await work.compile()


async def plan_part(
    database: Database,
    build: RunningBuild,
    part: TaskPart,
    settings: PlannerSettings,
    counts: Counter[str],
    *,
    docs: PlannedDocs | None = None,
) -> list[Unit]:
    """Plan and write the units that begin in a part of a big scope; `docs` takes their events for search blocks.

    Raises:
        BuildInvalid: the plan breaks a validation rule; nothing of it can be reached.
    """
    if docs is None:
        docs = PlannedDocs(most_bytes=0)
    work = _Work(database, build, part.task, settings, counts, shaper=None, docs=docs)
    return await work.plan_part(part)


async def replay_scope(
    database: Database,
    build: RunningBuild,
    task: Task,
    settings: PlannerSettings,
    *,
    shaper: UnitShaper | None,
    within: Connection | None = None,
) -> bytes | None:
    """Plan a scope as `compile_scope` does, but write nothing; return the root rendering's id, None without events.

    All reads are `within` a transaction where one is given.

    Raises:
        BuildInvalid: a unit breaks a validation rule.
    """
    work = _Work(
        database,
        build,
        task,
        settings,
        Counter(),
        shaper=shaper,
        writer=_NoWriter(database, build, task.scope_id),
        docs=PlannedDocs(most_bytes=0),
        within=within,
    )
    return await work.plan()


class _NoWriter(TreeWriter):
    """Takes nodes and writes none."""

    async def add(self, nodes: Iterable[Node]) -> None:
        """Write nothing."""


class _Work:
    """The work on one scope, or on a part of one: what was read, planned and counted so far."""

    def __init__(
        self,
        database: Database,
        build: RunningBuild,
        task: Task,
        settings: PlannerSettings,
        counts: Counter[str],
        *,
        shaper: UnitShaper | None,
        writer: TreeWriter | None = None,
        parts: Parts | None = None,
        docs: PlannedDocs | None = None,
        within: Connection | None = None,
    ) -> None:
        self._database = database
        self._build = build
        self._task = task
        self._settings = settings
        self._counts = counts
        self._reads = reads = ScopeReads(database, build.tenant, within=within)
        self._events = ScopeEvents(reads, task.scope_id, build.cutoff, participants=task.participants)
        self._tree = ScopeTree(reads, task.participants)
        self._writer = writer or TreeWriter(database, build, task.scope_id)
        self._shaper = shaper
        self._units: list[Unit] = []
        self._groups: list[Node] = []
        self._unplaced_seqs: set[int] = set()
        """New events that no planned unit holds yet; must be empty at the end of an update in place."""
        self._docs = PlannedDocs() if docs is None else docs
        self._parts = parts
        self._counts_of_parts: Counter[str] = Counter()
        """What of `_counts` other workers' parts, and this one's, have counted."""
        self._is_divided = False
        self._old: _OldTree | None = None
        self._root: Outline | None = None
        """The top of the new tree; None where no event is left, or before `plan`."""
        self._is_unchanged = False
        """Whether the parent's tree is the new one, so that nothing was planned."""
        self._is_in_place = False
        self._reads_together = False
        """Whether an update in place is small enough for its reads to share one transaction."""
        self._removed_units: list[Outline] = []
        """Top nodes of the parent's units that the new tree does not hold."""
        self._degraded: set[bytes] = set()
        self._new_leaves: list[PlacedLeaf] = []

    async def compile(self) -> Compiled:
        """Plan the scope and write its nodes, search blocks and subjects; return what its task commits."""
        started = time.monotonic()
        if self._task.eligible is not None:
            self._counts["events_eligible"] = self._task.eligible
        await self.plan()
        old, root = self._old or _OldTree(), self._root
        degraded = frozenset(self._degraded)
        if self._is_in_place:
            degraded |= old.degraded.difference(outline.rendering_id for outline in self._removed_units)
        if degraded or old.degraded:
            # A change of the snapshot's number, which `standing_after` adds to the parent's.
            self._counts[DEGRADED_STANDING] = len(degraded) - len(old.degraded)
        if self._is_unchanged:
            root_id, blocks, changed = old.root, old.blocks, False
            subjects = await self._add_subjects(old.root)
        elif root is None:
            root_id, blocks, changed = None, [], old.root is not None
            subjects = await self._compile_subjects(None, changed=changed)
        else:
            await self._flush()
            is_small = len(self._groups) <= _GROUPS_AT_ONCE
            async with self._reads.at_once() if is_small else nullcontext():
                await self._validate_groups()
                nodes, old_blocks, covers = await self._read_for_blocks(root, old.blocks)
            await self._write_blocks(nodes, old_blocks, covers)
            del old_blocks, covers  # free megabytes before planning the subjects
            root_id, blocks = root.rendering_id, nodes.covering
            changed = self._old is None or (old.root, old.blocks) != (root_id, blocks)
            self._counts["ms"] = round((time.monotonic() - started) * 1000)
            subjects = await self._compile_subjects(root, changed=changed)
        # A build without a changed scope has no snapshot, and so no number to keep rows under.
        if not self._is_unchanged or subjects is not None:
            self._counts["scopes"], self._counts["scopes_changed"] = 1, int(changed or subjects is not None)
        return Compiled(
            root=root_id,
            blocks=blocks,
            degraded=degraded,
            changed=changed or degraded != old.degraded,
            subjects=subjects,
            was_shared=self._is_divided,
        )

    async def plan(self) -> bytes | None:
        """Plan the scope, in place where the parent's tree allows it, otherwise from all its events.

        Returns the id of the root rendering, None where no event is left.
        """
        changes = None
        async with nullcontext() if self._build.parent is None else self._reads.at_once():
            self._old = old = await self._old_tree()
            if old is not None and not self._build.is_full:
                changes = await self._changes(old)
            # A model may think for minutes, for which a transaction must not wait.
            if changes is not None and self._shaper is None:
                self._reads_together = sum(map(len, changes)) <= _CHANGES_AT_ONCE
            if old is not None and changes is not None and self._reads_together:
                await self._update(old, *changes)
        if old is None or changes is None:
            await self._plan_all()
        elif not self._reads_together:
            await self._update(old, *changes)
        if self._is_unchanged and old is not None:
            return old.root
        return self._root.rendering_id if self._root is not None else None

    async def _old_tree(self) -> _OldTree | None:
        """Return the scope's tree in the parent snapshot; None where it has none."""
        if self._build.parent is None:
            return None
        async with self._reads.reading() as connection:
            row = await connection.fetchrow(
                sql("trees.scope_root"), self._build.tenant, self._task.scope_id, self._build.parent.snapshot_id
            )
        if row is None:
            return None
        if row["root_rendering_id"] is None:
            return _OldTree()
        (root,) = await self._tree.nodes([row["root_rendering_id"]])
        return _OldTree(
            root=root.rendering_id,
            blocks=list(row["blocks"]),
            degraded=frozenset(row["degraded"] or ()),
            events=root.events,
        )

    async def _changes(self, old: _OldTree) -> tuple[_Positions, _Positions] | None:
        """Return the events to add to the parent's tree and those to remove; None when all must be planned."""
        parent = self._build.parent
        if parent is None:
            return None
        arguments = (self._build.tenant, self._task.scope_id, parent.tail_xid, parent.cutoff, self._build.cutoff)
        max_changes = max(_INCREMENTAL_EVENTS, old.events // 4)
        if self._task.eligible is None or self._task.eligible > max_changes:
            return None
        async with self._reads.reading() as connection:
            rows = await connection.fetch(sql("trees.changes"), *arguments)
        if sum(row["is_new"] for row in rows) != self._task.eligible:
            # The bound on transaction ids holds within one database cluster; this log was restored into another.
            return None
        if any(row["was_there"] and row["is_erased"] for row in rows):
            # Where units of the old tree begin depends on words that are gone.
            return None
        added: _Positions = []
        removed: _Positions = []
        for row in rows:
            if row["was_there"] != row["is_there"]:
                positions = added if row["is_there"] else removed
                positions.append((to_microseconds(row["occurred_at"]), row["event_seq"]))
        return (added, removed) if len(added) + len(removed) <= max_changes else None

    async def _update(self, old: _OldTree, added: _Positions, removed: _Positions) -> None:
        """Plan the units that the added and removed events change, and the paths above them."""
        self._is_in_place = True
        if not added and not removed:
            self._is_unchanged = True
            return
        removed_units: set[UnitKey] = set()
        self._unplaced_seqs = {event_seq for _, event_seq in added}
        if self._build.parent is not None:
            self._events.parent_cutoff = self._build.parent.cutoff
        with self._timed("ms_units"):
            async for step in changed_units(added, self._events, self._settings, gone=removed):
                removed_units.update(step.removed)
                for unit in step.added:
                    await self._plan_unit(unit)
        self._root = root = await self._assemble(old.root, removed_units)
        if self._unplaced_seqs:
            raise _broken_plan(
                "each_event_exactly_once", f"{len(self._unplaced_seqs)} new events are in no planned unit"
            )
        expected_events = old.events + len(added) - len(removed)
        if (root.events if root is not None else 0) != expected_events:
            raise _broken_plan(
                "each_event_exactly_once",
                f"the tree holds {root.events if root else 0} events, not {expected_events}: {old.events} old ones, "
                f"{len(added)} that come and {len(removed)} that go",
            )
        self._counts["events_new"] = len(added)
        if removed:
            self._counts["events_withdrawn"] = len(removed)

    async def _plan_all(self) -> None:
        """Plan the scope from all its events, streaming; a big one in parts."""
        async with self._reads.reading() as connection:
            eligible = await connection.fetchval(
                sql("trees.count_events"), self._build.tenant, self._task.scope_id, self._build.cutoff
            )
        if self._parts is not None and await self._parts.divide(self._task.scope_id, eligible):
            await self._plan_in_parts(self._parts)
        else:
            splitter = UnitSplitter(self._settings)
            with self._timed("ms_units"):
                async for page in self._events.pages():
                    for event in page:
                        for unit in splitter.feed(event):
                            await self._plan_unit(unit)
                for unit in splitter.finish():
                    await self._plan_unit(unit)
        self._root = root = await self._assemble(None, set())
        events_in_tree, events_planned = root.events if root is not None else 0, self._counts["events"]
        if not events_in_tree == events_planned == eligible:
            raise _broken_plan(
                "each_event_exactly_once",
                f"the tree holds {events_in_tree} events, {events_planned} were planned, {eligible} are eligible",
            )
        self._counts["events_new"] = eligible

    async def _plan_in_parts(self, parts: Parts) -> None:
        """Plan the units of a big scope part by part, and wait for the parts that other workers have."""
        self._is_divided = True
        scope_id = self._task.scope_id
        own_units: dict[int, list[Unit]] = {}
        while True:
            part = await parts.claim(scope_id)
            if part is not None:
                counts: Counter[str] = Counter()
                own_units[part.part] = units = await plan_part(
                    self._database, self._build, part, self._settings, counts, docs=self._docs
                )
                await parts.finish(part, [unit.top.rendering_id for unit in units], counts)
            part_counts, parts_left = await parts.counted(scope_id)
            # `part_counts` are totals, so those of the last look are taken off first.
            self._counts.subtract(self._counts_of_parts)
            self._counts.update(part_counts)
            self._counts_of_parts = part_counts
            if not parts_left:
                break
            if part is None:
                await asyncio.sleep(_WAIT_S)
        for part_number, tops in await parts.results(scope_id):
            self._units.extend(own_units.get(part_number) or await self._tree.units(tops))

    async def plan_part(self, part: TaskPart) -> list[Unit]:
        """Plan and write the units that begin in a part."""
        with self._timed("ms_units"):
            before = await self._events.before(part.begin, BEFORE) if part.begin is not None else []
            pages = self._events.pages(part.begin, part.events)
            # Closed here: how many pages are read depends on where the last unit ends.
            async with aclosing(units_between(before, pages, self._settings, end=part.end)) as units:
                async for unit in units:
                    await self._plan_unit(unit)
        await self._flush()
        return self._units

    async def _flush(self) -> None:
        """Write the nodes that wait, and count the rows written."""
        with self._timed("ms_write"):
            await self._writer.flush()
        self._note_rows()

    async def _compile_subjects(self, root: Outline | None, *, changed: bool) -> CompiledSubjects | None:
        """Plan and write the scope's subjects; the nodes of its tree must be written. None where no row is to write.

        Args:
            root: the top of the tree of time; None for a scope without events.
            changed: whether the tree of time differs from the parent's.
        """
        if not self._settings.subjects:
            return None
        with self._timed("ms_subjects"):
            subjects = ScopeSubjects(self._database, self._build, self._task, self._reads)
            compiled = await subjects.compile(
                root,
                self._removed_units,
                self._new_leaves,
                self._settings,
                in_place=self._is_in_place,
                reads_together=self._reads_together,
                is_same_tree=not changed,
            )
        self._counts["rows_subjects"] += subjects.rows
        return compiled

    async def _add_subjects(self, root: bytes | None) -> CompiledSubjects | None:
        """Plan and write the subjects of a tree of time that did not change; None where they are up to date."""
        if not self._settings.subjects or root is None:
            return None
        subjects = ScopeSubjects(self._database, self._build, self._task, self._reads)
        if await subjects.are_known():
            return None
        (top,) = await self._tree.nodes([root])
        return await self._compile_subjects(Outline.of(top), changed=False)

    async def _read_for_blocks(
        self, root: Outline, old: Sequence[bytes]
    ) -> tuple[BlockNodes, HeldBlocks, Mapping[bytes, Covered]]:
        """Return which renderings carry the blocks of a tree, the blocks `old` that go out of use, and the first batch.

        All nodes of the tree must be written. The batch is what the first of the new blocks cover.
        """
        async with self._reads.reading() as connection:
            nodes = await block_nodes(connection, self._build.tenant, root.rendering_id)
            old_blocks = await HeldBlocks.load(connection, self._build.tenant, old, nodes)
            return nodes, old_blocks, await self._covered(connection, nodes.missing[:BLOCKS_AT_ONCE])

    async def _write_blocks(self, nodes: BlockNodes, old_blocks: HeldBlocks, covers: Mapping[bytes, Covered]) -> None:
        """Write the search blocks that the tree needs and nobody has written; `covers` is the first batch of them."""
        with self._timed("ms_blocks"):
            for start in range(0, len(nodes.missing), BLOCKS_AT_ONCE):
                if start:
                    async with self._reads.reading() as connection:
                        covers = await self._covered(connection, nodes.missing[start : start + BLOCKS_AT_ONCE])
                blocks = await make_blocks(
                    covers, events=self._events, old=old_blocks, planned=self._docs, counts=self._counts
                )
                await self._writer.add_blocks(blocks)
                self._note_rows()

    async def _covered(self, connection: Connection, renderings: Sequence[bytes]) -> dict[bytes, Covered]:
        return {rendering: await covered(connection, self._build.tenant, rendering) for rendering in renderings}

    async def _plan_unit(self, events: Sequence[PlanEvent]) -> None:
        """Plan a unit of these events, check it, keep its documents for search blocks, and write its nodes."""
        old_root = self._old.root if self._old is not None else None
        shape = await self._shaper.shape(events, old_root) if self._shaper is not None else None
        if shape is None:
            nodes = plan_unit(self._task.participants, events, self._settings)
            if self._shaper is not None and self._shaper.is_degraded:
                self._degraded.add(nodes[-1].rendering_id)
        else:
            nodes = plan_shaped(self._task.participants, events, shape, self._settings)
        _raise_if_any(validate_unit(nodes, events, participants=self._task.participants, settings=self._settings))
        if self._unplaced_seqs:
            self._unplaced_seqs.difference_update(event.event_seq for event in events)
        self._docs.keep(events)
        self._counts["units_planned"] += 1
        self._counts["events"] += len(events)
        self._counts["events_analysed"] += len(events)
        self._counts["leaves_planned"] += sum(node.node_type == LEAF for node in nodes)
        self._units.append(Unit.of(nodes))
        if self._settings.subjects and self._is_in_place:
            self._new_leaves.extend(leaves_of(nodes))
        await self._writer.add(nodes)

    async def _assemble(self, old_root: bytes | None, removed: set[UnitKey]) -> Outline | None:
        """Build the groups above the planned units and return the new root; None where no unit is left.

        `removed` are the keys of units of the tree at `old_root` that the new tree does not hold.
        """
        with self._timed("ms_assemble"):
            async with self._reads.at_once() if self._reads_together else nullcontext():
                root, groups = await assemble(
                    old_root,
                    removed,
                    self._units,
                    self._tree,
                    participants=self._task.participants,
                    settings=self._settings,
                    gone=self._removed_units,
                )
            await self._writer.add(groups)
        self._groups = groups
        self._counts["groups_planned"] += len(groups)
        self._counts["nodes_read"] = self._tree.read
        return root

    async def _validate_groups(self) -> None:
        """Check the groups above the planned units, each with its stored children."""
        groups, self._groups = self._groups, []
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            batch = groups[start : start + _GROUPS_AT_ONCE]
            children = await self._tree.nodes(sorted({child for group in batch for child in group.children}))
            _check_groups(batch, children, participants=self._task.participants, settings=self._settings)

    def _note_rows(self) -> None:
        for table, rows in self._writer.rows.items():
            self._counts[f"rows_{table}"] = rows + self._counts_of_parts[f"rows_{table}"]
        self._counts["events_read"] = self._events.read + self._counts_of_parts["events_read"]

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._counts[name] += round((time.monotonic() - started) * 1000)


def _check_groups(
    groups: Sequence[Node], stored: Sequence[Node], *, participants: Participants, settings: PlannerSettings
) -> None:
    """Check groups above units against the rules of validation; `stored` are all of their children.

    Raises:
        BuildInvalid: one of them breaks a rule.
    """
    children = {node.rendering_id: node for node in stored}
    for group in groups:
        own_children = {child: children[child] for child in group.children}
        violations = validate(
            Candidate(
                participants=participants,
                settings=settings,
                root=group.rendering_id,
                nodes=[group],
                events=[],
                scope_events=group.events,
                kept=own_children,
            )
        )
        violations.extend(
            Violation(
                rule="no_avoidable_singleton_leaf",
                message="one event alone where it could be merged",
                node_id=child.node_id,
            )
            for child in own_children.values()
            if child.events < 2
        )
        _raise_if_any(violations)


def _broken_plan(rule: str, message: str) -> errors.BuildInvalid:
    """Return the error for a plan that breaks a rule as a whole, not at one node."""
    return errors.BuildInvalid(message, violations=[{"rule": rule, "message": message}])


def _raise_if_any(violations: Sequence[Violation]) -> None:
    """Raise `BuildInvalid` with the first violations, if there are any."""
    if violations:
        raise errors.BuildInvalid(
            violations[0].message,
            violations=[
                {
                    "rule": violation.rule,
                    "message": violation.message,
                    "node_id": violation.node_id.hex() if violation.node_id is not None else None,
                }
                for violation in violations[:_VIOLATIONS_KEPT]
            ],
        )
