"""A scope's subjects in a build: read what the parent has, bring it up to date, write what is new."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Protocol

import asyncpg
import orjson

from myria.builds.model import RunningBuild, Task
from myria.builds.reading import ScopeReads, ScopeTree
from myria.builds.writing import BATCH_NODES, Writing
from myria.db.arrays import byte_strings, plain, texts
from myria.db.clock import to_microseconds
from myria.db.database import Connection, Database
from myria.db.fence import adding_to
from myria.db.queries import sql
from myria.settings.planner import PlannerSettings
from myria.topics.model import LEAF, SUBJECT, Node, NodeReader, Outline
from myria.topics.subjects.holders import Holders, IncompleteHolders, stored_key
from myria.topics.subjects.update import (
    PlacedLeaf,
    SubjectUpdate,
    leaves_under,
    unit_of,
    update_subjects,
)
from myria.topics.subjects.whole import WholePlan, begin_plan

_LEAVES_HELD = 4_096


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledSubjects:
    """What a task commits of a scope's subjects: the root, None without any, and since which number records count.

    `last` is what is left to write of them, with the end of the task.
    """

    root: bytes | None
    since: int
    last: Writing | None = None


class PlannedLeaves:
    """The leaves that a build has planned and stored for one scope, for its subjects: they need not be read back.

    Of a scope with more than 4,096 the first ones are held: they take 20 MB.
    """

    def __init__(self, most: int = _LEAVES_HELD) -> None:
        self._most = most
        self._held: OrderedDict[bytes, Node] = OrderedDict()
        self._units: list[tuple[bytes, int]] = []
        """The units of the leaves that are held, in their order, each with how many it has."""

    def keep(self, nodes: Sequence[Node]) -> None:
        """Take the leaves among the nodes of a planned unit, whose top node is last, as long as there is room."""
        before = len(self._held)
        for node in nodes:
            if node.node_type == LEAF and len(self._held) < self._most:
                self._held[node.rendering_id] = node
        if len(self._held) > before:
            self._units.append((unit_of(nodes[-1].key), len(self._held) - before))

    def taken(self, root: Outline | None) -> Iterator[PlacedLeaf] | None:
        """Yield all leaves of a tree that was planned from nothing, each for the last time; None if not all are held.

        Others may have planned parts of it.
        """
        if root is None or root.leaves != len(self._held):
            return None
        return self._each()

    def _each(self) -> Iterator[PlacedLeaf]:
        for unit, leaves in self._units:
            for _ in range(leaves):
                yield PlacedLeaf(leaf=self._held.popitem(last=False)[1], unit=unit)

    def over(self, tree: ScopeTree) -> NodeReader:
        """Return a reader of all nodes of a tree: of those that are held, each for the last time, and the others."""
        return _PlannedReader(self._held, tree)


class _PlannedReader:
    """Reads nodes that are held, and the others of a tree."""

    def __init__(self, held: dict[bytes, Node], tree: ScopeTree) -> None:
        self._held = held
        self._tree = tree

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order."""
        found = {
            rendering_id: self._held.pop(rendering_id) for rendering_id in rendering_ids if rendering_id in self._held
        }
        others = [rendering_id for rendering_id in rendering_ids if rendering_id not in found]
        if others:
            found.update(zip(others, await self._tree.nodes(others), strict=True))
        return [found[rendering_id] for rendering_id in rendering_ids]


class SharedSubjects(Protocol):
    """Has the subjects of a plan made by several workers."""

    def subjects(self, scope: ScopeSubjects, plan: WholePlan) -> AsyncIterator[Node]:
        """Yield all subjects of a plan in their order, made and written."""
        ...


