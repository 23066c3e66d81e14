"""What was superseded, and what stands in its place: a question that the old words answer finds their successor.

The superseded events of the visible scopes are a lane of their own beside the corpora. Its documents are scored by
their own words and never shown; their scores go to their visible successors. What the snapshot's floor knows is read
once for each snapshot, and later withdrawals are those that the request knows already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints
from myria.index.loose import LooseBlock
from myria.index.searchable import document
from myria.search.cache import ByteCache
from myria.search.pin import Pinned
from myria.search.superseded import Replaced

MAX_REPLACED = 20_000
"""Superseded events that are searched for one list of masks: the newest ones."""

_MAX_CHAIN = 1_000
_MAX_FETCHED = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class _AtFloor:
    """The successor of each event that was superseded at a floor, in certain scopes."""

    scopes: Ints
    floor: int
    successors: Mapping[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _KnownReplaced:
    """A lane as a request made it: valid for one state of withdrawals. `known` are the events that were looked up."""

    version: object
    at_floor: _AtFloor
    replaced: Replaced
    known: frozenset[int]


async def replaced_events(connection: Connection, cache: ByteCache, pinned: Pinned) -> Replaced | None:
    """Return the superseded events of the visible scopes with their successors; None where there are none."""
    if not pinned.withdrawn_before and not pinned.hidden.replaced:
        return None
    at_floor = await _at_floor(connection, cache, pinned)
    key = (pinned.memory, "replaced", pinned.masks)
    kept: _KnownReplaced | None = cache.get(key)
    version = pinned.hidden.key
    if kept is not None and version is not None and kept.at_floor is at_floor and kept.version == version:
        return kept.replaced
    successors = _final(_overlaid(at_floor.successors, pinned))
    block, known = (LooseBlock(), frozenset[int]()) if kept is None else (kept.replaced.block, kept.known)
    missing = [seq for seq in successors if seq not in known]
    visible = pinned.visible.ids.tolist() if missing else []
    for at in range(0, len(missing), _MAX_FETCHED):
        rows = await connection.fetch(sql("events.by_seqs"), pinned.tenant, missing[at : at + _MAX_FETCHED], visible)
        block = block.extended([document(row, scope_id=row["scope_id"]) for row in rows if not row["internal"]])
    here = np.sort(block.seq[np.isin(block.seq, np.array(list(successors), dtype=np.int64))])
    final = np.array([successors[seq] for seq in here.tolist()], dtype=np.int64)
    replaced = Replaced(block=block, seqs=here, successors=final)
    if version is not None:
        made = _KnownReplaced(version=version, at_floor=at_floor, replaced=replaced, known=known | frozenset(missing))
        cache.put(key, made, block.nbytes + 200 * len(made.known) + 500)
    return replaced


async def _at_floor(connection: Connection, cache: ByteCache, pinned: Pinned) -> _AtFloor:
    key = (pinned.memory, "replaced at floor", pinned.masks)
    kept: _AtFloor | None = cache.get(key)
    if kept is not None and kept.floor == pinned.floor and np.array_equal(kept.scopes, pinned.visible.ids):
        return kept
    successors: dict[int, int] = {}
    if pinned.withdrawn_before:
        rows = await connection.fetch(
            sql("retrieval.replaced"), pinned.tenant, pinned.visible.ids.tolist(), pinned.floor, MAX_REPLACED
        )
        successors = {row["event_seq"]: row["superseded_by"] for row in rows}
    made = _AtFloor(scopes=pinned.visible.ids, floor=pinned.floor, successors=successors)
    cache.put(key, made, 100 * len(successors) + 8 * len(made.scopes) + 200)
    return made


def _overlaid(at_floor: Mapping[int, int], pinned: Pinned) -> dict[int, int]:
    """Return the successors of superseded events after the withdrawals past the floor."""
    successors = dict(at_floor)
    for seq, (scope_id, successor) in pinned.hidden.replaced.items():
        if successor is None:
            successors.pop(seq, None)
        elif pinned.scope(scope_id) is not None:
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
