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

from myria.log.fields import RESERVED_TYPES
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
from myria.topics.quoting import quoted

LABEL_CHARACTERS = 120
LEAF_SUMMARY_CHARACTERS = 400
INTERNAL_SUMMARY_CHARACTERS = 600
KEYWORDS = 12
SPEAKERS = 8
HINTS = 5
SUBJECTS = 4

_GROUP_SUBJECTS = 2
"""Most subjects in the label of a month or a day."""

_SENTENCES = 2
"""Most sentences in a summary."""

_MARKER_CHARACTERS = 90
_SPEAKERS_SHOWN = 4
_NAMES_REMEMBERED = 4096

_LEAST_HINT = 500
"""Least weight of a leading hint, in thousandths of full confidence; with many events, two fifths of it for each."""

_LEAF_PERCENT, _UNIT_PERCENT = (33, 60), (12, 30)
"""Percentages of a leaf's or a unit's events that must say its name: a phrase of several words, a single word."""

_GROUP_PART = 10
"""A subject in the label of a month or a day is that of at least one in so many of its events."""

_FULL_FACTOR = 10
_LEAST_FACTOR = 2
"""Tenths that a phrase counts whose rarest word no other leaf of the unit says, and one that every leaf says."""

_LETTERS = re.compile(r"[^\W\d_]{3}")
_IDEOGRAPHS = "\u1100"
"""From here on, one character may be a word."""

_ON_DAY = "On "
_INITIALS = re.compile("[a-zA-Z]{2}")

