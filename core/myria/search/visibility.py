"""What one request may see of events: by PostgreSQL's snapshot, and after withdrawals and the ends of notes.

A snapshot's trees have taken in the withdrawals up to its cutoff; those past it are few, and decided against the live
table. Pure: the rows are read by `myria.search.snapshot_view`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from myria.index.block import Ints, View
from myria.index.corpus import Mask
from myria.log.withdrawal.model import NEUTRAL_LABEL, NEUTRAL_SUMMARY

Json = dict[str, Any]

_NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Visibility:
    """A parsed `pg_snapshot`: everything below `xmin` is settled, nothing from `xmax` on is seen."""

    text: str
    xmin: int
    xmax: int
    in_progress: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Visibility:
        """Parse `xmin:xmax:xip,xip`.

        Raises:
            ValueError: not the text of a pg_snapshot.
        """
        xmin, xmax, listed = text.split(":")
        in_progress = tuple(int(xid) for xid in listed.split(",") if xid)
        return cls(text=text, xmin=int(xmin), xmax=int(xmax), in_progress=in_progress)

    def sees(self, xids: Ints) -> Mask:
        """Return which of `xids`, all of committed transactions, this snapshot sees."""
        seen: Mask = xids < self.xmax
        if self.in_progress and bool((xids >= self.xmin).any()):
            seen &= ~np.isin(xids, np.asarray(self.in_progress, dtype=np.int64))
        return seen


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

    def shown(self, seqs: Ints) -> Mask:
        """Return which events may be shown."""
        shown: Mask = ~np.isin(seqs, self.seqs)
        return shown

    def masked(self, view: View, mask: Mask | None) -> Mask | None:
        """Return the mask of a tree's documents that also leaves out what is hidden; None where all are shown."""
        if not len(self.seqs):
            return mask
        shown = self.shown(view.seq)
        if bool(shown.all()):
            return mask
        return shown if mask is None else mask & shown

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


def hidden_by(
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
