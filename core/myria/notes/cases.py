"""Cases: earlier attempts at one goal, gathered from the notes that name a case (Memento's contract, caseMode).

A case is not stored by itself: it consists of its notes, as far as the asker sees them. Each case is gathered by one
masked query, so a question costs one for each case that it shows, and these are few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from myria.db.clock import to_rfc3339
from myria.notes.details import Details
from myria.notes.fragments import Fragment, Json
from myria.notes.lines import MemoryLine
from myria.notes.questions import RecallQuery
from myria.notes.recalling import Recall
from myria.text.model_tokens import TokenCounter
from myria.text.passages import passage

CASES = 5
"""Cases of an answer where the caller names no number."""

_NOTES = 200
"""Notes of a case that are read at most: the best ones."""

_EVENTS = 20
"""Events of a case that are shown at most: its first ones."""

_SHOWN = 120
"""Characters that are shown of an event."""

_EVENT_OF = {"error": "error_observed", "decision": "decision_committed", "procedure": "fix_attempted"}
"""What the contract calls a note of a kind in the course of a case."""

_OTHER_EVENT = "milestone_reached"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A case: its goal, what happened in the order of time, and what came of it.

    `notes` is how many notes of the case were read; `relevance` how many of them the question found. Of a long note the
    passage is shown that has most of the words `sought`.
    """

    case_id: str
    goal: str | None
    outcome: str | None
    status: str
    course: tuple[Fragment, ...]
    notes: int
    relevance: int
    sought: frozenset[str] = frozenset()

    def to_json(self, events: int) -> Json:
        """Return the case in the contract's form, with at most so many events."""
        return {
            "case_id": self.case_id,
            "goal": self.goal,
            "outcome": self.outcome,
            "resolution_status": self.status,
            "events": [
                {
                    "event_type": _EVENT_OF.get(fragment.kind or "", _OTHER_EVENT),
                    "summary": passage(fragment.text, self.sought, _SHOWN),
                    "created_at": to_rfc3339(fragment.at),
                }
                for fragment in self.course[:events]
            ],
            "fragment_count": self.notes,
            "relevance_score": self.relevance,
        }

    @property
    def line(self) -> MemoryLine:
        """The case as a line: its goal, what happened, and its outcome."""
        said = [
            part
            for part in (self.goal, *[passage(event.text, self.sought, _SHOWN) for event in self.course], self.outcome)
            if part
        ]
        return MemoryLine(
            date=to_rfc3339(self.course[-1].at)[:10],
            speaker=None,
            text=" → ".join(said),
            handle=self.case_id,
            marks=(self.status,),
        )


async def cases_of(
    recall: Recall, tenant: str, query: RecallQuery, fragments: Sequence[Fragment], *, most: int
) -> list[Case]:
    """Return the cases named by memories that a question found: resolved ones first, then by how many name them.

    Args:
        query: the question; its masks and times bound what a case shows.
        most: how many are returned.
    """
    name_of_key: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for fragment in fragments:
        if (name := fragment.details.case_id) is not None:
            name_of_key.setdefault(name.casefold(), name)
            counts[name.casefold()] += 1
    notes_query = RecallQuery(
        masks=query.masks,
        now=query.now,
        as_of=query.as_of,
        include_superseded=query.include_superseded,
        session_id=query.session_id,
        whole_details=True,
        page_size=_NOTES,
    )
    cases = []
    for key, count in counts.most_common(most):
        notes = await recall.find(tenant, replace(notes_query, details=Details(case_id=name_of_key[key])))
        if notes:
            cases.append(replace(_case(name_of_key[key], notes, count), sought=query.sought))
    return sorted(cases, key=lambda case: (case.status.casefold() != "resolved", -case.relevance))


def _case(name: str, notes: Sequence[Fragment], relevance: int) -> Case:
    # A detail of the case is taken from its most important note that has it, of equals the newest.
    by_worth = sorted(notes, key=lambda note: (-(note.importance or 0.0), -note.at, note.key))

    def first(detail: str) -> str | None:
        return next((text for note in by_worth if (text := getattr(note.details, detail)) is not None), None)

    return Case(
        case_id=name,
        goal=first("goal"),
        outcome=first("outcome"),
        status=first("resolution_status") or "open",
        course=tuple(sorted(notes, key=lambda note: (note.at, note.key[2]))),
        notes=len(notes),
        relevance=relevance,
    )


def cases_within(
    cases: Sequence[Case], counter: TokenCounter, budget: int, around: Callable[[list[Json]], Any]
) -> tuple[list[Json], int]:
    """Return the first cases as JSON that cost at most `budget` tokens, and what they cost.

    The last case may show fewer events than it has. Where nothing fits, return no case and a cost of 0.

    Args:
        around: makes the whole answer of the cases; its tokens count too.
    """
    shown: list[Json] = []
    tokens = 0
    for case in cases:
        for events in (_EVENTS, 5, 1, 0):
            with_case = [*shown, case.to_json(events)]
            cost = counter.count(orjson.dumps(around(with_case)).decode())
            if cost <= budget:
                shown, tokens = with_case, cost
                break
        else:
            break
        if events < min(_EVENTS, len(case.course)):
            break
    return shown, tokens
