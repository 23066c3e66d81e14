"""What subjects cost as a scope grows: a step of new events beside many, and the size of what would be stored.

One scope of a workload (`benchmarks.synthetic -n EVENTS --sets 1 -o FOLDER`), in memory: all but the newest events are
planned, then those come. Counts what the step reads and writes of subjects, and compares the bytes of subjects with
those of the trees of time and their search blocks (at 150 bytes an event).

    python -m benchmarks.subject_growth --events FOLDER/events.jsonl [--most EVENTS] [--step EVENTS]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import orjson

from benchmarks.locomo_offline import plan_events
from myria.planning.model import SUBJECT, Node, Outline, PlanEvent, Unit, UnitKey
from myria.planning.scope import changed_units, plan_unit, split_units
from myria.planning.settings import PlannerSettings
from myria.planning.subjects.holders import Holders
from myria.planning.subjects.update import PlacedLeaf, SubjectUpdate, leaves_of, leaves_under, update_subjects
from myria.planning.trie import assemble
from tests.support.trees import MemoryEvents, MemorySubjectNodes, MemoryTree

SETTINGS = PlannerSettings()
ROW_BYTES, CHILD_BYTES, BLOCK_BYTES = 250, 33, 150


class StoredSubjects(MemorySubjectNodes):
    """A scope's subjects in memory, their records as bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, tuple[bytes, bytes | None]] = {}
        self.looked_up = 0

    async def holders(self, keys: Sequence[str]) -> Mapping[str, Holders]:
        """Return the records of keys."""
        self.looked_up += len(keys)
        return {key: Holders.from_bytes(*self.records[key]) for key in keys if key in self.records}

    async def update(
        self, root: bytes | None, removed: Sequence[PlacedLeaf], added: Sequence[PlacedLeaf], scope: tuple[str, ...]
    ) -> SubjectUpdate:
        """Take some leaves out and others in."""
        self.add(placed.leaf for placed in added)
        update = await update_subjects(root, removed, added, self, participants=scope, settings=SETTINGS)
        self.add(update.nodes)
        self.records.update((key, (of.bounded().to_bytes(), of.subject)) for key, of in update.holders.items())
        return update


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="What subjects cost as a scope grows, in memory.")
    parser.add_argument("--events", type=Path, required=True, help="events.jsonl of a single scope")
    parser.add_argument("--most", type=int, default=30_000, help="events to read")
    parser.add_argument("--step", type=int, default=100, help="newest events, which come in a step of their own")
    options = parser.parse_args()
    with options.events.open("rb") as lines:
        rows = [(number, orjson.loads(line)) for number, line in enumerate(islice(lines, options.most), 1)]
    scope = tuple(sorted(rows[0][1]["participants"]))
    asyncio.run(_measure(scope, plan_events(rows), options.step))


async def _measure(scope: tuple[str, ...], events: Sequence[PlanEvent], step: int) -> None:
    begin = time.process_time()
    planned = [plan_unit(scope, unit, SETTINGS) for unit in split_units(events[:-step], SETTINGS)]
    times = MemoryTree(node for unit in planned for node in unit)
    top, groups = await assemble(
        None, set(), [Unit.of(unit) for unit in planned], times, participants=scope, settings=SETTINGS
    )
    times.add(groups)
    planned_s = time.process_time() - begin
    begin = time.process_time()
    subjects = StoredSubjects()
    full = await subjects.update(None, (), [placed for unit in planned for placed in leaves_of(unit)], scope)
    print(
        f"{len(events) - step} events, {sum(len(leaves_of(unit)) for unit in planned)} leaves: planned in "
        f"{planned_s:.1f} s of CPU, subjects in {time.process_time() - begin:.1f} s more"
    )
    if top is None or full.root is None:
        raise SystemExit("there is no subject")
    removed: set[UnitKey] = set()
    new: list[list[Node]] = []
    coming = [event.position for event in events[-step:]]
    async for changes in changed_units(coming, MemoryEvents(events), SETTINGS):
        removed.update(changes.removed)
        new.extend(plan_unit(scope, unit, SETTINGS) for unit in changes.added)
    gone: list[Outline] = []
    await assemble(
        top.rendering_id,
        removed,
        [Unit.of(unit) for unit in new],
        times,
        participants=scope,
        settings=SETTINGS,
        gone=gone,
    )
    old_leaves = await leaves_under(gone, times)
    subjects.opened = subjects.calls = subjects.looked_up = 0
    begin = time.process_time()
    update = await subjects.update(
        full.root.rendering_id, old_leaves, [placed for unit in new for placed in leaves_of(unit)], scope
    )
    print(
        f"a step of {step} events: {(time.process_time() - begin) * 1000:.0f} ms of CPU, {update.leaves_filed_anew} "
        f"leaves filed anew, {subjects.looked_up} keys looked up, {subjects.opened} nodes read in {subjects.calls} "
        f"statements, {len(update.nodes)} nodes and {len(update.holders)} records written"
    )
    if update.root is None:
        raise SystemExit("there is no subject")
    nodes = [node for node in subjects.under(update.root.rendering_id) if node.node_type == SUBJECT]
    records = sum(ROW_BYTES // 4 + len(record) + len(subject or b"") for record, subject in subjects.records.values())
    time_bytes = sum(map(_size, [*groups, *(node for unit in planned for node in unit)])) + BLOCK_BYTES * len(events)
    subject_bytes = sum(_size(node) - ROW_BYTES // 2 for node in nodes)
    print(
        f"{sum(node.is_unit for node in nodes)} subjects in {len(nodes)} nodes of {subject_bytes / 1e6:.1f} MB, "
        f"{len(subjects.records)} records of {records / 1e6:.1f} MB: {(subject_bytes + records) / time_bytes:.0%} of "
        f"{time_bytes / 1e6:.1f} MB of trees of time and blocks"
    )


def _size(node: Node) -> int:
    """Return about what a node takes, as two rows."""
    texts = len(node.label.encode()) + len(node.summary.encode()) + len(orjson.dumps(node.metadata))
    return (
        ROW_BYTES * 3 // 2
        + texts
        + CHILD_BYTES * (len(node.children) + sum(map(bool, node.child_leaves)))
        + 12 * len(node.refs)
    )


if __name__ == "__main__":
    main()
