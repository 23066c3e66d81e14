"""A scope's subjects in a build: read what the parent has, bring it up to date, write what is new."""

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
    """What a task commits of a scope's subjects: the root, None without any, and since which number records count."""

    root: bytes | None
    since: int


class ScopeSubjects:
    """The subjects that a scope has in the parent snapshot; a reader of them, of their records, and of leaves."""

    def __init__(self, database: Database, build: RunningBuild, task: Task, reads: ScopeReads) -> None:
        self._database = database
        self._build = build
        self._scope_id = task.scope_id
        self._participants = task.participants
        self._attempt = task.attempt
        self._reads = reads
        self._tree = ScopeTree(reads, task.participants)
        self._writer = TreeWriter(database, build, task.scope_id, "subjects.write_nodes")
        self._since = 0

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return self._writer.rows.total()

    async def compile(
        self,
        root: Outline | None,
        gone: Sequence[Outline],
        added: Sequence[PlacedLeaf],
        settings: PlannerSettings,
        *,
        in_place: bool,
        is_same_tree: bool,
    ) -> CompiledSubjects | None:
        """Plan and write the subjects of a tree whose nodes are written, in place of the parent's where that can be.

        None, and no record written, where tree and subjects are the parent's: a row does not count once the tree has a
        newer one.

        Args:
            root: the new tree of time; None for a scope without events.
            gone: the top nodes of the parent's units that the new tree has not.
            added: the leaves of the units that are new.
            settings: the planner's settings.
            in_place: whether `gone` and `added` are all that is different.
            is_same_tree: whether the tree of time is the parent's.
        """
        update = None
        async with nullcontext() if self._build.parent is None else self._reads.at_once():
            old = await self._old()
            if old is not None and in_place and old["since"] >= self._build.subjects_since:
                self._since = old["since"]
                with suppress(IncompleteHolders):
                    removed = await leaves_under(gone, self._tree)
                    update = await update_subjects(
                        old["root_rendering_id"],
                        removed,
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
            return CompiledSubjects(root=_rendering(update.root), since=self._since)
        plan = await plan_all_subjects(
            root, self._tree, self._writer.add, participants=self._participants, settings=settings
        )
        if old is not None and is_same_tree and await self._stand(plan, old):
            await self._writer.flush()
            return None
        self._since = self._build.number
        await self._write_records(plan.records())
        return CompiledSubjects(root=_rendering(plan.root), since=self._since)

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

    async def _write_records(self, records: Iterable[tuple[bytes, Holders]]) -> None:
        """Write the nodes that wait, and records by their stored keys.

        Unlike nodes, records are found by their number: those of an attempt that lost its lease must not stay, so each
        statement locks the task and looks whether it is still this attempt's.
        """
        await self._writer.flush()
        tenant, build_id = self._build.tenant, self._build.build_id
        task = (tenant, build_id, self._scope_id, self._attempt)
        if self._attempt > 1:
            async with adding_to(self._database, tenant, build_id) as connection:
                await connection.execute(sql("subjects.drop_records"), *task, self._build.number)
        bounded = ((key, holders.bounded()) for key, holders in records)
        while part := list(islice(bounded, BATCH_NODES)):
            keys, holders, subjects = zip(*((key, each.to_bytes(), each.subject) for key, each in part), strict=True)
            async with adding_to(self._database, tenant, build_id) as connection:
                await connection.execute(
                    sql("subjects.write_holders"), *task, self._build.number, keys, holders, subjects
                )
            self._writer.rows["records"] += len(part)


def _rendering(root: Node | None) -> bytes | None:
    return root.rendering_id if root is not None else None
