"""Cases: what was tried for one goal before, gathered from the notes that name one case (Memento's contract, caseMode).

A case is nothing of its own: it is its notes, as the asker sees them. Each is gathered by one masked look, so a
question costs as many as it shows cases, and these are few.
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
"""Cases of an answer, where nobody says how many."""

_NOTES = 200
"""Notes of a case that are looked at: the best of them."""

_EVENTS = 20
"""Events of a case that are shown: its first."""

_SHOWN = 120
"""Characters of an event."""

_EVENT_OF = {"error": "error_observed", "decision": "decision_committed", "procedure": "fix_attempted"}
"""What the contract calls a note of a kind in the course of a case."""

_OTHER_EVENT = "milestone_reached"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A case: its goal, what happened in the order of time, and what came of it.

    `notes` is how many notes it has, as far as they were looked at; `relevance` how many of them the question found.
    Of long notes the passage is shown that has most of what is `sought`.
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
        """Return it as the contract has it, with so many events at most."""
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
        """It as a line: what was wanted, what was kept of it first, and what came of it."""
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
    """Return the cases of memories that a question found: resolved ones first, then those of most of these memories.

    Args:
        query: the question, by which it is decided what is seen.
        most: how many are returned.
    """
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    for fragment in fragments:
        if (name := fragment.details.case_id) is not None:
            names.setdefault(name.casefold(), name)
            found[name.casefold()] += 1
    asked = RecallQuery(
        masks=query.masks,
        now=query.now,
        as_of=query.as_of,
        include_superseded=query.include_superseded,
        session_id=query.session_id,
        whole_details=True,
        page_size=_NOTES,
    )
    cases = []
    for key, count in found.most_common(most):
        notes = await recall.find(tenant, replace(asked, details=Details(case_id=names[key])))
        if notes:
            cases.append(replace(_case(names[key], notes, count), sought=query.sought))
    return sorted(cases, key=lambda case: (case.status.casefold() != "resolved", -case.relevance))


def _case(name: str, notes: Sequence[Fragment], found: int) -> Case:
    # what is most important speaks for the case, of equals the newest
    by_worth = sorted(notes, key=lambda note: (-(note.importance or 0.0), -note.at, note.key))

    def first(detail: str) -> str | None:
        return next((said for note in by_worth if (said := getattr(note.details, detail)) is not None), None)

    return Case(
        case_id=name,
        goal=first("goal"),
        outcome=first("outcome"),
        status=first("resolution_status") or "open",
        course=tuple(sorted(notes, key=lambda note: (note.at, note.key[2]))),
        notes=len(notes),
        relevance=found,
    )


def cases_within(
    cases: Sequence[Case], counter: TokenCounter, budget: int, around: Callable[[list[Json]], Any]
) -> tuple[list[Json], int]:
    """Return the first cases as JSON, and what they cost with what is made `around` them: at most `budget`.

    The last of them may show fewer events than it has. Where nothing fits, there is none, for 0.
    """
    shown: list[Json] = []
    tokens = 0
    for case in cases:
        for events in (_EVENTS, 5, 1, 0):
            several = [*shown, case.to_json(events)]
            cost = counter.count(orjson.dumps(around(several)).decode())
            if cost <= budget:
                shown, tokens = several, cost
                break
        else:
            break
        if events < min(_EVENTS, len(case.course)):
            break
    return shown, tokens
