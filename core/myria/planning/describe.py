"""Labels, extractive summaries and metadata: what a person reads about a node.

A leaf is described from its own events, a parent from its children's outlines, so that a description depends on nothing
but what lies beneath. Words are weighed by shape, spread and a fixed list of common words; sentences by the weights of
their words. All weights are integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from myria.analysis import is_stopword, terms
from myria.planning.calendar import common_year, date_text, group_text, span_text
from myria.planning.common_words import PLAIN, WEAK
from myria.planning.model import (
    ANALYSED_CHARACTERS,
    UNIT_LEVEL,
    Outline,
    Participants,
    PlanEvent,
    level_name,
)
from myria.planning.settings import PlannerSettings

LABEL_CHARACTERS = 120
LEAF_SUMMARY_CHARACTERS = 400
INTERNAL_SUMMARY_CHARACTERS = 600
KEYWORDS = 12
PHRASES = 6
SPEAKERS = 8
HINTS = 5

_LABEL_PHRASES = 3
_NAME_CHARACTERS = 40
_KEYWORD_CHARACTERS = 32
_MARKER_CHARACTERS = 60
_SENTENCE_CHARACTERS = 150
_SUBJECT_CHARACTERS = 44
_SENTENCES_PER_EVENT = 40
_LEAST_HINT = 500
_SPEAKERS_SHOWN = 4

_WEAK_BASE, _PLAIN_BASE, _BASE = 1, 2, 7
_PHRASE_TENTHS = {1: 10, 2: 8, 3: 7}
_LONGEST_TIGHT_RUN = 4
_OFTEN = 3

_INVISIBLE = re.compile(
    "[\x00-\x20\x7f-\xa0\u2028\u2029\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)
_SENTENCE_END = re.compile("(?<=[.!?…])[\"'”’)]*[ \t]+|(?<=[。！？])|[\r\n]+")
_QUESTIONS = ("?", "？", "؟")
_STARTERS = frozenset(".!?…:\n\r\"“”'‘’(*-—–。！？")


_Scored = tuple[str, int, tuple[str, ...]]
"""(surface form, score, terms) of a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a person reads about a node; `metadata` holds integers and strings only, and is bounded."""

    label: str
    summary: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A sentence that says much about its leaf."""

    score: int
    position: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafDescription:
    """The description of a leaf, its best sentence, and how central each event is (0..1000)."""

    description: Description
    quote: Quote | None
    weights: tuple[int, ...]


@dataclass(slots=True)
class _Word:
    """A term within one leaf."""

    term: str
    surface: str
    base: int
    times: int = 0
    events: int = 0
    last_event: int = -1
    settled: bool = False

    @property
    def score(self) -> int:
        """How much the term says about the leaf: its kind, how often and in how many events it stands."""
        return self.base * (2 + min(self.times, 4) + 2 * min(self.events, 4))


def describe_leaf(
    events: Sequence[PlanEvent], *, participants: Participants, settings: PlannerSettings, is_unit: bool
) -> LeafDescription:
    """Describe a leaf from its own events alone."""
    names = _name_terms([*participants, *(event.speaker or "" for event in events)])
    reading = _Reading(names)
    for event in events:
        reading.read(event)
    words = {term: word.score for term, word in reading.words.items()}
    phrases = reading.phrases(words)
    quotes = reading.quotes(events, words)
    hints = _top(_sums((_clean(hint), permille) for event in events for hint, permille in event.hints), HINTS)
    speakers = _top(_sums((_name(event.speaker), 1) for event in events if event.speaker), SPEAKERS)
    first, last = events[0].timestamp, events[-1].timestamp
    lead = [marker for marker in (marker_text(event, settings) for event in events) if marker][:1]
    lead += [_readable(hint) for hint, permille in hints[:1] if permille >= _LEAST_HINT]
    fallback = _fallback(events, quotes, first)
    label = _label(lead, phrases, fallback)
    keywords = _top(
        [(word.surface, words[term]) for term, word in reading.words.items() if word.base > _WEAK_BASE],
        KEYWORDS,
    )
    head = _head(span_text(first, last), speakers, len(events))
    return LeafDescription(
        description=Description(
            label=label,
            summary=_summary(head, _said(quotes, events), LEAF_SUMMARY_CHARACTERS) or fallback,
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
            ),
        ),
        quote=quotes[0] if quotes else None,
        weights=reading.weights(words),
    )


def marker_text(event: PlanEvent, settings: PlannerSettings) -> str:
    """Return what an explicit marker (§6.2) says, short enough for a label; nothing for other events."""
    if event.type not in settings.marker_types:
        return ""
    return _clip(_clean(event.text[:400]), _MARKER_CHARACTERS)


