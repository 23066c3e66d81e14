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
        conversation: what tells this conversation from the others of the channel.
        key: what tells this message from the others of the conversation: a repeated import knows it by that.
        speaker: who said it, by name.
        people: names and ids of all who were there, as the export has them.
        title: what the conversation is called; given with its first message.
        remark: what one should know of it; counted.
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
    """Something another memory kept as true.

    Args:
        key: what tells it from all others of its system.
        at: when it was kept; None where the export does not say.
        people: names and ids of those it belongs to, as the export has them.
        agent: who kept it, where that is an agent with a name.
    """

    key: str
    at: datetime | None
    draft: Draft
    people: tuple[str, ...] = ()
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that is no memory (a notice, a picture without words), with the reason that is counted."""

    reason: str


Record = Message | Statement | LeftOut | MyriaError
"""The error is of something that should have been a message or a statement, and cannot be read as one."""

NO_TEXT = LeftOut(reason="without text")
NOTICE = LeftOut(reason="notices of the system")


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; of anything else that stands in it, nothing."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def text_of(value: Any) -> str:
    """Return a text without white space around it; an empty one of anything that is no text."""
    return value.strip() if isinstance(value, str) else ""


def moment(value: Any, zone: tzinfo = UTC) -> datetime:
    """Return a time as exports write it: seconds or milliseconds since 1970 (a number or its digits), or ISO 8601.

    Args:
        zone: of a time that does not name its own.

    Raises:
        InvalidTimestamp: it is neither.
    """
    try:
        text = str(value).strip()
        if text.replace(".", "", 1).isdecimal():
            seconds = float(text)  # which are milliseconds where they would lie beyond the year 5000
            return datetime.fromtimestamp(seconds if seconds < 1e11 else seconds / 1000, UTC)
        at = datetime.fromisoformat(text.removesuffix(" UTC") + ("+00:00" if text.endswith(" UTC") else ""))
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidTimestamp(
            "the time is neither seconds since 1970 nor ISO 8601, such as 2026-03-12T19:05:00Z", field="timestamp"
        ) from error
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def identified(*parts: str) -> str:
    """Return a key made of texts, for what has no id of its own."""
    return digest(list(parts)).hex()[:32]


class People:
    """Who is who: what the export calls people, and the participants they are here.

    Args:
        own: canonical participants of everything that is imported.
        names: participants by names or ids of the export. Whoever is not among them is no participant: two people of
            one name must not read each other's messages.
    """

    def __init__(self, own: tuple[str, ...], names: Mapping[str, str]) -> None:
        self.own = own
        self._names = names
        self.seen: Counter[str] = Counter()

    def participants(self, people: Iterable[str]) -> list[str]:
        """Return who may see what these people saw."""
        return sorted({*self.own, *(self._names[name] for name in people if name in self._names)})

    def called(self, name: str) -> str:
        """Return what a speaker is called here, and count one message of theirs."""
        self.seen[name] += 1
        return self.participant(name)

    def participant(self, name: str) -> str:
        """Return the participant that a name or id stands for: itself where the people file says nothing of it."""
        return self._names.get(name, name)


def people_of(value: Any) -> dict[str, str]:
    """Return the mapping of a people file: participants by names or ids of the export.

    Raises:
        InvalidArgument: it is no mapping of texts to texts.
    """
    if not isinstance(value, dict) or not all(isinstance(name, str) and name.strip() for name in value.values()):
        raise InvalidArgument(
            "the people file must map names or ids of the export to participants, a line each: `Ana Lima: ana`",
            field="people",
        )
    return {str(name): participant.strip() for name, participant in value.items()}
