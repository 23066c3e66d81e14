"""What a leaf's own words say: its phrases, its telling sentences, and how central each event is to it.

Words are weighed by kind (a fixed list of common words), shape, and spread over the leaf's events; a phrase is a run of
such words as it was written, also across "of", "for" or "in"; a sentence is worth its words. All weights are integers.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from heapq import heapify, heappop
from itertools import islice, pairwise
from typing import Final, NamedTuple, cast

from myria.analysis import TextWords, WordForm, terms
from myria.analysis.announcing import MONTH
from myria.analysis.common_words import plain_terms, weak_terms
from myria.analysis.tokens import is_bare, stop_terms
from myria.planning.courtesies import courtesies
from myria.planning.english import (
    BEING,
    COMMON_HEADS,
    EMPTY_NOUNS,
    LINKS,
    OBJECTS,
    PLURALS_BEFORE,
    VERB_FORMS,
    ends_like_a_noun,
    ends_unlike_a_noun,
    may_describe,
)
from myria.planning.lines import clean, clip, lowered
from myria.planning.model import ANALYSED_CHARACTERS, PlanEvent
from myria.planning.prose import may_be_no_prose, not_prose, reads_as_prose
from myria.planning.wording import UNKNOWN, Language, Votes, words_of
from myria.values import short_value, value

PHRASES = 6
"""Phrases kept of a node."""

SENTENCE_CHARACTERS = 150
NAME_CHARACTERS = 40
"""Characters of a phrase, a speaker or a hint."""

_KEYWORD_CHARACTERS = 32
_SENTENCES_PER_EVENT = 40
_FULL_PERCENT = 100
_WORDS_OF_NONE = 12
"""Words that each sentence counts as having besides its own: so a short one must say something."""

_WEAK_BASE, _PLAIN_BASE, _BASE = 1, 2, 7
_PHRASE_TENTHS = {1: 10, 2: 8, 3: 7}
_LINKED_TENTHS = {2: 9, 3: 7, 4: 6, 5: 5}
_LONGEST_TIGHT_RUN = 4
_LONGEST_LINKED_RUN = 3
_OFTEN = 3
_ONCE, _OFTENEST = 5, 14
"""How many times its base a word scores that stands once, and one that stands in all events; see `_Word.score`."""
_MOST_WEAK = _WEAK_BASE * _OFTENEST

_TIGHT = frozenset((" ", "-"))
"""What stands between the words of a phrase."""

_JOINTS = frozenset((" ", "-", "'", "’"))
"""What stands between words of which the first may describe the second."""

_APOSTROPHES = ("'", "’")
_POSSESSIVE = ("'s", "’s")
_LONGEST_UNIT = 3
_SHORTEST_NAME = 3

_LINK = re.compile(
    " (?:of|for|in|at|from|with|on|about|against|between"
    "|von|für|im|am|bei|mit|zum|zur|aus|de|du|des|d'|en|à|pour|del|para|con|do|da|dos|das|em|com|di|della|per"
    "|van|voor|met|av|til|dla|в|на|с|для)"
    "(?: (?:the|a|an|my|your|our|his|her|their|der|die|das|dem|den|la|le|les|los|las|el|il|het|o))? |の|的"
    "| (?:de|à|pour|en) l['’]| d['’]| (?:का|की|के) "
)
_LONGEST_LINK = 16
_IDENTIFIER = re.compile(r"[-./:_]\d")
"""What follows a token that is the beginning of TC-4, v0.7 or 10:30, not a word."""

_SENTENCE_END = re.compile(
    rf"[.!?…。！？\r\n](?!(?<=\d\.) ?(?i:{MONTH})\b)"  # "ab dem 1. März"
    r"(?:(?<=[.!?…])(?<!\b[DM]r\.)(?<!\bM[rsi]s\.)(?<!\bProf\.)(?<!\bSt\.)(?<!\be\.g\.)"
    r"(?<!\bi\.e\.)(?<!\bz\.B\.)[\"'”’)]*[ \t]+|(?<=[。！？])|(?<=[\r\n])[\r\n]*)"
)
_LINE_ENDS = "\r\n"
_QUESTIONS = ("?", "？", "؟")
_OPENING = re.compile("[.!?…:\n\r\"“”'‘’(*—–。！？-] *")
"""What a sentence begins after."""

_FIGURE = re.compile(r"\d")

_NOWHERE = (1 << 30, 1 << 30)
_NO_WORDS = TextWords.of(())
_CONTRACTIONS = ("'ve", "'d", "'ll", "'re", "n't", "’ve", "’d", "’ll", "’re", "n’t")
_INFLECTED = ("e", "a")
"""How adjectives end before a noun in Dutch and Swedish."""

_SCORED_FIRST = 16
"""Words that are looked at first for the phrases of a leaf with many."""

_SHORT = 16
"""Words of so short a talk that its best word may name it, even where nothing tells that it is a noun."""

_LEAST_SHOUTED = 8
_REMEMBERED_WORDS = 32_768
_REMEMBERED_CHARACTERS = 64
_REMEMBERED_KEYS = 65_536
_AFTER_GREEK = "\u0400"

_Scored = tuple[int, tuple[str, ...]]
"""(score, terms) of a phrase."""


_Run = range
"""The places of neighbouring words among those of their text."""


@value
class Quote:
    """A sentence that says much about its leaf."""

    score: int
    position: int
    text: str


@short_value
class _Traits:
    """What a word tells by its letters beside what it says: nearly all words have the same few.

    `heads` tells that it may end an English compound though it says little, `owns` that it has "'s", `describes` that
    the word before it describes it, `closes`, `opens` and `acts` that a noun stands before it, a noun after it, a verb
    after it.
    """

    is_capital: bool = False
    is_shouted: bool = False
    heads: bool = False
    describes: bool = False
    closes: bool = False
    opens: bool = False
    acts: bool = False
    owns: bool = False

    @staticmethod
    @cache
    def of(*traits: bool) -> _Traits:
        """Return the one of these traits, in the order of the fields."""
        return _Traits(*traits)


class _PlainWord:
    """A word in small letters, of a language in which no word tells what stands beside it: nearly all that a build of
    many new words meets.

    It is what the word tells by its letters, and as well the word of each leaf that has it once, within a sentence:
    for such a one all other fields of `_Word` are the same.
    """

    __slots__ = ("base", "is_small", "language", "score", "surface", "traits")
    settled = True
    times = events = 1
    named = False
    capitals = nominal = verbal = modifies = 0

    def __init__(self, base: int, surface: str, language: Language, traits: _Traits) -> None:
        self.base = base
        self.surface = surface
        self.language = language
        self.traits = traits
        self.score = _ONCE * base
        self.is_small = True

    @property
    def small(self) -> str:
        """The word in small letters."""
        return self.surface

    @property
    def title(self) -> str:
        """The word as a title shows it."""
        return _bare(self.surface)

    def own(self) -> _Word:
        """Return a word that is equal to this one and that no other leaf has: one may be changed."""
        return _Word(self.surface, self.base, self.language, settled=True)


class _Spelling:
    """What another word tells by its letters alone in one language.

    `base` is how much it says, 0 for nothing; `small` is the word in small letters, `is_small` whether it is written in
    them.
    """

    __slots__ = ("base", "is_small", "small", "traits")

    def __init__(self, base: int, small: str, is_small: bool, traits: _Traits) -> None:
        self.base = base
        self.small = small
        self.is_small = is_small
        self.traits = traits


_Known = _PlainWord | _Spelling
"""What a word tells by its letters in one language. Builds meet some ten thousands, so they are small."""


def _known(surface: str, term: str, language: Language) -> _Known:
    """Return what a word tells, given its term."""
    small = surface.lower() if surface.isascii() else lowered(surface)
    base = _weighed(term, surface, small, language)
    is_small = small == surface
    if is_small and not language.tells_of_neighbours:
        return _PlainWord(base, surface, language, _OWNS if surface.endswith(_POSSESSIVE) else _PLAIN)
    if is_small and surface.isascii() and "'" not in surface and surface not in _telling_words(language):
        return _Spelling(base, small, is_small, _PLAIN)
    plain = small if small.isascii() else small.replace("’", "'")
    is_english = language.is_english
    traits = _Traits.of(
        "A" <= surface[0] <= "Z",
        not is_small and len(surface) > 1 and all(letter != lowered(letter) for letter in surface),
        is_english and surface in COMMON_HEADS,
        is_english and plain in EMPTY_NOUNS,
        plain in language.closers or (is_english and plain in BEING),
        plain in language.openers,
        plain in language.subjects,
        plain.endswith("'s"),
    )
    return _Spelling(base, small, is_small, traits)


def _telling_words(language: Language) -> AbstractSet[str]:
    """Return the words of a language that tell something beside what they say: all those that `_known` looks for."""
    words = _TELLING.get(language.name)
    if words is None:
        words = language.closers | language.openers | language.subjects
        if language.is_english:
            words |= COMMON_HEADS | EMPTY_NOUNS | BEING
        _TELLING[language.name] = words
    return words


_TELLING: dict[str, AbstractSet[str]] = {}
_PLAIN = _Traits()
_OWNS = _Traits(owns=True)
_SILENCE = _Spelling(0, "", True, _PLAIN)
"""Of a word that says nothing where it stands."""


class _Lexicon:
    """The words of a language that were met lately, as they are written; emptied when it is full."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self.get = self._known.get

    def learn(self, surface: str, term: str, language: Language) -> _Known:
        """Return what a word tells that is not held yet."""
        known = _known(surface, term, language)
        if len(surface) <= _REMEMBERED_CHARACTERS:
            if len(self._known) >= _REMEMBERED_WORDS:
                self._known.clear()
            self._known[surface] = known
        return known


