"""What the words of one leaf say: its keywords, its noun phrases, its telling sentences, and how central each event is.

A word weighs by kind (a fixed list of common words) and by how many events have it; what stands once in a long text
counts less, since an answer of many paragraphs names much that the talk is not about. A phrase is a run of telling
words that stands where a noun does. All weights are integers.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import compress, islice
from typing import NamedTuple

from myria.text import TextWords, terms
from myria.text.announcing import MONTH
from myria.text.common_words import plain_terms, weak_terms
from myria.text.words import stop_terms
from myria.topics.english import COMMON_HEADS, DETERMINERS
from myria.topics.lines import clean, clip, lowered
from myria.topics.model import PlanEvent
from myria.topics.prose import reads_as_prose
from myria.topics.texts import (
    FULL,
    GREETING,
    PLAIN,
    SILENT,
    WEAK,
    EventText,
    is_counted,
    is_plural,
    is_short_for,
    noun_spans,
    parts_of,
    terms_of_names,
)
from myria.topics.wording import GREETINGS, Language, Votes

PHRASES = 6
"""Phrases kept of a node."""

SENTENCE_CHARACTERS = 150
NAME_CHARACTERS = 40
"""Characters of a phrase, a speaker or a hint."""

LINE_CHARACTERS = 80
"""Characters of a first line that may be a title as it is."""

_MOST = 4 * FULL
"""The most that a word's texts count together."""

_WORDS_OF_NONE = 20
"""Words that each sentence counts as having besides its own: so a short one must say something."""

_FIGURE = 40
"""What a number or a date in a sentence weighs: as much as a telling word that one event has."""

_TENTHS = {1: 10, 2: 8, 3: 7, 4: 6}
"""What a phrase of so many words is worth of what its words are."""

_REMEMBERED_KEYS = 65_536
_LEAD_WORDS = 16
"""Words at the beginning of a text, which mostly tells there what it is about."""

_SENTENCES_PER_EVENT = 40
_MOST_LINKED = 2
"""Words on each side of what links a phrase."""

_LEAST_PART = 6
"""A second sentence must score this part of what the first does."""

_UNSPACED = "\u0e00"
"""From here on, scripts write no spaces: a line has few words, as they are found."""

_TIGHT = frozenset((" ", "-"))
"""What stands between the words of a phrase."""

_SENTENCE_END = re.compile(
    rf"[.!?…。！？\r\n](?!(?<=\d\.) ?(?i:{MONTH})\b)"  # "ab dem 1. März"
    r"(?:(?<=[.!?…])(?<!\b[DM][rs]\.)(?<!\bMrs\.)(?<!\bProf\.)(?<!\bSt\.)(?<!\be\.g\.)"
    r"(?<!\bi\.e\.)(?<!\bz\.B\.)[\"'”’)]*[ \t]+|(?<=[。！？])|(?<=[\r\n])[\r\n]*)"
)
_MARKUP = re.compile(r"^(?:[-*•#>]+|\d+[.)])[ \t]+|\*\*|__")
"""What formats a line of a list or a heading."""

_LISTED = re.compile(r"[ \t]*(?:[-*•#>]+|\d+[.)])[ \t]|[ \t]*\*\*")
_HEADER = re.compile(
    r"(?:(?:subject|re|fwd?|betreff|aw|wg|objet|asunto|assunto|oggetto|onderwerp|тема|件名|主题|主題|الموضوع)\s*[:：]\s*)+",
    re.IGNORECASE,
)
"""What stands before the subject of a mail."""

_RECORD = re.compile(r"\W{0,2}(?:[A-Z]{1,8}-)?\d{2,}\b")
"""How a case of a list of cases begins: with its number."""

_GREETED = re.compile(r"\W{0,2}([^\W\d_]+)(?: [^,!.:\n]{1,24}?)?[^\w\s'’#-]+ *")
"""How a greeting opens a text: its first word, perhaps a name, and what ends it."""

_LEANING = re.compile(
    r"^\W*(?:he|she|it|they|we|this|that|these|those|there|which|so|but|and|or|because|also|his|her|their|its)\b"
    r"|\byou(?:r|'re|'ve|'ll)?\b",
    re.IGNORECASE,
)
"""How a sentence begins that is not understood without the one before, and what is only said to somebody."""

