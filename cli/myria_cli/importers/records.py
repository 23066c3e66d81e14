"""What a reader of a foreign export yields: messages, statements, and what it could not or need not take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from myria.errors import InvalidArgument, InvalidTimestamp, MyriaError
from myria.log.canonical import digest
from myria.notes.drafting import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    Args:
        at: when it was sent, with its zone.
        channel: the system, such as `slack`.
        conversation: unique within the channel.
        key: unique within the conversation, and the same in every export: a repeated import finds the message by it.
        speaker: the name of who said it.
        people: names and ids of all who could read it, as the export has them.
        title: the conversation's title; only its first message has one.
        remark: a note about the message, for the user; equal remarks are counted.
    """

    at: datetime
    channel: str
    conversation: str
    key: str
    speaker: str
    text: str
    people: tuple[str, ...]
    title: str | None = None
    remark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement that another memory system stored as true.

    Args:
        key: unique among all statements, and the same in every export; it begins with the system's name.
        at: when it was stored; None if the export does not say.
        people: names and ids of those it belongs to, as the export has them.
        agent: the named agent that stored it, if any.
    """

    key: str
    at: datetime | None
    draft: Draft
    people: tuple[str, ...] = ()
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that is no memory (a notice, a picture without words); left-out records are counted by reason."""

    reason: str


Record = Message | Statement | LeftOut | MyriaError
"""The error is of something that should have been a message or a statement, and cannot be read as one."""

NO_TEXT = LeftOut(reason="without text")
NOTICE = LeftOut(reason="notices of the system")


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list, and skip its other elements; yield nothing if the value is no list."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def text_of(value: Any) -> str:
    """Return a text without the white space around it; "" for any value that is no text."""
    return value.strip() if isinstance(value, str) else ""


def moment(value: Any, zone: tzinfo = UTC) -> datetime:
    """Parse a time as exports write it: seconds or milliseconds since 1970 (a number or its digits), or ISO 8601.

    Args:
        zone: the zone of a time without one.

    Raises:
        InvalidTimestamp: it is neither.
    """
    try:
        text = str(value).strip()
        if text.replace(".", "", 1).isdecimal():
            seconds = float(text)  # from 1e11 on, milliseconds: as seconds it were past the year 5000
            return datetime.fromtimestamp(seconds if seconds < 1e11 else seconds / 1000, UTC)
        at = datetime.fromisoformat(text.removesuffix(" UTC") + ("+00:00" if text.endswith(" UTC") else ""))
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidTimestamp(
            "the time is neither seconds since 1970 nor ISO 8601, such as 2026-03-12T19:05:00Z", field="timestamp"
        ) from error
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def identified(*parts: str) -> str:
    """Return a key made from texts by hashing them, for records without an id of their own."""
    return digest(list(parts)).hex()[:32]


class People:
    """Maps names and ids of the export to participants of this memory.

    Args:
        own: canonical participants of everything that is imported.
        names: participants by names or ids of the export. A person who is not in it does not become a participant: two
            people of the same name must not read each other's messages.
    """

    def __init__(self, own: tuple[str, ...], names: Mapping[str, str]) -> None:
        self.own = own
        self._names = names
        self.seen: Counter[str] = Counter()

    def participants(self, people: Iterable[str]) -> list[str]:
        """Return the participants of a record: the owners of the import, and those of these people who are mapped."""
        return sorted({*self.own, *(self._names[name] for name in people if name in self._names)})

    def called(self, name: str) -> str:
        """Count one message of a speaker; return the name under which it is stored."""
        self.seen[name] += 1
        return self.participant(name)

    def participant(self, name: str) -> str:
        """Return the participant for a name or id: the name itself if the people file does not map it."""
        return self._names.get(name, name)


def people_of(value: Any) -> dict[str, str]:
    """Check the content of a people file; return participants by names or ids of the export.

    Raises:
        InvalidArgument: it is no mapping of texts to texts.
    """
    if not isinstance(value, dict) or not all(isinstance(name, str) and name.strip() for name in value.values()):
        raise InvalidArgument(
            "the people file must map names or ids of the export to participants, a line each: `Ana Lima: ana`",
            field="people",
        )
    return {str(name): participant.strip() for name, participant in value.items()}
