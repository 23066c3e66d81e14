"""What a leaf's own words say: its phrases, its telling sentences, and how central each event is to it.

Words are weighed by kind (a fixed list of common words), shape, and spread over the leaf's events; a phrase is a run of
such words as it was written, also across "of", "for" or "in"; a sentence is worth its words. All weights are integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from myria.analysis import Token, is_stopword, terms
from myria.planning.common_words import plain_terms, weak_terms
from myria.planning.lines import clean, clip, lowered
from myria.planning.model import ANALYSED_CHARACTERS, PlanEvent
from myria.planning.wording import language_of, words_of

PHRASES = 6
"""Phrases kept of a node."""

SENTENCE_CHARACTERS = 150
NAME_CHARACTERS = 40
"""Characters of a phrase, a speaker or a hint."""

_KEYWORD_CHARACTERS = 32
_SENTENCES_PER_EVENT = 40

_WEAK_BASE, _PLAIN_BASE, _BASE = 1, 2, 7
_PHRASE_TENTHS = {1: 10, 2: 8, 3: 7}
_LINKED_TENTHS = {2: 9, 3: 7, 4: 6, 5: 5}
_LONGEST_TIGHT_RUN = 4
_LONGEST_LINKED_RUN = 3
_OFTEN = 3
_LONGEST_UNIT = 3

_LINK = re.compile(
    " (?:of|for|in|at|from|with|on|about|against|between"
    "|von|für|im|am|bei|mit|zum|zur|aus|de|du|des|d'|en|à|pour|del|para|con|do|da|dos|das|em|com|di|della|per"
    "|van|voor|met|av|til|dla|в|на|с|для)"
    "(?: (?:the|a|an|der|die|das|dem|den|la|le|les|los|las|el|il|het|o))? |の"
)
_IDENTIFIER = re.compile(r"[-./:_]\d")
"""What follows a token that is the beginning of TC-4, v0.7 or 10:30, not a word."""

_SENTENCE_END = re.compile(
    r"(?<=[.!?…])(?<!\b[DM]r\.)(?<!\bM[rsi]s\.)(?<!\bProf\.)(?<!\bSt\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bz\.B\.)"
    "[\"'”’)]*[ \t]+|(?<=[。！？])|[\r\n]+"
)
_QUESTIONS = ("?", "？", "؟")
_STARTERS = frozenset(".!?…:\n\r\"“”'‘’(*-—–。！？")

_Scored = tuple[str, int, tuple[str, ...]]
"""(surface form, score, terms) of a phrase."""

_Run = list[tuple[str, int, int, bool]]
"""(term, start, end, whether it opens a sentence) of neighbouring words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A sentence that says much about its leaf."""

    score: int
    position: int
    text: str


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


class TextReading:
    """The words, phrases and sentences of one leaf."""

    def __init__(self, events: Sequence[PlanEvent], names: Iterable[str]) -> None:
        self._names = _name_terms(names)
        self.language = language_of(token for event in events for token in event.tokens)
        self._last: _Run = []
        self._events = 0
        self._phrases: dict[tuple[str, ...], _Phrase] = {}
        self._once: set[tuple[str, ...]] = set()
        self._terms: list[dict[str, None]] = []
        self.words: dict[str, _Word] = {}
        self._tokens: list[Sequence[Token]] = []
        for event in events:
            self._tokens.append(words_of(event.text, event.tokens))
            self._read(event.text, self._tokens[-1])
        self.scores = {term: word.score for term, word in self.words.items()}
        self._all_events = events

    def _read(self, text: str, tokens: Sequence[Token]) -> None:
        """Count the words and phrases of the next event."""
        event_index = self._events
        self._events += 1
        event_terms: dict[str, None] = {}
        run: _Run = []
        end = -1
        self._last = []
        for token in tokens:
            term, start = token.term, token.start
            base = self._base(token)
            if not base or self._is_name(token.surface, term) or _belongs_to_a_number(text, token):
                self._close(run, text)
                end = token.end
                continue
            opens = _opens_sentence(text, start)
            word = self._count(term, token.surface, base, opens=opens, event_index=event_index)
            event_terms[term] = None
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
        self._terms.append(event_terms)

    def _base(self, token: Token) -> int:
        """Return how much a word of its kind says in the language of the leaf."""
        if token.term in self.language.function_terms:
            return 0
        if self.language.capitalises_nouns and token.surface == lowered(token.surface):
            return min(_WEAK_BASE, _base(token.term))
        return _base(token.term)

    def keywords(self) -> list[tuple[str, int]]:
        """Return every word that says something, as it was said, with its score."""
        return [(word.surface, word.score) for word in self.words.values() if word.base > _WEAK_BASE]

    def surface(self, terms_of_phrase: tuple[str, ...]) -> str | None:
        """Return a word or phrase as it was said here, if it was."""
        if len(terms_of_phrase) == 1:
            word = self.words.get(terms_of_phrase[0])
            return word.surface if word is not None else None
        phrase = self._phrases.get(terms_of_phrase)
        return phrase.surface(self.words[terms_of_phrase[0]]) if phrase is not None else None

    def phrases(self) -> list[tuple[str, int]]:
        """Return the phrases that say most, no two sharing a word, best first."""
        words = self.scores
        scored: list[_Scored] = [
            (word.surface, words[term], (term,))
            for term, word in self.words.items()
            if word.base > _PLAIN_BASE or (word.base == _PLAIN_BASE and word.times >= _OFTEN)
        ]
        for key, phrase in self._phrases.items():
            if all(self.words[term].base <= _PLAIN_BASE for term in key):
                continue
            tenths = (_LINKED_TENTHS if phrase.linked else _PHRASE_TENTHS)[len(key)]
            weight = sum([words[term] for term in key]) * tenths * (1 + phrase.times) // 20
            scored.append((phrase.surface(self.words[key[0]]), weight, key))
        scored.sort(key=_by_score)
        return without_overlap(scored)

    def quotes(self) -> list[Quote]:
        """Return the sentence that says most and, from another event, the one that adds most to it, best first."""
        words = self.scores
        candidates = [
            candidate
            for position, event in enumerate(self._all_events)
            for candidate in _sentences(event.text, self._tokens[position], position, words)
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

    def weights(self) -> tuple[int, ...]:
        """Return how central each event is: the weight of its words, the greatest of the leaf being 1000."""
        sums = [sum(self.scores[term] for term in event_terms) for event_terms in self._terms]
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
        if base > _PLAIN_BASE and surface != (small := lowered(surface)):
            capital = "A" <= surface[0] <= "Z"
            if len(surface) > 1 and all(lowered(character) != character for character in surface):
                shaped += 3
            elif not opens:
                shaped += 4
            elif capital:
                surface = small
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

    def _close(self, run: _Run, text: str) -> None:
        """Count the phrases of two and three words in an unbroken run of words."""
        size = len(run)
        if size > _LONGEST_TIGHT_RUN:
            # Where many words stand in a row (lists, languages without our stop words) most neighbours are no
            # phrase: only pairs that come again are.
            for at in range(size - 1):
                key = (run[at][0], run[at + 1][0])
                if key in self._once or key in self._phrases:
                    self._count_phrase(run[at : at + 2], text)
                else:
                    self._once.add(key)
        elif size > 1:
            for length in (2, 3):
                for first in range(size - length + 1):
                    self._count_phrase(run[first : first + length], text)
        if size and self._last and size <= _LONGEST_LINKED_RUN:
            between = text[self._last[-1][2] : run[0][1]]
            linked = [*self._last, *run]
            if (
                _LINK.fullmatch(between)
                and len(linked) <= max(_LINKED_TENTHS)
                and run[-1][2] - linked[0][1] <= NAME_CHARACTERS
            ):
                self._count_phrase(linked, text, linked=True)
        if size:
            self._last = run[:] if size <= _LONGEST_LINKED_RUN else []
        run.clear()

    def _count_phrase(self, run: _Run, text: str, *, linked: bool = False) -> None:
        key = tuple([item[0] for item in run])
        known = self._phrases.get(key)
        if known is not None:
            known.times += 1
        elif len(set(key)) == len(key):
            times = 2 if key in self._once else 1
            self._phrases[key] = _Phrase(
                text, run[0][1], run[-1][2], run[1][1], opens=run[0][3], times=times, linked=linked
            )


@dataclass(slots=True)
class _Phrase:
    """Neighbouring words within one leaf; `next` is where the second one starts."""

    text: str
    start: int
    end: int
    next: int
    opens: bool
    times: int
    linked: bool

    def surface(self, first: _Word) -> str:
        """The phrase as it was first said, without the capital of a sentence's beginning unless it is a name's."""
        surface = self.text[self.start : self.end]
        following = surface[self.next - self.start]
        if "'" in surface:
            return surface
        if self.opens and first.surface == lowered(first.surface) and following == lowered(following):
            return lowered(surface[0]) + surface[1:]
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


def without_overlap(scored: Iterable[_Scored]) -> list[tuple[str, int]]:
    """Return the first phrases of which no two share a word, and none is a part of another."""
    chosen: list[tuple[str, int]] = []
    taken: set[str] = set()
    for surface, weight, key in scored:
        parts = set(key)
        if parts & taken or any(surface in name or name in surface for name, _ in chosen):
            continue
        taken |= parts
        chosen.append((clip(clean(surface), NAME_CHARACTERS), weight))
        if len(chosen) == PHRASES:
            break
    return chosen


def _sentences(text: str, tokens: Sequence[Token], position: int, words: Mapping[str, int]) -> list[_Sentence]:
    text = text[:ANALYSED_CHARACTERS]
    sentences = []
    at = start = 0
    ends = [(match.start(), match.end()) for match in _SENTENCE_END.finditer(text)]
    for stop, following in [*ends[: _SENTENCES_PER_EVENT - 1], (len(text), len(text))]:
        first = at
        while at < len(tokens) and tokens[at].start < stop:
            at += 1
        if at > first:
            raw = text[start : min(stop, start + 4 * SENTENCE_CHARACTERS)]
            sentence = clean(raw)
            inside = frozenset(token.term for token in tokens[first:at]) & words.keys()
            if sentence and inside:
                percent = 100
                if sentence.endswith(_QUESTIONS):
                    percent = 50
                if len(sentence) < 25:
                    percent = percent * 2 // 3
                elif len(sentence) > SENTENCE_CHARACTERS:
                    percent = percent * 4 // 5
                sentences.append(_Sentence(position, sentence, inside, at - first, percent))
        start = following
    return sentences


def _name_terms(names: Iterable[str]) -> frozenset[str]:
    return _terms_of_names(tuple(dict.fromkeys(names)))


@lru_cache(maxsize=4096)
def _terms_of_names(names: tuple[str, ...]) -> frozenset[str]:
    """Return the words of names but not of identifiers: `user_42` or `agent:7` would take "user" and "agent" away."""
    words: set[str] = set()
    for name in names:
        if not any(character in "0123456789_:/@.#" for character in name):
            words.update(terms(name))
            words.update(part.lower() for part in name.split(" ") if len(part) > 2)
    return frozenset(words)


@lru_cache(maxsize=65_536)
def _base(term: str) -> int:
    """Return the weight of a term by its kind: 0 for none, more for rarer kinds."""
    if is_stopword(term) or len(term) < 2 or len(term) > _KEYWORD_CHARACTERS:
        return 0
    if term in weak_terms() or (term.isascii() and term.isdigit()):
        return _WEAK_BASE
    if term in plain_terms() or (term.isascii() and not term.isalpha() and "'" not in term):
        return _PLAIN_BASE
    return _BASE + min(len(term), 9) // 3


@lru_cache(maxsize=65_536)
def key_of(phrase: str) -> tuple[str, ...]:
    """Return the terms that identify a phrase."""
    return tuple(terms(phrase)) or (phrase,)


def _belongs_to_a_number(text: str, token: Token) -> bool:
    """Tell whether a token begins an identifier, or is the unit of a number: no word."""
    if _IDENTIFIER.match(text, token.end):
        return True
    before = text[max(0, token.start - 2) : token.start]
    return len(token.surface) <= _LONGEST_UNIT and before[:1].isdecimal() and before[1:] in ("", " ")


def _opens_sentence(text: str, start: int) -> bool:
    at = start - 1
    while at >= 0 and text[at] == " ":
        at -= 1
    return at < 0 or text[at] in _STARTERS


def _by_score(scored: _Scored) -> tuple[int, tuple[str, ...]]:
    return (-scored[1], scored[2])
