"""What was superseded, and what stands in its place: a question that the old words answer finds their successor.

The superseded events of the visible scopes are scored by their own words and never shown; their scores go to their
visible successors. Up to the snapshot's cutoff they are read, once for all requests; later withdrawals the request
knows already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints
from myria.index.loose import LooseBlock
from myria.index.searchable import document
from myria.log.masks import Masks
from myria.search.cache import ByteCache
from myria.search.scoring import Replaced
from myria.search.snapshot_view import SnapshotView

MAX_REPLACED = 20_000
"""Superseded events that are searched for one list of masks: the newest ones."""

_MAX_CHAIN = 1_000
_MAX_FETCHED = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class _KnownReplaced:
    """Superseded events kept between requests.

    `replaced` is valid for one `version` of what is visible and withdrawn; `known` are the event_seqs looked up so far,
    whose documents need not be read again, whatever is withdrawn or published later.
    """

    version: tuple[object, ...]
    replaced: Replaced
    known: frozenset[int]


async def replaced_events(connection: Connection, cache: ByteCache, snapshot: SnapshotView) -> Replaced | None:
    """Return the superseded events of the visible scopes with their last successors; None if nothing was withdrawn."""
    if not snapshot.withdrawn_before and not snapshot.hidden.replaced:
        return None
    key = (snapshot.memory, "replaced", snapshot.masks)
    cached: _KnownReplaced | None = cache.get(key)
    version = (snapshot.cutoff, snapshot.visible, snapshot.hidden.key)
    if cached is not None and cached.version == version:
        return cached.replaced
    tenant, visible = snapshot.tenant, snapshot.visible.ids.tolist()
    at_cutoff = await _successors_at_cutoff(connection, cache, snapshot) if snapshot.withdrawn_before else {}
    successors = _last_successors(_apply_later_withdrawals(at_cutoff, snapshot))
    block, known_seqs = (LooseBlock(), frozenset[int]()) if cached is None else (cached.replaced.block, cached.known)
    missing = [seq for seq in successors if seq not in known_seqs]
    for start in range(0, len(missing), _MAX_FETCHED):
        rows = await connection.fetch(sql("events.by_seqs"), tenant, missing[start : start + _MAX_FETCHED], visible)
        block = block.extended([document(row, scope_id=row["scope_id"]) for row in rows if not row["internal"]])
    present_seqs = np.sort(block.seq[np.isin(block.seq, np.array(list(successors), dtype=np.int64))])
    final = np.array([successors[seq] for seq in present_seqs.tolist()], dtype=np.int64)
    replaced = Replaced(block=block, seqs=present_seqs, successors=final)
    if snapshot.hidden.key is not None:
        to_keep = _KnownReplaced(version=version, replaced=replaced, known=known_seqs | frozenset(missing))
        cache.put(key, to_keep, block.nbytes + 200 * len(to_keep.known) + 500)
    return replaced


async def _successors_at_cutoff(connection: Connection, cache: ByteCache, snapshot: SnapshotView) -> Mapping[int, int]:
    """Return what replaced each superseded event at the snapshot's cutoff: no later withdrawal changes that."""
    ids = snapshot.visible.ids
    key = (snapshot.memory, "replaced at a cutoff", snapshot.cutoff, snapshot.masks)
    kept: tuple[Ints, Mapping[int, int]] | None = cache.get(key)
    if kept is not None and np.array_equal(kept[0], ids):
        return kept[1]
    rows = await connection.fetch(
        sql("retrieval.replaced"), snapshot.tenant, ids.tolist(), snapshot.cutoff, MAX_REPLACED
    )
    successors = {row["event_seq"]: row["superseded_by"] for row in rows}
    cache.put(key, (ids, successors), ids.nbytes + 150 * len(successors) + 500)
    return successors


def _apply_later_withdrawals(at_cutoff: Mapping[int, int], snapshot: SnapshotView) -> dict[int, int]:
    """Update the successors known at the cutoff by the withdrawals past it; keep the newest `MAX_REPLACED`."""
    successors = dict(at_cutoff)
    for seq, (scope_id, successor) in snapshot.hidden.replaced.items():
        if successor is None:
            successors.pop(seq, None)
        elif snapshot.scope(scope_id) is not None:
            successors[seq] = successor
    return dict(sorted(successors.items())[-MAX_REPLACED:])


def _last_successors(successors: Mapping[int, int]) -> dict[int, int]:
    """Return, for each superseded event, the end of its chain of successors."""
    # From the newest down: a successor is nearly always newer, so the end of its own chain is known already.
    final: dict[int, int] = {}
    for seq in sorted(successors, reverse=True):
        successor = successors[seq]
        final[seq] = final.get(successor, successor) if successor > seq else _follow_chain(successors, seq)
    return final


def _follow_chain(successors: Mapping[int, int], seq: int) -> int:
    """Return the end of a chain that does not ascend: an older event may be named as the successor of a newer one."""
    for _ in range(_MAX_CHAIN):
        if seq not in successors:
            break
        seq = successors[seq]
    return seq


async def successors(
    connection: Connection, tenant: str, seqs: Sequence[int], masks: Masks
) -> dict[int, asyncpg.Record | None]:
    """Return which of some events are superseded now, with the successor's row or, if that may not be seen, None."""
    return {
        row["event_seq"]: row if row["participants"] is not None and masks.sees(row["participants"]) else None
        for row in await connection.fetch(sql("retrieval.successors"), tenant, seqs)
    }
