"""Checks snapshots: their states, their lineages, the pointer, and the rows that their numbers own."""

from __future__ import annotations

from collections.abc import Sequence

from myria.builds.verify.examination import Check, Examination, StoredSnapshot
from myria.db.queries import sql


async def states(exam: Examination, check: Check) -> list[StoredSnapshot]:
    """Return all snapshots, after checking that each one's status fits its build and its tail bound hides no event."""
    snapshots = [StoredSnapshot(**row) async for row in exam.stream(check, "verify.snapshots")]
    build_statuses = {
        "staging": {"queued", "running"},
        "held": {"held"},
        "active": {"succeeded", "held"},
        "archived": {"succeeded", "held"},
    }
    for snapshot in snapshots:
        allowed = build_statuses.get(snapshot.status)
        if allowed is not None and snapshot.build_status not in allowed:
            check.fail(
                f"snapshot {snapshot.snapshot_id} is {snapshot.status}, but its build is {snapshot.build_status}"
            )
        if not snapshot.is_kept:
            continue
        rows = await exam.connection.fetch(
            sql("verify.before_the_tail_bound"), exam.tenant, snapshot.cutoff, snapshot.tail_xid
        )
        for row in rows:
            check.fail(
                f"event {row['event_seq']} lies past the cutoff of snapshot {snapshot.snapshot_id}, but before its "
                "tail_xid: readers would miss it"
            )
    return snapshots


async def lineages(exam: Examination, snapshots: Sequence[StoredSnapshot], check: Check) -> None:
    """Check that every kept snapshot's lineage is its parent's and itself."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    owner_of: dict[int, str] = {}
    for snapshot in snapshots:
        if not snapshot.is_kept and snapshot.status != "staging":
            continue
        check.examined += 1
        where = f"snapshot {snapshot.snapshot_id}"
        number, numbers = snapshot.number, snapshot.numbers
        if number is None:
            check.fail(f"{where} is {snapshot.status} and has no number")
            continue
        if number in owner_of:
            check.fail(f"{where} has the number {number} of {owner_of[number]}")
        owner_of[number] = snapshot.snapshot_id
        if number not in numbers or max(numbers) != number:
            check.fail(f"{where}: its own number {number} is not the greatest of its lineage {sorted(numbers)}")
        parent = by_id.get(snapshot.parent_snapshot_id or "")
        if snapshot.parent_snapshot_id is None and len(numbers) > 1:
            check.fail(f"{where} has no parent, but a lineage of {len(numbers)}")
        if parent is not None and parent.number is not None and numbers != parent.numbers | {number}:
            check.fail(f"{where}: its lineage is not its parent's and itself")
        if parent is not None and parent.cutoff > snapshot.cutoff:
            check.fail(f"{where}: its cutoff {snapshot.cutoff} is before its parent's {parent.cutoff}")


async def pointer(exam: Examination, snapshots: Sequence[StoredSnapshot], check: Check) -> None:
    """Check that at most one snapshot is active, the one to which the pointer and its history lead."""
    check.examined += 1
    active_ids = [snapshot.snapshot_id for snapshot in snapshots if snapshot.status == "active"]
    row = await exam.connection.fetchrow(sql("verify.pointer"), exam.tenant)
    pointer, moved_to = (row["snapshot_id"], row["moved_to"]) if row is not None else (None, None)
    if active_ids != ([pointer] if pointer is not None else []):
        check.fail(f"the pointer stands at {pointer}, and the active snapshots are {active_ids}")
    if pointer != moved_to:
        check.fail(f"the pointer stands at {pointer}, but its last recorded move went to {moved_to}")
    pointed_at: str | None = None
    async for move in exam.stream(check, "verify.pointer_moves"):
        if move["from_snapshot_id"] != pointed_at:
            check.fail(f"pointer move {move['move_id']} starts at {move['from_snapshot_id']} instead of {pointed_at}")
        pointed_at = move["to_snapshot_id"]


async def staging(exam: Examination, snapshots: Sequence[StoredSnapshot], check: Check) -> None:
    """Check that no served snapshot reads rows of one that was never published."""
    unpublished = {
        snapshot.number: snapshot
        for snapshot in snapshots
        if snapshot.number is not None
        and not (snapshot.is_kept and snapshot.status != "held")
        and not snapshot.was_active
    }
    for snapshot in snapshots:
        if snapshot.status not in ("active", "archived"):
            continue
        check.examined += 1
        for number in sorted(snapshot.numbers & unpublished.keys()):
            owner = unpublished[number]
            check.fail(
                f"snapshot {snapshot.snapshot_id} reads the rows of {owner.snapshot_id}, which is {owner.status}"
            )


async def scope_roots(exam: Examination, snapshots: Sequence[StoredSnapshot], check: Check) -> None:
    """Check that every root row has its scope and rendering, and that a snapshot owns its number."""
    owned = owned_numbers(snapshots)
    async for row in exam.stream(check, "verify.scope_roots"):
        where = f"root of scope {row['scope_id']} in snapshot number {row['number']}"
        if not row["has_scope"]:
            check.fail(f"{where}: there is no such scope")
        if row["root_rendering_id"] is None:
            pass  # all that the scope had was withdrawn
        elif row["rendering_scope"] is None:
            check.fail(f"{where}: its rendering {row['root_rendering_id'].hex()} is missing")
        elif row["rendering_scope"] != row["scope_id"]:
            check.fail(f"{where}: its rendering belongs to scope {row['rendering_scope']}")
        if row["number"] not in owned:
            check.fail(f"{where}: no snapshot owns this number; the next build would inherit the row")


def owned_numbers(snapshots: Sequence[StoredSnapshot]) -> set[int]:
    """Return every number that is a snapshot's own, or in its lineage."""
    owned: set[int] = set()
    for snapshot in snapshots:
        if snapshot.number is not None:
            owned.add(snapshot.number)
            owned |= snapshot.numbers
    return owned
