"""The answer to an append."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from myria.settings.database import Kind

NOTHING: Mapping[Kind, int] = MappingProxyType({})
"""Nothing was redacted, as for most payloads."""


class AppendResult(NamedTuple):
    """The acknowledgement of one event, given after its commit.

    `deduplicated`: an event with this (channel, source_event_key) was stored before; id and number are that event's.
    `payload_differs`: that event has another payload, participants or timestamp. Callers who may not see the stored
    event are refused instead (`SourceEventKeyTaken`). `redacted`: how many items of each kind were redacted from the
    payload before it was stored, or compared with the stored one.
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
