"""A recalled memory, and how memories are written as lines or as JSON within a budget of tokens.

As lines, memories of one subject stand together below a heading that says their subject once, ordered by time: talk as
it was said, kept statements newest first. The heading's tokens are paid for by what it makes superfluous: a date equal
to that of the line above, and topics of the subject's own. Where that does not pay, lines stay as they were ranked, so
no text costs more for its subjects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from myria.db.clock import day_text, to_rfc3339
from myria.notes.details import NO_DETAILS, Details
from myria.notes.kinds import Tier
from myria.notes.lines import LEAST_WORTH, MemoryText, fenced, fenced_cost, fitting_lines, on_one_line, written_line
from myria.search.found import FoundSubject
from myria.text.model_tokens import TokenCounter, fitted
from myria.text.passages import passage_within
from myria.text.words import terms

Json = dict[str, Any]

Key = tuple[int, int, int, int]
"""Where a memory stands in its batch: by falling score or time, then by time and number; topics behind events."""


_DENSE = 8
"""Characters that a token hardly ever exceeds: a text of more than so many per token of room cannot fit, so its tokens
are not counted."""

_EXPLAINED = 3
"""Reasons that are shown for a memory at most."""

_LEAST_OF_SUBJECT = 2
"""Shown memories of a subject from which on it gets a heading."""

_DATE = len("2026-02-24")
_STATE_COMPARED = 40
"""Characters of a subject's latest state that are looked for among its memories."""

_LEAN = ("id", "content", "created_at", "type", "relation_type", "superseded", "change", "alike")


