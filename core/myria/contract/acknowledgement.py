"""The answer to an append."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """The acknowledgement of one event, given after its commit.

    `deduplicated`: (channel, source_event_key) was there before, and these are the first event's id and number;
    `payload_differs`: and its payload, participants or timestamp are not what was sent now. Only those who may see the
    first event are answered so; others are refused (`SourceEventKeyTaken`).
    """

    event_id: str
    event_seq: int
    participants: tuple[str, ...]
    deduplicated: bool = False
    payload_differs: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the answer of append_event."""
        return {
            "event_id": self.event_id,
            "event_seq": self.event_seq,
            "participants": list(self.participants),
            "deduplicated": self.deduplicated,
            "payload_differs": self.payload_differs,
        }
