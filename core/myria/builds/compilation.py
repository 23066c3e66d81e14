"""One scope's part of a build: read what changed, plan it, check it, write it.

Incremental where the parent has a tree: only units whose events changed are read and planned, and the paths above
them. Full otherwise, streaming. Both give the same root, so choosing between them is a matter of cost alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from myria import errors
from myria.builds.blocks import BLOCKS_AT_ONCE, BlockNodes, HeldBlocks, PlannedDocs, block_nodes, make_blocks
from myria.builds.events import ScopeEvents, ScopeReads
from myria.builds.model import DEGRADED_STANDING, RunningBuild, Task, TaskPart
from myria.builds.parts import ScopeParts
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

_GROUPS_AT_ONCE = 32

_VIOLATIONS_KEPT = 20

_WAIT_S = 0.1
"""Pause between two looks at parts that others have."""


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

    root: bytes | None
    blocks: list[bytes]
    degraded: frozenset[bytes]
    events: int


_Positions = list[tuple[int, int]]
"""Places of events in their scope: (timestamp, event_seq)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Planned:
    """The parent's tree, and the new root: None where no event is left, or where `unchanged` is true."""

    old: _OldTree | None
    root: Outline | None
    unchanged: bool = False

    @property
    def old_root(self) -> bytes | None:
        """The parent's root."""
        return None if self.old is None else self.old.root


class UnitShaper(Protocol):
    """Decides how a unit is divided, such as a model with its stored plans.

    `is_degraded` tells that the unit before was left to the planner because a model that was asked failed.
    """

    is_degraded: bool

    def start_from(self, root: bytes | None) -> None:
        """Take note of the tree that the scope has in the parent."""
        ...

    async def shape(self, events: Sequence[PlanEvent]) -> UnitShape | None:
        """Return a shape that keeps every rule, None to leave the unit to the deterministic planner."""
        ...


async def compile_scope(
    database: Database,
    build: RunningBuild,
    task: Task,
    settings: PlannerSettings,
    counts: Counter[str],
    *,
    shaper: UnitShaper | None = None,
    parts: ScopeParts | None = None,
) -> Compiled:
    """Compile one scope up to the build's cutoff and write everything but its root row and what goes with that.

    `counts` is kept up to date on the way: events, units and leaves planned, rows written by table, milliseconds by
    phase. Without `shaper` every unit is planned deterministically, in parts that other workers share where `parts` is
    given and the scope is big.

    Raises:
        BuildInvalid: the plan breaks a validation rule; nothing of it can be reached.
    """
    work = _Work(database, build, task, settings, counts, shaper=shaper, parts=parts if shaper is None else None)
    started = time.monotonic()
    if task.eligible is not None:
        counts["events_eligible"] = task.eligible
    planned = await work.run()
    old, root = planned.old, planned.root
    before = old.degraded if old is not None else frozenset()
    if planned.unchanged:
        subjects = await work.add_subjects(planned.old_root)
        if subjects is not None:
            counts["scopes"] = counts["scopes_changed"] = 1
        blocks = old.blocks if old is not None else []
        return Compiled(
            root=planned.old_root,
            blocks=blocks,
            degraded=before,
            changed=False,
            subjects=subjects,
        )
    degraded = work.degraded(before)
    if degraded or before:
        counts[DEGRADED_STANDING] = len(degraded) - len(before)
    if root is None:
        changed = planned.old_root is not None
        subjects = await work.compile_subjects(None, changed=changed)
        counts["scopes"], counts["scopes_changed"] = 1, int(changed or subjects is not None)
        return Compiled(root=None, blocks=[], degraded=degraded, changed=changed, subjects=subjects)
    await work.flush()
    async with work.reading_at_once():
        await work.validate_groups()
        nodes = await work.block_nodes(root)
        known, covers = await work.read_for_blocks(nodes, old.blocks if old is not None else ())
    changed = old is None or old.root != root.rendering_id or old.blocks != nodes.covering
    await work.write_blocks(nodes, known, covers)
    del known, covers  # megabytes, which planning subjects need not wait beside
    counts["ms"] = round((time.monotonic() - started) * 1000)
    subjects = await work.compile_subjects(root, changed=changed)
    # A build without a changed scope has no snapshot, and so no number to keep rows under.
    counts["scopes"], counts["scopes_changed"] = 1, int(changed or subjects is not None)
    return Compiled(
        root=root.rendering_id,
        blocks=nodes.covering,
        degraded=degraded,
        changed=changed or degraded != before,
        subjects=subjects,
        was_shared=work.is_divided,
    )


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
    database: Database, build: RunningBuild, task: Task, settings: PlannerSettings, *, shaper: UnitShaper | None
) -> bytes | None:
    """Return the root rendering that compiling a scope gives, all of whose nodes are stored already. Writes nothing.

    Raises:
        BuildInvalid: the plan breaks a validation rule.
        InternalError: a node of the tree is not stored.
    """
    writer = _NoWriter(database, build, task.scope_id)
    work = _Work(database, build, task, settings, Counter(), shaper=shaper, writer=writer)
    planned = await work.run()
    if planned.root is None:
        return planned.old_root if planned.unchanged else None
    await work.validate_groups()
    return planned.root.rendering_id