@dataclass(slots=True, kw_only=True)
class Fragment:
    """One memory that was recalled: a note, a raw event, or a topic of events.

    The class is not frozen, though nothing changes a fragment: a frozen one takes four times as long to make.

    Events and topics have no kind, topic, importance and tier (None); a topic has neither note nor event. `at` is in
    microseconds since 1970 UTC, `utc_offset` that of the place where it was told, in minutes east of UTC; `score` is
    the ranking's score, raised or lowered by recall's weights. `lane` is what found the memory: `keywords`,
    `words`, `vectors`, `topics` or `recent`; or `links`, and then `relation` is the link's.

    `stale_days` is a note's age in days where notes of its kind count as old by then; `superseded_by` the handle of the
    event that replaced it; `contradicted_by` the handles of notes that links say contradict it; `resolved` that a link
    of the same people says that another note resolves this error; `holds_from` the day (since 1970) from which the
    memory says that it holds, while that day is to come; `change` which side of a change it tells of, where the query
    asks for that, or `older`: a newer note may replace it; `replaced_by` the event that will replace it on a later day;
    `alike` how many others with the same text it stands for.

    `age_days` counts from the last version; `uses` how often the note was recalled; `confidence` is its utility within
    0.1 and 1, None for what is no note. `fits` says that it has words of the asker's context, `matched` which of its
    keywords the query has, `in_case` that the query names a case. `linked` are the first notes to which its links
    lead, `nearby` notes that the same session kept shortly before and after, both as JSON.
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
    utc_offset: int = 0
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
    holds_from: int | None = None
    replaced_by: str | None = None
    change: Literal["newer", "older"] | None = None
    alike: int = 0
    details: Details = NO_DETAILS
    age_days: int | None = None
    uses: int = 0
    confidence: float | None = None
    fits: bool = False
    in_case: bool = False
    matched: tuple[str, ...] = ()
    linked: tuple[Json, ...] = ()
    nearby: tuple[Json, ...] = ()

    @property
    def event_seq(self) -> int:
        """The number of the memory's event; for a topic, that of its best event."""
        return self.key[2]

    def to_json(self, *, keywords: bool = True) -> Json:
        """Return the memory as an answer's structured content; a raw event's id is its handle, the shortest name."""
        shown: Json = {"id": self.note_id or self.handle, "content": self.text}
        if self.note_id is not None:
            shown["handle"] = self.handle
        if self.speaker is not None:
            shown["speaker"] = self.speaker
        shown["created_at"] = to_rfc3339(self.at, self.utc_offset)
        if self.topic_id is not None:
            shown["type"] = "topic"
        if self.kind is not None:
            shown |= {"type": self.kind, "topic": self.topic}
            if keywords:
                shown["keywords"] = list(self.keywords)
            shown |= {"importance": self.importance, "ttl_tier": self.tier}
            shown |= self.details.to_json()
        if self.confidence is not None:
            shown |= {"age_days": self.age_days, "access_count": self.uses, "confidence": self.confidence}
        if self.stale_days is not None:
            shown["stale_days"] = self.stale_days
            shown["stale_warning"] = f"unchanged for {self.stale_days} days: check it before you rely on it"
        if self.relation is not None:
            shown["relation_type"] = self.relation
        if self.superseded:
            shown["superseded"] = True
            if self.superseded_by is not None:
                shown["superseded_by"] = self.superseded_by
        if self.resolved:
            shown["resolved"] = True
        if self.holds_from is not None:
            shown["holds_from"] = day_text(self.holds_from)
        if self.change is not None:
            shown["change"] = self.change
        if self.alike:
            shown["alike"] = self.alike
        if self.contradicted_by:
            shown["contradicted_by"] = list(self.contradicted_by)
        if self.linked:
            shown["linked"] = list(self.linked)
        if self.nearby:
            shown["nearby_context"] = list(self.nearby)
        return shown

    def says(self, words: Collection[str]) -> bool:
        """Tell whether the memory's own text, topic and keywords have all of these terms."""
        return set(words) <= set(terms(" ".join((self.text, self.topic or "", *self.keywords))))

    def explanations(self) -> list[Json]:
        """Return why it was recalled, the strongest reason first (Memento's contract; `text_match` is ours)."""
        reasons = [
            (bool(self.matched), "direct_keyword_match", f"keywords {', '.join(self.matched)}"),
            (self.relation is not None, "graph_neighbor_1hop", f"linked: {self.relation}"),
            (self.in_case, "case_cohort_member", f"case {self.details.case_id}"),
            (self.lane == "words", "text_match", "its text, or what was said near it, has words of the question"),
            (self.lane == "vectors", "semantic_similarity", "it means something near to the question"),
            (self.lane == "topics", "text_match", "its label has words of the question"),
            (self.lane == "recent", "temporal_proximity", "among the most recent"),
            (self.fits, "context_match", "its text has words of contextText"),
            (self.uses > 1, "recent_activity_ema", f"recalled {self.uses} times"),
        ]
        strongest = [(code, detail) for applies, code, detail in reasons if applies][:_EXPLAINED]
        return [{"code": code, "detail": detail, "ruleVersion": "1"} for code, detail in strongest]

    @property
    def date(self) -> str:
        """The date of the memory, in the time zone of the place where it was told."""
        return to_rfc3339(self.at, self.utc_offset)[:10]

    def written(self, text: str | None = None, *, with_clock: bool = False) -> str:
        """Return the memory as a line.

        Args:
            text: shown instead of the memory's own, on one line.
            with_clock: show the time of day behind the date.
        """
        marks = []
        if self.superseded:
            marks.append("superseded" if self.superseded_by is None else f"superseded by {self.superseded_by}")
        if status := "resolved" if self.resolved else self.details.resolution_status:
            marks.append(on_one_line(status))
        if self.holds_from is not None:
            marks.append(f"holds from {day_text(self.holds_from)}")
        if self.change is not None:
            marks.append(self.change)
        if self.alike:
            marks.append(f"{self.alike} more alike")
        if self.relation is not None:
            marks.append(f"linked: {self.relation}")
        if self.stale_days is not None:
            marks.append(f"old: {self.stale_days} days")
        if self.contradicted_by:
            marks.append(f"contradicted by {', '.join(self.contradicted_by)}")
        if self.details.context_summary is not None:
            marks.append(f"context: {on_one_line(self.details.context_summary)}")
        return written_line(
            date=to_rfc3339(self.at, self.utc_offset)[:16].replace("T", " ")
            if with_clock and self.topic_id is None
            else self.date,
            speaker=self.speaker,
            text=on_one_line(self.text) if text is None else text,
            handle=self.handle,
            marks=marks,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How much of each memory an answer shows: all, with or without keywords, or only its id and `fields`.

    `sought` are the roots of the question's words, by which the passage of a long memory is chosen.
    """

    keywords: bool = False
    fields: tuple[str, ...] = ()
    sought: frozenset[str] = frozenset()

    def of(self, fragment: Fragment) -> Json:
        """Return a memory as JSON in this shape."""
        shown = fragment.to_json(keywords=self.keywords or "keywords" in self.fields)
        if not self.fields:
            return shown
        if "explanations" in self.fields:
            shown["explanations"] = fragment.explanations()
        if "access_count" in self.fields:
            shown.setdefault("access_count", fragment.uses)
        if "age_days" in self.fields and fragment.age_days is not None:
            shown["age_days"] = fragment.age_days
        return {name: value for name, value in shown.items() if name == "id" or name in self.fields}

    def lean(self, fragment: Fragment) -> Json:
        """Return the least of a memory that an answer needs: its id, content, time, kind and state."""
        shown = self.of(fragment)
        return {name: shown[name] for name in _LEAN if name in shown}


WHOLE = Shape(keywords=True)


def json_within(
    fragments: Sequence[Fragment],
    counter: TokenCounter,
    budget: int,
    around: Callable[[list[Json]], Any] = lambda shown: shown,
    shape: Shape = WHOLE,
) -> tuple[list[Json], int]:
    """Return the first memories as JSON that cost at most `budget` tokens, and what they cost.

    The first memory that does not fit is shown without details (`Shape.lean`) where that fits, else cut to the passage
    that has most of the words sought, and marked as `truncated`. Where nothing fits, return no memory and a cost of 0.

    Args:
        around: makes the whole answer of the memories; its tokens count too.
    """
    shown: list[Json] = []
    parts: dict[str, Json] = {}
    # The answer is counted in pieces. A stand-in memory divides its JSON into a head, which ends with '{"', and a tail;
    # each memory's piece begins behind its own '{"' and ends with the next one's, so that pieces end where tokens do.
    head, _, tail = _json(around([{"id": None}])).partition('id":null}')

    def piece(place: int) -> str:
        shown.extend(shape.of(fragment) for fragment in fragments[len(shown) : place + 1])
        return f'{_json(shown[place])[2:]},{{"'

    def part(place: int, room: int) -> str | None:
        lean = shape.lean(fragments[place])
        piece_text = f'{_json(lean)[2:]},{{"'
        if len(piece_text) > _DENSE * room or counter.within(piece_text, room) is None:
            if "content" not in lean:
                return None
            lean |= {"content": "", "truncated": True}
            room -= counter.count(f'{_json(lean)[2:]},{{"')
            if room < LEAST_WORTH:
                return None
            lean["content"] = passage_within(fragments[place].text, shape.sought, counter, room)
            piece_text = f'{_json(lean)[2:]},{{"'
        parts[piece_text] = lean
        return piece_text

    fitting = fitted(
        len(fragments),
        head=head,
        piece=piece,
        part=part,
        finish=lambda last: last[:-3] + tail,  # without the ',{"' of a next memory
        counter=counter,
        budget=budget,
    )
    chosen = shown[: fitting.whole]
    if fitting.part is not None:
        chosen.append(parts[fitting.part])
    return chosen, fitting.tokens


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def text_by_subject(
    fragments: Sequence[Fragment],
    subjects: Sequence[FoundSubject],
    counter: TokenCounter,
    budget: int,
    sought: frozenset[str] = frozenset(),
    *,
    first: str = "best",
) -> MemoryText:
    """Return the memories that fit into a budget by their rank, grouped by subject where that costs no more tokens.

    Args:
        first: what comes first in the rank: the best, or the newest.
    """
    written, tokens = fitting_lines(fragments, counter, budget, sought, order=f"{first} first")
    shown = fragments[: len(written)]
    for has_state in (True, False):
        lines = _grouped(shown, written, subjects, has_state=has_state)
        if lines is None:
            break
        by_subject = f"{first} subject first"
        cost = fenced_cost(lines, counter, order=by_subject)
        if cost <= tokens:
            return MemoryText(text=fenced(lines, order=by_subject), shown=len(written), tokens=cost)
    return MemoryText(text=fenced(written, order=f"{first} first"), shown=len(written), tokens=tokens)


def _grouped(
    fragments: Sequence[Fragment], written: Sequence[str], subjects: Sequence[FoundSubject], *, has_state: bool
) -> list[str] | None:
    """Return lines grouped by subject; None where no subject has enough memories for a heading.

    Args:
        written: the lines of the memories, in the order of their rank.
        has_state: whether headings say their subject's latest state.
    """
    subject_of: dict[int, int] = {}
    for place, subject in enumerate(subjects):
        of_subject = [at for at, fragment in enumerate(fragments) if _belongs(fragment, subject)]
        if sum(fragments[at].topic_id is None for at in of_subject) >= _LEAST_OF_SUBJECT:
            subject_of |= dict.fromkeys(of_subject, place)
    if not subject_of:
        return None
    lines: list[str] = []
    written_subjects: set[int] = set()
    was_in_group = False
    for at, line in enumerate(written):
        subject_index = subject_of.get(at)
        if subject_index is None:
            if was_in_group:
                lines.append("")
            lines.append(line)
        elif subject_index not in written_subjects:
            written_subjects.add(subject_index)
            if lines and lines[-1] != "":
                lines.append("")
            members = [member for member, its_subject in subject_of.items() if its_subject == subject_index]
            lines += _group(fragments, written, members, subjects[subject_index], has_state=has_state)
        else:
            continue
        was_in_group = subject_index is not None
    return lines


def _belongs(fragment: Fragment, subject: FoundSubject) -> bool:
    if fragment.topic_id is not None:
        return fragment.topic_id in subject.topic_ids
    return fragment.event_seq in subject.event_seqs


def _group(
    fragments: Sequence[Fragment],
    written: Sequence[str],
    members: Sequence[int],
    subject: FoundSubject,
    *,
    has_state: bool,
) -> list[str]:
    """Return the heading of a subject and the lines of its memories by time, without its topics, which say no more.

    Talk stands in the order in which it was said. With notes among them, the newest memory comes first, as it holds
    now, and each line keeps its date.

    Args:
        members: the places of the subject's memories.
    """
    has_notes = any(fragments[at].note_id is not None for at in members)
    memories = sorted(
        (at for at in members if fragments[at].topic_id is None),
        key=lambda at: (fragments[at].at, fragments[at].event_seq),
        reverse=has_notes,
    )
    heading = on_one_line(subject.label)
    if has_state and not any(_tells(fragments[at], subject.latest) for at in memories):
        heading = f"{heading}. {on_one_line(subject.latest)}"
    lines = [f"# {heading}"]
    date = ""
    for at in memories:
        line = written[at]
        lines.append(line[_DATE:].removeprefix(":").lstrip() if line[:_DATE] == date else line)
        date = "" if has_notes else line[:_DATE]
    return lines


def _tells(fragment: Fragment, latest: str) -> bool:
    """Tell whether a memory's text begins to say the statement that a subject's latest state quotes."""
    # The latest state is a quoted statement, perhaps with its speaker in front: 'Ana: “text”'.
    _, _, quoted = latest.partition("“")
    quote_start = quoted.rstrip("”.…")[:_STATE_COMPARED]
    return bool(quote_start) and quote_start in on_one_line(fragment.text)
