"""Ratings of notes by a model: internal events, which enter no topic, folded for ranking and utility.

A rating names a version, and counts for that alone. It moves a note only softly in the ranking, since it judges how a
text is written, and not whether it is true, or still true.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from myria.log.event import NewEvent
from myria.notes.model import NOTE_CHANNEL

EVALUATION_TYPE = "myria.evaluation"

_DIGITS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """A rating of one version of a note (Memento's contract, 7): each of its three sides lies in 0..1."""

    note_id: str
    version: int
    value: float
    specificity: float
    actionability: float

    @property
    def worth(self) -> float:
        """The mean of the three sides."""
        return round((self.value + self.specificity + self.actionability) / 3, _DIGITS)

    def event(self, participants: tuple[str, ...], *, timestamp: int, model: str) -> NewEvent:
        """Return the event that keeps this rating.

        Args:
            participants: canonical; those of the note.
            timestamp: in microseconds since 1970 UTC.
            model: the name of the model that rated the note.
        """
        evaluation = {
            "note": self.note_id,
            "version": self.version,
            "worth": self.worth,
            "value": self.value,
            "specificity": self.specificity,
            "actionability": self.actionability,
            "model": model,
        }
        return NewEvent(
            timestamp=timestamp,
            channel=NOTE_CHANNEL,
            participants=participants,
            payload_json=orjson.dumps({"evaluation": evaluation}, option=orjson.OPT_SORT_KEYS),
            type=EVALUATION_TYPE,
            internal=True,
        )