_QUESTIONS = ("?", "？", "؟")
_POSSESSIVES = ("'s", "’s")
_OF_ONE = frozenset(("a", "an", "this", "each", "every", "another"))
_NOWHERE = (1 << 30, 1 << 30)

PhraseKey = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    """A sentence of a leaf, with the position of its event."""

    score: int
    position: int
    text: str


@dataclass(slots=True)
class _Word:
    """A term within one leaf: how it is shown, its kind, what its texts count together, and the last of them."""

    surface: str
    base: int
    counted: int = 0
    is_named: bool = False
    last: int = -1

    @property
    def score(self) -> int:
        return self.base * (2 * FULL + 3 * min(self.counted, _MOST)) // FULL


@dataclass(slots=True)
class _Phrase:
    surface: str
    counted: int = 0
    events: int = 0
    leads: int = 0
    """Events that say it among their first words."""

    last: int = -1
    is_noun: bool = False
    """Whether words around it tell that it is one."""


class _Sentence(NamedTuple):
    """A sentence: the position of its event, where it stands there, its telling terms, how many words say at least
    little, how many are numbers, and how many it has."""

    position: int
    start: int
    stop: int
    terms: frozenset[str]
    saying: int
    figures: int
    size: int


class Name(NamedTuple):
    """A phrase that may name a node: its terms, how it is shown, what its words weigh by kind and in the leaf, how many
    events say it, and what they count together, in tenths of a short text; those that begin with it one more."""

    key: PhraseKey
    text: str
    base: int
    weight: int
    events: int
    said: int