def describe_inner(
    children: Sequence[Outline], *, is_unit: bool, marker: str = "", quote: str | None = None
) -> Description:
    """Describe a unit or a part of one from its children, the marker it begins with and its best sentence."""
    merged = _Merged(children)
    fallback = _count(merged.events, "event") + ", " + date_text(merged.first_at)
    label = _label([marker, *merged.lead()], merged.phrases, fallback)
    subjects = _distinct(_subject(child, _SUBJECT_CHARACTERS) for child in children if child.phrases)
    about = _fitting(subjects, "; ", INTERNAL_SUMMARY_CHARACTERS - _SENTENCE_CHARACTERS - 120)
    said = [part for part in (f"{about}." if about else "", quote or "") if part]
    head = _head(span_text(merged.first_at, merged.last_at), merged.speakers, merged.events)
    return Description(
        label=label,
        summary=_summary(head, said, INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=int(is_unit)),
    )


def describe_group(children: Sequence[Outline], *, level: int) -> Description:
    """Describe a group of units that share a calendar prefix, from its children."""
    merged = _Merged(children)
    units = sum(child.units for child in children)
    called = group_text(level_name(level), merged.first_at, merged.last_at)
    subject = _label(merged.lead(), merged.phrases, "")
    head = _head(
        span_text(merged.first_at, merged.last_at),
        merged.speakers,
        merged.events,
        conversations=units,
    )
    room = (INTERNAL_SUMMARY_CHARACTERS - len(head) - 2) // len(children) - 2
    year = common_year(merged.first_at, merged.last_at)
    entries = [_entry(child, room, year) for child in children]
    return Description(
        label=_clip(f"{called}: {subject}" if subject else called, LABEL_CHARACTERS),
        summary=_summary(head, ["; ".join(entries) + "."], INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=units),
    )


