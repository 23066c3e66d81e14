"""Cuts a unit into leaves: an integer dynamic programme over lexical cohesion, hints, silences and boundaries.

After Hearst's TextTiling (1997): text is cut where the words on both sides have least in common. The cost of a cut is
what the two sides share; the cost of a leaf grows with its distance from the size wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice, pairwise
from operator import add

from myria.settings.planner import PlannerSettings
from myria.text.common_words import weak_terms
from myria.text.words import stop_terms
from myria.topics.model import PlanEvent
from myria.topics.segments import segment_starts

_WORDS_PER_EVENT = 200
_NEIGHBOURS = ((1, 4, (1,)), (2, 2, (1, 2)), (3, 1, (2,)))
"""Pairs of events across a cut: how far apart, their weight, and how far left of the cut the earlier one may stand."""

_UNREACHED = 1 << 60
"""What leaves cost that would end where none can."""

_SMALL_COST = 45
_LARGE_COST = 22
_COHESION_MOST = 1000
_COHESION_WEIGHT = 2
_SEGMENT_BONUS = 900
_ANSWER_COST = 300
_REMARK_COST = 200
_FEW_WORDS = 1
_HINT_COST = 400
_SILENCES = ((8, 300), (4, 150), (2, 60))
"""(times the unit's median step, how much cheaper a cut is after such a silence)."""

_LEAST_SILENCE_US = 30_000_000

_RESULT_TYPES = frozenset({"tool_result", "task_update"})
_QUESTION_ENDS = ("?", "？", "؟")
_TRAILING = " \t\r\n\"')”’"


def leaf_spans(events: Sequence[PlanEvent], settings: PlannerSettings) -> list[tuple[int, int]]:
    """Return the leaves of one unit as (start, end) positions in `events`, contiguous and in order.

    Each has `leaf_min`..`leaf_max` events; a unit smaller than `leaf_min` is one leaf.
    """
    count = len(events)
    if count <= max(settings.leaf_min, min(3, settings.leaf_target)):
        return [(0, count)]
    cuts = _cut_costs(events, settings)
    least, most = settings.leaf_min, settings.leaf_max
    costs = [_size_cost(size, settings) for size in range(least, most + 1)]
    # Of what ends before each position, and of the cut there; the nearest last.
    before = [0] + [_UNREACHED] * count
    came_from = [0] * (count + 1)
    for end in range(least, count + 1):
        latest = end - least
        sums = list(map(add, reversed(before[max(0, end - most) : latest + 1]), costs))
        cost = min(sums)
        if cost < _UNREACHED:
            before[end] = cost + (cuts[end] if end < count else 0)
            came_from[end] = latest - sums.index(cost)
    spans = []
    end = count
    while end > 0:
        spans.append((came_from[end], end))
        end = came_from[end]
    spans.reverse()
    return spans


def _size_cost(size: int, settings: PlannerSettings) -> int:
    """Return what a leaf of this size costs; the scale is that of a target of five."""
    distance = size - settings.leaf_target
    return (_SMALL_COST if distance < 0 else _LARGE_COST) * 25 * distance**2 // settings.leaf_target**2


def _cut_costs(events: Sequence[PlanEvent], settings: PlannerSettings) -> list[int]:
    """Return what it costs to begin a leaf at each position; the unit's own start is free."""
    words = [_words(event) for event in events]
    shared = _cohesion(words)
    steps = sorted(event.timestamp - before.timestamp for before, event in pairwise(events))
    median = steps[len(steps) // 2]
    costs = [0]
    for at in range(1, len(events)):
        before, event = events[at - 1], events[at]
        # Cohesion counts against the highest around it: what is low in one talk is high in another.
        around = max(shared[max(1, at - 2) : at + 3])
        cost = _COHESION_WEIGHT * shared[at] - (around - shared[at])
        if segment_starts(before, event, settings):
            cost -= _SEGMENT_BONUS
        elif _answers(before, event):
            cost += _ANSWER_COST
        # "Bye!" and "Thanks!" belong to what they end.
        elif len(words[at]) <= _FEW_WORDS:
            cost += _REMARK_COST
        if before.hints and event.hints:
            cost += _hint_cost(before, event)
        step = event.timestamp - before.timestamp
        if step >= _LEAST_SILENCE_US:
            cost -= next((bonus for times, bonus in _SILENCES if step >= times * median), 0)
        costs.append(cost)
    return costs


def _words(event: PlanEvent) -> frozenset[str]:
    """Return the first words of an event that say something."""
    read = event.words.terms
    words = frozenset(read) - _empty_words()
    if len(words) <= _WORDS_PER_EVENT:
        return words
    return frozenset(islice(filter(words.__contains__, dict.fromkeys(read)), _WORDS_PER_EVENT))


@cache
def _empty_words() -> frozenset[str]:
    return weak_terms() | stop_terms()


def _cohesion(words: Sequence[frozenset[str]]) -> list[int]:
    """Return how much the events on both sides of each position share, 0..1000."""
    shared, most = [0] * len(words), [0] * len(words)
    for distance, weight, lefts in _NEIGHBOURS:
        for at, (earlier, later) in enumerate(zip(words, words[distance:], strict=False)):
            # Short remarks share little by chance: three words count as if the shorter side had no fewer.
            score = weight * 1000 * len(earlier & later) // max(3, min(len(earlier), len(later)))
            for left in lefts:
                shared[at + left] += score
                most[at + left] += weight
    return [min(_COHESION_MOST, 2 * score // max(1, pairs)) for score, pairs in zip(shared, most, strict=True)]


def _answers(before: PlanEvent, event: PlanEvent) -> bool:
    return event.type in _RESULT_TYPES or (
        before.speaker != event.speaker and before.text[-40:].rstrip(_TRAILING).endswith(_QUESTION_ENDS)
    )


def _hint_cost(before: PlanEvent, event: PlanEvent) -> int:
    """Return what the emitters' hints say about keeping two events together: agreement costs, difference pays."""
    weights = dict(before.hints)
    overlap = sum(min(weights.get(hint, 0), permille) for hint, permille in event.hints)
    if overlap:
        return min(1000, overlap) * _HINT_COST // 1000
    strongest = min(max(p for _, p in before.hints), max(p for _, p in event.hints))
    return -strongest * _HINT_COST // 1000
