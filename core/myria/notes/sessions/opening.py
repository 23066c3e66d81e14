"""Write what an agent should know when a session begins, as one text within a budget of tokens (Memento, `context`).

Core memory comes first. Its notes are chosen of each kind in turn: the newest, then the most important one, then the
next of each, as far as there is room; within a kind the newest is shown first. Notes that a newer note may replace come
last, under a heading of their own. Then follow the session's own notes, open questions, and the topics of the newest
notes. Each note has its date.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import orjson

from myria.db.clock import day_text, offset_in, to_rfc3339
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.notes.current import KeptStatement, replaced
from myria.notes.details import Details
from myria.notes.expiry import Lasting
from myria.notes.kinds import importance_now, kinds_of, policies
from myria.notes.lines import fenced, on_one_line
from myria.notes.scopes import scopes_with_notes
from myria.notes.sessions.reflecting import FORMERLY_OPEN, REFLECTED
from myria.text.announcing import holds_later
from myria.text.dates import local_day
from myria.text.model_tokens import token_counter
from myria.text.restating import told_once

Json = dict[str, Any]

CORE_KINDS = kinds_of("memento")
"""The kinds of core memory, where a caller names none. Memento's contract leaves out decisions and facts, which an
agent's successor needs most."""

_CORE_TOKENS = 1_000
_CORE_SHARE = 0.65
_WORKING_TOKENS = 500
_PER_KIND = 100
"""Notes of a kind that are read, as many of the most important as of the newest: more than have room."""

_PER_KIND_OF_A_WORKSPACE = 300
_COMPARED = 200
"""Notes that are compared with each other, to find those that newer ones may replace: twice as many as have room."""

_WORKING = 50
_QUESTIONS = 10
_TOPICS = 5
_NEWEST = 40
_OF_A_WORKSPACE = 10
"""How many times as many notes are read where one workspace is asked for, since those of others are dropped then."""

_DAY_US = 86_400 * 10**6