class _Reading:
    """The words, phrases and sentences of one leaf."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._events = 0
        self._found: dict[tuple[str, ...], _Phrase] = {}
        self._once: set[tuple[str, ...]] = set()
        self._terms: list[dict[str, None]] = []
        self.words: dict[str, _Word] = {}

    def read(self, event: PlanEvent) -> None:
        """Count the words and phrases of the next event."""
        text = event.text
        event_index = self._events
        self._events += 1
        said: dict[str, None] = {}
        run: list[tuple[str, int, int, bool]] = []
        end = -1
        for token in event.tokens:
            term, start = token.term, token.start
            base = _base(term)
            if not base or self._is_name(token.surface, term):
                self._close(run, text)
                end = token.end
                continue
            opens = _opens_sentence(text, start)
            word = self._count(term, token.surface, base, opens=opens, event_index=event_index)
            said[term] = None
            overlaps, end = start < end, max(end, token.end)
            joint = text[run[-1][2] : start] if run and not overlaps else ""
            named = not opens and "A" <= token.surface[0] <= "Z"
            if word.base == _WEAK_BASE and joint != "-" and not named:
                self._close(run, text)
                continue
            if joint not in (" ", "-"):
                self._close(run, text)
            run.append((term, start, token.end, opens))
        self._close(run, text)
        self._terms.append(said)

    def phrases(self, words: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return the phrases that say most, no two sharing a word, best first."""
        scored: list[_Scored] = [
            (word.surface, words[term], (term,))
            for term, word in self.words.items()
            if word.base > _PLAIN_BASE or (word.base == _PLAIN_BASE and word.times >= _OFTEN)
        ]
        for key, found in self._found.items():
            if all(self.words[term].base <= _PLAIN_BASE for term in key):
                continue
            weight = sum([words[term] for term in key]) * _PHRASE_TENTHS[len(key)] * (1 + found.times) // 20
            scored.append((found.surface(self.words[key[0]]), weight, key))
        scored.sort(key=_by_score)
        return _without_overlap(scored)

    def quotes(self, events: Sequence[PlanEvent], words: Mapping[str, int]) -> list[Quote]:
        """Return the sentence that says most and, from another event, the one that adds most to it, best first."""
        candidates = [
            candidate for position, event in enumerate(events) for candidate in _sentences(event, position, words)
        ]
        if not candidates:
            return []
        best = max(candidates, key=lambda item: (item.score(words, frozenset()), -item.position))
        chosen = [best]
        others = [item for item in candidates if item.position != best.position]
        if others:
            second = max(others, key=lambda item: (item.score(words, best.terms), -item.position))
            if 3 * second.score(words, best.terms) > best.score(words, frozenset()):
                chosen.append(second)
        return [Quote(score=item.score(words, frozenset()), position=item.position, text=item.text) for item in chosen]

    def weights(self, words: Mapping[str, int]) -> tuple[int, ...]:
        """Return how central each event is: the weight of its words, the greatest of the leaf being 1000."""
        sums = [sum(words[term] for term in said) for said in self._terms]
        most = max(sums, default=0)
        return tuple(1000 * value // most if most else 1000 for value in sums)

    def _is_name(self, surface: str, term: str) -> bool:
        if term in self._names:
            return True
        if len(surface) < 3 or not "A" <= surface[0] <= "Z":
            return False
        short = surface.lower()
        return any(name.startswith(short) for name in self._names)

    def _count(self, term: str, surface: str, base: int, *, opens: bool, event_index: int) -> _Word:
        word = self.words.get(term)
        shaped = base
        if base > _PLAIN_BASE and surface != (lowered := _lower(surface)):
            capital = "A" <= surface[0] <= "Z"
            if len(surface) > 1 and all(_lower(character) != character for character in surface):
                shaped += 3
            elif not opens:
                shaped += 4
            elif capital:
                surface = lowered
        if word is None:
            word = self.words[term] = _Word(term, surface, shaped)
            word.settled = not opens
        else:
            if not word.settled and not opens:
                word.surface, word.settled = surface, True
            word.base = max(word.base, shaped)
        word.times += 1
        if word.last_event != event_index:
            word.events += 1
            word.last_event = event_index
        return word

    def _close(self, run: list[tuple[str, int, int, bool]], text: str) -> None:
        """Count the phrases of two and three words in a run of words that nothing parts."""
        size = len(run)
        if size > _LONGEST_TIGHT_RUN:
            # Where many words stand in a row (lists, languages without our stop words) most neighbours are no
            # phrase: only pairs that come again are.
            for at in range(size - 1):
                key = (run[at][0], run[at + 1][0])
                if key in self._once or key in self._found:
                    self._count_phrase(run[at : at + 2], text)
                else:
                    self._once.add(key)
        elif size > 1:
            for length in (2, 3):
                for first in range(size - length + 1):
                    self._count_phrase(run[first : first + length], text)
        run.clear()

    def _count_phrase(self, run: list[tuple[str, int, int, bool]], text: str) -> None:
        key = tuple([item[0] for item in run])
        found = self._found.get(key)
        if found is not None:
            found.times += 1
        elif len(set(key)) == len(key):
            times = 2 if key in self._once else 1
            self._found[key] = _Phrase(text, run[0][1], run[-1][2], run[1][1], opens=run[0][3], times=times)


@dataclass(slots=True)
class _Phrase:
    """Neighbouring words within one leaf; `next` is where the second one starts."""

    text: str
    start: int
    end: int
    next: int
    opens: bool
    times: int

    def surface(self, first: _Word) -> str:
        """The phrase as it was first said, without the capital of a sentence's beginning unless it is a name's."""
        surface = self.text[self.start : self.end]
        following = surface[self.next - self.start]
        if self.opens and first.surface == _lower(first.surface) and following == _lower(following):
            return _lower(surface[0]) + surface[1:]
        return surface


@dataclass(frozen=True, slots=True)
class _Sentence:
    position: int
    text: str
    terms: frozenset[str]
    size: int
    percent: int

    def score(self, words: Mapping[str, int], known: frozenset[str]) -> int:
        weight = sum(words.get(term, 0) for term in self.terms if term not in known)
        return weight * self.percent // (12 + self.size)


class _Merged:
    """The metadata of several children taken together."""

    def __init__(self, children: Sequence[Outline]) -> None:
        self.events = sum(child.events for child in children)
        self.leaves = sum(child.leaves for child in children)
        self.first_at = min(child.first_at for child in children)
        self.last_at = max(child.last_at for child in children)
        self.speakers = _top(_sums(pair for child in children for pair in child.speakers), SPEAKERS)
        self.hints = _top(_sums(pair for child in children for pair in child.hints), HINTS)
        weights, self.keywords = _merge_words(children)
        self.phrases = _merge_phrases(children, weights)

    def lead(self) -> list[str]:
        """Return the hint that stands for the whole, if one does: over a quarter of the events' full confidence."""
        return [_readable(hint) for hint, permille in self.hints[:1] if permille >= 250 * self.events]

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
        )


def _metadata(
    *,
    keywords: list[tuple[str, int]],
    phrases: list[tuple[str, int]],
    speakers: list[tuple[str, int]],
    hints: list[tuple[str, int]],
    **numbers: int,
) -> dict[str, Any]:
    return {
        "keywords": [list(pair) for pair in keywords],
        "phrases": [list(pair) for pair in phrases],
        "speakers": [list(pair) for pair in speakers],
        "hints": [list(pair) for pair in hints],
        **numbers,
    }


