"""Puts what says a fact anew above what it may replace, in answers that are ranked: one rule for all faces."""

from __future__ import annotations

from collections.abc import Sequence

from myria.analysis.announcing import holds_later
from myria.analysis.dates import local_day, windows
from myria.notes.current import KeptStatement, SoughtWords, replaced
from myria.retrieval.wanted import day_asked_for, state_asked_for
from myria.values import value

MOST_COMPARED = 50
"""Statements of an answer that are compared with each other, the first ones: a page of recall holds no more."""


@value
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
) -> tuple[list[int], frozenset[int]]:
    """Return the places of an answer in their new order, and those of what a newer statement may say anew.

    A question for how something was before moves nothing.
    What holds from a later day on than the one that is asked for stands below what it will replace.

    Args:
        answer: best first; None for what is no kept statement, and stays where it is among them.
        asked: the words of the question.
        hints: more of them, which name no day.
        now: from where days of the question are reckoned, in microseconds since 1970 UTC.
        utc_offset: minutes east of UTC of who asks.
    """
    if state_asked_for(asked) == "before":
        return list(range(len(answer))), frozenset()
    kept = [(statement, place) for place, statement in enumerate(answer) if statement is not None][:MOST_COMPARED]
    kept.sort(key=lambda item: (-item[0].at, -item[0].number))
    meant = windows(asked, now=now, first=now, last=now, utc_offset=utc_offset)
    day = day_asked_for(asked, meant, local_day(now, utc_offset))
    above: dict[int, list[int]] = {}
    older: set[int] = set()
    sought = SoughtWords.of(" ".join(filter(None, (asked, *hints))))
    anew = replaced(kept, lambda item: KeptStatement.of(item[0].text), sought)
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
                older.add(place)
    ordered: dict[int, None] = {}

    def put(place: int) -> None:
        if place not in ordered:
            for other in above.get(place, []):
                put(other)
            ordered[place] = None

    for place in range(len(answer)):
        put(place)
    return list(ordered), frozenset(older)
