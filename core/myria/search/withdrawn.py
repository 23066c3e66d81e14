"""What withdrawals and the ends of notes hide from one request, and what it gets back, beside the pinned snapshot.

A snapshot's trees have taken in the withdrawals up to its cutoff; those past it are few, and decided here, against the
live table. Their rows are kept between requests by the snapshot's cutoff and their number, which only grows: where
nothing was withdrawn since the last build, or nothing since the last question, no statement is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt

from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints, View
from myria.log.withdrawal.model import NEUTRAL_LABEL, NEUTRAL_SUMMARY
from myria.search.cache import ByteCache
from myria.search.scopes import Memory
from myria.search.visibility import Visibility

Json = dict[str, Any]

_NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class WithdrawalChange:
    """One row of `retrieval.withdrawn`: what a withdrawal past a snapshot's cutoff says of an event.

    `was_withdrawn` tells whether the event was withdrawn at the cutoff, so that the snapshot's trees do not hold it.
    """

    event_seq: int
    scope_id: int
    occurred_at: int
    reason: str
    xid: int
    was_withdrawn: bool
    superseded_by: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Hidden:
    """What one request must leave out, and what it must add.

    Args:
        key: equal for requests for which all of this is the same; None where it belongs to this one alone.
        seqs: the events that leave no trace in it, ascending.
        late: those that an earlier page did not leave out, and that must not be shown now, ascending: on this page they
            still move the scores of others, so that no hit comes twice. Events of notes that have ended are among them
            from the first page on, until they are withdrawn.
        returned: events at or below the cutoff that were brought back since, ascending: no tree holds them yet.
        places: of the events that trees may hold and that must not be shown, the moments (ascending) by scope.
        replaced: by event that a withdrawal past the floor names, its scope and what replaced it, None for nothing.
    """

    key: object = ()
    seqs: Ints = field(default_factory=lambda: _NONE)
    late: Ints = field(default_factory=lambda: _NONE)
    returned: Ints = field(default_factory=lambda: _NONE)
    places: Mapping[int, Ints] = field(default_factory=dict)
    replaced: Mapping[int, tuple[int, int | None]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(len(self.seqs) or len(self.late) or len(self.returned))

    def also(self, ended: Sequence[tuple[int, int, int]]) -> Hidden:
        """Return this with events that have ended: like those withdrawn after a first page, they move scores at most.

        Args:
            ended: number, scope and moment of each.
        """
        places = {scope_id: moments.tolist() for scope_id, moments in self.places.items()}
        for _, scope_id, at in ended:
            places.setdefault(scope_id, []).append(at)
        late = np.union1d(self.late, np.array([seq for seq, _, _ in ended], dtype=np.int64))
        return replace(
            self,
            late=np.setdiff1d(late, self.seqs),
            places={scope_id: np.array(sorted(moments), dtype=np.int64) for scope_id, moments in places.items()},
        )

    def shown(self, seqs: Ints) -> npt.NDArray[np.bool_]:
        """Return which events may be shown."""
        shown: npt.NDArray[np.bool_] = ~np.isin(seqs, self.seqs)
        return shown

    def covers(self, scope_id: int, first_at: int, last_at: int) -> bool:
        """Tell whether a topic of this span may hold an event that must not be shown."""
        moments = self.places.get(scope_id)
        if moments is None:
            return False
        at = int(moments.searchsorted(first_at))
        return at < len(moments) and int(moments[at]) <= last_at

    def topic(self, topic: Json, scope_id: int, first_at: int, last_at: int) -> Json:
        """Return a topic as it may be shown: without words that may have been made of what was withdrawn."""
        return neutral(topic) if self.covers(scope_id, first_at, last_at) else topic


NOTHING = Hidden()
"""Nothing was withdrawn that a request must know."""


def neutral(topic: Json) -> Json:
    """Return a topic's JSON without any words that were made of its events."""
    return {**topic, "label": NEUTRAL_LABEL, "summary": NEUTRAL_SUMMARY, "keywords": [], "speakers": []}