class LeafReading:
    """The words, phrases and sentences of one leaf."""

    def __init__(self, events: Sequence[PlanEvent], names: Iterable[str]) -> None:
        self._events = events
        self._names = terms_of_names(tuple(dict.fromkeys(names)))
        self._words: dict[str, _Word] = {}
        self._phrases: dict[PhraseKey, _Phrase] = {}
        self._terms: list[set[str]] = []
        self._sentences: list[_Sentence] = []
        self._factors: list[int] = []
        self._about: frozenset[str] = frozenset()
        votes = [_votes(event.words) for event in events]
        self.language = _together(votes).language()
        for position, vote in enumerate(votes):
            self._read(position, vote.language(likely=self.language))
        self.scores = {term: word.score for term, word in self._words.items()}

    def _read(self, position: int, language: Language) -> None:
        """Count the words and phrases of one text, run by run, and note its sentences."""
        text = EventText.of(self._events[position], position, language)
        self._factors.append(text.factor)
        words, names, starts, ends = text.words, self._names, text.words.starts, text.words.ends
        code = iter(text.code)
        span = next(code, _NOWHERE)
        said, kinds, runs = set[str](), list[int](), list[range]()
        first, is_greeted = -1, False
        for at, (surface, term, weight) in enumerate(zip(text.surfaces, words.terms, text.weights, strict=True)):
            start = starts[at]
            while span[1] <= start:
                span = next(code, _NOWHERE)
            # A name is none of the talk's subjects, nor is what follows a greeting with a capital: "Dear Thompson".
            if weight > SILENT and (
                span[0] <= start
                or term in names
                or (surface[0].isupper() and (is_greeted or is_short_for(surface, names)))
                or (text.is_suspect and is_counted(text.text, surface, start))
            ):
                weight = SILENT
            is_greeted = weight == GREETING
            joined = first >= 0 and text.text[ends[at - 1] : start] in _TIGHT
            is_head = weight == WEAK and joined and language.is_english and surface in COMMON_HEADS
            if first >= 0 and not (joined and (weight > WEAK or is_head)):
                runs.append(range(first, at))
                first = -1
            if weight > WEAK or is_head:
                first = at if first < 0 else first
                said.add(term)
                self._count(text, surface, term, weight, opens=start in text.openings)
            kinds.append(weight)
        if first >= 0:
            runs.append(range(first, len(kinds)))
        before: Sequence[int] = ()
        for run in runs:
            before = self._take_run(text, run, before)
        self._terms.append(said)
        self._add_sentences(text, kinds)

    def _count(self, text: EventText, surface: str, term: str, weight: int, *, opens: bool) -> None:
        """Count a word; a capital within a sentence tells a name, but for the headings of long texts."""
        word = self._words.get(term)
        is_capital = surface[0].isupper() and not text.language.capitalises_nouns
        if word is None:
            shown = lowered(surface) if is_capital and opens and surface[1:].islower() else surface
            word = self._words[term] = _Word(shown, weight)
        if is_capital and not opens and not word.is_named and 2 * text.factor >= FULL:
            word.is_named, word.surface = True, surface
        if word.last != text.position:
            word.last = text.position
            word.counted += text.factor

    def _take_run(self, text: EventText, run: range, linked: Sequence[int]) -> Sequence[int]:
        """Count the phrases of a run of telling words; return what a linked phrase may begin with.

        `linked` is that of the run before.
        """
        first, language = run.start, text.language
        before = text.before(first)
        acts = before in language.actors and not text.surfaces[first][0].isupper()
        if acts:
            run = run[1:]  # "we refactor modules": the verb, then what it acts on
        further = text.before(first - 1) if before else ""
        # What acts on something is a verb ("the watchdog resets it"), as is a plural form after "a" ("a carafe ships").
        is_of_one = not _OF_ONE.isdisjoint((before, further))
        if len(run) > 1 and (text.after(run[-1]) in DETERMINERS or (is_of_one and is_plural(text.surfaces[run[-1]]))):
            run = run[:-1]
        opened = acts or before in language.openers or further in language.actors
        parts = parts_of(run, text.surfaces, language)
        last: Sequence[int] = ()
        for part in parts:
            last = ()
            for span in noun_spans(part, text.surfaces, language, is_opened=opened and part.start == first):
                is_noun = opened or text.is_noun(span[0])
                if language.openers:
                    is_noun = is_noun or len(part) > 1
                else:
                    is_noun = is_noun or len(span) == 1 or bool(language.article)
                self._take(text, span, is_noun=is_noun)
                if is_noun and len(span) <= _MOST_LINKED:
                    last = span
        if linked and parts and parts[0].start == first and text.links(linked[-1], first):
            tail = parts[0] if language.is_english else parts[0][:1]
            if len(tail) <= _MOST_LINKED:
                self._take(text, [*linked, *tail], is_noun=True)
        return last

    def _take(self, text: EventText, places: Sequence[int], *, is_noun: bool) -> None:
        """Count a phrase; it is shown with as few capitals as it was written with."""
        key = tuple([text.words.terms[at] for at in places])
        phrase = self._phrases.get(key)
        if phrase is None or phrase.surface[0].isupper():
            if len(set(key)) < len(key) or (phrase is None and text.is_cut(places[0], places[-1])):
                return
            start = text.words.starts[places[0]]
            surface = _without_possessive(clean(text.text[start : text.words.ends[places[-1]]]))
            if start in text.openings and self._words[key[0]].surface[:1].islower() and surface[1:].islower():
                surface = lowered(surface[0]) + surface[1:]
            if phrase is None:
                phrase = self._phrases[key] = _Phrase(surface)
            elif _capitals(surface) < _capitals(phrase.surface):
                phrase.surface = surface
        comes_again = phrase.counted > 0 and phrase.last != text.position and len(key) > 1
        if phrase.last != text.position:
            phrase.last = text.position
            phrase.counted += text.factor
            phrase.events += 1
            phrase.leads += places[0] < _LEAD_WORDS
        phrase.is_noun = phrase.is_noun or is_noun or comes_again

    def _add_sentences(self, text: EventText, kinds: Sequence[int]) -> None:
        """Note the sentences that say something."""
        ends = [match.span() for match in islice(_SENTENCE_END.finditer(text.text), _SENTENCES_PER_EVENT - 1)]
        start = at = 0
        for stop, following in [*ends, (len(text.text), len(text.text))]:
            first, at = at, bisect_left(text.words.starts, stop + 1, at)
            inside = kinds[first:at]
            said = frozenset(compress(text.words.terms[first:at], [kind > WEAK for kind in inside]))
            if said:
                saying = sum([kind > SILENT for kind in inside])
                figures = sum(map(str.isdigit, text.words.terms[first:at]))
                self._sentences.append(_Sentence(text.position, start, stop + 1, said, saying, figures, at - first))
            start = following

    def keywords(self, most: int) -> list[tuple[str, int]]:
        """Return the words that say most, as they were said, with their scores."""
        ranked = sorted([(-self.scores[term], word.surface) for term, word in self._words.items()])
        return [(surface, -score) for score, surface in ranked[:most]]

    def phrases(self) -> list[tuple[PhraseKey, str, int]]:
        """Return the phrases that say most, no two sharing a word, best first, as (key, wording, weight)."""
        weights: dict[PhraseKey, int] = {}
        for key, phrase in sorted(self._nouns(), key=lambda pair: len(pair[0])):
            said = sum([self.scores[term] for term in key])
            weights[key] = said * _TENTHS[len(key)] * (FULL + min(phrase.counted, _MOST)) // 200
            # What never stands without the words beside it is shown with them: "dream interpretation book".
            for part in (key[1:], key[:-1]):
                if part in weights and self._phrases[part].counted == phrase.counted:
                    weights[key] = max(weights[key], weights[part] + 1)
        scored = sorted((-weight, key) for key, weight in weights.items())
        return without_overlap(scored, lambda key: self._phrases[key].surface)

    def _nouns(self) -> Iterator[tuple[PhraseKey, _Phrase]]:
        """Yield the phrases that may name something."""
        for key, phrase in self._phrases.items():
            if phrase.is_noun and max([self._words[term].base for term in key]) > PLAIN:
                yield key, phrase

    @cached_property
    def names(self) -> Sequence[Name]:
        """What the leaf may be called by: its phrases, with how many events say them; nothing for a list of cases."""
        if self.lists_cases:
            return []
        return [
            Name(
                key=key,
                text=phrase.surface,
                base=sum([self._words[term].base for term in key]) * _TENTHS[len(key)],
                weight=sum([self.scores[term] for term in key]) * _TENTHS[len(key)],
                events=phrase.events,
                said=phrase.counted + phrase.leads * FULL,
            )
            for key, phrase in self._nouns()
        ]

    @cached_property
    def lists_cases(self) -> bool:
        """Whether most events begin with a number of their own: then each is a case of its own."""
        return 2 * sum(_RECORD.match(event.text) is not None for event in self._events) > len(self._events)

    @property
    def events(self) -> int:
        """How many events say something."""
        return sum(map(bool, self._terms))

    @property
    def surfaces(self) -> Iterable[str]:
        """The telling words as they were said."""
        return [word.surface for word in self._words.values()]

    @property
    def terms(self) -> Iterable[str]:
        """The telling terms of the leaf."""
        return self._words

    def quotes(self, beside: str, about: frozenset[str]) -> list[Quote]:
        """Return the sentence that says most beside a marker, and the one of another event that adds most to it.

        What has a term of what the leaf is called by counts half as much again.
        """
        self._about = about
        best = self._best_quote(lambda sentence: True, frozenset(), beside)
        if best is None:
            return []
        quote, known = best
        second = self._best_quote(lambda sentence: sentence.position != quote.position, known, beside)
        return [quote, second[0]] if second is not None and _LEAST_PART * second[0].score > quote.score else [quote]

    def _best_quote(
        self, may_be: Callable[[_Sentence], bool], known: frozenset[str], beside: str
    ) -> tuple[Quote, frozenset[str]] | None:
        """Return the sentence that scores most by the terms that are not known yet, with its terms.

        They are read closely in the order of what they may score at most: the first few tell which is best.
        """
        bounds = sorted(
            (-self._bound(sentence, known), at) for at, sentence in enumerate(self._sentences) if may_be(sentence)
        )
        best: tuple[Quote, frozenset[str]] | None = None
        for bound, at in bounds:
            if best is not None and -bound <= best[0].score:
                break
            sentence = self._sentences[at]
            text = self._shown(sentence)
            score = -bound * _percent(text) // (300 if self._is_listed(sentence) else 100)
            if text and not (beside and beside in text) and (best is None or score > best[0].score):
                best = Quote(score=score, position=sentence.position, text=text), sentence.terms
        return best

    def _bound(self, sentence: _Sentence, known: frozenset[str]) -> int:
        weight = sum(map(self.scores.__getitem__, sentence.terms - known if known else sentence.terms))
        weight += _FIGURE * min(sentence.figures, 2)
        if not self._about.isdisjoint(sentence.terms):
            weight = weight * 3 // 2
        return weight * (FULL // 2 + self._factors[sentence.position]) // (_WORDS_OF_NONE + sentence.size)

    def _shown(self, sentence: _Sentence) -> str:
        stop = min(sentence.stop, sentence.start + 4 * SENTENCE_CHARACTERS)
        text = clean(self._events[sentence.position].text[sentence.start : stop])
        return _MARKUP.sub("", text[header.end() :] if (header := _HEADER.match(text)) else text)

    def _is_listed(self, sentence: _Sentence) -> bool:
        """Tell whether a sentence is a heading, or begins what a list lists."""
        text = self._events[sentence.position].text
        return _LISTED.match(text, sentence.start) is not None

    def first_line(self) -> tuple[str, bool]:
        """Return the sentence that opens the leaf, without a greeting, where it may be its title, and if it says much.

        It must say something with a telling word, and more than that unless it asks. The first of a list
        of cases names no other.
        """
        opening = next(iter(self._sentences), None)
        if opening is None or opening.position > 0 or self.lists_cases:
            return "", False
        line = self._shown(opening)
        while (greeting := _GREETED.match(line)) is not None and greeting[1].lower() in GREETINGS:
            line = line[greeting.end() :]
        bases = [self._words[term].base for term in opening.terms]
        says = sum([2 if base > PLAIN else 1 for base in bases])
        says_more = opening.saying > 2 or line.endswith(_QUESTIONS) or max(line, default="") >= _UNSPACED
        if (
            (max(bases) <= PLAIN and len(bases) + opening.figures < 2)
            or len(line) > LINE_CHARACTERS
            or not (says > 2 or says_more)
            or not reads_as_prose(line)
        ):
            return "", False
        return line.rstrip(" .!。！:…"), says > 2

    def weights(self) -> tuple[int, ...]:
        """Return how central each event is: the weight of its words, the greatest of the leaf being 1000."""
        sums = [sum(map(self.scores.__getitem__, said)) for said in self._terms]
        most = max(sums, default=0)
        return tuple(1000 * amount // most if most else 1000 for amount in sums)


def without_overlap(
    scored: Iterable[tuple[int, PhraseKey]], surface_of: Callable[[PhraseKey], str], *, most: int = PHRASES
) -> list[tuple[PhraseKey, str, int]]:
    """Return the first phrases of which no two share a word; they come with negative scores, the greatest first."""
    chosen: list[tuple[PhraseKey, str, int]] = []
    taken: set[str] = set()
    for score, key in scored:
        if taken.isdisjoint(key):
            taken.update(key)
            chosen.append((key, clip(surface_of(key), NAME_CHARACTERS), -score))
            if len(chosen) == most:
                break
    return chosen


@lru_cache(maxsize=_REMEMBERED_KEYS)
def key_of(phrase: str) -> PhraseKey:
    """Return the terms that identify a phrase, without those that only hold it together."""
    said = terms(phrase)
    return tuple([term for term in said if term not in stop_terms()]) or tuple(said) or (phrase,)


@cache
def is_everyday(term: str) -> bool:
    """Tell whether a term is an everyday word, which names no subject alone."""
    return term in plain_terms() or term in weak_terms()


def _votes(words: TextWords) -> Votes:
    votes = Votes()
    votes.extend(words.terms)
    return votes


def _together(parts: Iterable[Votes]) -> Votes:
    votes = Votes()
    for part in parts:
        votes.words += part.words
        votes.stopwords += part.stopwords
        votes.by_language.update(part.by_language)
    return votes


def _percent(sentence: str) -> int:
    """Return how much of what its words weigh a sentence is worth.

    Less for questions, for what leans on the sentence before or on the other person, for code, and for very short or
    long ones.
    """
    percent = 50 if sentence.endswith(_QUESTIONS) or _LEANING.search(sentence) else 100
    if not reads_as_prose(sentence):
        percent //= 4
    if len(sentence) < 25:
        return percent * 2 // 3
    return percent * 4 // 5 if len(sentence) > SENTENCE_CHARACTERS else percent


def _capitals(surface: str) -> int:
    return sum(map(str.isupper, surface))


def _without_possessive(surface: str) -> str:
    return surface[:-2] if surface.endswith(_POSSESSIVES) else surface
