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
    """Which events one request must hide, and which it must add, because of withdrawals and notes that have ended.

    Args:
        key: equal for requests for which all of this is the same; None if it holds for this request alone.
        seqs: events that must leave no trace in the answer, ascending.
        late: events withdrawn since the first page, ascending: they must not be shown, but still move the scores of
            others, so that no hit comes twice. Events of notes that have ended are among them from the first page on,
            until they are withdrawn.
        returned: events at or below the cutoff that were restored since, ascending: no tree holds them yet.
        places: by scope, the moments (ascending) of the events that trees may hold and that must not be shown.
        replaced: by event that a withdrawal past the snapshot's cutoff names, its scope, and its successor or None.
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
        """Return the same with events of notes that have ended added to `late`: they are not shown, but move scores.

        Args:
            ended: (event_seq, scope_id, moment) of each event.
        """
        places = {scope_id: moments.tolist() for scope_id, moments in self.places.items()}
        for _, scope_id, moment in ended:
            places.setdefault(scope_id, []).append(moment)
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

    def shows(self, event_seq: int) -> bool:
        """Return whether one event may be shown."""
        return bool(self.shown(np.array([event_seq], dtype=np.int64))[0])

    def masked(self, view: View, mask: Mask | None) -> Mask | None:
        """Return the mask of a tree's documents that also leaves out what is hidden; None where all are shown."""
        if not len(self.seqs):
            return mask
        is_shown = self.shown(view.seq)
        if bool(is_shown.all()):
            return mask
        return is_shown if mask is None else mask & is_shown

    def covers(self, scope_id: int, first_at: int, last_at: int) -> bool:
        """Tell whether a topic of this span may hold an event that must not be shown."""
        moments = self.places.get(scope_id)
        if moments is None:
            return False
        next_index = int(moments.searchsorted(first_at))
        return next_index < len(moments) and int(moments[next_index]) <= last_at

    def topic(self, topic: Json, scope_id: int, first_at: int, last_at: int) -> Json:
        """Return a topic's JSON with neutral words if its own may have been made of an event that is hidden now."""
        return neutral(topic) if self.covers(scope_id, first_at, last_at) else topic


NOTHING = Hidden()
"""Nothing was withdrawn that a request must know."""


def neutral(topic: Json) -> Json:
    """Return a topic's JSON without any words that were made of its events."""
    return {**topic, "label": NEUTRAL_LABEL, "summary": NEUTRAL_SUMMARY, "keywords": [], "speakers": []}


def hidden_by(
    changes: Sequence[WithdrawalChange], key: object, *, cutoff: int, view: Visibility | None, with_superseded: bool
) -> Hidden:
    """Work out what a request must hide from the withdrawals past a snapshot's cutoff.

    Args:
        changes: in the order of their numbers; an event's last one decides.
        key: `Hidden.key` of the result.
        cutoff: the snapshot's.
        view: what the first page saw, None on a first page. What was hidden then stays hidden, also if it was restored
            since; what was hidden since is `late`.
        with_superseded: whether superseded events are shown.
    """
    shown_reasons = {"restored", "superseded"} if with_superseded else {"restored"}
    newest: dict[int, WithdrawalChange] = {change.event_seq: change for change in changes}
    hidden = {seq for seq, change in newest.items() if change.reason not in shown_reasons}
    hidden_then: set[int] = set()
    deciding = newest
    if view is not None:
        sees = view.sees(np.array([change.xid for change in changes], dtype=np.int64))
        newest_then = {
            change.event_seq: change for change, is_seen in zip(changes, sees.tolist(), strict=True) if is_seen
        }
        deciding = newest_then
        hidden_then = {
            seq
            for seq, change in newest.items()
            if (newest_then[seq].reason not in shown_reasons if seq in newest_then else change.was_withdrawn)
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
        replaced={seq: (change.scope_id, change.superseded_by) for seq, change in deciding.items()},
    )
