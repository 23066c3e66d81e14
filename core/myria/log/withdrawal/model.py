"""What a withdrawal is: an event of a reserved type that names other events of its scope, and a reason.

It is internal, so it is never part of a topic and no trigger counts it as text; it is shown to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import orjson

from myria.log.event import NewEvent

Reason = Literal["superseded", "forgotten", "expired", "held", "refused", "restored"]
REASONS: tuple[Reason, ...] = get_args(Reason)

WITHHELD: tuple[Reason, ...] = ("held", "refused")
"""The reasons of a review: only its decision, and no other restoration, brings back what has one of them."""

ReviewState = Literal["held", "refused", "approved"]

WITHDRAWAL_TYPE = "myria.withdrawal"
WITHDRAWAL_CHANNEL = "myria"


NEUTRAL_LABEL = "Topic with withdrawn events"
NEUTRAL_SUMMARY = "Some events of this topic were withdrawn after its snapshot was built."
"""Shown in place of the label and summary of a topic that covers withdrawn events, as these may quote them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewDecision:
    """A reviewer's decision: who made it and why, and in which state the event had to be before."""

    before: ReviewState
    by: str
    why: str

    def agrees_with(self, reason: str | None) -> bool:
        """Tell whether an event whose newest withdrawal has this reason is in the state before the decision."""
        if self.before == "held":
            return reason in ("held", None)  # none where an import brought the note without what hid it
        return reason == ("restored" if self.before == "approved" else self.before)


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdrawal:
    """What a withdrawal says.

    `events` are ids of events of its scope with lower numbers. What replaced superseded ones is named by its id, or
    by its dedupe key (hex) where it has one, since a repeated append may find its successor stored already. `by` is who
    asked for it, None where nobody did: upkeep, or an event that replaced another one.
    """

    reason: Reason
    events: tuple[str, ...]
    superseded_by: str | None = None
    superseded_by_key: str | None = None
    by: str | None = None
    decision: ReviewDecision | None = None

    @classmethod
    def of(cls, payload: dict[str, Any]) -> Withdrawal | None:
        """Return the withdrawal in a stored payload; None if it is none."""
        reason, events = payload.get("reason"), payload.get("events")
        if reason not in REASONS or not isinstance(events, list):
            return None
        return cls(
            reason=reason,
            events=tuple(event for event in events if isinstance(event, str)),
            superseded_by=payload.get("superseded_by"),
            superseded_by_key=payload.get("superseded_by_key"),
            by=payload.get("by"),
            decision=decision_of(payload),
        )

    def payload_json(self) -> bytes:
        """Return its payload as canonical JSON."""
        payload: dict[str, Any] = {"reason": self.reason, "events": list(self.events)}
        if self.superseded_by is not None:
            payload["superseded_by"] = self.superseded_by
        if self.superseded_by_key is not None:
            payload["superseded_by_key"] = self.superseded_by_key
        if self.by is not None:
            payload["by"] = self.by
        if self.decision is not None:
            payload["review"] = {"before": self.decision.before, "by": self.decision.by, "why": self.decision.why}
        return orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)


def decision_of(payload: Mapping[str, Any]) -> ReviewDecision | None:
    """Return the decision of a reviewer in the payload of a withdrawal; None if none made it."""
    said = payload.get("review")
    if not isinstance(said, dict) or said.get("before") not in get_args(ReviewState):
        return None
    by, why = (value if isinstance(value := said.get(name), str) else "" for name in ("by", "why"))
    return ReviewDecision(before=said["before"], by=by, why=why)


def withdrawal_event(
    withdrawal: Withdrawal,
    participants: Sequence[str],
    *,
    timestamp: int,
    source_event_key: str | None = None,
) -> NewEvent:
    """Return the event that is appended to one scope.

    Args:
        timestamp: that of the newest event it names, in microseconds since 1970: it makes no memory look newer.
        source_event_key: where a repeat must find it stored already.
    """
    return NewEvent(
        timestamp=timestamp,
        channel=WITHDRAWAL_CHANNEL,
        participants=tuple(participants),
        payload_json=withdrawal.payload_json(),
        source_event_key=source_event_key,
        type=WITHDRAWAL_TYPE,
        internal=True,
    )
