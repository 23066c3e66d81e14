"""A memory that was recalled, and memories as they are written: as lines and as JSON, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from myria.notes.details import NO_DETAILS, Details
from myria.notes.kinds import Tier, tier
from myria.notes.lines import LEAST_WORTH, on_one_line, written_line
from myria.notes.links import LinkedNote
from myria.store.clock import to_rfc3339
from myria.tokens import TokenCounter, fitted

Json = dict[str, Any]

Key = tuple[int, int, int, int]
"""Where a memory stands in its batch: by score or time falling, then time and number; topics after events."""


_DENSE = 8
"""Characters of a token, with hardly an exception: a text that has more for each is not counted."""

_LEAN = ("id", "content", "created_at", "type", "relation_type", "superseded", "change")


@dataclass(slots=True, kw_only=True)
class Fragment:
    """One memory that was recalled: a note, a raw event, or a topic of events.

    It is not frozen, though nothing changes it: a frozen one takes four times as long to make.

    Of an event and a topic, kind, topic, importance and tier are None, and a topic has no note and no event. `at` is in
    microseconds since 1970 UTC; `score` is that of the ranking, moved. `lane` says what found it: `keywords`, `words`,
    `topics` or `recent`; or `links`, and then `relation` is that of the link. `stale_days` is its age in days where its
    kind is called old by then; `superseded_by` the handle of what replaced it, `contradicted_by` those of notes that
    links say contradict it; `resolved` that one of the same people says that another note resolves this error; `change`
    which side of a change it tells of, where that was asked for.
    """

    note_id: str | None
    event_id: str | None
    handle: str
    text: str
    speaker: str | None
    at: int
    score: int
    key: Key
    lane: str
    topic_id: str | None = None
    kind: str | None = None
    topic: str | None = None
    keywords: tuple[str, ...] = ()
    importance: float | None = None
    tier: Tier | None = None
    stale_days: int | None = None
    superseded: bool = False
    superseded_by: str | None = None
    relation: str | None = None
    contradicted_by: tuple[str, ...] = ()
    resolved: bool = False
    change: Literal["newer", "older"] | None = None
    details: Details = NO_DETAILS

    def to_json(self) -> Json:
        """Return it as an answer's structured content. A raw event's id is its handle, which costs least."""
        shown: Json = {"id": self.note_id or self.handle, "content": self.text}
        if self.note_id is not None:
            shown["handle"] = self.handle
        if self.speaker is not None:
            shown["speaker"] = self.speaker
        shown["created_at"] = to_rfc3339(self.at)
        if self.topic_id is not None:
            shown["type"] = "topic"
        if self.kind is not None:
            shown |= {"type": self.kind, "topic": self.topic, "keywords": list(self.keywords)}
            shown |= {"importance": self.importance, "ttl_tier": self.tier}
            shown |= self.details.to_json()
        if self.stale_days is not None:
            shown["stale_days"] = self.stale_days
        if self.relation is not None:
            shown["relation_type"] = self.relation
        if self.superseded:
            shown["superseded"] = True
            if self.superseded_by is not None:
                shown["superseded_by"] = self.superseded_by
        if self.resolved:
            shown["resolved"] = True
        if self.change is not None:
            shown["change"] = self.change
        if self.contradicted_by:
            shown["contradicted_by"] = list(self.contradicted_by)
        return shown

    def to_lean_json(self) -> Json:
        """Return as little of it as an answer can do with: which memory, of when and which kind, and its words."""
        shown = self.to_json()
        return {name: shown[name] for name in _LEAN if name in shown}

    def written(self, text: str | None = None) -> str:
        """Return it as a line, with another text where one is given."""
        marks = []
        if self.superseded:
            marks.append("superseded" if self.superseded_by is None else f"superseded by {self.superseded_by}")
        if self.resolved:
            marks.append("resolved")
        if self.change is not None:
            marks.append(self.change)
        if self.relation is not None:
            marks.append(f"linked: {self.relation}")
        if self.stale_days is not None:
            marks.append(f"old: {self.stale_days} days")
        if self.contradicted_by:
            marks.append(f"contradicted by {', '.join(self.contradicted_by)}")
        if self.details.context_summary is not None:
            marks.append(f"context: {on_one_line(self.details.context_summary)}")
        return written_line(
            date=to_rfc3339(self.at)[:10],
            speaker=self.speaker,
            text=on_one_line(self.text) if text is None else text,
            handle=self.handle,
            marks=marks,
        )


def linked_fragment(note: LinkedNote, relation: str, handle: str) -> Fragment:
    """Return a note that a link leads to as a memory, behind all that were found."""
    return Fragment(
        note_id=note.note_id,
        event_id=None,
        handle=handle,
        text=note.text,
        speaker=note.speaker,
        at=note.at,
        score=0,
        key=(0, 0, 0, 0),
        lane="links",
        kind=note.kind,
        topic=note.topic,
        keywords=note.keywords,
        importance=note.importance,
        tier=tier(note.kind, note.importance, anchor=False, age_days=0, idle_days=0),
        relation=relation,
    )


def json_within(
    fragments: Sequence[Fragment], counter: TokenCounter, budget: int, around: Callable[[list[Json]], Any]
) -> tuple[list[Json], int]:
    """Return the first memories as JSON, and what they cost with what is made `around` them: at most `budget`.

    Of the first that does not fit the bare words are given where they do (`to_lean_json`), else their beginning,
    which says so (`truncated`). Where nothing fits, there is none, for 0.
    """
    shown: list[Json] = []
    parts: dict[str, Json] = {}
    head, _, tail = _json(around([{"id": None}])).partition('id":null}')

    def piece(place: int) -> str:
        shown.extend(fragment.to_json() for fragment in fragments[len(shown) : place + 1])
        return f'{_json(shown[place])[2:]},{{"'

    def part(place: int, room: int) -> str | None:
        item = fragments[place].to_lean_json()
        text = f'{_json(item)[2:]},{{"'
        if len(text) > _DENSE * room or counter.within(text, room) is None:
            item |= {"content": "", "truncated": True}
            room -= counter.count(f'{_json(item)[2:]},{{"')
            if room < LEAST_WORTH:
                return None
            item["content"] = counter.shortened(fragments[place].text, room)
            text = f'{_json(item)[2:]},{{"'
        parts[text] = item
        return text

    fitting = fitted(
        len(fragments),
        head=head,
        piece=piece,
        part=part,
        finish=lambda last: last[:-3] + tail,
        counter=counter,
        budget=budget,
    )
    chosen = shown[: fitting.whole]
    if fitting.part is not None:
        chosen.append(parts[fitting.part])
    return chosen, fitting.tokens


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