_CORE, _OLDER = "[CORE MEMORY]", "[OLDER]"
_WORK, _OPEN, _LAST = "[WORKING MEMORY]", "[OPEN QUESTIONS]", "[LAST TOPICS]"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpeningNote:
    """A note that a session begins with. `importance` is its present, faded one; `at` in microseconds since 1970.

    `is_older` says that a newer note may replace it, `alike` how many others with the same text it stands for;
    `holds_from` is the day (since 1970) from which the note says that it holds, while that day is to come.
    `shares_day` says that other notes have its day, so that its line shows the time.
    """

    note_id: str
    event_seq: int
    kind: str
    topic: str
    text: str
    importance: float
    anchor: bool
    tier: str
    at: int
    details: Details
    is_older: bool = False
    alike: int = 0
    holds_from: int | None = None
    shares_day: bool = False
    utc_offset: int = 0

    @classmethod
    def of(cls, row: asyncpg.Record, now: int, zone: ZoneInfo | None) -> OpeningNote | None:
        """Return the note of a row, with days of a time zone (None: UTC); None where the note has expired."""
        lasting = Lasting.of(row)
        if lasting.has_expired(now):
            return None
        idle_days = max(0, now - lasting.idle_since) / _DAY_US
        payload = orjson.loads(row["payload"])
        utc_offset = offset_in(zone, lasting.changed_at)
        faded = importance_now(lasting.kind, lasting.importance, anchor=lasting.anchor, idle_days=idle_days)
        return cls(
            note_id=row["note_id"],
            event_seq=row["event_seq"],
            kind=row["kind"],
            topic=row["topic"],
            text=payload["text"],
            importance=round(faded, 3),
            anchor=row["anchor"],
            tier=lasting.tier(now),
            at=lasting.changed_at,
            details=Details.of(payload["note"].get("details")),
            holds_from=holds_later(payload["text"], at=lasting.changed_at, utc_offset=utc_offset, now=now),
            utc_offset=utc_offset,
        )

    @property
    def is_open_question(self) -> bool:
        """Whether this is a question that a reflection left open; the SQL of sessions has the same rule."""
        status = self.details.resolution_status
        is_open = self.text.startswith(FORMERLY_OPEN) if status is None else status.lower() == "open"
        return is_open and self.topic == REFLECTED and self.kind == "fact"

    @property
    def day(self) -> int:
        """The local day of the note's last change, in days since 1970."""
        return local_day(self.at, self.utc_offset)

    @property
    def line(self) -> str:
        """The note as a line with its date, shortened to the length that its kind shows."""
        text = on_one_line(self.text)
        shown = policies()[self.kind].shown
        later = "" if self.holds_from is None else f" (holds from {day_text(self.holds_from)})"
        alike = f" ({self.alike} more alike)" if self.alike else ""
        when = to_rfc3339(self.at, self.utc_offset)[: 16 if self.shares_day else 10].replace("T", " ")
        return f"- {when} {text if len(text) <= shown else text[: shown - 1] + '…'}{later}{alike}"

    def to_json(self) -> Json:
        """Return it as an answer's structured content."""
        return {
            "id": self.note_id,
            "content": self.text,
            "type": self.kind,
            "topic": self.topic,
            "importance": self.importance,
            "isAnchor": self.anchor,
            "ttl_tier": self.tier,
            "created_at": to_rfc3339(self.at, self.utc_offset),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """What a session begins with. The text costs `tokens`, its parts of core and working memory their own numbers.

    `is_cut` says that the budget left notes or topics out.
    """

    core: tuple[OpeningNote, ...]
    working: tuple[OpeningNote, ...]
    questions: tuple[OpeningNote, ...]
    topics: tuple[str, ...]
    text: str
    tokens: int
    core_tokens: int
    working_tokens: int
    is_cut: bool

    @property
    def notes(self) -> tuple[OpeningNote, ...]:
        """Every note of the opening, each once."""
        return tuple({note.note_id: note for note in (*self.core, *self.working, *self.questions)}.values())


class Openings:
    """Gathers openings in one process.

    Args:
        database: where the notes are.
        zone: the time zone of the dates shown; None for UTC.
    """

    def __init__(self, database: Database, zone: ZoneInfo | None = None) -> None:
        self._database = database
        self._zone = zone

    async def gather(
        self,
        tenant: str,
        masks: Masks,
        *,
        now: int,
        budget: int,
        kinds: Sequence[str] | None = None,
        session_id: str | None = None,
        workspace: str | None = None,
    ) -> Opening:
        """Return what a session begins with, its text within a budget of tokens.

        Args:
            masks: what the caller sees.
            now: in microseconds since 1970 UTC: notes that have expired by then are left out.
            kinds: show notes of these kinds only; left out, core memory has `CORE_KINDS` and the anchors of every kind,
                and the other parts have every kind.
            session_id: the session whose working memory is shown.
            workspace: show notes of this workspace and of none; left out, notes of all.
        """
        in_workspace = Details(workspace=workspace)
        read_factor = 1 if workspace is None else _OF_A_WORKSPACE
        per_kind = _PER_KIND if workspace is None else _PER_KIND_OF_A_WORKSPACE
        async with self._database.read(tenant) as connection:
            scopes = await scopes_with_notes(connection, tenant, masks)
            core = await connection.fetch(sql("sessions.core"), tenant, scopes, list(kinds or CORE_KINDS), per_kind)
            working = []
            if session_id is not None:
                working = await connection.fetch(
                    sql("sessions.working"), tenant, scopes, session_id, read_factor * _WORKING
                )
            questions = await connection.fetch(
                sql("sessions.open_questions"), tenant, scopes, FORMERLY_OPEN, read_factor * _QUESTIONS
            )
            newest = await connection.fetch(sql("sessions.newest"), tenant, scopes, read_factor * _NEWEST)
        topics = dict.fromkeys(
            row["topic"]
            for row in newest
            if row["topic"] != REFLECTED
            and (kinds is None or row["kind"] in kinds)
            and not Lasting.of(row).has_expired(now)
            and Details.of(orjson.loads(row["details"] or "null")).answers(in_workspace)
        )

        def standing(rows: Iterable[asyncpg.Record]) -> list[OpeningNote]:
            return [
                note for note in _live_notes(rows, now, in_workspace, self._zone) if kinds is None or note.kind in kinds
            ]

        return self._fitted(
            budget,
            by_worth(note for note in standing(core) if not note.is_open_question),
            _told_once(standing(working)[:_WORKING]),
            standing(questions)[:_QUESTIONS],
            list(topics),
        )

    def _fitted(
        self,
        budget: int,
        core: Sequence[OpeningNote],
        working: Sequence[OpeningNote],
        questions: Sequence[OpeningNote],
        topics: Sequence[str],
    ) -> Opening:
        """Write an opening within a budget: first bound each part, then drop from the whole what is too much.

        Dropped first are topics, then questions, then working and core memory, each from its end.
        """
        kept_core = self._fitting(core, _core_text, min(_CORE_TOKENS, int(budget * _CORE_SHARE)))
        kept_working = self._fitting(working, _working_text, _WORKING_TOKENS)
        kept_questions, kept_topics = list(questions), list(topics[:_TOPICS])
        count_before = len(core) + len(working) + len(questions) + len(kept_topics)
        while True:
            text = _whole(kept_core, kept_working, kept_questions, kept_topics)
            if not text or token_counter().count(text) <= budget:
                break
            next(part for part in (kept_topics, kept_questions, kept_working, kept_core) if part).pop()
        return Opening(
            core=tuple(kept_core),
            working=tuple(kept_working),
            questions=tuple(kept_questions),
            topics=tuple(kept_topics),
            text=text,
            tokens=token_counter().count(text) if text else 0,
            core_tokens=token_counter().count("\n".join(_core_text(kept_core))) if kept_core else 0,
            working_tokens=token_counter().count("\n".join(_working_text(kept_working))) if kept_working else 0,
            is_cut=len(kept_core) + len(kept_working) + len(kept_questions) + len(kept_topics) < count_before,
        )

    def _fitting(
        self, notes: Sequence[OpeningNote], written: Callable[[Sequence[OpeningNote]], list[str]], budget: int
    ) -> list[OpeningNote]:
        """Return the notes whose lines together fit into a budget, in their order; a note too long is skipped.

        No token spans lines (see `model_tokens.fitted`), so each note is counted once, with the headings new with it.
        """
        kept: list[OpeningNote] = []
        room = budget
        headings: set[str] = set()
        for note in notes:
            *above, line = written([note])
            new = [heading for heading in above if heading not in headings]
            cost = sum(token_counter().count(f"{text}\n") for text in (*new, line))
            if cost <= room:
                kept.append(note)
                headings.update(new)
                room -= cost
        return kept

    def as_json(self, opening: Opening, budget: int) -> list[Json]:
        """Return the first notes of each part of an opening as JSON that costs at most `budget` tokens."""
        rounds = zip_longest(opening.core, opening.working, opening.questions)
        chosen = list(dict.fromkeys(note for round_notes in rounds for note in round_notes if note is not None))

        def shown(most: int) -> list[Json]:
            some = set(chosen[:most])
            return [note.to_json() for note in opening.notes if note in some]

        def is_too_much(most: int) -> bool:
            return token_counter().count(orjson.dumps(shown(most)).decode()) > budget

        return shown(bisect_left(range(1, len(chosen) + 1), True, key=is_too_much))


def by_worth(notes: Iterable[OpeningNote]) -> list[OpeningNote]:
    """Return notes by how much they are worth their room, the most first.

    Of each kind in turn come its newest note and its most important one, then the next of each. Notes that a newer one
    may replace come behind all others; a note that holds only from a later day on replaces nothing yet.
    """
    candidates = _told_once(sorted(_in_turn(notes)[:_COMPARED], key=_age))
    replacing = [
        [place for place in newer if candidates[place].holds_from is None]
        for newer in replaced([KeptStatement.of(note.text) for note in candidates])
    ]
    older = [replace(note, is_older=True) for note, newer in zip(candidates, replacing, strict=True) if newer]
    return [*_in_turn(note for note, newer in zip(candidates, replacing, strict=True) if not newer), *older]


def _in_turn(notes: Iterable[OpeningNote]) -> list[OpeningNote]:
    """Return notes of each kind in turn: its newest and its most important one, then the next of each."""
    newest = sorted(notes, key=_age)
    important = sorted(newest, key=lambda note: (not note.anchor, -note.importance))
    kinds_ranked = []
    for kind in dict.fromkeys(note.kind for note in important):
        of_kind = ([note for note in ranked if note.kind == kind] for ranked in (newest, important))
        kinds_ranked.append(dict.fromkeys(chain.from_iterable(zip(*of_kind, strict=True))))
    return [note for round_notes in zip_longest(*kinds_ranked) for note in round_notes if note is not None]


def _told_once(notes: Sequence[OpeningNote]) -> list[OpeningNote]:
    told = told_once(notes, said=lambda note: (note.kind, note.text), age=lambda note: (note.at, note.event_seq))
    return [replace(note, alike=alike) if alike else note for note, alike in told]


def _age(note: OpeningNote) -> tuple[int, int]:
    return -note.at, -note.event_seq


def _live_notes(rows: Iterable[asyncpg.Record], now: int, wanted: Details, zone: ZoneInfo | None) -> list[OpeningNote]:
    """Return the notes of rows that have not expired and match the details wanted."""
    notes = [
        note for row in rows if (note := OpeningNote.of(row, now, zone)) is not None and note.details.answers(wanted)
    ]
    of_day = Counter(note.day for note in notes)
    return [replace(note, shares_day=of_day[note.day] > 1) for note in notes]


def _core_text(notes: Sequence[OpeningNote]) -> list[str]:
    """Return core memory as Memento writes it: a heading per kind, its notes below, the newest first.

    Notes that hold from a later day on come last of their kind.
    """
    newest = sorted(notes, key=lambda note: (note.holds_from is not None, *_age(note)))
    lines = [_CORE] if notes else []
    for kind in dict.fromkeys(note.kind for note in notes if not note.is_older):
        lines += [f"[{kind.upper()}]", *[note.line for note in newest if note.kind == kind and not note.is_older]]
    if older := [note.line for note in newest if note.is_older]:
        lines += [_OLDER, *older]
    return lines


def _working_text(notes: Sequence[OpeningNote]) -> list[str]:
    return [_WORK, *[note.line for note in notes]] if notes else []


def _whole(
    core: Sequence[OpeningNote],
    working: Sequence[OpeningNote],
    questions: Sequence[OpeningNote],
    topics: Sequence[str],
) -> str:
    lines = [*_core_text(core), *_working_text(working)]
    if questions:
        lines += [_OPEN, *[note.line for note in questions]]
    if topics:
        lines += [_LAST, *[f"- {on_one_line(topic)}" for topic in topics]]
    return fenced(lines)
