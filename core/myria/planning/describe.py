"""Labels, extractive summaries and metadata: what a person reads about a node.

A label is one thing: what a marker says, the line that opens a short talk, the emitter's hint, or the noun phrase that
tells the node from its neighbours; where none is good enough, who talked and when. A summary says who talked when, then
one or two sentences in their own words, the newest first. A leaf is described from the events of its unit, a parent
from its children's outlines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import or_
from typing import Any

from myria.planning.calendar import common_year, group_text, moment_text, period_text, short_text, span_text
from myria.planning.english import NOT_ALONE
from myria.planning.lines import as_many_as_fit, capitalised, clean, clip, counted, lowered, people
from myria.planning.model import UNIT_LEVEL, Outline, Participants, PlanEvent, level_name
from myria.planning.phrases import (
    NAME_CHARACTERS,
    PHRASES,
    SENTENCE_CHARACTERS,
    LeafReading,
    PhraseKey,
    Quote,
    is_everyday,
    key_of,
    without_overlap,
)
from myria.planning.prose import reads_as_prose
from myria.planning.settings import PlannerSettings
from myria.values import value

LABEL_CHARACTERS = 120
LEAF_SUMMARY_CHARACTERS = 400
INTERNAL_SUMMARY_CHARACTERS = 600
KEYWORDS = 12
SPEAKERS = 8
HINTS = 5

_GROUP_SUBJECTS = 2
"""Subjects in the label of a month or a day."""

_MARKER_CHARACTERS = 90
_ENTRY_CHARACTERS = 60
_SPEAKERS_SHOWN = 4
_NAMES_REMEMBERED = 4096

_LEAST_HINT = 500
"""What a hint that leads must weigh, and a quarter of full confidence for each event."""

_HINTED_PART = 8
"""A hint is a subject of a group where this part of its events has it, at half confidence."""

_FULL = 10
_LEAST_FACTOR = 2
"""Tenths that a phrase counts which no leaf, and which every leaf of the unit has."""

_ALONE = 5
"""Tenths that a single word counts in a label: it tells less than two."""

_LETTERS = re.compile(r"[^\W\d_]{3}")
_IDEOGRAPHS = "\u1100"
"""From here on, one character may be a word."""

_INITIALS = re.compile("[a-zA-Z]{2}")

Weighed = tuple[str, int]


@value
class Description:
    """What a person reads about a node; `metadata` holds integers and strings only, and is bounded."""

    label: str
    summary: str
    metadata: Mapping[str, Any]


@value
class LeafDescription:
    """The description of a leaf, its best sentence, the line that opens it and whether
    that says much, and how central each event is (0..1000)."""

    description: Description
    quote: Quote | None
    first_line: tuple[str, bool]
    weights: tuple[int, ...]


def describe_leaves(
    leaves: Sequence[Sequence[PlanEvent]], *, participants: Participants, settings: PlannerSettings, is_unit: bool
) -> list[LeafDescription]:
    """Describe the leaves of one unit: each from its own events, its label as it differs from the others'."""
    readings = [LeafReading(events, [*participants, *(event.speaker or "" for event in events)]) for events in leaves]
    neighbours = Neighbours(leaves, readings)
    # A newcomer begins a talk of their own, as a customer does in a log of many cases.
    before = list(
        accumulate(({event.speaker for event in events} for events in leaves), or_, initial=set[str | None]())
    )
    return [
        _described(
            events,
            reading,
            neighbours,
            settings=settings,
            is_unit=is_unit,
            opens=is_unit or (at > 0 and events[0].speaker not in before[at]),
        )
        for at, (events, reading) in enumerate(zip(leaves, readings, strict=True))
    ]