Weighed = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafDescription:
    """The description of a leaf; the sentences that its summary quotes, the best first; its first line, and whether it
    says much; and how central each event is (0..1000)."""

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
        self._leaves_with_term = Counter(chain.from_iterable(reading.terms for reading in self._readings))
        self._surfaces = _by_lower_case(chain.from_iterable(reading.surfaces for reading in self._readings))
        self._leaves_with_hint = Counter(_leading_hint(_strongest_hints(events), len(events)) for events in leaves)
        self.leaf_descriptions = [self._describe_leaf(at) for at in range(len(leaves))]

    def _opens_case(self, index: int) -> bool:
        """Tell whether a leaf begins a new case: a new person speaks, with at most one of those who spoke before.

        The first leaf does where the second one does: then the unit is a log of cases.
        """
        if not index:
            return len(self._leaves) > 1 and self._opens_case(1)
        speakers_before, speakers = ({event.speaker for event in leaf} for leaf in self._leaves[index - 1 : index + 1])
        return self._leaves[index][0].speaker not in speakers_before and len(speakers_before & speakers) <= 1

    def _describe_leaf(self, index: int) -> LeafDescription:
        """Describe the leaf of an index: the label is the first that applies of marker, title, hint and subject."""
        events, reading = self._leaves[index], self._readings[index]
        is_unit = len(self._leaves) == 1
        hints = _strongest_hints(events)
        speakers = most_named(((_speaker_name(event.speaker), 1) for event in events if event.speaker), SPEAKERS)
        first, last = events[0].timestamp, events[-1].timestamp
        first_line, says_much = reading.first_line()
        marker = next(filter(None, (marker_text(event, self._settings) for event in events)), "")
        leading_hint = _leading_hint(hints, len(events))
        # A hint that several leaves share names their unit, not one of them.
        own_hint = self._in_written_case(leading_hint) if self._leaves_with_hint[leading_hint] == 1 else ""
        subject = (
            own_hint
            or _best_name(reading.names, reading.events, _LEAF_PERCENT, self._rarity_tenths)
            or self._in_written_case(leading_hint or _leading_hint(hints, 1))
        )
        label = (
            marker
            or (first_line if is_unit and says_much else "")
            or own_hint
            or (first_line if is_unit or self._opens_case(index) else "")
            or subject
            or _who_and_when(events, speakers, first)
        )
        quotes = reading.quotes(marker=marker, subject_terms=frozenset(key_of(subject)))
        newest_first = sorted(quotes, key=lambda quote: -quote.position)
        return LeafDescription(
            description=Description(
                label=clip(capitalised(label), LABEL_CHARACTERS),
                summary=_join_summary(
                    _who_talked_when(speakers, len(events), span_text(first, last)),
                    [self._quoted(index, quote, is_dated=_is_of_days(first, last)) for quote in newest_first],
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
            first_line=(first_line, says_much),
            weights=reading.weights(),
        )

    def describe(self, children: Sequence[Outline]) -> Description:
        """Describe the unit from its children: its leaves, or the parts that its leaves are gathered in."""
        merged = Merged(children)
        events = self._leaves[0]
        leading_hint = self._in_written_case(_leading_hint(merged.hints, merged.events))
        subject = leading_hint or self._shared_name()
        is_short = merged.events <= self._settings.leaf_max
        first_line, says_much = self.leaf_descriptions[0].first_line if is_short else ("", False)
        label = (
            marker_text(events[0], self._settings)
            or leading_hint  # before the first line, which only the first leaf has
            or (first_line if says_much else "")
            or subject
            or first_line
            or self._in_written_case(_leading_hint(merged.hints, 1))
            or _with_moment(_main_speakers(merged.speakers), merged.first_at)
        )
        # At most one sentence of each leaf: two of one leaf often say the same.
        quotes = sorted(
            (-leaf.quotes[0].score, index) for index, leaf in enumerate(self.leaf_descriptions) if leaf.quotes
        )
        newest_first = sorted((index for _, index in quotes[:_SENTENCES]), reverse=True)
        is_dated = _is_of_days(merged.first_at, merged.last_at)
        return Description(
            label=clip(capitalised(label), LABEL_CHARACTERS),
            summary=_join_summary(
                merged.head(),
                [
                    self._quoted(index, self.leaf_descriptions[index].quotes[0], is_dated=is_dated)
                    for index in newest_first
                ],
                INTERNAL_SUMMARY_CHARACTERS,
            ),
            metadata=merged.metadata(units=1, subjects=[(subject, merged.events)] if subject else merged.subjects),
        )

    def _quoted(self, leaf: int, quote: Quote, *, is_dated: bool) -> str:
        """Return a quote of a leaf as a summary has it, with its day where the summary is about several."""
        event = self._leaves[leaf][quote.position]
        return quoted(
            _speaker_name(event.speaker),
            quote.text,
            most=SENTENCE_CHARACTERS,
            at=event.timestamp if is_dated else None,
        )

    def _shared_name(self) -> str:
        """Return the best name among phrases that several leaves say; "" where there is none."""
        names = list(chain.from_iterable(reading.names for reading in self._readings))
        leaves_with_key = Counter([name.key for name in names])
        shared: dict[PhraseKey, Name] = {}
        for name in names:
            if leaves_with_key[name.key] > 1:
                sum_so_far = shared.get(name.key) or name._replace(weight=name.base, events=0, said=0)
                shared[name.key] = sum_so_far._replace(
                    events=sum_so_far.events + name.events, said=sum_so_far.said + name.said
                )
        events = sum(reading.events for reading in self._readings)
        return _best_name(shared.values(), events, _UNIT_PERCENT, leaves_with_key.__getitem__)

    def _rarity_tenths(self, key: PhraseKey) -> int:
        """Return the tenths that a phrase counts for a leaf's label: more, the fewer leaves have its rarest word."""
        leaves_having = min([self._leaves_with_term[term] for term in key])
        return max(_LEAST_FACTOR, _FULL_FACTOR * (len(self._leaves) + 1 - leaves_having) // len(self._leaves))

    def _in_written_case(self, hint: str) -> str:
        """Return a hint with its words in capitals or small letters as people wrote them: "EMC test"."""
        return " ".join(self._surfaces.get(lowered(word), word) for word in hint.split(" ")) if hint else ""


def _best_name(
    names: Iterable[Name], events: int, percent: tuple[int, int], factor_of: Callable[[PhraseKey], int]
) -> str:
    """Return the best name for a number of events, "" if none is said often enough.

    `percent` are the least percentages of events that must say it, for a phrase of several words and for a single word.
    Any phrase of several words is better than a single word; everyday words and roles alone name nothing.
    """
    best: tuple[bool, int] = (False, 0)
    best_text = ""
    for name in names:
        is_single = len(name.key) == 1 and name.key[0] < _IDEOGRAPHS
        if all(term in NOT_ALONE or is_everyday(term) for term in name.key):
            continue
        if name.events < 2 or 100 * name.events < events * percent[is_single]:
            continue
        score = (not is_single, name.weight * name.said * factor_of(name.key))
        if score > best or (score == best and name.text < best_text):
            best, best_text = score, name.text
    return clip(best_text, NAME_CHARACTERS)


def marker_text(event: PlanEvent, settings: PlannerSettings) -> str:
    """Return the text of an event of `marker_types`, short enough for a label; "" for other events."""
    if event.type not in settings.marker_types:
        return ""
    return clip(clean(event.text[:400]), _MARKER_CHARACTERS)


def describe_part(children: Sequence[Outline], *, is_unit: bool = False) -> Description:
    """Describe a part of a unit from its children; or a unit whose shape a model wrote, for its metadata."""
    merged = Merged(children)
    subject = merged.subject()
    return Description(
        label=clip(
            capitalised(subject or _with_moment(_main_speakers(merged.speakers), merged.first_at)), LABEL_CHARACTERS
        ),
        summary=merged.head(),
        metadata=merged.metadata(units=int(is_unit)),
    )


def describe_group(children: Sequence[Outline], *, level: int) -> Description:
    """Describe a group of units that share a calendar prefix, from its children; it quotes the newest first."""
    merged = Merged(children)
    units = sum(child.units for child in children)
    group_name = group_text(level_name(level), merged.first_at, merged.last_at)
    subjects = ", ".join(merged.main_subjects())
    speakers = _main_speakers(merged.speakers)
    period = f"{counted(units, 'conversation')}, {period_text(merged.first_at, merged.last_at)}."
    newest_first = sorted(children, key=lambda child: (-child.last_at, -child.key_timestamp))
    quotes = [_dated_quote(child) for child in newest_first if child.said]
    return Description(
        label=clip(f"{group_name}: {subjects}" if subjects else group_name, LABEL_CHARACTERS),
        summary=_join_summary(f"{speakers}: {period}" if speakers else period, quotes, INTERNAL_SUMMARY_CHARACTERS),
        metadata=merged.metadata(units=units),
    )


def _dated_quote(child: Outline) -> str:
    """Return the quote of a child of a group, with the day before it; that of several days has its day already."""
    return child.said if child.said.startswith(_ON_DAY) else f"{_ON_DAY}{date_text(child.last_at)}: {child.said}"


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
        """Return a summary's first sentence: who talked when."""
        return _who_talked_when(self.speakers, self.events, span_text(self.first_at, self.last_at))

    def main_subjects(self) -> list[str]:
        """Return the subjects of a good part of the events, two at most."""
        main = [subject for subject, events in self.subjects if events * _GROUP_PART >= self.events]
        return main[:_GROUP_SUBJECTS]

    def subject(self) -> str:
        """Return the subject of at least half of the events, "" if there is none."""
        return next((subject for subject, events in self.subjects[:1] if 2 * events >= self.events), "")

    def metadata(self, *, units: int, subjects: Sequence[Weighed] | None = None) -> dict[str, Any]:
        """Return the children's metadata in one; `subjects` replace those of the children where given."""
        keywords: dict[str, tuple[int, str]] = {}
        for surface, weight in chain.from_iterable([child.keywords for child in self._children]):
            key = key_of(surface)[0]
            sum_before, first_surface = keywords.get(key, (0, surface))
            keywords[key] = (sum_before + weight, first_surface)
        return _metadata(
            keywords=_heaviest([(surface, weight) for weight, surface in keywords.values()], KEYWORDS),
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
    """Return the phrases with the greatest sums of weights over several nodes, no two sharing a word."""
    sums: Counter[PhraseKey] = Counter()
    wordings: dict[PhraseKey, str] = {}
    for wording, weight in phrases:
        key = key_of(wording)
        sums[key] += weight
        wordings.setdefault(key, wording)
    ranked = sorted((-weight, key) for key, weight in sums.items())
    return [(wording, weight) for _, wording, weight in without_overlap(ranked, wordings.__getitem__, most=most)]


def main_language(languages: Iterable[Weighed]) -> str:
    """Return the language of most events, given each node's language and number of events."""
    return most_named(languages, 1)[0][0]


def most_named(weighed: Iterable[Weighed], most: int) -> list[Weighed]:
    """Return the `most` names with the greatest sums of weights, with these sums."""
    sums: dict[str, int] = {}
    for name, amount in weighed:
        sums[name] = sums.get(name, 0) + amount
    return _heaviest(sums.items(), most)


def hint_title(hint: str) -> str:
    """Return a hint as a title shows it, initials in capitals; "" for one that is no word (a number, an id)."""
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


def _strongest_hints(events: Sequence[PlanEvent]) -> list[Weighed]:
    return most_named(((clean(hint), permille) for event in events for hint, permille in event.hints), HINTS)


def _leading_hint(hints: Sequence[Weighed], events: int) -> str:
    """Return the strongest hint as a title, "" if it is too weak to stand for so many events."""
    if not hints or hints[0][1] < max(_LEAST_HINT, _LEAST_HINT * 2 * events // 5):
        return ""
    return hint_title(hints[0][0])


def _by_lower_case(wordings: Iterable[str]) -> dict[str, str]:
    """Return the words of some wordings as people wrote them, by their form in small letters."""
    return {lowered(word): word for wording in wordings for word in wording.split(" ") if word}


def _who_talked_when(speakers: Sequence[Weighed], events: int, when: str) -> str:
    """Return a summary's first sentence: who talked when."""
    return f"{_main_speakers(speakers) or counted(events, 'event')}, {when}."


def _main_speakers(speakers: Sequence[Weighed]) -> str:
    """Return the names of those who spoke most, as a sentence lists them."""
    shown = [name for name, _ in speakers[:_SPEAKERS_SHOWN]]
    if len(speakers) > _SPEAKERS_SHOWN:
        shown.append("others")
    return people(shown)


def _is_of_days(first: int, last: int) -> bool:
    """Tell whether a span of time holds more than one day, in UTC."""
    return date_text(first) != date_text(last)


def _who_and_when(events: Sequence[PlanEvent], speakers: Sequence[Weighed], first: int) -> str:
    types = [event.type.removeprefix(RESERVED_TYPES).replace("_", " ") for event in events if event.type]
    kinds = [clip(clean(kind), NAME_CHARACTERS) for kind in types]
    return _with_moment(_main_speakers(speakers) or (kinds[0] if kinds else ""), first)


def _with_moment(who: str, first: int) -> str:
    return f"{who}, {moment_text(first)}" if who else moment_text(first)


def _join_summary(head: str, sentences: Iterable[str], limit: int) -> str:
    """Join a summary's first sentence and the first others that fit into `limit` characters whole.

    One that quotes the words of another, by whomever and whenever they were said, is left out.
    """
    text = clip(head, limit)
    told: set[str] = set()
    for sentence in sentences:
        words = sentence.partition("“")[2] or sentence
        if words not in told and len(text) + 1 + len(sentence) <= limit:
            text = f"{text} {sentence}"
            told.add(words)
        if len(told) == _SENTENCES:
            break
    return text


def _heaviest(pairs: Iterable[Weighed], limit: int) -> list[Weighed]:
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:limit]


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _speaker_name(name: str | None) -> str:
    return clip(clean(name or ""), NAME_CHARACTERS)
