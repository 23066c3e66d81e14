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
_PAIRS_ACROSS = ((1, 4, (1,)), (2, 2, (1, 2)), (3, 1, (2,)))
"""Pairs of events across a cut: how far apart, their weight, and how far left of the cut the earlier one may stand."""

_UNREACHED = 1 << 60
"""The cost of ending a leaf where none can end: more than any sum of real costs."""

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
    # By position: the least cost of dividing the events before it into leaves, the cut there included.
    least_cost = [0] + [_UNREACHED] * count
    previous_end = [0] * (count + 1)
    for end in range(least, count + 1):
        latest_start = end - least
        sums = list(map(add, reversed(least_cost[max(0, end - most) : latest_start + 1]), costs))
        cost = min(sums)
        if cost < _UNREACHED:
            least_cost[end] = cost + (cuts[end] if end < count else 0)
            previous_end[end] = latest_start - sums.index(cost)
    spans = []
    end = count
    while end > 0:
        spans.append((previous_end[end], end))
        end = previous_end[end]
    spans.reverse()
    return spans


def _size_cost(size: int, settings: PlannerSettings) -> int:
    """Return the cost of a leaf of a size. The costs were set for a target of five events: hence the 25."""
    distance = size - settings.leaf_target
    return (_SMALL_COST if distance < 0 else _LARGE_COST) * 25 * distance**2 // settings.leaf_target**2


def _cut_costs(events: Sequence[PlanEvent], settings: PlannerSettings) -> list[int]:
    """Return the cost of beginning a leaf at each position; negative where a cut is welcome, 0 at the unit's start."""
    words = [_words(event) for event in events]
    shared = _cohesion(words)
    steps = sorted(event.timestamp - previous.timestamp for previous, event in pairwise(events))
    median = steps[len(steps) // 2]
    costs = [0]
    for index in range(1, len(events)):
        previous, event = events[index - 1], events[index]
        # Cohesion counts relative to the highest around it: a value that is low in one talk is high in another.
        around = max(shared[max(1, index - 2) : index + 3])
        cost = _COHESION_WEIGHT * shared[index] - (around - shared[index])
        if segment_starts(previous, event, settings):
            cost -= _SEGMENT_BONUS
        elif _is_answer(previous, event):
            cost += _ANSWER_COST
        # "Bye!" and "Thanks!" belong to the talk that they end.
        elif len(words[index]) <= _FEW_WORDS:
            cost += _REMARK_COST
        if previous.hints and event.hints:
            cost += _hint_cost(previous, event)
        step = event.timestamp - previous.timestamp
        if step >= _LEAST_SILENCE_US:
            cost -= next((bonus for times, bonus in _SILENCES if step >= times * median), 0)
        costs.append(cost)
    return costs


def _words(event: PlanEvent) -> frozenset[str]:
    """Return the first `_WORDS_PER_EVENT` words of an event other than stop words and weak words."""
    terms_read = event.words.terms
    words = frozenset(terms_read) - _empty_words()
    if len(words) <= _WORDS_PER_EVENT:
        return words
    return frozenset(islice(filter(words.__contains__, dict.fromkeys(terms_read)), _WORDS_PER_EVENT))


@cache
def _empty_words() -> frozenset[str]:
    return weak_terms() | stop_terms()


def _cohesion(words: Sequence[frozenset[str]]) -> list[int]:
    """Return how many words the events on both sides of each position share, 0..1000."""
    shared, total_weights = [0] * len(words), [0] * len(words)
    for distance, weight, offsets in _PAIRS_ACROSS:
        for index, (earlier, later) in enumerate(zip(words, words[distance:], strict=False)):
            # A side of fewer than three words counts as three: one shared word of a short remark proves little.
            score = weight * 1000 * len(earlier & later) // max(3, min(len(earlier), len(later)))
            for offset in offsets:
                shared[index + offset] += score
                total_weights[index + offset] += weight
    return [min(_COHESION_MOST, 2 * score // max(1, pairs)) for score, pairs in zip(shared, total_weights, strict=True)]


def _is_answer(before: PlanEvent, event: PlanEvent) -> bool:
    return event.type in _RESULT_TYPES or (
        before.speaker != event.speaker and before.text[-40:].rstrip(_TRAILING).endswith(_QUESTION_ENDS)
    )


def _hint_cost(before: PlanEvent, event: PlanEvent) -> int:
    """Return what a cut between two events with hints costs: more the more they agree, negative where they differ."""
    weights = dict(before.hints)
    overlap = sum(min(weights.get(hint, 0), permille) for hint, permille in event.hints)
    if overlap:
        return min(1000, overlap) * _HINT_COST // 1000
    strongest = min(max(p for _, p in before.hints), max(p for _, p in event.hints))
    return -strongest * _HINT_COST // 1000
