"""Labels, extractive summaries and metadata: what a person reads about a node.

A label is a title: what a marker says, else the phrases that say most, as they were written, under the hint or the time
they share. A summary is a few sentences: who talked when about what, and what they said in their own words. A leaf is
described from its own events, a parent from its children's outlines, so that a description depends on nothing but what
lies beneath.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from myria.planning.calendar import common_year, date_text, group_text, period_text, short_text, span_text
from myria.planning.lines import (
    as_many_as_fit,
    capitalised,
    clean,
    clip,
    counted,
    distinct,
    fitting,
    has_one_of,
    listed,
    lowered,
    people,
    shortened,
)
from myria.planning.model import UNIT_LEVEL, Outline, Participants, PlanEvent, level_name
from myria.planning.phrases import (
    NAME_CHARACTERS,
    PHRASES,
    SENTENCE_CHARACTERS,
    Quote,
    TextReading,
    key_of,
    without_overlap,
)
from myria.planning.prose import reads_as_prose
from myria.planning.settings import PlannerSettings
from myria.planning.wording import conjunction_of
from myria.values import value

LABEL_CHARACTERS = 120
LEAF_SUMMARY_CHARACTERS = 400
INTERNAL_SUMMARY_CHARACTERS = 600
KEYWORDS = 12
SPEAKERS = 8
HINTS = 5

_TITLE_PHRASES = 2
"""Phrases in the label of a leaf or a unit: more read as a list of keywords."""

_SENTENCE_PHRASES = 3
"""Phrases in a sentence, and in the label of a group."""

_NAME, _WEIGHT = itemgetter(0), itemgetter(1)

_TITLE_CHARACTERS = 80
_TITLE_WORDS = 4
"""Words after which a title of several phrases says enough."""

_MARKER_CHARACTERS = 90
_SUBJECT_CHARACTERS = 60
_LEAST_HINT = 500
_SPEAKERS_SHOWN = 4
_NAMES_REMEMBERED = 4096

_LETTERS = re.compile(r"[^\W\d_]{3}")
_WORDS_ALONE = (("\u1100", "\uffff"),)
"""Characters that may be a word by themselves."""

_INITIALS = re.compile("[a-zA-Z]{2}")


@value
class Description:
    """What a person reads about a node; `metadata` holds integers and strings only, and is bounded."""

    label: str
    summary: str
    metadata: Mapping[str, Any]


@value
class LeafDescription:
    """The description of a leaf, its best sentence, and how central each event is (0..1000)."""

    description: Description
    quote: Quote | None
    weights: tuple[int, ...]


def describe_leaves(
    leaves: Sequence[Sequence[PlanEvent]], *, participants: Participants, settings: PlannerSettings, is_unit: bool
) -> list[LeafDescription]:
    """Describe leaves, each from its own events alone.

    Step by step for all of them: the code of one step stays in the processor's cache, that of all does not.
    """
    readings = TextReading.of_leaves(
        (events, [*participants, *(event.speaker or "" for event in events)]) for events in leaves
    )
    phrases = [reading.phrases() for reading in readings]
    quotes = [reading.quotes() for reading in readings]
    keywords = [_top(reading.keywords(KEYWORDS), KEYWORDS) for reading in readings]
    weights = [reading.weights() for reading in readings]
    descriptions = [
        _leaf_description(*leaf, settings=settings, is_unit=is_unit)
        for leaf in zip(leaves, readings, phrases, quotes, keywords, strict=True)
    ]
    return [
        LeafDescription(description=description, quote=said[0] if said else None, weights=central)
        for description, said, central in zip(descriptions, quotes, weights, strict=True)
    ]


def _leaf_description(
    events: Sequence[PlanEvent],
    reading: TextReading,
    phrases: list[tuple[str, int]],
    quotes: Sequence[Quote],
    keywords: list[tuple[str, int]],
    *,
    settings: PlannerSettings,
    is_unit: bool,
) -> Description:
    """Return the label, summary and metadata of a leaf, of which all that its words say is known."""
    hints = _top(_sums((clean(hint), permille) for event in events for hint, permille in event.hints), HINTS)
    speakers = _top(_sums((_name(event.speaker), 1) for event in events if event.speaker), SPEAKERS)
    first, last = events[0].timestamp, events[-1].timestamp
    markers = [event for event in events if event.type in settings.marker_types]
    marker = next(filter(None, (marker_text(event, settings) for event in markers)), "")
    lead = ""
    if hints and hints[0][1] >= _LEAST_HINT:
        hint = hint_title(hints[0][0])
        lead = _as_said(hint, [reading.surface(key_of(hint)) or hint])
    conjunction = reading.language.conjunction
    label = marker or _title(lead, phrases, conjunction) or _fallback(events, quotes, first)
    sentences = [
        quoted(events[quote.position].speaker, quote.text) for quote in sorted(quotes, key=lambda quote: quote.position)
    ]
    head = _talked(
        speakers,
        len(events),
        f"on {span_text(first, last)}",
        [
            topic
            for topic in (_cited(marker) or listed(_subjects(lead, phrases, _SENTENCE_PHRASES), conjunction),)
            if topic
        ],
    )
    return Description(
        label=clip(capitalised(label), LABEL_CHARACTERS),
        summary=_summary(head, sentences, LEAF_SUMMARY_CHARACTERS),
        metadata=_metadata(
            keywords=keywords,
            phrases=phrases,
            speakers=speakers,
            hints=hints,
            first_at=first,
            last_at=last,
            events=len(events),
            leaves=1,
            units=int(is_unit),
            language=reading.language.name,
        ),
    )


def marker_text(event: PlanEvent, settings: PlannerSettings) -> str:
    """Return what an event of `marker_types` says, short enough for a label; nothing for other events."""
    if event.type not in settings.marker_types:
        return ""
    return clip(clean(event.text[:400]), _MARKER_CHARACTERS)


def describe_inner(
    children: Sequence[Outline], *, is_unit: bool, marker: str = "", quote: str | None = None
) -> Description:
    """Describe a unit or a part of one from its children, the marker it begins with and its best sentence."""
    merged = Merged(children)
    lead = merged.lead()
    label = marker or _title(lead, merged.phrases, merged.conjunction)
    if not label:
        label = children[0].label
    topics = distinct(_subject(child) for child in children if child.phrases)
    if marker:
        topics = [_cited(marker), *(topic for topic in topics if not marker.startswith(topic.rstrip("…")))]
    when = f"on {span_text(merged.first_at, merged.last_at)}"
    head = _talked(merged.speakers, merged.events, when, topics)
    return Description(
        label=clip(capitalised(label), LABEL_CHARACTERS),
        summary=_summary(head, [quote] if quote else [], INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=int(is_unit)),
    )


def describe_group(children: Sequence[Outline], *, level: int) -> Description:
    """Describe a group of units that share a calendar prefix, from its children."""
    merged = Merged(children)
    units = sum(child.units for child in children)
    called = group_text(level_name(level), merged.first_at, merged.last_at)
    phrases = _subjects(merged.lead(), merged.phrases, _SENTENCE_PHRASES)
    subjects = listed(fitting(phrases, LABEL_CHARACTERS - len(called) - 2), merged.conjunction)
    who = _people(merged.speakers)
    many = counted(units, "conversation")
    head = f"{who} had {many}" if who else f"There were {many}"
    head += f", {counted(merged.events, 'event')}, {period_text(merged.first_at, merged.last_at)}"
    room = INTERNAL_SUMMARY_CHARACTERS - len(head) - 3
    year = common_year(merged.first_at, merged.last_at)
    entries = [_entry(child, room // len(children) - 2, year) for child in children]
    return Description(
        label=clip(f"{called}: {subjects}" if subjects else called, LABEL_CHARACTERS),
        summary=clip(f"{head}: {as_many_as_fit(entries, room)}.", INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=units),
    )


class Merged:
    """The metadata of several children taken together."""

    def __init__(self, children: Sequence[Outline]) -> None:
        self._children = children
        self.events = sum([child.events for child in children])
        self.leaves = sum([child.leaves for child in children])
        self.first_at = min([child.first_at for child in children])
        self.last_at = max([child.last_at for child in children])
        self.language = main_language([(child.language, child.events) for child in children])
        self.conjunction = conjunction_of(self.language)
        self._weights = weights = dict[str, int]()
        for child in children:
            for surface, weight in child.keywords:
                key = key_of(surface)[0]
                weights[key] = weights[key] + weight if key in weights else weight
        self.phrases = _merge_phrases(children, weights)

    @cached_property
    def speakers(self) -> list[tuple[str, int]]:
        """Those who spoke most, and how often."""
        return most_named(chain.from_iterable([child.speakers for child in self._children]), SPEAKERS)

    @cached_property
    def hints(self) -> list[tuple[str, int]]:
        """The hints of most confidence, and how much."""
        return most_named(chain.from_iterable([child.hints for child in self._children]), HINTS)

    @cached_property
    def keywords(self) -> list[tuple[str, int]]:
        """The words that say most, and how much."""
        surfaces: dict[str, tuple[int, str]] = {}
        for child in self._children:
            for surface, weight in child.keywords:
                key = key_of(surface)[0]
                if key not in surfaces or surfaces[key][0] < weight:
                    surfaces[key] = (weight, surface)
        return _top([(surfaces[key][1], weight) for key, weight in self._weights.items()], KEYWORDS)

    def lead(self) -> str:
        """Return the hint that stands for the whole, if one does: over a quarter of the events' full confidence."""
        if not self.hints or self.hints[0][1] < 250 * self.events:
            return ""
        hint = hint_title(self.hints[0][0])
        return _as_said(hint, (phrase for phrase, _ in [*self.phrases, *self.keywords]))

    def metadata(self, *, units: int) -> dict[str, Any]:
        return _metadata(
            keywords=self.keywords,
            phrases=self.phrases,
            speakers=self.speakers,
            hints=self.hints,
            first_at=self.first_at,
            last_at=self.last_at,
            events=self.events,
            leaves=self.leaves,
            units=units,
            language=self.language,
        )