@cache
def _lexicon(language: str) -> _Lexicon:
    return _Lexicon()


def _spellings(surfaces: Sequence[str], words: TextWords, language: Language) -> list[_Known]:
    """Return what words tell; `surfaces` are how they are written, or are to be read."""
    if words.forms is not None and surfaces is words.surfaces:
        return [form.spelling if form.language is language else _spelt(form, language) for form in words.forms]
    lexicon = _lexicon(language.name)
    spellings: list[_Known | None] = list(map(lexicon.get, surfaces))
    if not all(spellings):
        at = -1
        for _ in range(spellings.count(None)):
            at = spellings.index(None, at + 1)
            spellings[at] = lexicon.learn(surfaces[at], words.terms[at], language)
    return cast("list[_Known]", spellings)


def _spelt(form: WordForm, language: Language) -> _Known:
    """Return what a word tells in a language: that which it is met in first is held with it, others beside it."""
    if form.language is None:
        form.spelling = known = _known(form.surface, form.term, language)
        form.language = language
        return known
    lexicon = _lexicon(language.name)
    return lexicon.get(form.surface) or lexicon.learn(form.surface, form.term, language)


@dataclass(slots=True)
class _Word:
    """A term within one leaf, which no other leaf holds.

    `nominal`, `verbal` and `modifies` count where it stands as a noun, where as a verb, and where it describes what
    follows.
    """

    surface: str
    base: int
    language: Language
    settled: bool
    times: int = 1
    events: int = 1
    named: bool = False
    capitals: int = 0
    nominal: int = 0
    verbal: int = 0
    modifies: int = 0

    @property
    def title(self) -> str:
        """The word as a title shows it: with its capital where it never stood without."""
        surface = _bare(self.surface)
        return surface[0].upper() + surface[1:] if 1 < self.capitals == self.times else surface

    @property
    def score(self) -> int:
        """How much the term says about the leaf: its kind, how often and in how many events it stands."""
        return self.base * (2 + min(self.times, 4) + 2 * min(self.events, 4))

    def settle(self, surface: str, *, is_noun: bool, acts: bool) -> None:
        """Count that it stands as a noun, or not, as it is written there.

        `acts` tells that it stands after a word that a verb follows.
        """
        if is_noun and not self.nominal and surface != self.surface and lowered(surface) != lowered(self.surface):
            self.surface = surface if self.named else lowered(surface)
        self.nominal += is_noun
        self.verbal += acts

    def end(self, following: _Known, surface: str, *, opened: bool, acts: bool) -> None:
        """Count where it stands before a word that is no part of its phrase, as it is written there.

        `opened` and `acts` tell that it stands after a word that a noun, or a verb, follows.
        """
        if following.traits.describes:
            self.verbal += acts
            self.modifies += 1
        else:
            self.settle(surface, is_noun=following.traits.closes or opened, acts=acts)