class Neighbours:
    """What the leaves of a unit have in common: it names none of them."""

    def __init__(self, leaves: Sequence[Sequence[PlanEvent]], readings: Sequence[LeafReading]) -> None:
        self._leaves = len(leaves)
        self._with_term = Counter(chain.from_iterable(reading.terms for reading in readings))
        self._surfaces = _by_small(chain.from_iterable(reading.surfaces for reading in readings))
        self._with_hint = Counter(_lead(_hints(events), len(events)) for events in leaves)

    def factor_of(self, key: PhraseKey) -> int:
        """Return the tenths that a phrase counts in a label: the fewer leaves have its rarest word, the more."""
        having = min([self._with_term[term] for term in key])
        factor = max(_LEAST_FACTOR, _FULL * (self._leaves + 1 - having) // self._leaves)
        return factor if len(key) > 1 else factor * _ALONE // _FULL

    def has_alone(self, hints: Sequence[Weighed], events: int) -> bool:
        """Tell whether the hint that leads a leaf tells it from the others."""
        return self._with_hint[_lead(hints, events)] == 1

    def as_said(self, hint: str) -> str:
        """Return a hint in the letters in which people wrote its words: "EMC test"."""
        return _as_said(hint, self._surfaces)


def _described(
    events: Sequence[PlanEvent],
    reading: LeafReading,
    neighbours: Neighbours,
    *,
    settings: PlannerSettings,
    is_unit: bool,
    opens: bool,
) -> LeafDescription:
    """Describe a leaf; `opens` tells that its first event begins a talk."""
    hints = _hints(events)
    speakers = most_named(((_name(event.speaker), 1) for event in events if event.speaker), SPEAKERS)
    first, last = events[0].timestamp, events[-1].timestamp
    line, says_much = reading.first_line()
    marker = next(filter(None, (marker_text(event, settings) for event in events)), "")
    lead = neighbours.as_said(_lead(hints, len(events)))
    hint = lead if neighbours.has_alone(hints, len(events)) else ""
    label = (
        marker
        or (line if is_unit and says_much else "")
        or hint
        or (line if opens else "")
        or _telling_phrase(reading, neighbours)
        or lead
        or _who_and_when(events, speakers, first)
    )
    quotes = reading.quotes(beside=marker)
    newest_first = sorted(quotes, key=lambda quote: -quote.position)
    return LeafDescription(
        description=Description(
            label=clip(capitalised(label), LABEL_CHARACTERS),
            summary=_summary(
                _talked(speakers, len(events), span_text(first, last)),
                [quoted(events[quote.position].speaker, quote.text) for quote in newest_first],
                LEAF_SUMMARY_CHARACTERS,
            ),
            metadata=_metadata(
                keywords=reading.keywords(KEYWORDS),
                phrases=[(wording, weight) for _, wording, weight in reading.phrases()],
                speakers=speakers,
                hints=hints,
                first_at=first,
                last_at=last,
                events=len(events),
                leaves=1,
                units=int(is_unit),
                language=reading.language.name,
            ),
        ),
        quote=quotes[0] if quotes else None,
        first_line=(line, says_much),
        weights=reading.weights(),
    )


def _telling_phrase(reading: LeafReading, neighbours: Neighbours) -> str:
    """Return the phrase that tells a leaf from its neighbours; nothing where none is good enough."""
    for key, wording, _ in reading.phrases(neighbours.factor_of):
        if is_worth_a_label(key, reading.is_carried(key)):
            return wording
    return ""


def is_worth_a_label(key: PhraseKey, is_carried: bool) -> bool:
    """Tell whether a phrase may be all that a label says: a single word must be no everyday word, role or unit.

    `is_carried` tells that what is described comes back to it.
    """
    if len(key) > 1 or key[0] >= _IDEOGRAPHS:
        return is_carried or key[0] >= _IDEOGRAPHS
    return is_carried and key[0] not in NOT_ALONE and not is_everyday(key[0])


def marker_text(event: PlanEvent, settings: PlannerSettings) -> str:
    """Return what an event of `marker_types` says, short enough for a label; nothing for other events."""
    if event.type not in settings.marker_types:
        return ""
    return clip(clean(event.text[:400]), _MARKER_CHARACTERS)


def describe_inner(
    children: Sequence[Outline],
    *,
    is_unit: bool,
    marker: str = "",
    first_line: tuple[str, bool] = ("", False),
    quote: str | None = None,
) -> Description:
    """Describe a unit or a part of one from its children, what its marker or first line says and its best sentence."""
    merged = Merged(children)
    title = marker or (first_line[0] if first_line[1] else "") or merged.lead() or first_line[0]
    speakers = merged.speakers
    phrases = merged.worth_a_label()
    label = (
        title
        or (phrases[0] if phrases else "")
        or _label_of_largest(children)
        or _dated(_people(speakers), merged.first_at)
    )
    head = _talked(speakers, merged.events, span_text(merged.first_at, merged.last_at))
    return Description(
        label=clip(capitalised(label), LABEL_CHARACTERS),
        summary=_summary(head, [quote] if quote else [], INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=int(is_unit)),
    )


def _label_of_largest(children: Sequence[Outline]) -> str:
    """Return the label of the child with most events among those that are called by more than who and when."""
    called = [child for child in children if not child.label.endswith(moment_text(child.first_at))]
    return max(called, key=lambda child: child.events).label if called else ""


def describe_group(children: Sequence[Outline], *, level: int) -> Description:
    """Describe a group of units that share a calendar prefix, from its children: the newest first."""
    merged = Merged(children)
    units = sum(child.units for child in children)
    called = group_text(level_name(level), merged.first_at, merged.last_at)
    subjects = ", ".join(merged.subjects()[:_GROUP_SUBJECTS])
    who = _people(merged.speakers)
    head = f"{counted(units, 'conversation')}, {period_text(merged.first_at, merged.last_at)}"
    head = f"{who}: {head}" if who else head
    year = common_year(merged.first_at, merged.last_at)
    newest_first = sorted(children, key=lambda child: (-child.last_at, -child.key_timestamp))
    entries = as_many_as_fit(
        [_entry(child, year) for child in newest_first], INTERNAL_SUMMARY_CHARACTERS - len(head) - 10
    )
    return Description(
        label=clip(f"{called}: {subjects}" if subjects else called, LABEL_CHARACTERS),
        summary=clip(f"{head}. Newest: {entries}.", INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=units),
    )


def _entry(child: Outline, year: str) -> str:
    """Return one child of a group: what about, and when."""
    name = "day" if child.is_unit else level_name(child.level)
    when = short_text(name, child.first_at, child.last_at, year)
    about = child.label if child.level <= UNIT_LEVEL else child.label.partition(": ")[2]
    return f"{clip(about, _ENTRY_CHARACTERS)} ({when})" if about else when


class Merged:
    """The metadata of several children taken together."""

    def __init__(self, children: Sequence[Outline]) -> None:
        self._children = children
        self.events = sum([child.events for child in children])
        self.leaves = sum([child.leaves for child in children])
        self.first_at = min([child.first_at for child in children])
        self.last_at = max([child.last_at for child in children])
        self.speakers = most_named(chain.from_iterable([child.speakers for child in children]), SPEAKERS)
        self.hints = most_named(chain.from_iterable([child.hints for child in children]), HINTS)
        self.language = main_language([(child.language, child.events) for child in children])
        self._surfaces = _by_small(surface for child in children for surface, _ in chain(child.keywords, child.phrases))
        self.phrases = MergedPhrases(
            chain.from_iterable([child.phrases for child in children]),
            chain.from_iterable([child.keywords for child in children]),
        )

    def worth_a_label(self, *, in_passing: bool = False) -> list[str]:
        """Return the phrases that may stand in a label, best first."""
        return self.phrases.worth_a_label((child.label for child in self._children), in_passing=in_passing)

    def lead(self) -> str:
        """Return the hint that stands for the whole, if one does."""
        return _as_said(_lead(self.hints, self.events), self._surfaces)

    def subjects(self) -> list[str]:
        """Return what most was about: hints that stand for a good part of it, then phrases."""
        least = _LEAST_HINT * self.events // _HINTED_PART
        hints = [hint_title(hint) for hint, permille in self.hints if permille >= least]
        return [_as_said(hint, self._surfaces) for hint in hints if hint] or self.worth_a_label(in_passing=True)

    def metadata(self, *, units: int) -> dict[str, Any]:
        keywords: dict[str, tuple[int, str]] = {}
        for surface, weight in chain.from_iterable([child.keywords for child in self._children]):
            key = key_of(surface)[0]
            sum_before, first = keywords.get(key, (0, surface))
            keywords[key] = (sum_before + weight, first)
        return _metadata(
            keywords=_top([(surface, weight) for weight, surface in keywords.values()], KEYWORDS),
            phrases=self.phrases.best(),
            speakers=self.speakers,
            hints=self.hints,
            first_at=self.first_at,
            last_at=self.last_at,
            events=self.events,
            leaves=self.leaves,
            units=units,
            language=self.language,
        )


class MergedPhrases:
    """The phrases of several nodes taken together, best first: by weight, their words and how many say them."""

    def __init__(self, phrases: Iterable[Weighed], words: Iterable[Weighed] = ()) -> None:
        self._sums: Counter[PhraseKey] = Counter()
        self._said_in: Counter[PhraseKey] = Counter()
        self._wordings: dict[PhraseKey, str] = {}
        for wording, weight in phrases:
            key = key_of(wording)
            self._sums[key] += weight
            self._said_in[key] += 1
            self._wordings.setdefault(key, wording)
        of_words: Counter[str] = Counter()
        for wording, weight in words:
            of_words[key_of(wording)[0]] += weight
        self._ranked = sorted(
            (-(weight + sum([of_words[term] for term in key]) // len(key)) * self._said_in[key], key)
            for key, weight in self._sums.items()
        )

    def best(self, most: int = PHRASES) -> list[Weighed]:
        """Return those that say most, no two sharing a word, with their own weights."""
        chosen = without_overlap(self._ranked, self._wordings.__getitem__, most=most)
        return [(wording, self._sums[key]) for key, wording, _ in chosen]

    def worth_a_label(self, labels: Iterable[str], *, in_passing: bool) -> list[str]:
        """Return those that may stand in a label, those of several words first, best first.

        Several nodes say them, or one is called so by its label; with `in_passing`, others of several words follow.
        """
        called = {key_of(subject) for label in labels for subject in (label, *label.partition(": ")[2].split(", "))}
        ranked: list[tuple[bool, bool, int, PhraseKey]] = []
        for score, key in self._ranked:
            is_carried = self._said_in[key] > 1 or key in called
            if is_worth_a_label(key, is_carried) or (in_passing and len(key) > 1):
                ranked.append((len(key) == 1, not is_carried, score, key))
        worth = [(score, key) for _, _, score, key in sorted(ranked)]
        return [wording for _, wording, _ in without_overlap(worth, self._wordings.__getitem__, most=_GROUP_SUBJECTS)]


def main_language(spoken: Iterable[Weighed]) -> str:
    """Return the language of most events, given those of several nodes with their events."""
    return most_named(spoken, 1)[0][0]


def most_named(weighed: Iterable[Weighed], most: int) -> list[Weighed]:
    """Return the names that weigh most together, with what they weigh."""
    sums: dict[str, int] = {}
    for name, amount in weighed:
        sums[name] = sums.get(name, 0) + amount
    return _top(sums.items(), most)


def legible(text: str) -> str:
    """Return text as a label or summary may hold it: on one line, without control or directional characters."""
    return clean(text)


def quoted(speaker: str | None, sentence: str) -> str:
    """Return a sentence as a summary quotes it, with who said it where that is known."""
    text = f"“{clip(sentence, SENTENCE_CHARACTERS)}”"
    return f"{_name(speaker)}: {text}" if speaker else text


def hint_title(hint: str) -> str:
    """Return a hint as a title shows it: initials in capitals; nothing for what is no word (a number, an id)."""
    text = clip(clean(hint.lstrip("#").replace("_", " ")), NAME_CHARACTERS)
    is_word = _LETTERS.search(text) is not None or max(text, default="") >= _IDEOGRAPHS
    if not is_word or not reads_as_prose(text):
        return text.upper() if _INITIALS.fullmatch(text) else ""
    return text


def _metadata(
    *,
    keywords: Iterable[Weighed],
    phrases: Iterable[Weighed],
    speakers: Iterable[Weighed],
    hints: Iterable[Weighed],
    language: str,
    **numbers: int,
) -> dict[str, Any]:
    return {
        "keywords": [list(pair) for pair in keywords],
        "phrases": [list(pair) for pair in phrases],
        "speakers": [list(pair) for pair in speakers],
        "hints": [list(pair) for pair in hints],
        "language": language,
        **numbers,
    }


def _hints(events: Sequence[PlanEvent]) -> list[Weighed]:
    return most_named(((clean(hint), permille) for event in events for hint, permille in event.hints), HINTS)


def _lead(hints: Sequence[Weighed], events: int) -> str:
    """Return the hint that stands for so many events, as a title; nothing where none does."""
    if not hints or hints[0][1] < max(_LEAST_HINT, _LEAST_HINT * events // 2):
        return ""
    return hint_title(hints[0][0])


def _by_small(wordings: Iterable[str]) -> dict[str, str]:
    """Return the words of wordings by their small letters."""
    return {lowered(word): word for wording in wordings for word in wording.split(" ") if word}


def _as_said(hint: str, words: Mapping[str, str]) -> str:
    return " ".join(words.get(lowered(word), word) for word in hint.split(" ")) if hint else ""


def _talked(speakers: Sequence[Weighed], events: int, when: str) -> str:
    """Return who talked when."""
    return f"{_people(speakers) or counted(events, 'event')}, {when}."


def _people(speakers: Sequence[Weighed]) -> str:
    """Return those who spoke most, as a sentence lists them."""
    shown = [name for name, _ in speakers[:_SPEAKERS_SHOWN]]
    if len(speakers) > _SPEAKERS_SHOWN:
        shown.append("others")
    return people(shown)


def _who_and_when(events: Sequence[PlanEvent], speakers: Sequence[Weighed], first: int) -> str:
    kinds = [clip(clean(event.type.replace("_", " ")), NAME_CHARACTERS) for event in events if event.type]
    return _dated(_people(speakers) or (kinds[0] if kinds else ""), first)


def _dated(who: str, first: int) -> str:
    return f"{who}, {moment_text(first)}" if who else moment_text(first)


def _summary(head: str, sentences: Iterable[str], limit: int) -> str:
    """Return the first sentence and those others that fit whole."""
    text = clip(head, limit)
    for sentence in sentences:
        if len(text) + 1 + len(sentence) <= limit:
            text = f"{text} {sentence}"
    return text


def _top(pairs: Iterable[Weighed], limit: int) -> list[Weighed]:
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:limit]


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _name(name: str | None) -> str:
    return clip(clean(name or ""), NAME_CHARACTERS)