def _merge_words(children: Sequence[Outline]) -> tuple[dict[str, int], list[tuple[str, int]]]:
    sums: dict[str, int] = {}
    surfaces: dict[str, tuple[int, str]] = {}
    for child in children:
        for surface, weight in child.keywords:
            key = _key(surface)[0]
            sums[key] = sums.get(key, 0) + weight
            if key not in surfaces or surfaces[key][0] < weight:
                surfaces[key] = (weight, surface)
    return sums, _top([(surfaces[key][1], weight) for key, weight in sums.items()], KEYWORDS)


def _merge_phrases(children: Sequence[Outline], words: Mapping[str, int]) -> list[tuple[str, int]]:
    sums: dict[tuple[str, ...], int] = {}
    surfaces: dict[tuple[str, ...], str] = {}
    for child in children:
        for phrase, weight in child.phrases:
            key = _key(phrase)
            sums[key] = sums.get(key, 0) + weight
            surfaces.setdefault(key, phrase)
    scored = [
        (surfaces[key], weight, key, weight + sum(words.get(term, 0) for term in key) // len(key))
        for key, weight in sums.items()
    ]
    scored.sort(key=lambda item: (-item[3], item[2]))
    return _without_overlap([(surface, weight, key) for surface, weight, key, _ in scored])


def _without_overlap(scored: Iterable[_Scored]) -> list[tuple[str, int]]:
    """Return the first phrases of which no two share a word, or a character of a script without spaces."""
    chosen: list[tuple[str, int]] = []
    taken: set[str] = set()
    for surface, weight, key in scored:
        parts = set(key)
        if len(key) == 1 and not surface.isascii() and len(surface) <= 2:
            parts.update(surface)
        if parts & taken:
            continue
        taken |= parts
        chosen.append((_clip(_clean(surface), _NAME_CHARACTERS), weight))
        if len(chosen) == PHRASES:
            break
    return chosen


def _sentences(event: PlanEvent, position: int, words: Mapping[str, int]) -> list[_Sentence]:
    text = event.text[:ANALYSED_CHARACTERS]
    found = []
    tokens = event.tokens
    at = start = 0
    ends = [(match.start(), match.end()) for match in _SENTENCE_END.finditer(text)]
    for stop, following in [*ends[: _SENTENCES_PER_EVENT - 1], (len(text), len(text))]:
        first = at
        while at < len(tokens) and tokens[at].start < stop:
            at += 1
        if at > first:
            raw = text[start : min(stop, start + 4 * _SENTENCE_CHARACTERS)]
            said = _clean(raw)
            inside = frozenset(token.term for token in tokens[first:at]) & words.keys()
            if said and inside:
                percent = 100
                if said.endswith(_QUESTIONS):
                    percent = 50
                if len(said) < 25:
                    percent = percent * 2 // 3
                elif len(said) > _SENTENCE_CHARACTERS:
                    percent = percent * 4 // 5
                found.append(_Sentence(position, said, inside, at - first, percent))
        start = following
    return found


def _said(quotes: Sequence[Quote], events: Sequence[PlanEvent]) -> list[str]:
    return [
        quoted(events[quote.position].speaker, quote.text) for quote in sorted(quotes, key=lambda quote: quote.position)
    ]


def legible(text: str) -> str:
    """Return text as a label or summary may hold it: on one line, without control or directional characters."""
    return _clean(text)


def quoted(speaker: str | None, sentence: str) -> str:
    """Return a sentence as a summary quotes it, with who said it where that is known."""
    text = f"“{_clip(sentence, _SENTENCE_CHARACTERS)}”"
    return f"{_name(speaker)}: {text}" if speaker else text


def _head(span: str, speakers: Sequence[tuple[str, int]], events: int, conversations: int = 0) -> str:
    shown = [name for name, _ in speakers[:_SPEAKERS_SHOWN]]
    if len(speakers) > _SPEAKERS_SHOWN:
        shown.append("others")
    counted = _count(events, "event")
    if conversations:
        counted = f"{_count(conversations, 'conversation')}, {counted}"
    return " · ".join(part for part in (span, ", ".join(shown), counted) if part) + "."


def _summary(head: str, said: Iterable[str], limit: int) -> str:
    return _clip(" ".join([head, *said]), limit)


def _entry(child: Outline, room: int, year: str) -> str:
    """Return one child of a group in as many characters as it may take: when, and what about."""
    name = "day" if child.is_unit else level_name(child.level)
    when = group_text(name, child.first_at, child.last_at)
    if year and when != year:
        when = when.replace(f" {year}", "")
    subject = _subject(child, room - len(when) - 2)
    return f"{when}: {subject}" if subject else when


def _subject(child: Outline, room: int) -> str:
    """Return what a child is about in at most `room` characters or so."""
    if child.level <= UNIT_LEVEL:
        return _fitting(child.label.split(", "), ", ", room)
    return _fitting([phrase for phrase, _ in child.phrases[:_LABEL_PHRASES]], ", ", room)


def _label(lead: Sequence[str], phrases: Sequence[tuple[str, int]], fallback: str) -> str:
    parts = [part for part in lead if part]
    taken = {term for part in parts for term in _key(part)}
    for phrase, _ in phrases:
        if len(parts) >= _LABEL_PHRASES:
            break
        if not taken.intersection(_key(phrase)):
            parts.append(phrase)
    return _clip(", ".join(parts), LABEL_CHARACTERS) or fallback


def _fallback(events: Sequence[PlanEvent], quotes: Sequence[Quote], first: int) -> str:
    """Return what to call a leaf without a word of its own: what was said, else what kind of events they are."""
    if quotes:
        return f"“{_clip(quotes[0].text, _MARKER_CHARACTERS)}”"
    kinds = _distinct(_readable(event.type) for event in events if event.type)
    what = ", ".join(kinds[:2]) if kinds else _count(len(events), "event")
    return _clip(f"{what}, {date_text(first)}", LABEL_CHARACTERS)


def _name_terms(names: Iterable[str]) -> frozenset[str]:
    return _terms_of_names(tuple(dict.fromkeys(names)))


@lru_cache(maxsize=4096)
def _terms_of_names(names: tuple[str, ...]) -> frozenset[str]:
    """Return the words of names that are names; `user_42` or `agent:7` would take "user" and "agent" away."""
    found: set[str] = set()
    for name in names:
        if not any(character in "0123456789_:/@.#" for character in name):
            found.update(terms(name))
            found.update(part.lower() for part in name.split(" ") if len(part) > 2)
    return frozenset(found)


@lru_cache(maxsize=65_536)
def _base(term: str) -> int:
    """Return how much a term of its kind says: 0 nothing, else more the rarer its kind."""
    if is_stopword(term) or len(term) < 2 or len(term) > _KEYWORD_CHARACTERS:
        return 0
    if term in WEAK or (term.isascii() and term.isdigit()):
        return _WEAK_BASE
    if term in PLAIN or (term.isascii() and not term.isalpha() and "'" not in term):
        return _PLAIN_BASE
    return _BASE + min(len(term), 9) // 3


@lru_cache(maxsize=65_536)
def _key(phrase: str) -> tuple[str, ...]:
    return tuple(terms(phrase)) or (phrase,)


def _lower(text: str) -> str:
    """Return text in lower case; scripts whose case may yet change with Python's Unicode tables stay as they are."""
    return text.lower() if text.isascii() or max(text) < "\u1000" else text


def _opens_sentence(text: str, start: int) -> bool:
    at = start - 1
    while at >= 0 and text[at] == " ":
        at -= 1
    return at < 0 or text[at] in _STARTERS


def _sums(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    sums: dict[str, int] = {}
    for name, amount in pairs:
        sums[name] = sums.get(name, 0) + amount
    return list(sums.items())


def _top(pairs: Iterable[tuple[str, int]], limit: int) -> list[tuple[str, int]]:
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:limit]


def _by_score(scored: _Scored) -> tuple[int, tuple[str, ...]]:
    return (-scored[1], scored[2])


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _fitting(parts: Sequence[str], between: str, room: int) -> str:
    """Return as many leading parts as fit, at least a part of the first one."""
    if not parts:
        return ""
    text = _clip(parts[0], max(room, 12))
    for part in parts[1:]:
        if len(text) + len(between) + len(part) > room:
            break
        text += between + part
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _readable(name: str | None) -> str:
    return _clip(_clean((name or "").replace("_", " ")), _NAME_CHARACTERS)


def _name(name: str | None) -> str:
    return _clip(_clean(name or ""), _NAME_CHARACTERS)


def _clean(text: str) -> str:
    """Return text on one line, without control or directional characters."""
    return _INVISIBLE.sub(" ", text).strip(" ")


def _clip(text: str, limit: int) -> str:
    """Return text of at most `limit` characters, cut at a word where there is one, marked with an ellipsis."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ", limit * 2 // 3)
    return (cut[:space] if space > 0 else cut).rstrip(" ,;:") + "…"
