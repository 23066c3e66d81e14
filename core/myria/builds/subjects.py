"""Compiles a scope's subjects in a build: reads the parent's, brings them up to date, writes what is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

import asyncpg

from myria.builds.events import ScopeReads
from myria.builds.model import RunningBuild, Task
from myria.builds.trees import BATCH_NODES, ScopeTree, TreeWriter, subject_from_row
from myria.db.database import Database
from myria.db.fence import adding_to
from myria.db.queries import sql
from myria.settings.planner import PlannerSettings
from myria.topics.model import Node, Outline
from myria.topics.subjects.holders import Holders, IncompleteHolders, stored_key
from myria.topics.subjects.update import PlacedLeaf, leaves_under, update_subjects
from myria.topics.subjects.whole import WholePlan, plan_all_subjects


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledSubjects:
    """What a task commits of a scope's subjects.

    `root` is None for a scope without subjects. Records of lower snapshot numbers than `since` do not count.
    """

    root: bytes | None
    since: int


class ScopeSubjects:
    """Reads the subjects that a scope has in the parent snapshot, their records and leaves, and compiles new ones."""

    def __init__(self, database: Database, build: RunningBuild, task: Task, reads: ScopeReads) -> None:
        self._database = database
        self._build = build
        self._scope_id = task.scope_id
        self._participants = task.participants
        self._attempt = task.attempt
        self._reads = reads
        self._tree = ScopeTree(reads, task.participants)
        self._writer = TreeWriter(database, build, task.scope_id, "subjects.write_nodes")
        self._records_since = 0

    @property
    def rows(self) -> int:
        """The number of rows written so far."""
        return self._writer.rows.total()

    async def compile(
        self,
        root: Outline | None,
        removed_units: Sequence[Outline],
        added: Sequence[PlacedLeaf],
        settings: PlannerSettings,
        *,
        in_place: bool,
        reads_together: bool,
        is_same_tree: bool,
    ) -> CompiledSubjects | None:
        """Plan and write the subjects of a tree whose nodes are written, by updating the parent's where possible.

        Returns None, and writes no record, where tree and subjects are the parent's.

        Args:
            root: the top of the new tree of time; None for a scope without events.
            removed_units: the top nodes of the parent's units that the new tree does not hold.
            added: the leaves of the new units.
            settings: the planner's settings.
            in_place: whether `removed_units` and `added` are the only differences from the parent's tree.
            reads_together: whether all reads of an update share one transaction: many small ones are faster so.
            is_same_tree: whether the tree of time is the parent's.
        """
        update = None
        async with self._reads.at_once() if reads_together else nullcontext():
            old = await self._old_root_row()
            # Subjects from before `subjects_since` were planned with other settings, so they are not updated.
            if old is not None and in_place and old["since"] >= self._build.subjects_since:
                self._records_since = old["since"]
                # Where a record has lost too many leaves for an update, all subjects are planned anew below.
                with suppress(IncompleteHolders):
                    removed_leaves = await leaves_under(removed_units, self._tree)
                    update = await update_subjects(
                        old["root_rendering_id"],
                        removed_leaves,
                        added,
                        self,
                        participants=self._participants,
                        settings=settings,
                    )
        if update is not None:
            is_same = old is not None and _rendering(update.root) == old["root_rendering_id"] and not update.holders
            if is_same_tree and is_same:
                return None
            await self._writer.add(update.nodes)
            records = [(stored_key(key), holders) for key, holders in update.holders.items()]
            await self._write_records(sorted(records, key=itemgetter(0)))
            return CompiledSubjects(root=_rendering(update.root), since=self._records_since)
        plan = await plan_all_subjects(
            root, self._tree, self._writer.add, participants=self._participants, settings=settings
        )
        if old is not None and is_same_tree and await self._is_unchanged(plan, old):
            await self._writer.flush()
            return None
        self._records_since = self._build.number
        await self._write_records(plan.records())
        return CompiledSubjects(root=_rendering(plan.root), since=self._records_since)

    async def are_known(self) -> bool:
        """Tell whether the parent has subjects of the scope that were planned by the current rules."""
        old = await self._old_root_row()
        return old is not None and old["since"] >= self._build.subjects_since

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, subjects and leaves, in this order."""
        async with self._reads.reading() as connection:
            rows = await connection.fetch(sql("subjects.nodes"), self._build.tenant, list(rendering_ids))
        nodes_by_id = {row["rendering_id"]: subject_from_row(row) for row in rows}
        # The others are leaves, which the tree of time holds.
        leaf_ids = [rendering_id for rendering_id in rendering_ids if rendering_id not in nodes_by_id]
        if leaf_ids:
            nodes_by_id.update(zip(leaf_ids, await self._tree.nodes(leaf_ids), strict=True))
        return [nodes_by_id[rendering_id] for rendering_id in rendering_ids]

    async def along(self, root: bytes, paths: Sequence[str]) -> list[Node]:
        """Return the nodes of subjects from a root along paths: the root, the nodes on the way, and their children."""
        async with self._reads.reading() as connection:
            rows = await connection.fetch(sql("subjects.along"), self._build.tenant, root, list(paths))
        return list(map(subject_from_row, rows))

    async def holders(self, keys: Sequence[str]) -> Mapping[str, Holders]:
        """Return the records of those keys that have one in the parent snapshot."""
        keys_by_stored = {stored_key(key): key for key in keys}
        return {keys_by_stored[key]: record for key, record in (await self._records(list(keys_by_stored))).items()}

    async def _records(self, stored_keys: Sequence[bytes]) -> dict[bytes, Holders]:
        """Return the parent's records of stored keys; a key without a record is left out."""
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
                self._records_since,
            )
        return {row["key"]: Holders.from_bytes(row["holders"], row["subject"]) for row in rows}

    async def _old_root_row(self) -> asyncpg.Record | None:
        if self._build.parent is None:
            return None
        async with self._reads.reading() as connection:
            return await connection.fetchrow(
                sql("subjects.root"), self._build.tenant, self._scope_id, self._build.parent.snapshot_id
            )

    async def _is_unchanged(self, plan: WholePlan, old: asyncpg.Record) -> bool:
        """Tell whether the parent's root and records of subjects equal those of a plan from all leaves."""
        if old["root_rendering_id"] != _rendering(plan.root):
            return False
        self._records_since = old["since"]
        records = plan.records()
        while batch := list(islice(records, BATCH_NODES)):
            stored = await self._records([key for key, _ in batch])
            if not all(key in stored and stored[key].is_part_of(planned) for key, planned in batch):
                return False
        return True

    async def _write_records(self, records: Iterable[tuple[bytes, Holders]]) -> None:
        """Write the nodes that wait, then records by their stored keys.

        Unlike nodes, records are found by their snapshot's number, so records of an attempt that lost its lease must
        not stay: each statement locks the task and checks that it still belongs to this attempt.
        """
        await self._writer.flush()
        tenant, build_id = self._build.tenant, self._build.build_id
        task = (tenant, build_id, self._scope_id, self._attempt)
        if self._attempt > 1:  # an earlier attempt may have written records
            async with adding_to(self._database, tenant, build_id) as connection:
                await connection.execute(sql("subjects.drop_records"), *task, self._build.number)
        bounded = ((key, holders.bounded()) for key, holders in records)
        while batch := list(islice(bounded, BATCH_NODES)):
            keys, holders, subjects = zip(
                *((key, record.to_bytes(), record.subject) for key, record in batch), strict=True
            )
            async with adding_to(self._database, tenant, build_id) as connection:
                await connection.execute(
                    sql("subjects.write_holders"), *task, self._build.number, keys, holders, subjects
                )
            self._writer.rows["records"] += len(batch)


def _rendering(root: Node | None) -> bytes | None:
    return root.rendering_id if root is not None else None