class _NoWriter(TreeWriter):
    """Takes nodes and writes none."""

    async def add(self, nodes: Iterable[Node]) -> None:
        """Write nothing."""


class _Work:
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
        parts: ScopeParts | None = None,
        docs: PlannedDocs | None = None,
    ) -> None:
        self._database = database
        self._build = build
        self._task = task
        self._settings = settings
        self._counts = counts
        self._reads = reads = ScopeReads(database, build.tenant)
        self._events = ScopeEvents(reads, task.scope_id, build.cutoff, participants=task.participants)
        self._tree = ScopeTree(reads, task.participants)
        self._writer = writer or TreeWriter(database, build, task.scope_id)
        self._shaper = shaper
        self._units: list[Unit] = []
        self._groups: list[Node] = []
        self._to_place: set[int] = set()
        self._docs = PlannedDocs() if docs is None else docs
        self._parts = parts
        self._in_parts: Counter[str] = Counter()
        self.is_divided = False
        self._is_in_place = False
        self._gone: list[Outline] = []
        self._degraded: set[bytes] = set()
        self._new_leaves: list[PlacedLeaf] = []

    async def run(self) -> _Planned:
        """Plan what must be planned."""
        async with nullcontext() if self._build.parent is None else self._reads.at_once():
            old = await self.old_tree()
            changes = await self.changes(old) if old is not None and not self._build.is_full else None
            # A model may think for minutes, for which a transaction must not wait.
            if old is not None and changes is not None and self._shaper is None:
                return await self.update(old, *changes)
        if self._shaper is not None:
            self._shaper.start_from(old.root if old is not None else None)
        if old is not None and changes is not None:
            return await self.update(old, *changes)
        return _Planned(old=old, root=await self.plan())

    async def old_tree(self) -> _OldTree | None:
        """Return the tree the scope has in the parent snapshot."""
        if self._build.parent is None:
            return None
        async with self._reads.reading() as connection:
            row = await connection.fetchrow(
                sql("trees.scope_root"), self._build.tenant, self._task.scope_id, self._build.parent.snapshot_id
            )
        if row is None:
            return None
        if row["root_rendering_id"] is None:
            return _OldTree(root=None, blocks=[], degraded=frozenset(), events=0)
        (root,) = await self._tree.nodes([row["root_rendering_id"]])
        return _OldTree(
            root=root.rendering_id,
            blocks=list(row["blocks"]),
            degraded=frozenset(row["degraded"] or ()),
            events=root.events,
        )

    async def changes(self, old: _OldTree) -> tuple[_Positions, _Positions] | None:
        """Return what the parent's tree must gain, and what it must lose; None when all must be planned."""
        parent = self._build.parent
        if parent is None:
            return None
        bounds = (self._build.tenant, self._task.scope_id, parent.tail_xid, parent.cutoff, self._build.cutoff)
        most = max(_INCREMENTAL_EVENTS, old.events // 4)
        if self._task.eligible is None or self._task.eligible > most:
            return None
        async with self._reads.reading() as connection:
            rows = await connection.fetch(sql("trees.changes"), *bounds)
        if sum(row["is_new"] for row in rows) != self._task.eligible:
            # The bound on transaction ids holds within one database cluster; this log was restored into another.
            return None
        if any(row["was_there"] and row["is_erased"] for row in rows):
            # Where units of the old tree begin depends on words that are gone.
            return None
        coming: _Positions = []
        going: _Positions = []
        for row in rows:
            if row["was_there"] != row["is_there"]:
                positions = coming if row["is_there"] else going
                positions.append((to_microseconds(row["occurred_at"]), row["event_seq"]))
        return (coming, going) if len(coming) + len(going) <= most else None

    async def update(self, old: _OldTree, coming: _Positions, going: _Positions) -> _Planned:
        """Plan the units that events change that come or go, and the paths above them."""
        if not coming and not going:
            return _Planned(old=old, root=None, unchanged=True)
        removed: set[UnitKey] = set()
        self._is_in_place = True
        self._to_place = {event_seq for _, event_seq in coming}
        if self._build.parent is not None:
            self._events.parent_cutoff = self._build.parent.cutoff
        with self._timed("ms_units"):
            async for step in changed_units(coming, self._events, self._settings, gone=going):
                removed.update(step.removed)
                for unit in step.added:
                    await self._plan_unit(unit)
        root = await self._assemble(old.root, removed)
        if self._to_place:
            raise _broken("each_event_exactly_once", f"{len(self._to_place)} new events are in no planned unit")
        left = old.events + len(coming) - len(going)
        if (root.events if root is not None else 0) != left:
            raise _broken(
                "each_event_exactly_once",
                f"the tree holds {root.events if root else 0} events, not {left}: {old.events} old ones, "
                f"{len(coming)} that come and {len(going)} that go",
            )
        self._counts["events_new"] = len(coming)
        if going:
            self._counts["events_withdrawn"] = len(going)
        return _Planned(old=old, root=root)

    def degraded(self, before: frozenset[bytes]) -> frozenset[bytes]:
        """Return the top renderings of the units without the model that was asked for, of which `before` were so."""
        kept = before.difference(outline.rendering_id for outline in self._gone) if self._is_in_place else frozenset()
        return kept | self._degraded

    async def plan(self) -> Outline | None:
        """Plan the scope from all its events, streaming; a big one in parts."""
        async with self._database.read(self._build.tenant) as connection:
            there = await connection.fetchval(
                sql("trees.count_events"), self._build.tenant, self._task.scope_id, self._build.cutoff
            )
        if self._parts is not None and await self._parts.divide(there):
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
        root = await self._assemble(None, set())
        held, read = root.events if root is not None else 0, self._counts["events"]
        if not held == read == there:
            raise _broken(
                "each_event_exactly_once", f"the tree holds {held} events, {read} were planned, {there} are eligible"
            )
        self._counts["events_new"] = there
        return root

    async def _plan_in_parts(self, parts: ScopeParts) -> None:
        """Plan the units of a big scope part by part, until those that others have are done, too."""
        self.is_divided = True
        own: dict[int, list[Unit]] = {}
        while True:
            part = await parts.claim()
            if part is not None:
                counts: Counter[str] = Counter()
                own[part.part] = units = await plan_part(
                    self._database, self._build, part, self._settings, counts, docs=self._docs
                )
                await parts.finish(part, [unit.top.rendering_id for unit in units], counts)
            counted, left = await parts.counted()
            self._counts.subtract(self._in_parts)
            self._counts.update(counted)
            self._in_parts = counted
            if not left:
                break
            if part is None:
                await asyncio.sleep(_WAIT_S)
        for part_number, tops in await parts.results():
            self._units.extend(own.get(part_number) or await self._tree.units(tops))

    async def plan_part(self, part: TaskPart) -> list[Unit]:
        """Plan and write the units that begin in a part."""
        with self._timed("ms_units"):
            before = await self._events.before(part.begin, BEFORE) if part.begin is not None else []
            pages = self._events.pages(part.begin, part.events)
            # Closed here: how many pages are read depends on where the last unit ends.
            async with aclosing(units_between(before, pages, self._settings, end=part.end)) as units:
                async for unit in units:
                    await self._plan_unit(unit)
        await self.flush()
        return self._units

    async def flush(self) -> None:
        """Write the nodes that wait, and note what all of them were."""
        with self._timed("ms_write"):
            await self._writer.flush()
        self._note_rows()

    async def compile_subjects(self, root: Outline | None, *, changed: bool) -> CompiledSubjects | None:
        """Plan and write the scope's subjects once the nodes of its tree are written; None where there is no new row.

        `changed` says whether the tree of time is another than the parent's.
        """
        if not self._settings.subjects:
            return None
        with self._timed("ms_subjects"):
            subjects = ScopeSubjects(self._database, self._build, self._task, self._reads)
            compiled = await subjects.compile(
                root,
                self._gone,
                self._new_leaves,
                self._settings,
                in_place=self._is_in_place,
                is_same_tree=not changed,
            )
        self._counts["rows_subjects"] += subjects.rows
        return compiled

    async def add_subjects(self, root: bytes | None) -> CompiledSubjects | None:
        """Plan and write the subjects of a tree of time that stays; None where it has those that it must have."""
        if not self._settings.subjects or root is None:
            return None
        subjects = ScopeSubjects(self._database, self._build, self._task, self._reads)
        if await subjects.are_known():
            return None
        (top,) = await self._tree.nodes([root])
        return await self.compile_subjects(Outline.of(top), changed=False)

    async def read_for_blocks(
        self, nodes: BlockNodes, old: Sequence[bytes]
    ) -> tuple[HeldBlocks, Mapping[bytes, Covered]]:
        """Return the parent's blocks `old` that go out of use, and what the first of the new ones cover."""
        async with self._reads.reading() as connection:
            known = await HeldBlocks.load(connection, self._build.tenant, old, nodes)
            return known, await self._covered(connection, nodes.missing[:BLOCKS_AT_ONCE])

    async def write_blocks(self, nodes: BlockNodes, known: HeldBlocks, covers: Mapping[bytes, Covered]) -> None:
        """Write the search blocks that the tree needs and nobody has written.

        `known` and `covers` are what `read_for_blocks` returns.
        """
        with self._timed("ms_blocks"):
            for at in range(0, len(nodes.missing), BLOCKS_AT_ONCE):
                if at:
                    async with self._reads.reading() as connection:
                        covers = await self._covered(connection, nodes.missing[at : at + BLOCKS_AT_ONCE])
                made = await make_blocks(covers, events=self._events, old=known, planned=self._docs)
                self._counts["events_indexed"] += made.events_indexed
                self._counts["events_analysed"] += made.events_analysed
                await self._writer.add_blocks(made.blocks)
                self._note_rows()

    async def _covered(self, connection: Connection, renderings: Sequence[bytes]) -> dict[bytes, Covered]:
        return {rendering: await covered(connection, self._build.tenant, rendering) for rendering in renderings}

    async def _plan_unit(self, events: Sequence[PlanEvent]) -> None:
        shape = await self._shaper.shape(events) if self._shaper is not None else None
        if shape is None:
            nodes = plan_unit(self._task.participants, events, self._settings)
            if self._shaper is not None and self._shaper.is_degraded:
                self._degraded.add(nodes[-1].rendering_id)
        else:
            nodes = plan_shaped(self._task.participants, events, shape, self._settings)
        _refuse(validate_unit(nodes, events, participants=self._task.participants, settings=self._settings))
        if self._to_place:
            self._to_place.difference_update(event.event_seq for event in events)
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
        with self._timed("ms_assemble"):
            async with nullcontext() if old_root is None else self._reads.at_once():
                root, groups = await assemble(
                    old_root,
                    removed,
                    self._units,
                    self._tree,
                    participants=self._task.participants,
                    settings=self._settings,
                    gone=self._gone,
                )
            await self._writer.add(groups)
        self._groups = groups
        self._counts["groups_planned"] += len(groups)
        self._counts["nodes_read"] = self._tree.read
        return root

    def reading_at_once(self) -> AbstractAsyncContextManager[None]:
        """Make the reads of a block one transaction, which sees what was written before it, where they are few."""
        return self._reads.at_once() if len(self._groups) <= _GROUPS_AT_ONCE else nullcontext()

    async def block_nodes(self, root: Outline) -> BlockNodes:
        """Return which renderings carry the search blocks of a tree, all of whose nodes are written."""
        async with self._reads.reading() as connection:
            return await block_nodes(connection, self._build.tenant, root.rendering_id)

    async def validate_groups(self) -> None:
        """Check the groups above the planned units, each with its stored children."""
        groups, self._groups = self._groups, []
        for at in range(0, len(groups), _GROUPS_AT_ONCE):
            part = groups[at : at + _GROUPS_AT_ONCE]
            children = await self._tree.nodes(sorted({child for group in part for child in group.children}))
            _check_groups(part, children, participants=self._task.participants, settings=self._settings)

    def _note_rows(self) -> None:
        for table, rows in self._writer.rows.items():
            self._counts[f"rows_{table}"] = rows + self._in_parts[f"rows_{table}"]
        self._counts["events_read"] = self._events.read + self._in_parts["events_read"]

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
    """Check groups above units against the same rules; `stored` are all of their children.

    Raises:
        BuildInvalid: one of them breaks a rule.
    """
    children = {node.rendering_id: node for node in stored}
    for group in groups:
        kept = {child: children[child] for child in group.children}
        violations = validate(
            Candidate(
                participants=participants,
                settings=settings,
                root=group.rendering_id,
                nodes=[group],
                events=[],
                scope_events=group.events,
                kept=kept,
            )
        )
        violations.extend(
            Violation(
                rule="no_avoidable_singleton_leaf",
                message="one event alone where it could be merged",
                node_id=child.node_id,
            )
            for child in kept.values()
            if child.events < 2
        )
        _refuse(violations)


def _broken(rule: str, message: str) -> errors.BuildInvalid:
    """Return the refusal of a plan that breaks a rule as a whole."""
    return errors.BuildInvalid(message, violations=[{"rule": rule, "message": message}])


def _refuse(violations: Sequence[Violation]) -> None:
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