class ScopeSubjects:
    """The subjects that a scope has in the parent snapshot; a reader of them, of their records, and of leaves."""

    def __init__(self, database: Database, build: RunningBuild, task: Task, reads: ScopeReads) -> None:
        self._database = database
        self._build = build
        self._scope_id = task.scope_id
        self._participants = task.participants
        self._attempt = task.attempt
        self._reads = reads
        self._tree = ScopeTree(reads, task.participants, has_refs=False)
        self._since = 0
        self._waiting: list[Node] = []
        self.rows = 0

    async def compile(
        self,
        root: Outline | None,
        gone: Sequence[Outline],
        added: Sequence[PlacedLeaf],
        settings: PlannerSettings,
        *,
        in_place: bool,
        is_same_tree: bool,
        sharing: SharedSubjects | None = None,
        planned: PlannedLeaves | None = None,
    ) -> CompiledSubjects | None:
        """Plan and write the subjects of a tree whose nodes are written, in place of the parent's where that can be.

        The last batch is left to the end of the task. None, and nothing written, where tree and subjects are
        the parent's: a row does not count once the tree has a newer one.

        Args:
            root: the new tree of time; None for a scope without events.
            gone: the top nodes of the parent's units that the new tree has not.
            added: the leaves of the units that are new.
            settings: the planner's settings.
            in_place: whether `gone` and `added` are all that is different.
            is_same_tree: whether the tree of time is the parent's.
            sharing: shares a plan from all leaves with other workers.
            planned: leaves of the tree that this process has planned.
        """
        update = None
        async with nullcontext() if self._build.parent is None else self._reads.at_once():
            old = await self._old()
            if old is not None and in_place and old["since"] >= self._build.subjects_since:
                self._since = old["since"]
                with suppress(IncompleteHolders):
                    removed = await leaves_under(gone, self._tree)
                    update = await self._update(old["root_rendering_id"], removed, added, settings)
        if update is not None:
            is_same = old is not None and _rendering(update.root) == old["root_rendering_id"] and not update.holders
            if is_same_tree and is_same:
                return None
            await self._take(update.nodes)
            records = [(stored_key(key), holders) for key, holders in update.holders.items()]
            last = await self._write(sorted(records, key=itemgetter(0)))
            return CompiledSubjects(root=_rendering(update.root), since=self._since, last=last)
        plan = await self.begin_plan(root, settings, planned)
        await plan.gather(plan.make(0, plan.size) if sharing is None else sharing.subjects(self, plan))
        if old is not None and is_same_tree:
            await self._flush()
            if await self._stand(plan, old):
                return None
        self._since = self._build.number
        last = await self._write(plan.records())
        return CompiledSubjects(root=_rendering(plan.root), since=self._since, last=last)

    async def begin_plan(
        self, root: Outline | None, settings: PlannerSettings, planned: PlannedLeaves | None = None
    ) -> WholePlan:
        """Return a plan of the subjects from all leaves, none of which is made yet."""
        reader = self._tree if planned is None else planned.over(self._tree)
        return await begin_plan(
            root,
            reader,
            self._take,
            participants=self._participants,
            settings=settings,
            leaves=planned.taken(root) if planned is not None else None,
        )

    async def make_range(self, plan: WholePlan, begin: int, end: int) -> list[bytes]:
        """Make and write the subjects of a range of a plan; return their renderings in order."""
        made = [subject.rendering_id async for subject in plan.make(begin, end)]
        await self._flush()
        return made

    async def are_known(self) -> bool:
        """Tell whether the parent has subjects of the scope, planned by the rules of now."""
        old = await self._old()
        return old is not None and old["since"] >= self._build.subjects_since

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, subjects and leaves, in this order."""
        async with self._reads.reading() as connection:
            rows = await connection.fetch(sql("subjects.nodes"), self._build.tenant, list(rendering_ids))
        found = {row["rendering_id"]: subject_from_row(row) for row in rows}
        others = [rendering_id for rendering_id in rendering_ids if rendering_id not in found]
        if others:
            found.update(zip(others, await self._tree.nodes(others), strict=True))
        return [found[rendering_id] for rendering_id in rendering_ids]

    async def along(self, root: bytes, paths: Sequence[str]) -> list[Node]:
        """Return a root of subjects, the subjects' nodes that paths lead through, and those directly beneath them."""
        async with self._reads.reading() as connection:
            rows = await connection.fetch(sql("subjects.along"), self._build.tenant, root, list(paths))
        return list(map(subject_from_row, rows))

    async def holders(self, keys: Sequence[str]) -> Mapping[str, Holders]:
        """Return the records of those keys that have one in the parent snapshot."""
        named = {stored_key(key): key for key in keys}
        return {named[key]: record for key, record in (await self._records(list(named))).items()}

    async def _records(self, stored_keys: Sequence[bytes]) -> dict[bytes, Holders]:
        parent = self._build.parent
        if parent is None:
            return {}
        async with self._reads.reading() as connection:
            rows = await connection.fetch(
                sql("subjects.holders"),
                self._build.tenant,
                self._scope_id,
                parent.snapshot_id,
                stored_keys,
                self._since,
            )
        return {row["key"]: Holders.from_bytes(row["holders"], row["subject"]) for row in rows}

    async def _old(self) -> asyncpg.Record | None:
        if self._build.parent is None:
            return None
        async with self._reads.reading() as connection:
            return await connection.fetchrow(
                sql("subjects.root"), self._build.tenant, self._scope_id, self._build.parent.snapshot_id
            )

    async def _stand(self, plan: WholePlan, old: asyncpg.Record) -> bool:
        """Tell whether the parent's subjects are those of a plan from all leaves, its records with them."""
        if old["root_rendering_id"] != _rendering(plan.root):
            return False
        self._since = old["since"]
        records = plan.records()
        while part := list(islice(records, BATCH_NODES)):
            held = await self._records([key for key, _ in part])
            if not all(key in held and held[key].is_part_of(whole) for key, whole in part):
                return False
        return True

    async def _update(
        self,
        old_root: bytes | None,
        removed: Sequence[PlacedLeaf],
        added: Sequence[PlacedLeaf],
        settings: PlannerSettings,
    ) -> SubjectUpdate:
        return await update_subjects(old_root, removed, added, self, participants=self._participants, settings=settings)

    async def _write(self, records: Iterable[tuple[bytes, Holders]]) -> Writing | None:
        """Write the nodes that wait and records by their stored keys, bounded; return how to write the last batch."""
        tenant = self._build.tenant
        if self._attempt > 1:
            async with adding_to(self._database, tenant, self._build.build_id) as connection:
                await connection.execute(sql("subjects.drop_records"), tenant, self._scope_id, self._build.number)
        bounded = ((key, holders.bounded()) for key, holders in records)
        part = list(islice(bounded, BATCH_NODES))
        nodes, self._waiting = self._waiting, []
        while following := list(islice(bounded, BATCH_NODES)):
            async with adding_to(self._database, tenant, self._build.build_id) as connection:
                await self._write_batch(nodes, part, connection)
            nodes, part = [], following
        return partial(self._write_batch, nodes, part) if nodes or part else None

    async def _write_batch(
        self, nodes: Sequence[Node], records: Sequence[tuple[bytes, Holders]], connection: Connection
    ) -> Counter[str]:
        before = self.rows
        if nodes:
            await self._write_nodes(connection, nodes)
        if records:
            await self._write_records(connection, records)
        return Counter(rows_subjects=self.rows - before)

    async def _write_records(self, connection: Connection, records: Sequence[tuple[bytes, Holders]]) -> None:
        await connection.execute(
            sql("subjects.write_holders"),
            self._build.tenant,
            self._scope_id,
            self._build.number,
            byte_strings([key for key, _ in records]),
            byte_strings([record.to_bytes() for _, record in records]),
            byte_strings([record.subject for _, record in records]),
        )
        self.rows += len(records)

    async def _take(self, nodes: Sequence[Node]) -> None:
        """Write nodes, as many at once as one transaction may; what is left waits for more."""
        self._waiting.extend(nodes)
        while len(self._waiting) >= BATCH_NODES:
            part, self._waiting = self._waiting[:BATCH_NODES], self._waiting[BATCH_NODES:]
            await self._add(part)

    async def _flush(self) -> None:
        part, self._waiting = self._waiting, []
        if part:
            await self._add(part)

    async def _add(self, nodes: Sequence[Node]) -> None:
        async with adding_to(self._database, self._build.tenant, self._build.build_id) as connection:
            await self._write_nodes(connection, nodes)

    async def _write_nodes(self, connection: Connection, nodes: Sequence[Node]) -> None:
        nodes = sorted(nodes, key=lambda node: node.rendering_id)
        status: str = await connection.execute(
            sql("subjects.write_nodes"),
            self._build.tenant,
            self._scope_id,
            byte_strings([node.rendering_id for node in nodes]),
            byte_strings([node.node_id for node in nodes]),
            plain([node.level for node in nodes]),
            texts([node.topic_id for node in nodes]),
            plain([node.anchor_seq for node in nodes]),
            texts([node.anchor_event_id for node in nodes]),
            texts([node.label for node in nodes]),
            texts([node.summary for node in nodes]),
            orjson.dumps([node.metadata for node in nodes]).decode(),
            texts([byte_strings(node.children) for node in nodes]),
            plain([node.is_unit for node in nodes]),
            plain([node.events for node in nodes]),
            plain([node.leaves for node in nodes]),
            plain([node.units for node in nodes]),
            plain([node.key_timestamp for node in nodes]),
            byte_strings([node.key_digest for node in nodes]),
            texts([node.key_event_id for node in nodes]),
            plain([node.first_at for node in nodes]),
            plain([node.last_at for node in nodes]),
        )
        self.rows += int(status.rpartition(" ")[2])


def _rendering(root: Node | None) -> bytes | None:
    return root.rendering_id if root is not None else None


def subject_from_row(row: asyncpg.Record) -> Node:
    """Return the node of a row of `subjects.nodes`."""
    return Node(
        rendering_id=row["rendering_id"],
        node_id=row["node_id"],
        node_type=SUBJECT,
        level=row["level"],
        topic_id=row["topic_id"],
        anchor_seq=row["anchor_seq"],
        anchor_event_id=row["anchor_event_id"],
        label=row["label"],
        summary=row["summary"],
        metadata=orjson.loads(row["metadata"]),
        children=tuple(row["children"]),
        events=row["events"],
        leaves=row["leaves"],
        units=row["subjects"],
        is_unit=row["is_subject"],
        key_timestamp=to_microseconds(row["key_at"]),
        key_digest=row["key_digest"],
        key_event_id=row["key_event_id"],
        first_at=to_microseconds(row["first_at"]),
        last_at=to_microseconds(row["last_at"]),
    )