def _metadata(
    *,
    keywords: list[tuple[str, int]],
    phrases: list[tuple[str, int]],
    speakers: list[tuple[str, int]],
    hints: list[tuple[str, int]],
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


def _merge_phrases(children: Sequence[Outline], words: Mapping[str, int]) -> list[tuple[str, int]]:
    sums: dict[tuple[str, ...], int] = {}
    surfaces: dict[tuple[str, ...], tuple[int, str]] = {}
    for child in children:
        for phrase, weight in child.phrases:
            key = key_of(phrase)
            if key not in sums:
                sums[key], surfaces[key] = weight, (weight, phrase)
                continue
            sums[key] += weight
            if surfaces[key][0] < weight:
                surfaces[key] = (weight, phrase)
    return ranked_phrases(sums, surfaces, words)


def ranked_phrases(
    sums: Mapping[tuple[str, ...], int],
    surfaces: Mapping[tuple[str, ...], tuple[int, str]],
    words: Mapping[str, int],
    *,
    most: int = PHRASES,
) -> list[tuple[str, int]]:
    """Return the phrases of several nodes that say most, no two of which share a word.

    Args:
        sums: by the terms of each phrase, what it weighs in all of them.
        surfaces: what it weighs most in one of them, and as it is written there.
        words: what words weigh in all of them.
        most: how many are wanted, at most.
    """
    scored = []
    known = words.get
    for key, weight in sums.items():
        if len(key) == 2:
            beside = (known(key[0], 0) + known(key[1], 0)) // 2
        else:
            beside = sum([known(term, 0) for term in key]) // len(key)
        scored.append((-weight - beside, key, weight))
    scored.sort()
    return without_overlap(((weight, key) for _, key, weight in scored), lambda key: surfaces[key][1], most=most)


def main_language(spoken: Sequence[tuple[str, int]]) -> str:
    """Return the language of most events, given those of several nodes with their events."""
    sums = _sums(spoken)
    return sums[0][0] if len(sums) == 1 else _top(sums, 1)[0][0]


def most_named(weighted: Iterable[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    """Return the names that weigh most together, with what they weigh."""
    return _top(_sums(weighted), most)


def legible(text: str) -> str:
    """Return text as a label or summary may hold it: on one line, without control or directional characters."""
    return clean(text)


def quoted(speaker: str | None, sentence: str) -> str:
    """Return a sentence as a summary quotes it, with who said it where that is known."""
    text = f"“{clip(sentence, SENTENCE_CHARACTERS)}”"
    return f"{_name(speaker)}: {text}" if speaker else text


def _as_said(hint: str, wordings: Iterable[str]) -> str:
    """Return a hint in the letters in which people wrote the same words, where they did."""
    return next((words for words in wordings if lowered(words) == lowered(hint)), hint)


def _cited(marker: str) -> str:
    return f"“{marker}”" if marker else ""


def _talked(speakers: Sequence[tuple[str, int]], events: int, when: str, topics: Sequence[str]) -> str:
    """Return the sentence that says who talked when and about what."""
    who = _people(speakers)
    if len(speakers) > 1:
        opening = f"{who} talked {when}"
    elif who:
        opening = f"{who} wrote {when}"
    else:
        opening = f"{counted(events, 'event')} {when}"
    room = INTERNAL_SUMMARY_CHARACTERS - SENTENCE_CHARACTERS - len(opening) - 80
    about = as_many_as_fit(topics, room)
    if not about:
        return f"{opening}."
    return f"{opening}, about {about}" + ("" if about.endswith("…") else ".")


def _people(speakers: Sequence[tuple[str, int]]) -> str:
    """Return those who spoke most, as a sentence lists them."""
    shown = [name for name, _ in speakers[:_SPEAKERS_SHOWN]]
    if len(speakers) > _SPEAKERS_SHOWN:
        shown.append("others")
    return people(shown)


def _summary(head: str, sentences: Iterable[str], limit: int) -> str:
    """Return the first sentence and those others that fit whole."""
    text = clip(head, limit)
    for sentence in sentences:
        if len(text) + 1 + len(sentence) <= limit:
            text = f"{text} {sentence}"
    return text


def _entry(child: Outline, room: int, year: str) -> str:
    """Return one child of a group, about as long as it may be: what about, a first subject being whole, and when."""
    name = "day" if child.is_unit else level_name(child.level)
    when = short_text(name, child.first_at, child.last_at, year)
    subject = shortened(_subject(child), max(NAME_CHARACTERS, room - len(when) - 3))
    return f"{subject} ({when})" if subject else when


def _subject(child: Outline) -> str:
    """Return what a child is about, as its label says it, without its time."""
    if child.level <= UNIT_LEVEL:
        return shortened(child.label, _SUBJECT_CHARACTERS)
    phrases = [phrase for phrase, _ in child.phrases[:_SENTENCE_PHRASES]]
    return listed(fitting(phrases, _SUBJECT_CHARACTERS), conjunction_of(child.language))


def _title(lead: str, phrases: Sequence[tuple[str, int]], conjunction: str) -> str:
    """Return a title of the best phrases, under the lead where there is one."""
    subjects = _subjects(lead, phrases, _TITLE_PHRASES + bool(lead))
    if lead and len(subjects) > 1:
        return f"{capitalised(lead)}: {listed(subjects[1:], conjunction)}"
    return listed(subjects, conjunction)


def _subjects(lead: str, phrases: Sequence[tuple[str, int]], most: int) -> list[str]:
    """Return the lead and the best phrases that share no word with what was chosen, until they say enough."""
    parts = [lead] if lead else []
    taken = set(key_of(lead)) if lead else set()
    for phrase, _ in phrases:
        words = len(taken)
        if len(parts) >= most or (len(parts) > 1 and words >= _TITLE_WORDS):
            break
        if not taken.intersection(key_of(phrase)) and len(listed([*parts, phrase])) <= _TITLE_CHARACTERS:
            parts.append(phrase)
            taken.update(key_of(phrase))
    return parts


def _fallback(events: Sequence[PlanEvent], quotes: Sequence[Quote], first: int) -> str:
    """Return what to call a leaf without a word of its own: what was said, else what kind of events they are."""
    if quotes:
        return f"“{clip(quotes[0].text, _MARKER_CHARACTERS)}”"
    texts = [clean(event.text[:400]) for event in events]
    longest = max([text for text in texts if reads_as_prose(text)] or texts, key=len)
    if any(character.isalnum() for character in longest):
        return f"“{clip(longest, _MARKER_CHARACTERS)}”"
    kinds = distinct(_readable(event.type) for event in events if event.type)
    what = listed(kinds[:2]) if kinds else counted(len(events), "event")
    return f"{what} on {date_text(first)}"


def _sums(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    sums: dict[str, int] = {}
    for name, amount in pairs:
        sums[name] = sums.get(name, 0) + amount
    return list(sums.items())


def _top(pairs: Iterable[tuple[str, int]], limit: int) -> list[tuple[str, int]]:
    pairs = list(pairs)
    if len(pairs) > limit:
        least = sorted([weight for _, weight in pairs])[-limit]
        pairs = [pair for pair in pairs if pair[1] >= least]
    if len(pairs) > 1:
        pairs.sort(key=_NAME)
        pairs.sort(key=_WEIGHT, reverse=True)
    return pairs[:limit]


def _readable(name: str | None) -> str:
    return clip(clean((name or "").replace("_", " ")), NAME_CHARACTERS)


def hint_title(hint: str) -> str:
    """Return a hint as a title shows it: initials in capitals; nothing for what is no word (a number, an id)."""
    text = _readable(hint.lstrip("#"))
    is_word = _LETTERS.search(text) is not None or has_one_of(_WORDS_ALONE, text)
    if not is_word or not reads_as_prose(text):
        return text.upper() if _INITIALS.fullmatch(text) else ""
    return text


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _name(name: str | None) -> str:
    return clip(clean(name or ""), NAME_CHARACTERS)
