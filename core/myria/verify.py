"""Proof of the invariants on a live database: everything stored is recomputed from the log and compared.

The whole examination sees one state of the database (one REPEATABLE READ transaction), so builds and appends may go on
meanwhile; it holds back vacuum for as long as it runs. It streams: its memory grows with the longest scope's number of
events (a few dozen bytes each), not with their text or with the log.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from myria import errors
from myria.building.reading import EventRows
from myria.building.versions import plans_alike
from myria.events import dedupe_key
from myria.index import SEARCH_VERSION, BlockNode, BlockView, build, decode
from myria.planning.identity import internal_node_id, leaf_node_id, rendering_id, topic_id
from myria.planning.model import LEAF, Node, Participants, PlanEvent, Unit
from myria.planning.scope import UnitSplitter, plan_unit
from myria.planning.settings import PlannerSettings, settings_digest
from myria.planning.shaped import UnitShape, plan_shaped, unit_digest
from myria.planning.trie import assemble
from myria.scopes import canonical_participants, scope_key
from myria.searchable import document
from myria.store.database import Connection, Database, TransactionBounds
from myria.store.queries import sql

SHOWN_FAILURES = 20
"""Failures of a check that are told in words; all are counted."""

CHECKS: Mapping[str, str] = {
    "participants": "every scope is canonical, its key recomputes, its members are exactly its participants",
    "log": "every event has a scope, its idempotency key recomputes, its transaction is of this database",
    "leaf_refs": "every leaf's refs resolve to events of its own scope, in order, none internal; node_ids recompute",
    "renderings": "every rendering's id recomputes, its children, identity, topic and anchor event exist",
    "snapshots": "every snapshot's state fits its build, and its tail bound hides no event",
    "lineage": "every kept snapshot's lineage is its parent's and itself",
    "active_pointer": "one active snapshot at most, and it is where the pointer and its history say",
    "staging": "nothing that was not published can be reached",
    "scope_roots": "every root row has its scope and rendering, under a number that something owns",
    "trees": "no child is missing or out of place; counts, spans and internal node_ids recompute",
    "coverage": "every event up to the cutoff that is not internal is in exactly one leaf of its scope",
    "search_blocks": "the search blocks hold exactly the scope's events, each under its leaf",
    "block_content": "every search block recomputes from its events, byte for byte",
    "replan": "planning every scope anew, by its stored plans where it has some, gives the same root renderings",
}
"""What each check proves, by its name; `block_content` and `replan` are the deep ones."""

DEEP = frozenset({"block_content", "replan"})

_STREAM_ROWS = 500
_SCOPES_AT_ONCE = 200
_SUBTREE_EVENTS = 4096
_BOUNDS = TransactionBounds(statement=600.0, idle=600.0, total=86_400.0)

Seqs = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]
"""Told (check, done, total)."""


@dataclass(slots=True, kw_only=True)
class Check:
    """One invariant's result: how many things were examined, what failed, and how long it took in seconds."""

    name: str
    examined: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def fail(self, message: str) -> None:
        """Record a failure; beyond the twentieth only its number."""
        self.failed += 1
        if len(self.failures) < SHOWN_FAILURES:
            self.failures.append(message)

    def to_json(self) -> dict[str, Any]:
        """Return what a program wants to know."""
        return {
            "check": self.name,
            "proves": CHECKS[self.name],
            "examined": self.examined,
            "failed": self.failed,
            "failures": list(self.failures),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a verification found. `unreachable` counts renderings that no root leads to: garbage, not a failure."""

    tenant: str
    snapshots: tuple[str, ...]
    checks: tuple[Check, ...]
    unreachable: int

    @property
    def failed(self) -> int:
        """The number of failures over all checks."""
        return sum(check.failed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return what a program wants to know."""
        return {
            "tenant": self.tenant,
            "ok": self.failed == 0,
            "snapshots": list(self.snapshots),
            "unreachable_renderings": self.unreachable,
            "checks": [check.to_json() for check in self.checks],
        }


async def verify(
    database: Database,
    tenant: str,
    settings: PlannerSettings,
    *,
    deep: bool = False,
    all_snapshots: bool = False,
    progress: Progress = lambda _name, _done, _total: None,
) -> Report:
    """Examine one tenant and return what was found; nothing is written.

    Args:
        settings: what the planner is told, for the bounds of leaves and for `deep`.
        deep: also plan every scope of the examined snapshots anew, and rebuild their search blocks.
        all_snapshots: examine the trees of every kept snapshot, not only of the active and the held ones.
    """
    async with database.read(tenant, _BOUNDS) as connection:
        return await _Verification(connection, tenant, settings, deep=deep, progress=progress).run(
            all_snapshots=all_snapshots
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    snapshot_id: str
    number: int | None
    parent_snapshot_id: str | None
    status: str
    cutoff: int
    tail_xid: int
    lineage: Any
    planner_settings: str
    was_active: bool
    build_status: str | None

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers in the lineage; they are few."""
        return frozenset(number for part in self.lineage for number in range(part.lower, part.upper))

    @property
    def is_kept(self) -> bool:
        """Whether somebody may be reading it."""
        return self.status in ("active", "held", "archived")

    @property
    def is_hidden(self) -> bool:
        """Whether it has rows that nobody may read: it never was active."""
        return self.number is not None and self.status not in ("active", "archived") and not self.was_active


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    scope_id: int
    participants: Participants
    root: bytes
    blocks: tuple[bytes, ...]
    cutoff: int


@dataclass(slots=True)
class _Shape:
    """What a walked tree holds: its leaves in order, and which of them holds each event."""

    leaf_ids: list[bytes] = field(default_factory=list)
    leaves: list[bytes] = field(default_factory=list)
    seqs: array[int] = field(default_factory=lambda: array("q"))
    leaf_of: array[int] = field(default_factory=lambda: array("q"))
    parent_of: dict[bytes, bytes] = field(default_factory=dict)
    level_of: dict[bytes, int] = field(default_factory=dict)


class _Verification:
    def __init__(
        self, connection: Connection, tenant: str, settings: PlannerSettings, *, deep: bool, progress: Progress
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._settings = settings
        self._deep = deep
        self._progress = progress
        self._checks = {name: Check(name=name) for name in CHECKS if deep or name not in DEEP}
        self._snapshots: list[_Snapshot] = []

    async def run(self, *, all_snapshots: bool) -> Report:
        for name, work in (
            ("participants", self._participants),
            ("log", self._log),
            ("leaf_refs", self._leaf_refs),
            ("renderings", self._renderings),
            ("snapshots", self._snapshot_states),
            ("lineage", self._lineages),
            ("active_pointer", self._pointer),
            ("staging", self._staging),
            ("scope_roots", self._scope_roots),
        ):
            with self._timed(name) as check:
                await work(check)
        chosen = [
            snapshot
            for snapshot in self._snapshots
            if snapshot.status in ("active", "held") or (all_snapshots and snapshot.is_kept)
        ]
        examined: set[tuple[bytes, int]] = set()
        for snapshot in chosen:
            await self._trees(snapshot, examined)
        unreachable: int = await self._connection.fetchval(sql("verify.unreachable_renderings"), self._tenant)
        return Report(
            tenant=self._tenant,
            snapshots=tuple(snapshot.snapshot_id for snapshot in chosen),
            checks=tuple(self._checks.values()),
            unreachable=unreachable,
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[Check]:
        check = self._checks[name]
        started = time.perf_counter()
        try:
            yield check
        finally:
            check.seconds += time.perf_counter() - started

    async def _stream(self, check: Check, statement: str, total: int = 0) -> AsyncIterator[Any]:
        cursor = self._connection.cursor(sql(statement), self._tenant, prefetch=_STREAM_ROWS)
        async for row in cursor:
            check.examined += 1
            if check.examined % _STREAM_ROWS == 0:
                self._progress(check.name, check.examined, total)
            yield row

    async def _count(self, statement: str) -> int:
        total: int = await self._connection.fetchval(sql(statement), self._tenant)
        return total

    # -- the log ------------------------------------------------------------------------------------------------------

    async def _participants(self, check: Check) -> None:
        async for row in self._stream(check, "verify.scopes"):
            names = list(row["participants"])
            where = f"scope {row['scope_id']}"
            try:
                canonical = list(canonical_participants(names))
            except errors.InvalidParticipants as error:
                check.fail(f"{where}: {error.message}")
                continue
            if canonical != names:
                check.fail(f"{where}: its participants are not in canonical form")
            if scope_key(names) != row["scope_key"]:
                check.fail(f"{where}: scope_key is not the SHA-256 of its participants")
            if list(row["members"]) != sorted(names):
                missing = len(set(names) - set(row["members"]))
                check.fail(f"{where}: {missing} participants are missing from scope_members")
        for row in await self._connection.fetch(sql("verify.stray_members"), self._tenant):
            check.fail(f"scope {row['scope_id']}: scope_members names a participant that the scope does not have")

    async def _log(self, check: Check) -> None:
        bound: int = await self._connection.fetchval(sql("verify.transaction_bound"))
        total = await self._count("verify.count_events")
        async for row in self._stream(check, "verify.events", total):
            where = f"event {row['event_id']} ({row['event_seq']})"
            if not row["has_scope"]:
                check.fail(f"{where}: its scope does not exist")
            if row["xid"] >= bound:
                check.fail(
                    f"{where}: its transaction number {row['xid']} has not been given out here; "
                    "was this database copied from another server without its transactions?"
                )
            key = row["source_event_key"]
            expected = None if key is None else dedupe_key(row["channel"], key)
            if expected != row["dedupe_key"]:
                check.fail(f"{where}: dedupe_key is not the SHA-256 of its channel and source_event_key")

    # -- identities and renderings ------------------------------------------------------------------------------------

    async def _leaf_refs(self, check: Check) -> None:
        async for row in self._stream(check, "verify.nodes", await self._count("verify.count_nodes")):
            if row["participants"] is None:
                check.fail(f"node {row['node_id'].hex()}: its scope {row['scope_id']} does not exist")
            elif row["node_type"] == LEAF:
                for problem in _leaf_problems(row):
                    check.fail(f"leaf {row['node_id'].hex()}: {problem}")

    async def _renderings(self, check: Check) -> None:
        async for row in self._stream(check, "verify.renderings", await self._count("verify.count_renderings")):
            for problem in _rendering_problems(row, self._settings):
                check.fail(f"rendering {row['rendering_id'].hex()} ({row['label']!r}): {problem}")

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def _snapshot_states(self, check: Check) -> None:
        async for row in self._stream(check, "verify.snapshots"):
            self._snapshots.append(_Snapshot(**row))
        fitting = {
            "staging": {"queued", "running"},
            "held": {"held"},
            "active": {"succeeded", "held"},
            "archived": {"succeeded", "held"},
        }
        for snapshot in self._snapshots:
            allowed = fitting.get(snapshot.status)
            if allowed is not None and snapshot.build_status not in allowed:
                check.fail(
                    f"snapshot {snapshot.snapshot_id} is {snapshot.status}, but its build is {snapshot.build_status}"
                )
            if not snapshot.is_kept:
                continue
            rows = await self._connection.fetch(
                sql("verify.before_the_tail_bound"), self._tenant, snapshot.cutoff, snapshot.tail_xid
            )
            for row in rows:
                check.fail(
                    f"event {row['event_seq']} lies past the cutoff of snapshot {snapshot.snapshot_id}, but before its "
                    "tail_xid: readers would miss it"
                )

    async def _lineages(self, check: Check) -> None:
        by_id = {snapshot.snapshot_id: snapshot for snapshot in self._snapshots}
        taken: dict[int, str] = {}
        for snapshot in self._snapshots:
            if not snapshot.is_kept and snapshot.status != "staging":
                continue
            check.examined += 1
            where = f"snapshot {snapshot.snapshot_id}"
            number, numbers = snapshot.number, snapshot.numbers
            if number is None:
                check.fail(f"{where} is {snapshot.status} and has no number")
                continue
            if number in taken:
                check.fail(f"{where} has the number {number} of {taken[number]}")
            taken[number] = snapshot.snapshot_id
            if number not in numbers or max(numbers) != number:
                check.fail(f"{where}: its own number {number} is not the greatest of its lineage {sorted(numbers)}")
            parent = by_id.get(snapshot.parent_snapshot_id or "")
            if snapshot.parent_snapshot_id is None and len(numbers) > 1:
                check.fail(f"{where} has no parent, but a lineage of {len(numbers)}")
            if parent is not None and parent.number is not None and numbers != parent.numbers | {number}:
                check.fail(f"{where}: its lineage is not its parent's and itself")
            if parent is not None and parent.cutoff > snapshot.cutoff:
                check.fail(f"{where}: its cutoff {snapshot.cutoff} is before its parent's {parent.cutoff}")

    async def _pointer(self, check: Check) -> None:
        check.examined += 1
        active = [snapshot.snapshot_id for snapshot in self._snapshots if snapshot.status == "active"]
        row = await self._connection.fetchrow(sql("verify.pointer"), self._tenant)
        pointer, moved_to = (row["snapshot_id"], row["moved_to"]) if row is not None else (None, None)
        if active != ([pointer] if pointer is not None else []):
            check.fail(f"the pointer stands at {pointer}, and the active snapshots are {active}")
        if pointer != moved_to:
            check.fail(f"the pointer stands at {pointer}, but its last recorded move went to {moved_to}")
        at: str | None = None
        async for move in self._stream(check, "verify.pointer_moves"):
            if move["from_snapshot_id"] != at:
                check.fail(f"pointer move {move['move_id']} starts at {move['from_snapshot_id']} instead of {at}")
            at = move["to_snapshot_id"]

    async def _staging(self, check: Check) -> None:
        hidden = {
            snapshot.number: snapshot
            for snapshot in self._snapshots
            if snapshot.number is not None
            and not (snapshot.is_kept and snapshot.status != "held")
            and not snapshot.was_active
        }
        for snapshot in self._snapshots:
            if snapshot.status not in ("active", "archived"):
                continue
            check.examined += 1
            for number in sorted(snapshot.numbers & hidden.keys()):
                other = hidden[number]
                check.fail(
                    f"snapshot {snapshot.snapshot_id} reads the rows of {other.snapshot_id}, which is {other.status}"
                )

    async def _scope_roots(self, check: Check) -> None:
        owned: set[int] = set()
        for snapshot in self._snapshots:
            if snapshot.number is not None:
                owned.add(snapshot.number)
                owned |= snapshot.numbers
        async for row in self._stream(check, "verify.scope_roots"):
            where = f"root of scope {row['scope_id']} in snapshot number {row['number']}"
            if not row["has_scope"]:
                check.fail(f"{where}: there is no such scope")
            if row["rendering_scope"] is None:
                check.fail(f"{where}: its rendering {row['root_rendering_id'].hex()} is missing")
            elif row["rendering_scope"] != row["scope_id"]:
                check.fail(f"{where}: its rendering belongs to scope {row['rendering_scope']}")
            if row["number"] not in owned:
                check.fail(f"{where}: no snapshot owns this number; the next build would inherit the row")

    # -- trees --------------------------------------------------------------------------------------------------------

    async def _trees(self, snapshot: _Snapshot, examined: set[tuple[bytes, int]]) -> None:
        if self._deep and not plans_alike(snapshot.planner_settings, self._settings):
            self._checks["replan"].fail(
                f"snapshot {snapshot.snapshot_id} was planned by another version or with other settings than these: "
                "it cannot be replanned here; run `myria rebuild --full`, or name its --config"
            )
        after = total = done = 0
        while True:
            rows = await self._connection.fetch(
                sql("verify.snapshot_scopes"), self._tenant, snapshot.lineage, after, _SCOPES_AT_ONCE
            )
            total += len(rows)
            for row in rows:
                done += 1
                self._progress("trees", done, total)
                await self._scope(snapshot, row, examined)
            if len(rows) < _SCOPES_AT_ONCE:
                return
            after = rows[-1]["scope_id"]

    async def _scope(self, snapshot: _Snapshot, row: Any, examined: set[tuple[bytes, int]]) -> None:
        with self._timed("coverage") as coverage:
            eligible = await self._eligible(row["scope_id"], snapshot.cutoff)
        root: bytes | None = row["root_rendering_id"]
        name = f"scope {row['scope_id']} in snapshot {snapshot.snapshot_id}"
        if root is None:
            coverage.examined += len(eligible)
            if len(eligible):
                coverage.fail(f"{name}: {len(eligible)} events, the first {eligible[0]}, are in no tree")
            return
        # Equal trees over equal events were examined with another snapshot.
        mark = (root, len(eligible))
        if mark in examined:
            return
        examined.add(mark)
        scope = _Scope(
            scope_id=row["scope_id"],
            participants=tuple(row["participants"]),
            root=root,
            blocks=tuple(row["blocks"]),
            cutoff=snapshot.cutoff,
        )
        with self._timed("trees") as trees:
            walk = _Walk(self._connection, self._tenant, self._settings, scope=scope, check=trees, name=name)
            shape = await walk.run()
        with self._timed("coverage"):
            _compare_coverage(coverage, name, eligible, shape)
        views = await self._blocks(scope, eligible, shape, name)
        if self._deep:
            with self._timed("block_content") as content:
                await self._block_content(content, views, name)
            if plans_alike(snapshot.planner_settings, self._settings):
                with self._timed("replan") as replan:
                    await self._replan(replan, scope, shape, name)

    async def _eligible(self, scope_id: int, cutoff: int) -> Seqs:
        parts = []
        cursor = self._connection.cursor(
            sql("verify.eligible_seqs"), self._tenant, scope_id, cutoff, prefetch=10 * _STREAM_ROWS
        )
        part: list[int] = []
        async for row in cursor:
            part.append(row[0])
            if len(part) == 65_536:
                parts.append(np.array(part, dtype=np.int64))
                part.clear()
        parts.append(np.array(part, dtype=np.int64))
        return np.concatenate(parts)

    async def _blocks(self, scope: _Scope, eligible: Seqs, shape: _Shape, name: str) -> list[tuple[bytes, BlockView]]:
        with self._timed("search_blocks") as check:
            found: list[tuple[bytes, BlockView]] = []
            held = []
            complete = True
            leaf_index = _LeafIndex(shape)
            for rendering in scope.blocks:
                check.examined += 1
                stored = await self._connection.fetchrow(sql("verify.block"), self._tenant, rendering, SEARCH_VERSION)
                if stored is None:
                    check.fail(f"{name}: its search block {rendering.hex()} is missing")
                    continue
                raw: bytes | None = stored["block"]
                if raw is None:  # There is one of another version. Readers make this one, and the next build writes it.
                    complete = False
                    continue
                try:
                    view = decode(raw)
                except errors.InternalError as error:
                    check.fail(f"{name}: search block {rendering.hex()}: {error.message}")
                    continue
                held.append(view.seq)
                for problem in _block_problems(view, leaf_index, shape):
                    check.fail(f"{name}: search block {rendering.hex()}: {problem}")
                if self._deep:
                    found.append((rendering, view))
            all_held = np.concatenate(held) if held else np.zeros(0, np.int64)
            wanted = eligible if complete else np.intersect1d(eligible, all_held)
            for problem in _set_problems(all_held, wanted, "search block"):
                check.fail(f"{name}: {problem}")
            return found

    # -- deep ---------------------------------------------------------------------------------------------------------

    async def _block_content(self, check: Check, blocks: Sequence[tuple[bytes, BlockView]], name: str) -> None:
        for rendering, view in blocks:
            check.examined += 1
            leaf_of = dict(zip(view.seq.tolist(), view.leaf.tolist(), strict=True))
            cursor = self._connection.cursor(
                sql("verify.block_events"), self._tenant, view.seq.tolist(), prefetch=_STREAM_ROWS
            )
            docs = [document(row, leaf=leaf_of[row["event_seq"]]) async for row in cursor]
            nodes = [
                BlockNode(rendering_id=view.rendering(at), parent=parent, level=level)
                for at, (parent, level) in enumerate(
                    zip(view.node_parent.tolist(), view.node_level.tolist(), strict=True)
                )
            ]
            if len(docs) == len(view) and build(docs, nodes) != view.raw:
                check.fail(f"{name}: search block {rendering.hex()} is not what its events give")

    async def _replan(self, check: Check, scope: _Scope, shape: _Shape, name: str) -> None:
        check.examined += 1
        plans = await self._unit_plans(scope)
        splitter = UnitSplitter(self._settings)
        events = EventRows(scope.participants)
        units: list[Unit] = []
        cursor = self._connection.cursor(
            sql("verify.scope_events"), self._tenant, scope.scope_id, scope.cutoff, prefetch=_STREAM_ROWS
        )
        read = 0
        async for row in cursor:
            read += 1
            if read % (4 * _STREAM_ROWS) == 0:
                self._progress("replan", read, 0)
            units.extend(self._plan(scope, splitter.feed(events.event(row)), plans, shape))
        units.extend(self._plan(scope, splitter.finish(), plans, shape))
        root, _ = await assemble(
            None, set(), units, _NothingStored(), participants=scope.participants, settings=self._settings
        )
        if root is None or root.rendering_id != scope.root:
            got = "nothing" if root is None else root.rendering_id.hex()
            check.fail(f"{name}: its root is {scope.root.hex()}, planning anew gives {got}")

    async def _unit_plans(self, scope: _Scope) -> Mapping[bytes, str]:
        """Return the stored plans of a scope's units, by unit."""
        if await self._connection.fetchval(sql("verify.has_plans"), self._tenant) is None:
            return {}
        planner = settings_digest(self._settings)
        rows = await self._connection.fetch(sql("llm.plans"), self._tenant, scope.scope_id, planner)
        return {row["unit"]: row["plan"] for row in rows}

    def _plan(
        self, scope: _Scope, complete: Iterable[tuple[PlanEvent, ...]], plans: Mapping[bytes, str], shape: _Shape
    ) -> Iterator[Unit]:
        """Yield units planned anew: by the stored plan where the tree holds what that gives."""
        for events in complete:
            plan = plans.get(unit_digest(events)) if plans else None
            if plan is not None:
                shaped = UnitShape.from_json(orjson.loads(plan))
                nodes = plan_shaped(scope.participants, events, shaped, self._settings)
                if nodes[-1].rendering_id in shape.level_of:
                    yield Unit.of(nodes)
                    continue
            yield Unit.of(plan_unit(scope.participants, events, self._settings))


class _NothingStored:
    """The old tree of a full plan."""

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        raise errors.InternalError("a full plan asked for an old tree", nodes=len(rendering_ids))

    async def leaf_node_ids(self, rendering_id: bytes) -> list[bytes]:
        raise errors.InternalError("a full plan asked for an old tree", rendering_id=rendering_id.hex())


class _Walk:
    """One tree, examined from the leaves up: subtrees of a few thousand events are read at once, what lies above them
    node by node.
    """

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        settings: PlannerSettings,
        *,
        scope: _Scope,
        check: Check,
        name: str,
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._settings = settings
        self._scope = scope
        self._check = check
        self._name = name
        self._shape = _Shape()

    async def run(self) -> _Shape:
        await self._visit(self._scope.root, {})
        return self._shape

    async def _visit(self, one: bytes, loaded: Mapping[bytes, Any]) -> _Seen | None:
        """Examine what is at and under a rendering; None where it is missing."""
        row = loaded.get(one) or (await self._load("verify.structure", one)).get(one)
        self._check.examined += 1
        if row is None:
            self._fail(one, "it is missing")
            return None
        if row["scope_id"] != self._scope.scope_id:
            self._fail(one, f"it belongs to scope {row['scope_id']}")
        first_leaf = len(self._shape.leaf_ids)
        self._shape.level_of[one] = row["level"]
        if row["node_type"] == LEAF:
            self._leaf(row)
        else:
            if any(child not in loaded for child in row["children"]):
                is_small = row["events"] <= _SUBTREE_EVENTS
                loaded = await self._load("verify.subtrees" if is_small else "verify.structure_below", one)
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

    async def _load(self, statement: str, one: bytes) -> dict[bytes, Any]:
        rows = await self._connection.fetch(sql(statement), self._tenant, [one])
        return {row["rendering_id"]: row for row in rows}

    def _leaf(self, row: Any) -> None:
        one = row["rendering_id"]
        seqs = row["event_seqs"] or ()
        shape = self._shape
        if len(seqs) != row["events"] or row["leaves"] != 1 or row["level"] != 0 or row["children"]:
            self._fail(one, "its counts, level or children are not those of a leaf")
        if len(seqs) > self._settings.leaf_max:
            self._fail(one, f"it holds {len(seqs)} events, more than {self._settings.leaf_max}")
        shape.seqs.extend(seqs)
        shape.leaf_of.extend([len(shape.leaves)] * len(seqs))
        shape.leaves.append(one)
        shape.leaf_ids.append(row["node_id"])

    def _internal(self, row: Any, children: Sequence[_Seen], first_leaf: int) -> None:
        one = row["rendering_id"]
        rows = [child.row for child in children]
        if len(rows) != len(row["children"]):
            return  # a missing child was reported; nothing above it can be right
        if not 2 <= len(rows) <= self._settings.max_fan_out:
            self._fail(one, f"it has {len(rows)} children instead of 2..{self._settings.max_fan_out}")
        for at, child in enumerate(rows):
            if row["child_leaves"][at] != (child["node_id"] if child["node_type"] == LEAF else b""):
                self._fail(one, f"child_leaves[{at}] is not its child's node_id")
        for column, expected in _sums(row, rows).items():
            if row[column] != expected:
                self._fail(one, f"{column} is {row[column]}, its children give {expected}")
        if internal_node_id(self._scope.participants, self._shape.leaf_ids[first_leaf:]) != row["node_id"]:
            self._fail(one, "node_id is not the hash of its participants and leaves")

    def _fail(self, one: bytes, problem: str) -> None:
        self._check.fail(f"{self._name}: rendering {one.hex()}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    if any(one >= other for one, other in pairwise(positions)):
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
    if computed != row["rendering_id"]:
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
    if topic_id(participants, row["node_type"], row["level"], row["anchor_event_id"]) != row["topic_id"]:
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


def _compare_coverage(check: Check, name: str, eligible: Seqs, shape: _Shape) -> None:
    check.examined += len(eligible)
    placed = np.array(shape.seqs, dtype=np.int64)
    for problem in _set_problems(placed, eligible, "leaf"):
        check.fail(f"{name}: {problem}")
    if len(eligible) > 1:
        counts = np.bincount(np.array(shape.leaf_of, dtype=np.int64), minlength=len(shape.leaves))
        for at in np.flatnonzero(counts == 1).tolist():
            check.fail(f"{name}: leaf {shape.leaves[at].hex()} holds a single event where a merge is possible")


def _set_problems(held: Seqs, wanted: Seqs, what: str) -> Iterator[str]:
    """Yield how numbers that must be equal as sets, each once, differ."""
    values, counts = np.unique(held, return_counts=True)
    for seq in values[counts > 1].tolist():
        yield f"event {seq} is in more than one {what}"
    for seq in np.setdiff1d(wanted, values).tolist():
        yield f"event {seq} is in no {what}"
    for seq in np.setdiff1d(values, wanted).tolist():
        yield f"event {seq} is in a {what}, but internal, past the cutoff or of another scope"


def _digests(raw: bytes) -> Seqs:
    """Return 32-byte hashes as rows of four integers, which numpy compares."""
    return np.frombuffer(raw, dtype=np.int64).reshape(-1, 4)


class _LeafIndex:
    """Which leaf of a tree holds an event, for many events at once."""

    def __init__(self, shape: _Shape) -> None:
        seqs = np.array(shape.seqs, dtype=np.int64)
        order = np.argsort(seqs, kind="stable")
        self._seqs = seqs[order]
        self._leaves = np.array(shape.leaf_of, dtype=np.int64)[order]
        self._renderings = _digests(b"".join(shape.leaves))

    def strays(self, view: BlockView) -> list[int]:
        """Return the events that a block does not hold under their leaf."""
        if not len(self._seqs):
            return [int(seq) for seq in view.seq]
        at = np.minimum(np.searchsorted(self._seqs, view.seq), len(self._seqs) - 1)
        in_block = _digests(view.node_rendering.tobytes())
        right = (
            (self._seqs[at] == view.seq)
            & (view.leaf >= 0)
            & (in_block[view.leaf] == self._renderings[self._leaves[at]]).all(axis=1)
        )
        return [int(seq) for seq in view.seq[~right]]


def _block_problems(view: BlockView, leaf_index: _LeafIndex, shape: _Shape) -> Iterator[str]:
    """Yield how a block's tree differs from the snapshot's."""
    renderings = [view.rendering(at) for at in range(len(view.node_parent))]
    for at, parent in enumerate(view.node_parent.tolist()):
        if shape.level_of.get(renderings[at]) != int(view.node_level[at]):
            yield f"its node {renderings[at].hex()} is not in the tree, or at another level"
        elif parent >= 0 and shape.parent_of.get(renderings[at]) != renderings[parent]:
            yield f"its node {renderings[at].hex()} has another parent in the tree"
    if not renderings:
        yield "it has no nodes"
        return
    for seq in leaf_index.strays(view):
        yield f"event {seq} is not under its leaf"
