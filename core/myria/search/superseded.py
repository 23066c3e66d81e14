"""What was superseded, and what stands in its place: a question that the old words answer finds their successor.

The superseded events of the visible scopes are scored by their own words and never shown; their scores go to their
visible successors. Up to the snapshot's floor they are read; later withdrawals the request knows already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
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
    """Superseded events as a request found them: valid for one version of what is visible and withdrawn.

    `known` are the events that were looked up.
    """

    version: tuple[object, ...]
    replaced: Replaced
    known: frozenset[int]


async def replaced_events(connection: Connection, cache: ByteCache, snapshot: SnapshotView) -> Replaced | None:
    """Return the superseded events of the visible scopes with their successors; None where there are none."""
    if not snapshot.withdrawn_before and not snapshot.hidden.replaced:
        return None
    key = (snapshot.memory, "replaced", snapshot.masks)
    kept: _KnownReplaced | None = cache.get(key)
    version = (snapshot.floor, snapshot.visible, snapshot.hidden.key)
    if kept is not None and kept.version == version:
        return kept.replaced
    tenant, visible = snapshot.tenant, snapshot.visible.ids.tolist()
    at_floor: dict[int, int] = {}
    if snapshot.withdrawn_before:
        rows = await connection.fetch(sql("retrieval.replaced"), tenant, visible, snapshot.floor, MAX_REPLACED)
        at_floor = {row["event_seq"]: row["superseded_by"] for row in rows}
    successors = _final(_overlaid(at_floor, snapshot))
    block, known = (LooseBlock(), frozenset[int]()) if kept is None else (kept.replaced.block, kept.known)
    missing = [seq for seq in successors if seq not in known]
    for at in range(0, len(missing), _MAX_FETCHED):
        rows = await connection.fetch(sql("events.by_seqs"), tenant, missing[at : at + _MAX_FETCHED], visible)
        block = block.extended([document(row, scope_id=row["scope_id"]) for row in rows if not row["internal"]])
    here = np.sort(block.seq[np.isin(block.seq, np.array(list(successors), dtype=np.int64))])
    final = np.array([successors[seq] for seq in here.tolist()], dtype=np.int64)
    replaced = Replaced(block=block, seqs=here, successors=final)
    if snapshot.hidden.key is not None:
        made = _KnownReplaced(version=version, replaced=replaced, known=known | frozenset(missing))
        cache.put(key, made, block.nbytes + 200 * len(made.known) + 500)
    return replaced


def _overlaid(at_floor: Mapping[int, int], snapshot: SnapshotView) -> dict[int, int]:
    """Return the successors of superseded events after the withdrawals past the floor."""
    successors = dict(at_floor)
    for seq, (scope_id, successor) in snapshot.hidden.replaced.items():
        if successor is None:
            successors.pop(seq, None)
        elif snapshot.scope(scope_id) is not None:
            successors[seq] = successor
    return dict(sorted(successors.items())[-MAX_REPLACED:])


def _final(successors: Mapping[int, int]) -> dict[int, int]:
    """Return what stands at the end of each chain of successors."""
    final: dict[int, int] = {}
    for seq in sorted(successors, reverse=True):
        successor = successors[seq]
        final[seq] = final.get(successor, successor) if successor > seq else _followed(successors, seq)
    return final


def _followed(successors: Mapping[int, int], seq: int) -> int:
    """Return the end of a chain that does not ascend: an older event may be named as the successor of a newer one."""
    for _ in range(_MAX_CHAIN):
        if seq not in successors:
            break
        seq = successors[seq]
    return seq


async def successors(
    connection: Connection, tenant: str, seqs: Sequence[int], masks: Masks
) -> dict[int, asyncpg.Record | None]:
    """Return which of some events are superseded now, each with what replaced it where that may be seen."""
    return {
        row["event_seq"]: row if row["participants"] is not None and masks.sees(row["participants"]) else None
        for row in await connection.fetch(sql("retrieval.successors"), tenant, seqs)
    }