_Held = _Word | _PlainWord
"""What a leaf holds of a term."""


class TextReading:
    """The words, phrases and sentences of one leaf; `of_leaves` makes them."""

    def __init__(self, events: Sequence[PlanEvent], names: Iterable[str]) -> None:
        self._names, self._beginnings_of_names = _name_terms(names)
        self._events = events
        self.language: Language = UNKNOWN
        self.words: dict[str, _Held] = {}
        self.scores: dict[str, int] = {}
        self._ranked: list[int] = []
        self._size = 0
        self._phrases: dict[tuple[str, ...], _Phrase] = {}
        self._once: set[tuple[str, ...]] = set()
        self._terms: list[set[str]] = []
        # Of each event, as the steps of `of_leaves` find it:
        self._beginnings = [event.text[:ANALYSED_CHARACTERS] for event in events]
        self._suspect = list(map(may_be_no_prose, self._beginnings))
        self._codes: list[list[tuple[int, int]]] = []
        self._languages: list[Language] = []
        self._words: list[TextWords] = []
        self._silent: list[set[int]] = []
        """The places of words that are courtesies, or no prose."""
        self._texts: list[str] = []
        """Its text as it is read: what is all capitals in small letters."""
        self._surfaces: list[Sequence[str]] = []
        self._openings: list[set[int]] = []
        """Where sentences open."""
        self._may_end: list[bool] = []
        """Whether it has a mark that may end a sentence: each of those also opens one."""
        self._spellings: list[list[_Known]] = []
        self._tells_nouns = True
        """Whether words, or a name with "'s", tell what stands beside them: if not, nobody asks for it."""
        # Of the text that is read; the places are those of words that stand where a noun, or a verb, does.
        self._text, self._here, self._now = "", _NO_WORDS, UNKNOWN
        self._opens: set[int] = set()
        self._opened: set[int] = set()
        self._acting: set[int] = set()
        self._last: tuple[tuple[_Run, ...], ...] = ()

    @classmethod
    def of_leaves(cls, leaves: Iterable[tuple[Sequence[PlanEvent], Iterable[str]]]) -> list[TextReading]:
        """Read the texts of leaves, given their events and the names of who takes part, each by itself.

        Step by step for all of them: the code of one step stays in the processor's cache, that of all does not.
        """
        readings = [cls(events, names) for events, names in leaves]
        for step in (cls._tell_languages, cls._find_courtesies, cls._find_openings, cls._spell, cls._count_words):
            for reading in readings:
                step(reading)
        return readings

    def _tell_languages(self) -> None:
        """Find what is no prose, and tell the language of the leaf and of each text, and so its words."""
        events, beginnings = self._events, self._beginnings
        self._codes = [
            not_prose(text) if is_suspect else [] for text, is_suspect in zip(beginnings, self._suspect, strict=True)
        ]
        read = [event.words for event in events]
        # What has a digit is suspect; only beyond ASCII are there others than those of figures.
        votes = [
            Votes.of(
                words.at(_outside(words.starts, spans)) if spans else words,
                has_numbers=is_suspect or not text.isascii(),
            )
            for text, words, spans, is_suspect in zip(beginnings, read, self._codes, self._suspect, strict=True)
        ]
        self.language = Votes.sum(votes).language()
        self._languages = languages = [vote.language(likely=self.language) for vote in votes]
        self._tells_nouns = not all(language.any_may_be_noun for language in languages) or any(
            mark in text for text in beginnings for mark in _APOSTROPHES
        )
        self._words = [
            words_of(event.text, words, language)
            for event, words, language in zip(events, read, languages, strict=True)
        ]
        self._size = sum(map(len, self._words))

    def _find_courtesies(self) -> None:
        """Find the words that say nothing where they stand."""
        self._silent = [courtesies(event.text, words) for event, words in zip(self._events, self._words, strict=True)]
        for silent, words, code in zip(self._silent, self._words, self._codes, strict=True):
            if code:
                silent.update(set(range(len(words))).difference(_outside(words.starts, code)))

    def _find_openings(self) -> None:
        """Find where sentences open."""
        for event, words in zip(self._events, self._words, strict=True):
            text, surfaces = event.text, words.surfaces
            if _is_shouted(text):
                text = text.lower()
                surfaces = [surface.lower() for surface in surfaces]
            openings = set() if is_bare(text) else {opening.end() for opening in _OPENING.finditer(text)}
            self._may_end.append(bool(openings))
            openings.add(len(text) - len(text.lstrip(" ")))
            self._texts.append(text)
            self._surfaces.append(surfaces)
            self._openings.append(openings)

    def _spell(self) -> None:
        """Look up what each word tells by its letters."""
        self._spellings = [
            _spellings(surfaces, words, language)
            for surfaces, words, language in zip(self._surfaces, self._words, self._languages, strict=True)
        ]

    def _count_words(self) -> None:
        """Count the words and phrases of each text, and what each word scores."""
        for text, words, language, openings, surfaces, spellings, silent, is_suspect in zip(
            self._texts,
            self._words,
            self._languages,
            self._openings,
            self._surfaces,
            self._spellings,
            self._silent,
            self._suspect,
            strict=True,
        ):
            self._text, self._here, self._now, self._opens = text, words, language, openings
            self._last = ()
            has_figures = (is_suspect or len(text) > ANALYSED_CHARACTERS) and _FIGURE.search(text) is not None
            self._read(surfaces, spellings, silent, has_figures=has_figures)
        # Most stand once; a property costs a call.
        self.scores = {term: _ONCE * word.base if word.times == 1 else word.score for term, word in self.words.items()}
        self._ranked = sorted(self.scores.values())

    def _read(
        self, surfaces: Sequence[str], known_all: list[_Known], silent: AbstractSet[int], *, has_figures: bool
    ) -> None:
        """Count the words and phrases of the next text.

        Args:
            surfaces: its words as they are read.
            known_all: what they tell by their letters.
            silent: the places of those that say nothing there.
            has_figures: whether there may be numbers.
        """
        event_terms: set[str] = set()
        text, words, openings = self._text, self._here, self._opens
        language, names = self._now, self._names
        parts_words = language.adjective is not None
        if not self._tells_nouns:
            for at in silent:
                known_all[at] = _SILENCE
            self._read_plainly(surfaces, known_all, has_figures=has_figures)
            return
        self._opened, self._acting = opened_places, acting = set(), set()
        held = cast("dict[str, _Word]", self.words)  # only `_read_plainly` puts plain words in
        saying = [at for at, known in enumerate(known_all) if known.base]
        if silent:
            saying = [at for at in saying if at not in silent]
        # The word before, where it says something, with its surface, and whether it stands where a noun or a verb does.
        head: _Word | None = None
        head_surface, head_opened, head_acts = "", False, False
        opened = acts = False
        terms_of_text, starts, ends = words.terms, words.starts, words.ends
        # The run goes from `first` (-1: there is none) to the word before, which ends at `run_end`.
        end = first = run_end = -1
        reached = 0
        for at in saying:
            if at > reached:
                # What says nothing stands between.
                if head is not None:
                    head.end(known_all[reached], head_surface, opened=head_opened, acts=head_acts)
                    head = None
                if first >= 0:
                    self._close(first, reached)
                    first = -1
                before, end = known_all[at - 1], ends[at - 1]
                opened, acts = before.traits.opens, before.traits.acts
            reached = at + 1
            known, surface, term = known_all[at], surfaces[at], terms_of_text[at]
            start, token_end = starts[at], ends[at]
            is_name = term in names or (known.traits.is_capital and self._is_name(surface))
            if is_name or (has_figures and _belongs_to_a_number(text, surface, start)):
                if head is not None:
                    head.end(known, head_surface, opened=head_opened, acts=head_acts)
                    head = None
                opened, acts = known.traits.opens, known.traits.acts
                if is_name:
                    opened, acts = known.traits.owns or opened, not known.traits.owns or acts
                if first >= 0:
                    self._close(first, at)
                    first = -1
                end = token_end
                continue
            opens = start in openings
            word = held.get(term)
            if word is None and known.is_small:
                word = held[term] = _Word(surface, known.base, language, not opens)
            elif word is not None and known.is_small and (opens or word.settled):
                word.times += 1
                if term not in event_terms:
                    word.events += 1
                if known.base > word.base:  # noqa: PLR1730 - a call for each word costs more
                    word.base = known.base
            else:
                word = self._count(term, surface, known, opens, term in event_terms)
            event_terms.add(term)
            base = word.base
            between = joint_of_run = ""
            if start < end:
                end = max(end, token_end)
            else:
                if end >= 0:
                    between = text[end] if start == end + 1 else text[end:start]
                if first >= 0:
                    joint_of_run = between if run_end == end else text[run_end:start]
                end = token_end
            if (between and between not in _JOINTS) or (head is not None and parts_words):
                if head is not None:
                    head.settle(head_surface, is_noun=head_opened, acts=head_acts)
                opened = acts = False
            elif head is not None:
                if base > _WEAK_BASE or ends_unlike_a_noun(head_surface):
                    head.verbal += head_acts
                    head.modifies += 1
                elif not may_describe(head_surface):
                    head.settle(head_surface, is_noun=head_opened, acts=head_acts)
                    opened = acts = False
            if opened:
                opened_places.add(at)
            if acts:
                acting.add(at)
            head = None
            if base > _WEAK_BASE:
                head, head_surface, head_opened, head_acts = word, surface, opened, acts
            acts = False
            if base == _WEAK_BASE and joint_of_run != "-" and (opens or not known.traits.is_capital):
                heads = known.traits.heads and joint_of_run == " " and self._heads(run_end, surfaces[at + 1 : at + 2])
                if not heads:
                    if first >= 0:
                        self._close(first, at)
                        first = -1
                    continue
            if joint_of_run not in _TIGHT:
                if first >= 0:
                    self._close(first, at)
                first = at
            run_end = token_end
        if head is not None:
            if reached < len(known_all):
                head.end(known_all[reached], head_surface, opened=head_opened, acts=head_acts)
            else:
                head.settle(head_surface, is_noun=head_opened, acts=head_acts)
        if first >= 0:
            self._close(first, reached)
        self._terms.append(event_terms)

    def _read_plainly(self, surfaces: Sequence[str], spellings: Sequence[_Known], *, has_figures: bool) -> None:
        """Do what `_read` does with the words of a text in which nothing tells what stands beside them.

        `spellings` are of the words by `surfaces`, those that say nothing there among them; `has_figures` tells whether
        there may be numbers.
        """
        event_terms: set[str] = set()
        text, words, openings = self._text, self._here, self._opens
        names, held, language = self._names, self.words, self._now
        may_be_left_out = has_figures or not names.isdisjoint(words.terms)
        # The run goes from `first` (-1: there is none) to the word before; what would follow it starts at `following`.
        first = following = -1
        for at, (known, term, start, end) in enumerate(
            zip(spellings, words.terms, words.starts, words.ends, strict=True)
        ):
            base, is_small = known.base, known.is_small
            if not base or (
                (may_be_left_out or not is_small)
                and (
                    term in names
                    or (known.traits.is_capital and self._is_name(surfaces[at]))
                    or (has_figures and _belongs_to_a_number(text, surfaces[at], start))
                )
            ):
                if first >= 0:
                    self._close(first, at)
                    first = following = -1
                continue
            word = held.get(term)
            if is_small and word is None:
                if start in openings:
                    word = _Word(surfaces[at], base, language, settled=False)
                elif isinstance(known, _PlainWord):
                    word = known
                else:
                    word = _Word(surfaces[at], base, language, settled=True)
                held[term] = word
                event_terms.add(term)
            elif is_small and word is not None and (word.settled or start in openings):
                if isinstance(word, _PlainWord):
                    word = held[term] = word.own()
                word.times += 1
                if term not in event_terms:
                    word.events += 1
                    event_terms.add(term)
                if base > word.base:  # noqa: PLR1730 - a call for each word costs more
                    word.base = base
            else:
                word = self._count(term, surfaces[at], known, start in openings, term in event_terms)
                event_terms.add(term)
            joint = text[start - 1] if start == following else ""
            if (
                base <= _WEAK_BASE
                and word.base == _WEAK_BASE
                and joint != "-"
                and (not known.traits.is_capital or start in openings)
            ):
                if first >= 0:
                    self._close(first, at)
                    first = following = -1
                continue
            if joint not in _TIGHT:
                if first >= 0:
                    self._close(first, at)
                first = at
            following = end + 1
        if first >= 0:
            self._close(first, len(words))
        self._terms.append(event_terms)

    def _heads(self, run_end: int, following: Sequence[str]) -> bool:
        """Tell whether a common word ends an English compound, as in "roof repair", and is no verb with an object."""
        if self._text[run_end - 1] == "s":
            return False
        after = following[0].lower() if following else ""
        return after in LINKS or not (after in self._now.openers or after in OBJECTS)

    def keywords(self, most: int) -> list[tuple[str, int]]:
        """Return the words that say most, as they were said, with their scores: so many, and those that score alike."""
        words, scores = self.words, self.scores
        ranked = self._ranked
        if len(ranked) <= most or ranked[-most] <= _MOST_WEAK:
            ranked = sorted([score for term, score in scores.items() if words[term].base > _WEAK_BASE])
        least = ranked[-most] if len(ranked) > most else 0
        best = [term for term, score in scores.items() if score >= least]
        return [(words[term].surface, scores[term]) for term in best if words[term].base > _WEAK_BASE]

    def surface(self, terms_of_phrase: tuple[str, ...]) -> str | None:
        """Return a word or phrase as it was said here, if it was."""
        if len(terms_of_phrase) == 1:
            word = self.words.get(terms_of_phrase[0])
            return word.surface if word is not None else None
        phrase = self._phrases.get(terms_of_phrase)
        return phrase.surface(self.words[terms_of_phrase[0]]) if phrase is not None else None

    def phrases(self) -> list[tuple[str, int]]:
        """Return the phrases that say most, no two sharing a word, best first.

        A single word counts where it says something and is used as a noun; if nothing does, the one word that says
        most may stand.
        """
        if len(self.scores) > 3 * _SCORED_FIRST:
            # Nearly always they are among the words that score most.
            phrases = self._phrases_from(self._ranked[-_SCORED_FIRST])
            if len(phrases) == PHRASES:
                return phrases
        return self._phrases_from(0)

    def _phrases_from(self, least: int) -> list[tuple[str, int]]:
        """Return what `phrases` does of those words and phrases that score so much or more."""
        words = self.scores
        scored: list[_Scored] = []
        for term, score in words.items():
            if score >= least:
                word = self.words[term]
                if (word.base > _PLAIN_BASE or (word.base == _PLAIN_BASE and word.times >= _OFTEN)) and (
                    word.language.any_may_be_noun or self._is_noun(word)
                ):
                    scored.append((-score, (term,)))
        for key, phrase in self._phrases.items():
            tenths = (_LINKED_TENTHS if phrase.linked else _PHRASE_TENTHS)[len(key)]
            weight = sum([words[term] for term in key]) * tenths * (1 + phrase.times) // 20
            if (
                weight >= least
                and max([self.words[term].base for term in key]) > _PLAIN_BASE
                and self._is_sound(key, phrase)
            ):
                scored.append((-weight, key))
        if all(self.words[term].base <= _PLAIN_BASE for _, key in scored for term in key):
            scored = [
                (-words[term], (term,))
                for term, word in self.words.items()
                if self._size <= _SHORT
                and word.base > _PLAIN_BASE
                and not word.verbal
                and not ends_unlike_a_noun(word.surface)
            ]
            scored = [min(scored)] if scored else []
        return without_overlap(_best_first(scored), self._titled)

    def _titled(self, key: tuple[str, ...]) -> str:
        """Return a phrase or a word as a title shows it."""
        return self._phrases[key].surface(self.words[key[0]]) if len(key) > 1 else self.words[key[0]].title

    def _is_noun(self, word: _Held) -> bool:
        language = word.language
        if language.article:
            return word.surface.startswith(language.article)
        if not language.marks_nouns or not _is_latin(word.surface):
            return True
        if word.named:
            return True
        if word.verbal > word.nominal:
            return False
        if not language.is_english:
            return word.nominal > 0
        if word.nominal:
            unlike = ends_unlike_a_noun(word.surface)
            return word.nominal > word.modifies + unlike and not (unlike and word.surface.endswith(("ly", "ed")))
        if ends_unlike_a_noun(word.surface) or word.surface.endswith("ing"):
            return False
        return ends_like_a_noun(word.surface) or (word.events >= _OFTEN and not may_describe(word.surface))

    def _is_sound(self, key: tuple[str, ...], phrase: _Phrase) -> bool:
        """Tell whether a phrase is one that a reader would read as a thing, not half a sentence."""
        language = phrase.language
        if language.article:
            said = phrase.said.split(" ")
            return len(said) == 2 and said[1].startswith(language.article)
        if not language.marks_nouns or not _is_latin(phrase.said):
            return True
        if phrase.acts:
            return False
        parts = [self.words[term] for term in key]
        at = 0
        for size in phrase.sizes:
            part = parts[at : at + size]
            if (size > 1 or at == 0) and not self._is_compound(part, phrase):
                return False
            at += size
        return True

    def _is_compound(self, parts: Sequence[_Held], phrase: _Phrase) -> bool:
        language = phrase.language
        last = parts[-1]
        if len(parts) == 1:
            return self._is_noun(last) or (language.is_english and last.surface.endswith("ing"))
        named = all(part.named for part in parts)
        if named or not language.is_english:
            return (
                named
                or phrase.times > 1
                or (language.adjective is None and phrase.opened and parts[0].surface.endswith(_INFLECTED))
                or (
                    language.adjective is not None
                    and self._is_noun(parts[0])
                    and all(language.adjective.search(part.surface) for part in parts[1:])
                )
            )
        if any(part.surface.endswith("ed") and not part.named and not part.nominal for part in parts[1:]):
            return False
        if not last.named and ends_unlike_a_noun(last.surface):
            return False
        return last.verbal <= last.nominal

    def quotes(self) -> list[Quote]:
        """Return the sentence that says most and, from another event, the one that adds most to it, best first.

        The score of the second is what it adds.
        """
        words = self.scores
        sentences: list[_Sentence] = []
        for position, event in enumerate(self._events):
            may_end = self._may_end[position]
            sentences += _sentences(event.text, self._words[position], position, words, may_end=may_end)
        found = self._best(
            sentences,
            [
                (-(weight * _FULL_PERCENT // (_WORDS_OF_NONE + size)), at, weight)
                for at, (_, _, _, _, weight, size) in enumerate(sentences)
            ],
        )
        if found is None:
            return []
        most, best, _ = found
        quotes = [_quote(sentences, found)]
        position_of_best, _, _, known, _, _ = sentences[best]
        besides = []
        for at, (position, _, _, said, weight, size) in enumerate(sentences):
            if position != position_of_best:
                if not known.isdisjoint(said):
                    weight -= sum(map(words.__getitem__, said & known))
                bound = weight * _FULL_PERCENT // (_WORDS_OF_NONE + size)
                if 3 * bound > most:
                    besides.append((-bound, at, weight))
        found = self._best(sentences, besides) if besides else None
        if found is not None and 3 * found[0] > most:
            quotes.append(_quote(sentences, found))
        return quotes

    def _best(self, sentences: Sequence[_Sentence], bounds: list[tuple[int, int, int]]) -> tuple[int, int, str] | None:
        """Return the score of the first of the sentences that score most, its place and its text; None where none has a
        text to show.

        They are read closely in the order of what they may score at most: the first few tell which is best.

        Args:
            sentences: all of them.
            bounds: of those that are asked about, what they may score at most, negative, their places and what their
                words weigh.
        """
        most, best, best_text = -1, 0, ""
        bounds.sort()
        for bound, at, weight in bounds:
            if -bound < most:
                break
            position, start, stop, _, _, size = sentences[at]
            text = clean(self._events[position].text[start : min(stop, start + 4 * SENTENCE_CHARACTERS)])
            if not text:
                continue
            percent = _percent(text, is_suspect=self._suspect[position])
            score = weight * percent // (_WORDS_OF_NONE + size)
            if score > most or (score == most and at < best):
                most, best, best_text = score, at, text
        return None if most < 0 else (most, best, best_text)

    def weights(self) -> tuple[int, ...]:
        """Return how central each event is: the weight of its words, the greatest of the leaf being 1000."""
        sums = [sum(map(self.scores.__getitem__, event_terms)) for event_terms in self._terms]
        most = max(sums, default=0)
        return tuple(1000 * value // most if most else 1000 for value in sums)

    def _is_name(self, surface: str) -> bool:
        """Tell whether a word with a capital is short for a name."""
        return len(surface) >= _SHORTEST_NAME and surface.lower() in self._beginnings_of_names

    def _count(self, term: str, surface: str, known: _Known, opens: bool, is_again: bool) -> _Word:
        """Count a word; `is_again` tells that the event has had its term."""
        word = self.words.get(term)
        base = known.base
        is_small, is_first = known.is_small, False
        if not is_small and base > _PLAIN_BASE:
            if known.traits.is_shouted:
                base += 3
            elif not opens:
                base += 4
            elif known.traits.is_capital:
                is_first, surface = True, known.small
        if word is None:
            word = self.words[term] = _Word(surface, base, self._now, not opens)
        else:
            if isinstance(word, _PlainWord):
                word = self.words[term] = word.own()
            word.times += 1
            if not is_again:
                word.events += 1
            if not opens and not word.settled:
                if not word.nominal or known.small == lowered(word.surface):
                    word.surface = surface
                word.settled = True
            word.base = max(word.base, base)
        if not is_small:
            word.capitals += is_first
            if not opens:
                word.named = True
        return word

    def _close(self, first: int, stop: int) -> None:
        """Count the phrases of two and three words in an unbroken run of words, from one place to before another."""
        if stop - first > 1 and self._now.is_english:
            for part in _apart(range(first, stop), self._text, self._here):
                self._close_run(part)
        else:
            self._close_run(range(first, stop))

    def _close_run(self, run: _Run) -> None:
        size, first, words = len(run), run.start, self._here
        if size > _LONGEST_TIGHT_RUN:
            # Where many words stand in a row (lists, languages without our stop words) most neighbours are no
            # phrase: only pairs that come again are.
            for at in self._again(list(pairwise(words.terms[first : run.stop]))):
                self._count_phrase(run[at : at + 2])
        elif size > 1:
            for length in (2, 3):
                for at in range(size - length + 1):
                    self._count_phrase(run[at : at + length])
        chain: tuple[_Run, ...] = ()
        before = self._last
        self._last = ((run,),) if size <= _LONGEST_LINKED_RUN else ()
        if not before or not _is_link(self._text[words.ends[before[0][-1][-1]] : words.starts[first]]):
            return
        ends = [run] if self._now.is_english or size == 1 else [run[:1], run]
        for parts in before:
            for end in ends:
                linked = (*parts, end)
                places = [at for part in linked for at in part]
                if (
                    len(places) <= max(_LINKED_TENTHS)
                    and words.ends[places[-1]] - words.starts[places[0]] <= NAME_CHARACTERS
                ):
                    self._count_phrase(places, sizes=tuple(map(len, linked)))
                    chain = chain or linked
        # A single word goes on by itself: "embajada de Portugal", without the "papeles para la" before it.
        if len(chain) == 2 and 1 < size <= _LONGEST_LINKED_RUN and self._now.adjective is not None:
            self._last = (*self._last, chain)

    def _again(self, pairs: Sequence[tuple[str, ...]]) -> Sequence[int]:
        """Note pairs of words that stand in a row, and return the places of those that the leaf has had."""
        once, phrases = self._once, self._phrases
        new = set(pairs)
        if len(new) == len(pairs):
            had = new & once
            if phrases:
                had |= phrases.keys() & new
            once |= new
            return [at for at, key in enumerate(pairs) if key in had] if had else ()
        again = []
        for at, key in enumerate(pairs):
            if key in once or key in phrases:
                again.append(at)
            else:
                once.add(key)
        return again

    def _count_phrase(self, places: Sequence[int], *, sizes: tuple[int, ...] = ()) -> None:
        """Count the phrase of the words at some places; `sizes` are those of its parts, where links part it."""
        words, first = self._here, places[0]
        key = tuple([words.terms[at] for at in places])
        known = self._phrases.get(key)
        if known is not None:
            known.times += 1
            known.opened = known.opened or first in self._opened
            known.acts = known.acts and first in self._acting
        elif len(set(key)) == len(key):
            start = words.starts[first]
            self._phrases[key] = _Phrase(
                said=self._text[start : words.ends[places[-1]]],
                next=words.starts[places[1]] - start,
                opens=start in self._opens,
                times=2 if key in self._once else 1,
                sizes=sizes or (len(places),),
                opened=first in self._opened,
                acts=first in self._acting,
                language=self._now,
            )


@dataclass(slots=True, kw_only=True)
class _Phrase:
    """Neighbouring words within one leaf.

    `next` is where the second one starts; `sizes` are the numbers of words between links; `opened` and `acts` say
    whether the first word stood where a noun or where a verb does.
    """

    said: str
    next: int
    opens: bool
    times: int
    sizes: tuple[int, ...]
    opened: bool
    acts: bool
    language: Language

    @property
    def linked(self) -> bool:
        """Whether a small word stands between its words."""
        return len(self.sizes) > 1

    def surface(self, first: _Held) -> str:
        """The phrase as it was first said, without the capital of a sentence's beginning unless it is a name's."""
        surface = _bare(self.said)
        if "'" in surface:
            return surface
        following = surface[self.next : self.next + 1]
        if self.opens and first.surface == lowered(first.surface) and following == lowered(following):
            return lowered(surface[0]) + surface[1:]
        return surface


class _Sentence(NamedTuple):
    """A sentence: the event that it is of and where it stands there, the words of it that count, what these weigh, and
    how many words it has in all."""

    position: int
    start: int
    stop: int
    terms: AbstractSet[str]
    weight: int
    size: int


_sentence = partial(tuple.__new__, _Sentence)
"""Makes a sentence of a tuple of its fields."""


def _quote(sentences: Sequence[_Sentence], found: tuple[int, int, str]) -> Quote:
    score, at, text = found
    return Quote(score=score, position=sentences[at].position, text=text)


def _best_first(scored: list[_Scored]) -> Iterator[_Scored]:
    """Yield a list of negative scores in order, as scores, and use it up: only the first few are wanted of many."""
    heapify(scored)
    while scored:
        score, key = heappop(scored)
        yield -score, key


def without_overlap(
    scored: Iterable[_Scored], surface_of: Callable[[tuple[str, ...]], str], *, most: int = PHRASES
) -> list[tuple[str, int]]:
    """Return the first phrases of which no two share a word, and none is a part of another.

    `surface_of` gives a phrase as it is shown.
    """
    chosen: list[tuple[str, int]] = []
    taken: set[str] = set()
    for weight, key in scored:
        if not taken.isdisjoint(key):
            continue
        surface = surface_of(key)
        for name, _ in chosen:
            if surface in name or name in surface:
                break
        else:
            taken.update(key)
            chosen.append((clip(clean(surface), NAME_CHARACTERS), weight))
            if len(chosen) == most:
                break
    return chosen


def _sentences(
    text: str, read: TextWords, position: int, words: Mapping[str, int], *, may_end: bool
) -> list[_Sentence]:
    """Return the sentences of a text that hold words which weigh something by `words`.

    `may_end` tells whether it has marks that may end a sentence.
    """
    text = text[:ANALYSED_CHARACTERS]
    sentences = []
    at = start = 0
    length, count, starts = len(text), len(read), read.starts
    bounds: list[tuple[int, int]] = []
    if may_end:
        for match in islice(_SENTENCE_END.finditer(text), _SENTENCES_PER_EVENT - 1):
            end, following = match.span()
            bounds.append((end if text[end] in _LINE_ENDS else end + 1, following))
    bounds.append((length, length))
    for stop, following in bounds:
        first = at
        at = bisect_left(starts, stop, at) if stop < length else count
        if at > first:
            inside = set(filter(words.__contains__, read.terms[first:at]))
            if inside:
                weight = sum(map(words.__getitem__, inside))
                sentences.append(_sentence((position, start, stop, inside, weight, at - first)))
        start = following
    return sentences


def _percent(sentence: str, *, is_suspect: bool) -> int:
    """Return how much of what its words weigh a sentence is worth: less for questions, code, and where it is short or
    long.

    `is_suspect` tells whether its text has marks of what is no prose.
    """
    percent = 50 if sentence.endswith(_QUESTIONS) else _FULL_PERCENT
    if not reads_as_prose(sentence, is_suspect=is_suspect):
        percent //= 4
    if len(sentence) < 25:
        return percent * 2 // 3
    return percent * 4 // 5 if len(sentence) > SENTENCE_CHARACTERS else percent


def _name_terms(names: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    return _terms_of_names(tuple(dict.fromkeys(names)))


@lru_cache(maxsize=4096)
def _terms_of_names(names: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of names, and all that these begin with.

    Identifiers have none: `user_42` or `agent:7` would take "user" and "agent" away.
    """
    words: set[str] = set()
    for name in names:
        if not any(character in "0123456789_:/@.#" for character in name):
            words.update(terms(name))
            words.update(part.lower() for part in name.split(" ") if len(part) > 2)
    return frozenset(words), frozenset(word[:size] for word in words for size in range(1, len(word) + 1))


def _weighed(term: str, surface: str, small: str, language: Language) -> int:
    """Return how much a word says by its kind in a language, 0 for nothing, more for rarer kinds.

    `small` is the word in small letters.
    """
    size = len(term)
    if not 1 < size <= _KEYWORD_CHARACTERS or term in language.function_terms:
        return 0
    base = _common_bases().get(term)
    if base is None:
        base = _BASE + min(size, 9) // 3
        if not term.isalpha() and term.isascii():
            if term.isdigit():
                base = _WEAK_BASE
            elif "'" not in term:
                base = _PLAIN_BASE
    if not base or (("'" in surface or "’" in surface) and surface.endswith(_CONTRACTIONS)):
        return 0
    if base > _WEAK_BASE and (
        (language.capitalises_nouns and surface == small)
        or (language.is_english and small in VERB_FORMS)
        or (language.verb is not None and language.is_verb(surface))
    ):
        return _WEAK_BASE
    return base


@cache
def _common_bases() -> dict[str, int]:
    """Return the weights of the terms that are listed: words of everyday use, those that say little, stop words."""
    bases = dict.fromkeys(plain_terms(), _PLAIN_BASE)
    bases.update(dict.fromkeys(weak_terms(), _WEAK_BASE))
    bases.update(dict.fromkeys(stop_terms(), 0))
    return bases


def _apart(run: _Run, text: str, words: TextWords) -> list[_Run]:
    """Return the parts of an English run, which a word in the form of a plural ends: "gateway refuses connections"."""
    parts: list[_Run] = []
    first = run.start
    for at in run[:-1]:
        end = words.ends[at]
        surface = text[words.starts[at] : end]
        plural = surface.endswith("s") and not surface.endswith(("ss", "us", "is", "as", "os", "'s", "’s"))
        if plural and surface == surface.lower() and surface not in PLURALS_BEFORE and text[end] == " ":
            parts.append(range(first, max(at, first + 1)))
            first = at + 1
    parts.append(range(first, run.stop))
    return parts


def _outside(starts: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the places of the words that begin in no span; both are in order."""
    following = iter(spans)
    span = next(following, _NOWHERE)
    places = []
    for at, start in enumerate(starts):
        while span[1] <= start:
            span = next(following, _NOWHERE)
        if start < span[0]:
            places.append(at)
    return places


def _is_latin(surface: str) -> bool:
    """Tell whether words are of scripts in which languages with articles are written."""
    return surface[:1] < _AFTER_GREEK


def _is_shouted(text: str) -> bool:
    """Tell whether a text is all capitals: there, capitals tell no names."""
    return text.isupper() and len(text) >= _LEAST_SHOUTED and text.isascii()


def _bare(surface: str) -> str:
    """Return words without the possessive ending of the last one."""
    return surface[:-2] if surface.endswith(_POSSESSIVE) else surface


class _Keys(dict[str, tuple[str, ...]]):
    """The terms that identify phrases; emptied when it is full."""

    def __missing__(self, phrase: str) -> tuple[str, ...]:
        if len(self) >= _REMEMBERED_KEYS:
            self.clear()
        self[phrase] = key = tuple(terms(phrase)) or (phrase,)
        return key


key_of: Final[Callable[[str], tuple[str, ...]]] = _Keys().__getitem__
"""Returns the terms that identify a phrase."""


def _is_link(between: str) -> bool:
    """Tell whether what stands between two runs of words joins them."""
    return len(between) <= _LONGEST_LINK and _known_link(between)


@lru_cache(maxsize=4096)
def _known_link(between: str) -> bool:
    return _LINK.fullmatch(between) is not None


def _belongs_to_a_number(text: str, surface: str, start: int) -> bool:
    """Tell whether a word begins an identifier, or is the unit of a number: no word."""
    if _IDENTIFIER.match(text, start + len(surface)):
        return True
    before = text[max(0, start - 2) : start]
    return len(surface) <= _LONGEST_UNIT and before[:1].isdecimal() and before[1:] in ("", " ")
