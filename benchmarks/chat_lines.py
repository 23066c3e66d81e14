"""Conversations written down line by line, as data/messy_chats.toml and data/changed_states.toml have them.

A line that begins with "@" opens a session, "~ 6" stands for six lines of small talk by the people in turn, any other
is "speaker: text", "[mark]" before the text names it, and "\\n" in it is a new line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
_APART = timedelta(seconds=25)
_MARKED = re.compile(r"(?:\[(?P<mark>[\w-]+)\] )?(?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Arguments of append_event by number, from 1, and the numbers of the lines that have a mark."""

    events: Mapping[int, Mapping[str, Any]]
    numbers: Mapping[str, int]

    @property
    def texts(self) -> dict[int, str]:
        """Return what was said, by number."""
        return {number: event["payload"]["text"] for number, event in self.events.items()}


def written(said: str, people: Sequence[str], talk: Iterator[str] | None = None) -> Written:
    """Return the conversation that some lines tell.

    Args:
        said: the lines.
        people: who speaks; all of them take part in everything.
        talk: where small talk comes from.

    Raises:
        ValueError: a line is none of a conversation of these people, or a mark is given twice.
    """
    events: dict[int, Mapping[str, Any]] = {}
    numbers: dict[str, int] = {}
    when = _BEGIN
    for line in said.strip().splitlines():
        if line.startswith("@ "):
            when = datetime.fromisoformat(line[2:]).replace(tzinfo=UTC)
            continue
        for speaker, mark, text in _turns(line, people, talk or iter(())):
            number = len(events) + 1
            if mark is not None:
                if mark in numbers:
                    raise ValueError(f"a mark given twice: {mark}")
                numbers[mark] = number
            events[number] = {
                "participants": list(people),
                "timestamp": when.isoformat(),
                "channel": "chat",
                "source_event_key": str(number),
                "type": "message",
                "payload": {"speaker": speaker, "text": text},
            }
            when += _APART
    return Written(events=events, numbers=numbers)


def _turns(line: str, people: Sequence[str], talk: Iterator[str]) -> Iterator[tuple[str, str | None, str]]:
    if line.startswith("~ "):
        for at in range(int(line[2:])):
            yield people[at % len(people)], None, next(talk)
        return
    speaker, _, said = line.partition(": ")
    marked = _MARKED.fullmatch(said)
    if marked is None or not said or speaker not in people:
        raise ValueError(f"not a line of a chat: {line}")
    yield speaker, marked["mark"], marked["text"].replace("\\n", "\n")