async def hidden_from(
    connection: Connection,
    cache: ByteCache,
    memory: Memory,
    *,
    floor: int,
    cutoff: int,
    rows: int,
    visibility: Visibility,
    at_cursor: bool,
    with_superseded: bool,
) -> Hidden:
    """Return what withdrawals hide from a request.

    Args:
        floor: withdrawals past this number are not in the snapshot's trees: its cutoff, 0 where its builder knew none.
        cutoff: the snapshot's.
        rows: how many rows of `withdrawn` past the floor the request's transaction sees.
        visibility: what the request sees: at a cursor, what its first page saw.
        with_superseded: whether superseded events are to be shown.
    """
    if not rows:
        return NOTHING
    tenant = memory[0]
    key = (memory, "withdrawn", floor)
    known: tuple[int, tuple[WithdrawalChange, ...], dict[bool, Hidden]] | None = cache.get(key)
    if known is None or known[0] != rows:
        fetched = await connection.fetch(sql("retrieval.withdrawn"), tenant, floor)
        known = (len(fetched), tuple(_change(row, is_exact=floor == cutoff) for row in fetched), {})
        cache.put(key, known, 200 + 300 * len(fetched))
    _, changes, made = known
    if at_cursor:
        return _hidden(changes, None, cutoff=cutoff, view=visibility, with_superseded=with_superseded)
    hidden = made.get(with_superseded)
    if hidden is None:
        hidden = _hidden(
            changes, (floor, rows, with_superseded), cutoff=cutoff, view=None, with_superseded=with_superseded
        )
        made[with_superseded] = hidden
    return hidden


def masked(cache: ByteCache, hidden: Hidden, view: View, mask: npt.NDArray[np.bool_] | None) -> Any:
    """Return the mask of a tree's documents that also leaves out what is hidden."""
    if not len(hidden.seqs):
        return mask
    key = ("shown", hidden.key, id(view))
    known = None if hidden.key is None else cache.get(key)
    if known is not None and known[0] is view:
        shown = known[1]
    else:
        shown = hidden.shown(view.seq)
        shown = None if bool(shown.all()) else shown
        if hidden.key is not None:
            cache.put(key, (view, shown), 200 + (0 if shown is None else len(shown)))
    if shown is None or mask is None:
        return mask if shown is None else shown
    return mask & shown


def _change(row: asyncpg.Record, *, is_exact: bool) -> WithdrawalChange:
    return WithdrawalChange(
        event_seq=row["event_seq"],
        scope_id=row["scope_id"],
        occurred_at=to_microseconds(row["occurred_at"]),
        reason=row["reason"],
        xid=row["xid"],
        was_withdrawn=is_exact and row["was_withdrawn"],
        superseded_by=row["superseded_by"] if row["reason"] == "superseded" else None,
    )


def _hidden(
    changes: Sequence[WithdrawalChange], key: object, *, cutoff: int, view: Visibility | None, with_superseded: bool
) -> Hidden:
    """Fold changes, which come in the order of their numbers.

    Args:
        view: what an earlier page saw: what was hidden from it stays hidden, and so does what is hidden now.
    """
    shown_reasons = {"restored", "superseded"} if with_superseded else {"restored"}
    newest: dict[int, WithdrawalChange] = {change.event_seq: change for change in changes}
    hidden = {seq for seq, change in newest.items() if change.reason not in shown_reasons}
    hidden_then: set[int] = set()
    standing = newest
    if view is not None:
        sees = view.sees(np.array([change.xid for change in changes], dtype=np.int64))
        then = {change.event_seq: change for change, seen in zip(changes, sees.tolist(), strict=True) if seen}
        standing = then
        hidden_then = {
            seq
            for seq, change in newest.items()
            if (then[seq].reason not in shown_reasons if seq in then else change.was_withdrawn)
        }
    returned = [
        seq
        for seq, change in newest.items()
        if seq <= cutoff and change.was_withdrawn and seq not in hidden and seq not in hidden_then
    ]
    late = set() if view is None else hidden - hidden_then
    hidden |= hidden_then
    places: dict[int, list[int]] = {}
    for seq in hidden:
        if seq <= cutoff:
            places.setdefault(newest[seq].scope_id, []).append(newest[seq].occurred_at)
    return Hidden(
        key=key,
        seqs=np.array(sorted(hidden - late), dtype=np.int64),
        late=np.array(sorted(late), dtype=np.int64),
        returned=np.array(sorted(returned), dtype=np.int64),
        places={scope_id: np.array(sorted(moments), dtype=np.int64) for scope_id, moments in places.items()},
        replaced={seq: (change.scope_id, change.superseded_by) for seq, change in standing.items()},
    )
