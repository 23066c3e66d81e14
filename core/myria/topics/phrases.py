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

_MOST_FACTORS = 4 * FULL
"""Upper bound on the sum of length factors that raises a score: after four full texts, repetition adds nothing."""

_WORDS_OF_NONE = 20
"""Words added to the length of every sentence before its score is divided by that, so that very short ones lose."""

_FIGURE = 40
"""Score of a number or a date in a sentence: that of a telling word which a single event says."""

_TENTHS = {1: 10, 2: 8, 3: 7, 4: 6}
"""Tenths of the sum of its words' scores that a phrase counts, by its number of words."""

_REMEMBERED_KEYS = 65_536
_LEAD_WORDS = 16
"""Words at the beginning of a text, which mostly tells there what it is about."""

_SENTENCES_PER_EVENT = 40
_MOST_LINKED = 2
"""Most words on each side of a linking word such as "of"."""

_LEAST_PART = 6
"""A second sentence must score at least one part in so many of what the first scores."""

_UNSPACED = "\u0e00"
"""Scripts from this character on write no spaces, so few separate words are found in a line of theirs."""

_TIGHT = frozenset((" ", "-"))
"""Texts that may stand between two words of one phrase."""

_SENTENCE_END = re.compile(
    rf"[.!?…。！？\r\n](?!(?<=\d\.) ?(?i:{MONTH})\b)"  # "ab dem 1. März"
    r"(?:(?<=[.!?…])(?<!\b[DM][rs]\.)(?<!\bMrs\.)(?<!\bProf\.)(?<!\bSt\.)(?<!\be\.g\.)"
    r"(?<!\bi\.e\.)(?<!\bz\.B\.)[\"'”’)]*[ \t]+|(?<=[。！？])|(?<=[\r\n])[\r\n]*)"
)
_MARKUP = re.compile(r"^(?:[-*•#>]+|\d+[.)])[ \t]+|\*\*|__")
"""Marks that format a line of a list, a heading or bold text."""

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
"""Beginnings of sentences that need the sentence before them, and words that address the listener."""

_QUESTIONS = ("?", "？", "؟")
_POSSESSIVES = ("'s", "’s")
_OF_ONE = frozenset(("a", "an", "this", "each", "every", "another"))
_NOWHERE = (1 << 30, 1 << 30)
"""A span behind every text: what stands for the next span of code once there is none."""

PhraseKey = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    """A sentence of a leaf, with the position of its event."""

    score: int
    position: int
    text: str


@dataclass(slots=True)
class _Word:
    """A term within one leaf.

    `surface` is the word as shown; `base` its weight by kind; `factor_sum` the sum of the length factors of the texts
    that say it, each counted once; `last_position` the position of the last of these.
    """

    surface: str
    base: int
    factor_sum: int = 0
    is_named: bool = False
    last_position: int = -1

    @property
    def score(self) -> int:
        return self.base * (2 * FULL + 3 * min(self.factor_sum, _MOST_FACTORS)) // FULL


@dataclass(slots=True)
class _Phrase:
    """A phrase within one leaf; `surface`, `factor_sum` and `last_position` are as in `_Word`."""

    surface: str
    factor_sum: int = 0
    events: int = 0
    lead_events: int = 0
    """Events that say the phrase among their first words."""

    last_position: int = -1
    is_noun: bool = False
    """Whether the words around it, or its recurrence, show that the phrase is a noun."""


class _Sentence(NamedTuple):
    """A sentence: the position of its event, its span of characters there, its telling terms, how many of its words say
    at least a little (`saying`), which are numbers (`figures`), and how many words it has (`size`)."""

    position: int
    start: int
    stop: int
    terms: frozenset[str]
    saying: tuple[str, ...]
    figures: tuple[str, ...]
    size: int


