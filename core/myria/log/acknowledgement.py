"""The answer to an append."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from myria.settings.redaction_kinds import Kind

NOTHING: Mapping[Kind, int] = MappingProxyType({})
"""What is taken out of most payloads."""


class AppendResult(NamedTuple):
    """The acknowledgement of one event, given after its commit.

    `deduplicated`: (channel, source_event_key) was there before, and these are the first event's id and number;
    `payload_differs`: and its payload, participants or timestamp are not what was sent now. Only those who may see the
    first event are answered so; others are refused (`SourceEventKeyTaken`). `redacted`: how much of each kind was taken
    out of the payload before it was stored, or compared with the first.
    """

    event_id: str
    event_seq: int
    participants: tuple[str, ...]
    deduplicated: bool = False
    payload_differs: bool = False
    redacted: Mapping[Kind, int] = NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return the answer of append_event."""
        answer: dict[str, Any] = {
            "event_id": self.event_id,
            "event_seq": self.event_seq,
            "participants": list(self.participants),
            "deduplicated": self.deduplicated,
            "payload_differs": self.payload_differs,
        }
        if self.redacted:
            answer["redacted"] = dict(self.redacted)
        return answer
