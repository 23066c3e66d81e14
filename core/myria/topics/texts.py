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
"""How much a word says by its kind: a greeting, what holds sentences together, what is said about everything, everyday
nouns, and from TELLING on all others."""

FULL = 10
"""What a text of usual length counts: tenths."""

_USUAL_WORDS = 60
"""Words of a text that counts in full; a longer one counts as much less as it is longer."""

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
"""What a sentence begins after."""

_CONTRACTIONS = ("'ve", "'d", "'ll", "'re", "n't", "’ve", "’d", "’ll", "’re", "n’t")
_IDENTIFIER = re.compile(r"[-./:_]\d")
"""What follows a token that is the beginning of TC-4, v0.7 or 10:30, not a word."""

_SINGULAR_ENDINGS = ("ss", "us", "is", "as", "os", "'s", "’s")
_LEAST_SHOUTED = 8
_SHORTEST_NAME = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class EventText:
    """One text of a leaf, as it is read: what is all capitals in small letters."""

    position: int
    text: str
    words: TextWords
    surfaces: Sequence[str]
    weights: Sequence[int]
    factor: int
    """What it counts, in tenths of a text of usual length."""

    openings: set[int]
    """Where sentences open."""

    is_suspect: bool
    code: list[tuple[int, int]]
    language: Language

    @classmethod
    def of(cls, event: PlanEvent, position: int, language: Language) -> EventText:
        factor = max(1, FULL * _USUAL_WORDS // max(_USUAL_WORDS, len(event.words)))
        beginning = event.text[:_READ_CHARACTERS]
        read = event.words.at(range(bisect_left(event.words.ends, len(beginning) + 1)))
        words = words_of(event.text, read, language)
        surfaces: Sequence[str] = words.surfaces
        if len(beginning) >= _LEAST_SHOUTED and beginning.isascii() and beginning.isupper():
            beginning, surfaces = beginning.lower(), [surface.lower() for surface in surfaces]
        is_suspect = may_be_no_prose(beginning)
        openings = {len(beginning) - len(beginning.lstrip(" "))}
        openings.update(opening.end() for opening in _OPENING.finditer(beginning))
        return cls(
            position=position,
            text=beginning,
            words=words,
            surfaces=surfaces,
            weights=[
                _weight(surface, term, language.name) for surface, term in zip(surfaces, words.terms, strict=True)
            ],
            factor=factor,
            openings=openings,
            is_suspect=is_suspect,
            code=not_prose(beginning) if is_suspect else [],
            language=language,
        )

    def before(self, at: int) -> str:
        """Return the word before another, in small letters, where nothing but a space is between them."""
        if not at or self.text[self.words.ends[at - 1] : self.words.starts[at]] not in (" ", ""):
            return ""
        return self.surfaces[at - 1].lower().replace("’", "'")

    def after(self, at: int) -> str:
        """Return the word after another, in small letters, where nothing but a space is between them."""
        return self.surfaces[at + 1].lower() if at + 1 < len(self.surfaces) and self.before(at + 1) else ""

    def is_cut(self, first: int, last: int) -> bool:
        """Tell whether words are a part of what a hyphen or capitals join: "ramp" of "ramp-up", "Employment" of "the
        Employment Act"."""
        start, end = self.words.starts[first], self.words.ends[last]
        if self.text[start - 1 : start] == "-" or (
            self.text[end : end + 1] == "-" and self.text[end + 1 : end + 2] > " "
        ):
            return True
        following = self.surfaces[last + 1] if last + 1 < len(self.surfaces) else ""
        return (
            not self.language.capitalises_nouns
            and self.surfaces[last][0].isupper()
            and following[:1].isupper()
            and self.text[end : self.words.starts[last + 1]] == " "
            and start not in self.openings
        )

    def is_noun(self, at: int) -> bool:
        """Tell whether a word's capital or ending tells a noun."""
        surface = self.surfaces[at]
        if surface[0].isupper() and self.words.starts[at] not in self.openings:
            return True
        return self.language.is_english and ends_like_a_noun(surface)

    def links(self, last: int, first: int) -> bool:
        """Tell whether what stands between two runs joins them: "lease of the warehouse"."""
        between = self.text[self.words.ends[last] : self.words.starts[first]]
        return len(between) <= _LONGEST_LINK and _LINK.fullmatch(between) is not None


@lru_cache(maxsize=_REMEMBERED_WORDS)
def _weight(surface: str, term: str, language_name: str) -> int:
    """Return what a word says by its kind in a language: 0 for nothing, more for rarer kinds."""
    language = language_named(language_name)
    small = lowered(surface)
    size = len(term)
    if small in GREETINGS:
        return GREETING
    if not 1 < size <= _KEYWORD_CHARACTERS or term in stop_terms() or term in language.function_terms:
        return SILENT
    if ("'" in surface or "’" in surface) and surface.endswith(_CONTRACTIONS):
        return SILENT
    if term in weak_terms() or small in EMPTY_NOUNS:
        return WEAK
    if term in plain_terms():
        return PLAIN
    if term.isdigit():
        return WEAK
    if not term.isalpha() and term.isascii() and "'" not in term:
        return PLAIN
    if language.capitalises_nouns:
        return WEAK if surface == small and surface[0].isalpha() else TELLING + min(size, 9) // 3
    if language.is_english and (small in VERB_FORMS or (surface == small and ends_unlike_a_noun(small))):
        return WEAK
    if language.is_verb(surface):
        return WEAK
    return TELLING + min(size, 9) // 3


def parts_of(run: range, surfaces: Sequence[str], language: Language) -> list[range]:
    """Return the parts of a run, of which in English a word in the form of a plural ends one: "sensors | sit"."""
    if not language.is_english:
        return [run[:_LONGEST_RUN]]
    parts: list[range] = []
    first = run.start
    for at in run[:-1]:
        if is_plural(surfaces[at]):
            parts.append(range(first, at + 1))
            first = at + 1
    if run.stop > first:
        parts.append(range(first, run.stop))
    return parts


def is_plural(surface: str) -> bool:
    """Tell whether an English word has the form of a plural, or of a verb that somebody does."""
    return surface.islower() and surface.endswith("s") and not surface.endswith(_SINGULAR_ENDINGS)


def noun_spans(run: range, surfaces: Sequence[str], language: Language, *, is_opened: bool) -> Iterable[range]:
    """Yield the parts of a run that may be a noun with what describes it, the shortest first.

    A noun ends its phrase in English and its like, and begins it in languages of Romance and in Arabic; where nothing
    stands before nouns, any word may be one.
    """
    if language.article:
        for at in run:
            if surfaces[at].startswith(language.article):
                yield range(at, at + 1)
                if at > run.start:
                    yield range(at - 1, at + 1)
        return
    if language.adjective is not None:
        yield run[:1]
        if len(run) > 1 and (
            language.adjective.search(surfaces[run[1]]) or all(surfaces[at][0].isupper() for at in run[:2])
        ):
            yield run[:2]
        return
    if not language.openers:
        for size in (1, 2):
            yield from (run[at : at + size] for at in range(len(run) - size + 1))
        return
    if language.is_english and ends_unlike_a_noun(surfaces[run[-1]]) and surfaces[run[-1]].islower():
        run = run[:-1]
    for size in range(1, min(3, len(run)) + 1):
        span = run[-size:]
        acts = size > 1 and language.is_english and surfaces[span[0]].endswith("ing")
        if not acts or (is_opened and size == len(run) and surfaces[span[1]].islower()):
            yield span


@lru_cache(maxsize=4096)
def terms_of_names(names: tuple[str, ...]) -> frozenset[str]:
    """Return the words of names. Identifiers have none: `user_42` or `agent:7` would take "user" and "agent" away."""
    words: set[str] = set()
    for name in names:
        if not any(character in "0123456789_:/@.#" for character in name):
            words.update(terms(name))
            words.update(part.lower() for part in name.split(" ") if len(part) > 2)
    return frozenset(words)


def is_short_for(surface: str, names: frozenset[str]) -> bool:
    """Tell whether a word with a capital is short for a name."""
    small = surface.lower()
    return len(surface) >= _SHORTEST_NAME and any(name.startswith(small) for name in names)


def is_counted(text: str, surface: str, start: int) -> bool:
    """Tell whether a word begins an identifier, or is what a number counts: a unit, no subject."""
    if _IDENTIFIER.match(text, start + len(surface)):
        return True
    before = text[max(0, start - 2) : start]
    return before[:1].isdecimal() and before[1:] in ("", " ") and len(surface) <= _SHORTEST_NAME