class Name(NamedTuple):
    """A phrase that may name a node: its terms, its wording, what its words weigh by kind (`base`) and in the leaf
    (`weight`), how many events say it, and the sum of these events' length factors (`said`), in tenths; an event that
    says the phrase among its first words adds ten more."""

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
        self._telling_terms: list[set[str]] = []
        self._sentences: list[_Sentence] = []
        self._length_factors: list[int] = []
        self._subject_terms: frozenset[str] = frozenset()
        votes = [_language_votes(event.words) for event in events]
        self.language = _sum_votes(votes).language()
        for position, vote in enumerate(votes):
            self._read(position, vote.language(likely=self.language))
        self.scores = {term: word.score for term, word in self._words.items()}

    def _read(self, position: int, language: Language) -> None:
        """Count the words and phrases of the event at a position, and note its sentences.

        A run is a row of telling words with nothing but spaces or hyphens between them.
        """
        text = EventText.of(self._events[position], position, language)
        self._length_factors.append(text.length_factor)
        words, names, starts, ends = text.words, self._names, text.words.starts, text.words.ends
        code_spans = iter(text.code)
        code_span = next(code_spans, _NOWHERE)
        telling_terms, word_weights, runs = set[str](), list[int](), list[range]()
        run_start, is_greeted = -1, False
        for index, (surface, term, weight) in enumerate(zip(text.surfaces, words.terms, text.weights, strict=True)):
            start = starts[index]
            while code_span[1] <= start:
                code_span = next(code_spans, _NOWHERE)
            # A name is none of the talk's subjects, nor is what follows a greeting with a capital: "Dear Thompson".
            if weight > SILENT and (
                code_span[0] <= start
                or term in names
                or (surface[0].isupper() and (is_greeted or is_short_for(surface, names)))
                or (text.is_suspect and is_counted(text.text, surface, start))
            ):
                weight = SILENT
            is_greeted = weight == GREETING
            is_joined = run_start >= 0 and text.text[ends[index - 1] : start] in _TIGHT
            # A weak word may end a compound: "bicycle repair".
            is_head = weight == WEAK and is_joined and language.is_english and surface in COMMON_HEADS
            if run_start >= 0 and not (is_joined and (weight > WEAK or is_head)):
                runs.append(range(run_start, index))
                run_start = -1
            if weight > WEAK or is_head:
                run_start = index if run_start < 0 else run_start
                telling_terms.add(term)
                self._count_word(text, surface, term, weight, opens_sentence=start in text.sentence_starts)
            word_weights.append(weight)
        if run_start >= 0:
            runs.append(range(run_start, len(word_weights)))
        link_start: Sequence[int] = ()
        for run in runs:
            link_start = self._count_run(text, run, link_start)
        self._telling_terms.append(telling_terms)
        self._add_sentences(text, word_weights)

    def _count_word(self, text: EventText, surface: str, term: str, weight: int, *, opens_sentence: bool) -> None:
        """Count a word once per text. A capital inside a sentence marks a name; in long texts it may be a heading's."""
        word = self._words.get(term)
        is_capital = surface[0].isupper() and not text.language.capitalises_nouns
        if word is None:
            shown = lowered(surface) if is_capital and opens_sentence and surface[1:].islower() else surface
            word = self._words[term] = _Word(shown, weight)
        if is_capital and not opens_sentence and not word.is_named and 2 * text.length_factor >= FULL:
            word.is_named, word.surface = True, surface
        if word.last_position != text.position:
            word.last_position = text.position
            word.factor_sum += text.length_factor

    def _count_run(self, text: EventText, run: range, link_start: Sequence[int]) -> Sequence[int]:
        """Count the phrases of a run of telling words, and the one that links it to the run before: "lease of land".

        `link_start` and the result are word indexes: the noun at the end of the run before, and of this run, with which
        a linked phrase may begin; empty where there is none.
        """
        first_index, language = run.start, text.language
        word_before = text.before(first_index)
        begins_with_verb = word_before in language.actors and not text.surfaces[first_index][0].isupper()
        if begins_with_verb:
            run = run[1:]  # "we refactor modules": the verb, then what it acts on
        second_before = text.before(first_index - 1) if word_before else ""
        # What acts on something is a verb ("the watchdog resets it"), as is a plural form after "a" ("a carafe ships").
        is_of_one = not _OF_ONE.isdisjoint((word_before, second_before))
        if len(run) > 1 and (text.after(run[-1]) in DETERMINERS or (is_of_one and is_plural(text.surfaces[run[-1]]))):
            run = run[:-1]
        is_opened = begins_with_verb or word_before in language.openers or second_before in language.actors
        parts = parts_of(run, text.surfaces, language)
        noun_span: Sequence[int] = ()
        for part in parts:
            noun_span = ()
            for span in noun_spans(part, text.surfaces, language, is_opened=is_opened and part.start == first_index):
                is_noun = is_opened or text.is_noun(span[0])
                if language.openers:
                    is_noun = is_noun or len(part) > 1
                else:  # no word announces nouns in this language, so any single word may be one
                    is_noun = is_noun or len(span) == 1 or bool(language.article)
                self._count_phrase(text, span, is_noun=is_noun)
                if is_noun and len(span) <= _MOST_LINKED:
                    noun_span = span
        if link_start and parts and parts[0].start == first_index and text.links(link_start[-1], first_index):
            linked_words = parts[0] if language.is_english else parts[0][:1]
            if len(linked_words) <= _MOST_LINKED:
                self._count_phrase(text, [*link_start, *linked_words], is_noun=True)
        return noun_span

    def _count_phrase(self, text: EventText, word_indexes: Sequence[int], *, is_noun: bool) -> None:
        """Count a phrase once per text, and keep of its wordings the one with the fewest capitals."""
        key = tuple([text.words.terms[index] for index in word_indexes])
        phrase = self._phrases.get(key)
        if phrase is None or phrase.surface[0].isupper():
            # A phrase that says a word twice ("test test") names nothing; one cut from a longer name may never begin.
            if len(set(key)) < len(key) or (phrase is None and text.is_cut(word_indexes[0], word_indexes[-1])):
                return
            start = text.words.starts[word_indexes[0]]
            surface = _without_possessive(clean(text.text[start : text.words.ends[word_indexes[-1]]]))
            # The capital of a sentence's first word is not the phrase's own.
            if start in text.sentence_starts and self._words[key[0]].surface[:1].islower() and surface[1:].islower():
                surface = lowered(surface[0]) + surface[1:]
            if phrase is None:
                phrase = self._phrases[key] = _Phrase(surface)
            elif _count_capitals(surface) < _count_capitals(phrase.surface):
                phrase.surface = surface
        # Several words that another event puts together again are no chance neighbours: they are taken for a noun.
        comes_again = phrase.factor_sum > 0 and phrase.last_position != text.position and len(key) > 1
        if phrase.last_position != text.position:
            phrase.last_position = text.position
            phrase.factor_sum += text.length_factor
            phrase.events += 1
            phrase.lead_events += word_indexes[0] < _LEAD_WORDS
        phrase.is_noun = phrase.is_noun or is_noun or comes_again

    def _add_sentences(self, text: EventText, word_weights: Sequence[int]) -> None:
        """Note the sentences of a text that have a telling word; `word_weights` are those that `_read` settled."""
        ends = [match.span() for match in islice(_SENTENCE_END.finditer(text.text), _SENTENCES_PER_EVENT - 1)]
        start = next_word = 0
        for stop, next_start in [*ends, (len(text.text), len(text.text))]:
            first, next_word = next_word, bisect_left(text.words.starts, stop + 1, next_word)
            weights = word_weights[first:next_word]
            telling = frozenset(compress(text.words.terms[first:next_word], [kind > WEAK for kind in weights]))
            if telling:
                words = text.words.terms[first:next_word]
                saying = tuple(compress(words, [kind > SILENT for kind in weights]))
                figures = tuple(filter(str.isdigit, words))
                self._sentences.append(
                    _Sentence(
                        text.position,
                        start,
                        stop + 1,
                        telling,
                        saying,
                        figures,
                        next_word - first,
                    )
                )
            start = next_start

    def keywords(self, most: int) -> list[tuple[str, int]]:
        """Return the `most` words of the greatest scores, as people wrote them, with these scores."""
        ranked = sorted([(-self.scores[term], word.surface) for term, word in self._words.items()])
        return [(surface, -score) for score, surface in ranked[:most]]

    def phrases(self) -> list[tuple[PhraseKey, str, int]]:
        """Return the phrases of the greatest weights, no two sharing a word, best first, as (key, wording, weight)."""
        weights: dict[PhraseKey, int] = {}
        for key, phrase in sorted(self._nouns(), key=lambda pair: len(pair[0])):
            term_scores = sum([self.scores[term] for term in key])
            # Divided by 200, a single word (10 tenths) of one full text (10 + 10) keeps its own score.
            weights[key] = term_scores * _TENTHS[len(key)] * (FULL + min(phrase.factor_sum, _MOST_FACTORS)) // 200
            # A shorter phrase that only ever stands within this one gives way to it: "dream interpretation book".
            for part in (key[1:], key[:-1]):
                if part in weights and self._phrases[part].factor_sum == phrase.factor_sum:
                    weights[key] = max(weights[key], weights[part] + 1)
        scored = sorted((-weight, key) for key, weight in weights.items())
        return without_overlap(scored, lambda key: self._phrases[key].surface)

    def _nouns(self) -> Iterator[tuple[PhraseKey, _Phrase]]:
        """Yield the phrases that are nouns and have more than everyday words."""
        for key, phrase in self._phrases.items():
            if phrase.is_noun and max([self._words[term].base for term in key]) > PLAIN:
                yield key, phrase

    @cached_property
    def names(self) -> Sequence[Name]:
        """The phrases that may name the leaf, with how many events say each; none for a list of cases."""
        if self.lists_cases:
            return []
        return [
            Name(
                key=key,
                text=phrase.surface,
                base=sum([self._words[term].base for term in key]) * _TENTHS[len(key)],
                weight=sum([self.scores[term] for term in key]) * _TENTHS[len(key)],
                events=phrase.events,
                said=phrase.factor_sum + phrase.lead_events * FULL,
            )
            for key, phrase in self._nouns()
        ]

    @cached_property
    def lists_cases(self) -> bool:
        """Whether most events begin with a record number, so that each is a separate case."""
        return 2 * sum(_RECORD.match(event.text) is not None for event in self._events) > len(self._events)

    @property
    def events(self) -> int:
        """How many events say something."""
        return sum(map(bool, self._telling_terms))

    @property
    def surfaces(self) -> Iterable[str]:
        """The telling words as they were said."""
        return [word.surface for word in self._words.values()]

    @property
    def terms(self) -> Iterable[str]:
        """The telling terms of the leaf."""
        return self._words

    def quotes(self, marker: str, subject_terms: frozenset[str]) -> list[Quote]:
        """Return the best sentence of the leaf, and the best of another event by terms that the first does not have.

        Of equally good ones it is the newest: what the kiln costs, and not what it cost before. A later remark that
        says nothing but another number of the best one ("then 95 degrees") has no terms of its own, and is the second
        all the same. Sentences that repeat the marker's text are left out; those with a subject term score half as much
        again.
        """
        self._subject_terms = subject_terms
        best = self._best_quote(lambda sentence: True, frozenset(), marker)
        if best is None:
            return []
        quote, quoted = best
        if (newer := self._with_other_number(quoted)) is not None:
            return [quote, newer]
        second = self._best_quote(lambda sentence: sentence.position != quote.position, quoted.terms, marker)
        return [quote, second[0]] if second is not None and _LEAST_PART * second[0].score > quote.score else [quote]

    def _with_other_number(self, quoted: _Sentence) -> Quote | None:
        """Return the newest remark after a quoted sentence that says nothing but another number of it."""
        known = {*quoted.saying, *quoted.figures}
        for sentence in reversed(self._sentences) if quoted.figures else ():
            if sentence.position <= quoted.position:
                break
            says_only = known.issuperset({*sentence.saying}.difference(sentence.figures))
            # a heading of a long answer is no remark
            is_remark = self._telling_terms[sentence.position] <= quoted.terms
            text = self._sentence_text(sentence)
            if says_only and is_remark and not (known.issuperset(sentence.figures) or text.endswith(_QUESTIONS)):
                return Quote(score=self._score_bound(sentence, frozenset()), position=sentence.position, text=text)
        return None

    def _best_quote(
        self, is_allowed: Callable[[_Sentence], bool], known_terms: frozenset[str], marker: str
    ) -> tuple[Quote, _Sentence] | None:
        """Return the quote that scores most by the terms not known yet, and its sentence; None where there is none.

        Sentences are scored exactly in the order of their upper bounds, until no bound exceeds the best score.
        """
        bounds = sorted(
            (-self._score_bound(sentence, known_terms), -index)
            for index, sentence in enumerate(self._sentences)
            if is_allowed(sentence)
        )
        best: tuple[Quote, _Sentence] | None = None
        for bound, index in bounds:
            if best is not None and -bound <= best[0].score:
                break
            sentence = self._sentences[-index]
            text = self._sentence_text(sentence)
            # A heading, or the item of a list, counts a third.
            score = -bound * _quote_percent(text) // (300 if self._is_listed(sentence) else 100)
            if text and not (marker and marker in text) and (best is None or score > best[0].score):
                best = Quote(score=score, position=sentence.position, text=text), sentence
        return best

    def _score_bound(self, sentence: _Sentence, known_terms: frozenset[str]) -> int:
        """Return the most that a sentence may score: its new terms and figures, by its length and its text's."""
        weight = sum(map(self.scores.__getitem__, sentence.terms - known_terms if known_terms else sentence.terms))
        weight += _FIGURE * min(len(sentence.figures), 2)
        if not self._subject_terms.isdisjoint(sentence.terms):
            weight = weight * 3 // 2
        return weight * (FULL // 2 + self._length_factors[sentence.position]) // (_WORDS_OF_NONE + sentence.size)

    def _sentence_text(self, sentence: _Sentence) -> str:
        """Return a sentence on one line, without the marks of lists and the header of a mail."""
        stop = min(sentence.stop, sentence.start + 4 * SENTENCE_CHARACTERS)
        text = clean(self._events[sentence.position].text[sentence.start : stop])
        return _MARKUP.sub("", text[header.end() :] if (header := _HEADER.match(text)) else text)

    def _is_listed(self, sentence: _Sentence) -> bool:
        """Tell whether a sentence is a heading or begins an item of a list."""
        text = self._events[sentence.position].text
        return _LISTED.match(text, sentence.start) is not None

    def first_line(self) -> tuple[str, bool]:
        """Return the leaf's first sentence without its greeting, and whether it says much: ("", False) if no title.

        A title needs a telling word and further words, unless it is a question. In a list of cases the first line names
        only the first case, so it is no title.
        """
        opening = next(iter(self._sentences), None)
        if opening is None or opening.position > 0 or self.lists_cases:
            return "", False
        line = self._sentence_text(opening)
        while (greeting := _GREETED.match(line)) is not None and greeting[1].lower() in GREETINGS:
            line = line[greeting.end() :]
        bases = [self._words[term].base for term in opening.terms]
        says = sum([2 if base > PLAIN else 1 for base in bases])
        says_more = len(opening.saying) > 2 or line.endswith(_QUESTIONS) or max(line, default="") >= _UNSPACED
        if (
            (max(bases) <= PLAIN and len(bases) + len(opening.figures) < 2)
            or len(line) > LINE_CHARACTERS
            or not (says > 2 or says_more)
            or not reads_as_prose(line)
        ):
            return "", False
        return line.rstrip(" .!。！:…"), says > 2

    def weights(self) -> tuple[int, ...]:
        """Return how central each event is: the sum of its terms' scores, scaled so that the greatest is 1000."""
        event_scores = [sum(map(self.scores.__getitem__, telling_terms)) for telling_terms in self._telling_terms]
        best_score = max(event_scores, default=0)
        return tuple(1000 * score // best_score if best_score else 1000 for score in event_scores)


def without_overlap(
    scored: Iterable[tuple[int, PhraseKey]], surface_of: Callable[[PhraseKey], str], *, most: int = PHRASES
) -> list[tuple[PhraseKey, str, int]]:
    """Return the first `most` phrases of which no two share a word, as (key, wording, score).

    `scored` are (negative score, key), the greatest score first.
    """
    chosen: list[tuple[PhraseKey, str, int]] = []
    used_terms: set[str] = set()
    for score, key in scored:
        if used_terms.isdisjoint(key):
            used_terms.update(key)
            chosen.append((key, clip(surface_of(key), NAME_CHARACTERS), -score))
            if len(chosen) == most:
                break
    return chosen


@lru_cache(maxsize=_REMEMBERED_KEYS)
def key_of(phrase: str) -> PhraseKey:
    """Return the terms that identify a phrase: all but stop words, unless it has no others."""
    phrase_terms = terms(phrase)
    return tuple([term for term in phrase_terms if term not in stop_terms()]) or tuple(phrase_terms) or (phrase,)


@cache
def is_everyday(term: str) -> bool:
    """Tell whether a term is an everyday word, which alone names no subject."""
    return term in plain_terms() or term in weak_terms()


def _language_votes(words: TextWords) -> Votes:
    votes = Votes()
    votes.extend(words.terms)
    return votes


def _sum_votes(parts: Iterable[Votes]) -> Votes:
    votes = Votes()
    for part in parts:
        votes.words += part.words
        votes.stopwords += part.stopwords
        votes.by_language.update(part.by_language)
    return votes


def _quote_percent(sentence: str) -> int:
    """Return the percentage of its words' score that a sentence keeps when it is chosen for a quote.

    Questions, sentences that lean on the one before or address somebody, code, and very short or long sentences keep
    less.
    """
    percent = 50 if sentence.endswith(_QUESTIONS) or _LEANING.search(sentence) else 100
    if not reads_as_prose(sentence):
        percent //= 4
    if len(sentence) < 25:
        return percent * 2 // 3
    return percent * 4 // 5 if len(sentence) > SENTENCE_CHARACTERS else percent


def _count_capitals(surface: str) -> int:
    return sum(map(str.isupper, surface))


def _without_possessive(surface: str) -> str:
    return surface[:-2] if surface.endswith(_POSSESSIVES) else surface
