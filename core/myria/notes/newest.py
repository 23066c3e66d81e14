"""Puts what says a fact anew above what it may replace, in answers that are ranked: one rule for all faces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from myria.notes.current import KeptStatement, SoughtWords, replaced
from myria.search.wanted import day_asked_for, state_asked_for
from myria.text.announcing import holds_later
from myria.text.dates import local_day, windows

Change = Literal["newer", "older"]

MOST_COMPARED = 50
"""Statements of an answer that are compared with each other, the first ones: a page of recall holds no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedNote:
    """A kept statement of an answer, with when it was kept; `number` orders those of one microsecond.

    `replaced_by` is the `event_id` of the one that was said to replace it, on a day that it announces.
    """

    text: str
    at: int
    number: int
    utc_offset: int = 0
    event_id: str | None = None
    replaced_by: str | None = None


def newest_above(
    answer: Sequence[ComparedNote | None], asked: str, *, hints: Sequence[str] = (), now: int, utc_offset: int = 0
) -> tuple[list[int], dict[int, Change | None]]:
    """Return the places of an answer in their new order, and how some of them are to be marked from now on.

    A question for how something was before moves nothing. What tells in the same words of another thing than is asked
    about stands below what tells of that, and neither replaces the other. What holds from a later day on than the one
    that is asked for stands below what it will replace.

    Args:
        answer: best first; None for what is no kept statement, and stays where it is among them.
        asked: the words of the question.
        hints: more of them, which name no day.
        now: from where days of the question are reckoned, in microseconds since 1970 UTC.
        utc_offset: minutes east of UTC of who asks.
    """
    if state_asked_for(asked) == "before":
        return list(range(len(answer))), {}
    kept = [(statement, place) for place, statement in enumerate(answer) if statement is not None][:MOST_COMPARED]
    kept.sort(key=lambda item: (-item[0].at, -item[0].number))
    meant = windows(asked, now=now, first=now, last=now, utc_offset=utc_offset)
    day = day_asked_for(asked, meant, local_day(now, utc_offset))
    above: dict[int, list[int]] = {}
    marks: dict[int, Change | None] = {}
    sought = SoughtWords.of(" ".join(filter(None, (asked, *hints))))
    statements = [KeptStatement.of(statement.text) for statement, _ in kept]
    anew = replaced(statements, sought)
    # Which tells of what is asked about: the one that holds most of its words, of equals the first.
    standing = [place for _, place in kept]
    sure = max(range(len(kept)), key=lambda at: (len(sought.about & statements[at].about), -standing[at]), default=0)
    for one, its_place in zip(statements, standing, strict=True):
        if one.is_parallel(statements[sure], sought):
            marks |= {its_place: None, standing[sure]: None}
            if its_place < standing[sure]:
                above.setdefault(its_place, []).append(standing[sure])
    # Once for each: where all begin alike there are over a thousand pairs, and texts may be long.
    holding_from = [holds_later(one.text, at=one.at, utc_offset=one.utc_offset, now=now) for one, _ in kept]
    for (older_one, place), places in zip(kept, anew, strict=True):
        by = older_one.replaced_by
        named = [at for at, (other, _) in enumerate(kept) if by is not None and other.event_id == by]
        for at in {*places, *named}:
            begins, its_place = holding_from[at], kept[at][1]
            if begins is not None and begins > day:
                above.setdefault(its_place, []).append(place)
            else:
                above.setdefault(place, []).append(its_place)
                marks[place] = "older"
    ordered: dict[int, None] = {}
    waiting: set[int] = set()

    def put(place: int) -> None:
        if place not in waiting:
            waiting.add(place)
            for other in above.get(place, []):
                put(other)
            ordered[place] = None

    for place in range(len(answer)):
        put(place)
    return list(ordered), marks
