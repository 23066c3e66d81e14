"""Labels, extractive summaries and metadata: what a person reads about a node.

A label is one thing: what a marker says, the line that opens a short talk, the emitter's hint, or the noun phrase that
a good part of the node's events say; where none is, who talked and when. A summary says who talked when, then one or
two sentences in their own words, the newest first. Leaves and their unit are described from the unit's events, what is
above from its children's outlines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from myria.settings.planner import PlannerSettings
from myria.topics.calendar import date_text, group_text, moment_text, period_text, span_text
from myria.topics.english import NOT_ALONE
from myria.topics.lines import capitalised, clean, clip, counted, lowered, people
from myria.topics.model import Description, Outline, Participants, PlanEvent, level_name
from myria.topics.phrases import (
    NAME_CHARACTERS,
    PHRASES,
    SENTENCE_CHARACTERS,
    LeafReading,
    Name,
    PhraseKey,
    Quote,
    is_everyday,
    key_of,
    without_overlap,
)
from myria.topics.prose import reads_as_prose

LABEL_CHARACTERS = 120
LEAF_SUMMARY_CHARACTERS = 400
INTERNAL_SUMMARY_CHARACTERS = 600
KEYWORDS = 12
SPEAKERS = 8
HINTS = 5
SUBJECTS = 4

_GROUP_SUBJECTS = 2
"""Subjects in the label of a month or a day."""

_SENTENCES = 2
"""Sentences in a summary."""

_MARKER_CHARACTERS = 90
_SPEAKERS_SHOWN = 4
_NAMES_REMEMBERED = 4096

_LEAST_HINT = 500
"""What a hint that leads must weigh, in thousandths of full confidence, and two fifths of that for each event."""

_LEAF_PERCENT, _UNIT_PERCENT = (33, 60), (12, 30)
"""How many of a leaf's or a unit's events must say what it is called by: a phrase of several words, a single word."""

_GROUP_PART = 10
"""What stands in the label of a month or a day is the subject of so large a part of its events."""

_FULL = 10
_LEAST_FACTOR = 2
"""Tenths that a phrase counts which no leaf, and which every leaf of the unit has."""

_LETTERS = re.compile(r"[^\W\d_]{3}")
_IDEOGRAPHS = "\u1100"
"""From here on, one character may be a word."""

_ON = "On "
_INITIALS = re.compile("[a-zA-Z]{2}")

Weighed = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafDescription:
    """The description of a leaf, the sentences that its summary quotes, the best first, the line that opens it and
    whether that says much, and how central each event is (0..1000)."""

    description: Description
    quotes: Sequence[Quote]
    first_line: tuple[str, bool]
    weights: tuple[int, ...]


class UnitReading:
    """The leaves of one unit, read together: a label tells a leaf from the others, or says what they share."""

    def __init__(
        self, leaves: Sequence[Sequence[PlanEvent]], *, participants: Participants, settings: PlannerSettings
    ) -> None:
        self._leaves = leaves
        self._settings = settings
        self._readings = [
            LeafReading(events, [*participants, *(event.speaker or "" for event in events)]) for events in leaves
        ]
        self._with_term = Counter(chain.from_iterable(reading.terms for reading in self._readings))
        self._surfaces = _by_small(chain.from_iterable(reading.surfaces for reading in self._readings))
        self._with_hint = Counter(_lead(_hints(events), len(events)) for events in leaves)
        self.described = [self._described(at) for at in range(len(leaves))]

    def _opens_case(self, at: int) -> bool:
        """Tell whether a leaf is a case of its own, as in a log of many: somebody else speaks with one who stays."""
        if not at:
            return len(self._leaves) > 1 and self._opens_case(1)
        before, speaking = ({event.speaker for event in leaf} for leaf in self._leaves[at - 1 : at + 1])
        return self._leaves[at][0].speaker not in before and len(before & speaking) <= 1

    def _described(self, at: int) -> LeafDescription:
        """Describe a leaf."""
        events, reading = self._leaves[at], self._readings[at]
        is_unit = len(self._leaves) == 1
        hints = _hints(events)
        speakers = most_named(((_name(event.speaker), 1) for event in events if event.speaker), SPEAKERS)
        first, last = events[0].timestamp, events[-1].timestamp
        line, says_much = reading.first_line()
        marker = next(filter(None, (marker_text(event, self._settings) for event in events)), "")
        lead = _lead(hints, len(events))
        hint = self._as_said(lead) if self._with_hint[lead] == 1 else ""
        subject = (
            hint
            or _best_name(reading.names, reading.events, _LEAF_PERCENT, self._factor_of)
            or self._as_said(lead or _lead(hints, 1))
        )
        label = (
            marker
            or (line if is_unit and says_much else "")
            or hint
            or (line if is_unit or self._opens_case(at) else "")
            or subject
            or _who_and_when(events, speakers, first)
        )
        quotes = reading.quotes(beside=marker, about=frozenset(key_of(subject)))
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
                    subjects=[(subject, len(events))] if subject else [],
                    first_at=first,
                    last_at=last,
                    events=len(events),
                    leaves=1,
                    units=int(is_unit),
                    language=reading.language.name,
                ),
            ),
            quotes=quotes,
            first_line=(line, says_much),
            weights=reading.weights(),
        )

    def describe(self, children: Sequence[Outline]) -> Description:
        """Describe the unit, given its children: its leaves, or the parts that they are gathered in."""
        merged = Merged(children)
        events = self._leaves[0]
        lead = self._as_said(_lead(merged.hints, merged.events))
        subject = lead or self._shared_name()
        is_short = merged.events <= self._settings.leaf_max
        line, says_much = self.described[0].first_line if is_short else ("", False)
        label = (
            marker_text(events[0], self._settings)
            or lead  # several leaves have it: a first line is of one of them
            or (line if says_much else "")
            or subject
            or line
            or self._as_said(_lead(merged.hints, 1))
            or _dated(_people(merged.speakers), merged.first_at)
        )
        # The best sentence of each leaf: two of one leaf often say the same.
        quotes = sorted((-leaf.quotes[0].score, at) for at, leaf in enumerate(self.described) if leaf.quotes)
        newest_first = sorted((at for _, at in quotes[:_SENTENCES]), reverse=True)
        return Description(
            label=clip(capitalised(label), LABEL_CHARACTERS),
            summary=_summary(
                merged.head(),
                [self._quoted(at, self.described[at].quotes[0]) for at in newest_first],
                INTERNAL_SUMMARY_CHARACTERS,
            ),
            metadata=merged.metadata(units=1, subjects=[(subject, merged.events)] if subject else merged.subjects),
        )

    def _quoted(self, leaf: int, quote: Quote) -> str:
        return quoted(self._leaves[leaf][quote.position].speaker, quote.text)

    def _shared_name(self) -> str:
        """Return the phrase that most events of several leaves say."""
        names = list(chain.from_iterable(reading.names for reading in self._readings))
        leaves = Counter([name.key for name in names])
        shared: dict[PhraseKey, Name] = {}
        for name in names:
            if leaves[name.key] > 1:
                known = shared.get(name.key) or name._replace(weight=name.base, events=0, said=0)
                shared[name.key] = known._replace(events=known.events + name.events, said=known.said + name.said)
        events = sum(reading.events for reading in self._readings)
        return _best_name(shared.values(), events, _UNIT_PERCENT, leaves.__getitem__)

    def _factor_of(self, key: PhraseKey) -> int:
        """Return the tenths that a phrase counts in a leaf's label: the fewer leaves have its rarest word, the more."""
        having = min([self._with_term[term] for term in key])
        return max(_LEAST_FACTOR, _FULL * (len(self._leaves) + 1 - having) // len(self._leaves))

    def _as_said(self, hint: str) -> str:
        """Return a hint in the letters in which people wrote its words: "EMC test"."""
        return " ".join(self._surfaces.get(lowered(word), word) for word in hint.split(" ")) if hint else ""


def _best_name(
    names: Iterable[Name], events: int, percent: tuple[int, int], factor_of: Callable[[PhraseKey], int]
) -> str:
    """Return the phrase that says most of what so many events are about; nothing where too few of them say any.

    A single word tells less and stands behind others; everyday words and roles alone tell nothing.
    """
    best: tuple[bool, int] = (False, 0)
    called = ""
    for name in names:
        is_single = len(name.key) == 1 and name.key[0] < _IDEOGRAPHS
        if all(term in NOT_ALONE or is_everyday(term) for term in name.key):
            continue
        if name.events < 2 or 100 * name.events < events * percent[is_single]:
            continue
        score = (not is_single, name.weight * name.said * factor_of(name.key))
        if score > best or (score == best and name.text < called):
            best, called = score, name.text
    return clip(called, NAME_CHARACTERS)


def marker_text(event: PlanEvent, settings: PlannerSettings) -> str:
    """Return what an event of `marker_types` says, short enough for a label; nothing for other events."""
    if event.type not in settings.marker_types:
        return ""
    return clip(clean(event.text[:400]), _MARKER_CHARACTERS)


def describe_part(children: Sequence[Outline], *, is_unit: bool = False) -> Description:
    """Describe a part of a unit, or a unit whose words are not ours, from its children."""
    merged = Merged(children)
    subject = merged.subject()
    return Description(
        label=clip(capitalised(subject or _dated(_people(merged.speakers), merged.first_at)), LABEL_CHARACTERS),
        summary=merged.head(),
        metadata=merged.metadata(units=int(is_unit)),
    )


def describe_group(children: Sequence[Outline], *, level: int) -> Description:
    """Describe a group of units that share a calendar prefix, from its children: the newest first."""
    merged = Merged(children)
    units = sum(child.units for child in children)
    called = group_text(level_name(level), merged.first_at, merged.last_at)
    subjects = ", ".join(merged.main_subjects())
    who = _people(merged.speakers)
    head = f"{counted(units, 'conversation')}, {period_text(merged.first_at, merged.last_at)}."
    newest_first = sorted(children, key=lambda child: (-child.last_at, -child.key_timestamp))
    said = [_dated_state(child) for child in newest_first if child.said]
    return Description(
        label=clip(f"{called}: {subjects}" if subjects else called, LABEL_CHARACTERS),
        summary=_summary(f"{who}: {head}" if who else head, said[:_SENTENCES], INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=units),
    )


def _dated_state(child: Outline) -> str:
    """Return what was said last in a child of a group, with the day."""
    return child.said if child.said.startswith(_ON) else f"{_ON}{date_text(child.last_at)}: {child.said}"


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
        self.subjects = merged_phrases(chain.from_iterable([child.subjects for child in children]), SUBJECTS)

    def head(self) -> str:
        """Return who talked when."""
        return _talked(self.speakers, self.events, span_text(self.first_at, self.last_at))

    def main_subjects(self) -> list[str]:
        """Return what a good part of the events is about, in two names at most."""
        main = [subject for subject, events in self.subjects if events * _GROUP_PART >= self.events]
        return main[:_GROUP_SUBJECTS]

    def subject(self) -> str:
        """Return what half of the events or more are about; nothing where that is no one thing."""
        return next((subject for subject, events in self.subjects[:1] if 2 * events >= self.events), "")

    def metadata(self, *, units: int, subjects: Sequence[Weighed] | None = None) -> dict[str, Any]:
        keywords: dict[str, tuple[int, str]] = {}
        for surface, weight in chain.from_iterable([child.keywords for child in self._children]):
            key = key_of(surface)[0]
            sum_before, first = keywords.get(key, (0, surface))
            keywords[key] = (sum_before + weight, first)
        return _metadata(
            keywords=_top([(surface, weight) for weight, surface in keywords.values()], KEYWORDS),
            phrases=merged_phrases(chain.from_iterable([child.phrases for child in self._children]), PHRASES),
            speakers=self.speakers,
            hints=self.hints,
            subjects=self.subjects if subjects is None else subjects,
            first_at=self.first_at,
            last_at=self.last_at,
            events=self.events,
            leaves=self.leaves,
            units=units,
            language=self.language,
        )


def merged_phrases(phrases: Iterable[Weighed], most: int) -> list[Weighed]:
    """Return the phrases of several nodes that weigh most together, no two sharing a word."""
    sums: Counter[PhraseKey] = Counter()
    wordings: dict[PhraseKey, str] = {}
    for wording, weight in phrases:
        key = key_of(wording)
        sums[key] += weight
        wordings.setdefault(key, wording)
    ranked = sorted((-weight, key) for key, weight in sums.items())
    return [(wording, weight) for _, wording, weight in without_overlap(ranked, wordings.__getitem__, most=most)]


def main_language(spoken: Iterable[Weighed]) -> str:
    """Return the language of most events, given those of several nodes with their events."""
    return most_named(spoken, 1)[0][0]


def most_named(weighed: Iterable[Weighed], most: int) -> list[Weighed]:
    """Return the names that weigh most together, with what they weigh."""
    sums: dict[str, int] = {}
    for name, amount in weighed:
        sums[name] = sums.get(name, 0) + amount
    return _top(sums.items(), most)


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
    subjects: Iterable[Weighed],
    language: str,
    **numbers: int,
) -> dict[str, Any]:
    return {
        "keywords": [list(pair) for pair in keywords],
        "phrases": [list(pair) for pair in phrases],
        "speakers": [list(pair) for pair in speakers],
        "hints": [list(pair) for pair in hints],
        "subjects": [list(pair) for pair in subjects],
        "language": language,
        **numbers,
    }


def _hints(events: Sequence[PlanEvent]) -> list[Weighed]:
    return most_named(((clean(hint), permille) for event in events for hint, permille in event.hints), HINTS)


def _lead(hints: Sequence[Weighed], events: int) -> str:
    """Return the hint that stands for so many events, as a title; nothing where none does."""
    if not hints or hints[0][1] < max(_LEAST_HINT, _LEAST_HINT * 2 * events // 5):
        return ""
    return hint_title(hints[0][0])


def _by_small(wordings: Iterable[str]) -> dict[str, str]:
    """Return the words of wordings by their small letters."""
    return {lowered(word): word for wording in wordings for word in wording.split(" ") if word}


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
