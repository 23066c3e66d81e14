"""One text of a leaf as a reader takes it: what each word says by its kind, and which words may be a noun together."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from myria.text import TextWords, terms
from myria.text.common_words import plain_terms, weak_terms
from myria.text.words import stop_terms
from myria.topics.english import EMPTY_NOUNS, VERB_FORMS, ends_like_a_noun, ends_unlike_a_noun
from myria.topics.lines import lowered
from myria.topics.model import PlanEvent
from myria.topics.prose import may_be_no_prose, not_prose
from myria.topics.wording import GREETINGS, Language, language_named, words_of

GREETING, SILENT, WEAK, PLAIN, TELLING = -1, 0, 1, 2, 7
"""Weights of words by kind: greetings; function words and the like; words said about everything; everyday nouns; and
from TELLING on all others, the longer the more."""

FULL = 10
"""The length factor, in tenths, of a text of usual length."""

_USUAL_WORDS = 60
"""Longest text, in words, that counts in full; one twice as long counts half."""

_READ_CHARACTERS = 2_048
"""How much of a text is read for its phrases: what comes later in a long one would hardly count."""

_KEYWORD_CHARACTERS = 32
_REMEMBERED_WORDS = 65_536
_LONGEST_RUN = 8

_LINK = re.compile(
    " (?:of|for|in|von|für|de|du|des|del|do|da|dos|das|di|della|para|pour|à|van|voor|av|till|на|в|для)"
    "(?: (?:the|a|an|my|our|their|der|die|das|dem|den|la|le|les|los|las|el|o|het))?"
    " | (?:de|à|pour) l['’]| d['’]|の|的| (?:का|की|के) "
)
_LONGEST_LINK = 16

_OPENING = re.compile("[.!?…:\n\r\"“”'‘’(*—–。！？-] *")
"""Characters after which a sentence begins."""

_CONTRACTIONS = ("'ve", "'d", "'ll", "'re", "n't", "’ve", "’d", "’ll", "’re", "n’t")
_IDENTIFIER = re.compile(r"[-./:_]\d")
"""Characters after a token that show it to be the beginning of TC-4, v0.7 or 10:30, not a word."""

_SINGULAR_ENDINGS = ("ss", "us", "is", "as", "os", "'s", "’s")
_LEAST_SHOUTED = 8
_SHORTEST_NAME = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class EventText:
    """The beginning of one event's text, split into weighed words; a text all in capitals is put in small letters.

    `position` is that of the event in its leaf; `code` are the spans that are no prose, found only where `is_suspect`
    tells that there may be some.
    """

    position: int
    text: str
    words: TextWords
    surfaces: Sequence[str]
    weights: Sequence[int]
    length_factor: int
    """How much one occurrence in this text counts, in tenths: 10 up to the usual length, less in longer texts."""

    sentence_starts: set[int]
    """Positions of the characters with which sentences begin."""

    is_suspect: bool
    code: list[tuple[int, int]]
    language: Language

    @classmethod
    def of(cls, event: PlanEvent, position: int, language: Language) -> EventText:
        """Read an event's text, up to `_READ_CHARACTERS`, in a language."""
        length_factor = max(1, FULL * _USUAL_WORDS // max(_USUAL_WORDS, len(event.words)))
        beginning = event.text[:_READ_CHARACTERS]
        words_read = event.words.at(range(bisect_left(event.words.ends, len(beginning) + 1)))
        words = words_of(event.text, words_read, language)
        surfaces: Sequence[str] = words.surfaces
        if len(beginning) >= _LEAST_SHOUTED and beginning.isascii() and beginning.isupper():
            beginning, surfaces = beginning.lower(), [surface.lower() for surface in surfaces]
        is_suspect = may_be_no_prose(beginning)
        sentence_starts = {len(beginning) - len(beginning.lstrip(" "))}
        sentence_starts.update(opening.end() for opening in _OPENING.finditer(beginning))
        return cls(
            position=position,
            text=beginning,
            words=words,
            surfaces=surfaces,
            weights=[
                _weight(surface, term, language.name) for surface, term in zip(surfaces, words.terms, strict=True)
            ],
            length_factor=length_factor,
            sentence_starts=sentence_starts,
            is_suspect=is_suspect,
            code=not_prose(beginning) if is_suspect else [],
            language=language,
        )

    def before(self, index: int) -> str:
        """Return the word before the one at an index, in small letters; empty if more than a space is between."""
        if not index or self.text[self.words.ends[index - 1] : self.words.starts[index]] not in (" ", ""):
            return ""
        return self.surfaces[index - 1].lower().replace("’", "'")

    def after(self, index: int) -> str:
        """Return the word after the one at an index, in small letters; empty if more than a space is between."""
        return self.surfaces[index + 1].lower() if index + 1 < len(self.surfaces) and self.before(index + 1) else ""

    def is_cut(self, first_index: int, last_index: int) -> bool:
        """Tell whether a span of words is only a part of what a hyphen or capitals join: "ramp" in "ramp-up",
        "Employment" in "the Employment Act"."""
        start, end = self.words.starts[first_index], self.words.ends[last_index]
        if self.text[start - 1 : start] == "-" or (
            self.text[end : end + 1] == "-" and self.text[end + 1 : end + 2] > " "
        ):
            return True
        next_surface = self.surfaces[last_index + 1] if last_index + 1 < len(self.surfaces) else ""
        return (
            not self.language.capitalises_nouns
            and self.surfaces[last_index][0].isupper()
            and next_surface[:1].isupper()
            and self.text[end : self.words.starts[last_index + 1]] == " "
            and start not in self.sentence_starts
        )

    def is_noun(self, index: int) -> bool:
        """Tell whether a capital inside a sentence, or an English ending, marks the word at an index as a noun."""
        surface = self.surfaces[index]
        if surface[0].isupper() and self.words.starts[index] not in self.sentence_starts:
            return True
        return self.language.is_english and ends_like_a_noun(surface)

    def links(self, last_index: int, first_index: int) -> bool:
        """Tell whether the text between two words links them into one phrase: "lease of the warehouse"."""
        between = self.text[self.words.ends[last_index] : self.words.starts[first_index]]
        return len(between) <= _LONGEST_LINK and _LINK.fullmatch(between) is not None


@lru_cache(maxsize=_REMEMBERED_WORDS)
def _weight(surface: str, term: str, language_name: str) -> int:
    """Return the weight of a word by its kind in a language, from `GREETING` and `SILENT` up to `TELLING` and more."""
    language = language_named(language_name)
    lowercase = lowered(surface)
    length = len(term)
    if lowercase in GREETINGS:
        return GREETING
    if not 1 < length <= _KEYWORD_CHARACTERS or term in stop_terms() or term in language.function_terms:
        return SILENT
    if ("'" in surface or "’" in surface) and surface.endswith(_CONTRACTIONS):
        return SILENT
    if term in weak_terms() or lowercase in EMPTY_NOUNS:
        return WEAK
    if term in plain_terms():
        return PLAIN
    if term.isdigit():
        return WEAK
    if not term.isalpha() and term.isascii() and "'" not in term:
        return PLAIN
    if language.capitalises_nouns:
        return WEAK if surface == lowercase and surface[0].isalpha() else TELLING + min(length, 9) // 3
    if language.is_english and (lowercase in VERB_FORMS or (surface == lowercase and ends_unlike_a_noun(lowercase))):
        return WEAK
    if language.is_verb(surface):
        return WEAK
    return TELLING + min(length, 9) // 3


def parts_of(run: range, surfaces: Sequence[str], language: Language) -> list[range]:
    """Split a run into parts. In English a word in the form of a plural ends a part: "sensors | sit"."""
    if not language.is_english:
        return [run[:_LONGEST_RUN]]
    parts: list[range] = []
    part_start = run.start
    for index in run[:-1]:
        if is_plural(surfaces[index]):
            parts.append(range(part_start, index + 1))
            part_start = index + 1
    if run.stop > part_start:
        parts.append(range(part_start, run.stop))
    return parts


def is_plural(surface: str) -> bool:
    """Tell whether an English word has the form of a plural, which is also that of a verb after "she"."""
    return surface.islower() and surface.endswith("s") and not surface.endswith(_SINGULAR_ENDINGS)


def noun_spans(run: range, surfaces: Sequence[str], language: Language, *, is_opened: bool) -> Iterable[range]:
    """Yield the spans of a run that may be a noun with the words that describe it, the shortest first.

    In Romance languages the noun comes first; in Arabic a word with its article is a noun. In languages without words
    that announce a noun, any one or two words may be one; in English and the others the noun comes last.
    """
    if language.article:
        for index in run:
            if surfaces[index].startswith(language.article):
                yield range(index, index + 1)
                if index > run.start:
                    yield range(index - 1, index + 1)
        return
    if language.adjective is not None:
        yield run[:1]
        if len(run) > 1 and (
            language.adjective.search(surfaces[run[1]]) or all(surfaces[index][0].isupper() for index in run[:2])
        ):
            yield run[:2]
        return
    if not language.openers:
        for size in (1, 2):
            yield from (run[index : index + size] for index in range(len(run) - size + 1))
        return
    if language.is_english and ends_unlike_a_noun(surfaces[run[-1]]) and surfaces[run[-1]].islower():
        run = run[:-1]
    for size in range(1, min(3, len(run)) + 1):
        span = run[-size:]
        begins_with_gerund = size > 1 and language.is_english and surfaces[span[0]].endswith("ing")
        if not begins_with_gerund or (is_opened and size == len(run) and surfaces[span[1]].islower()):
            yield span


@lru_cache(maxsize=4096)
def terms_of_names(names: tuple[str, ...]) -> frozenset[str]:
    """Return the words of names, except of identifiers: `user_42` or `agent:7` would make "user" and "agent" names."""
    words: set[str] = set()
    for name in names:
        if not any(character in "0123456789_:/@.#" for character in name):
            words.update(terms(name))
            words.update(part.lower() for part in name.split(" ") if len(part) > 2)
    return frozenset(words)


def is_short_for(surface: str, names: frozenset[str]) -> bool:
    """Tell whether a capitalised word is the beginning of a name, as "Alex" is of "Alexander"."""
    lowercase = surface.lower()
    return len(surface) >= _SHORTEST_NAME and any(name.startswith(lowercase) for name in names)


def is_counted(text: str, surface: str, start: int) -> bool:
    """Tell whether a word begins an identifier, or is what a number counts: a unit, no subject."""
    if _IDENTIFIER.match(text, start + len(surface)):
        return True
    before = text[max(0, start - 2) : start]
    return before[:1].isdecimal() and before[1:] in ("", " ") and len(surface) <= _SHORTEST_NAME
