"""Text to terms: any language, any string, linear time, the same result on every machine.

Words are folded (case, compatibility forms, Latin, Greek and Cyrillic accents) and, where they are plain
a-z, stemmed as English (irregular forms count as their base). Scripts without spaces give overlapping pairs of
characters, and Han ideographs also stand alone: single characters and pairs together serve such languages
well (Nie, Gao, Zhang, Zhou, 2000). Emoji and punctuation give nothing. A term has at most 64 characters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate, compress, count, pairwise
from operator import add, sub
from string import ascii_letters, digits
from typing import NamedTuple, TypeVar
from unicodedata import ucd_3_2_0

from myria.text._characters import ClassTable, FoldTable
from myria.text._irregular import BASES
from myria.text._stemmers import stemmer
from myria.text._stopwords import ENGLISH

MAX_TERM_CHARACTERS = 64

_CACHED_WORDS = 65_536
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_ASCII_WORDS_APART = re.compile(r"([A-Za-z0-9]+(?:'[A-Za-z0-9]+)*)")
"""Splits a text into what is between words and the words, in turn."""

_IN_WORDS = f"{ascii_letters}{digits}'".encode()
_SPACED = bytes(code if code in _IN_WORDS else ord(" ") for code in range(256))
"""Turns bytes of ASCII into themselves where they may be part of a word, and into spaces elsewhere."""

_SMALL_SPACED = _SPACED.lower()
"""Turns capitals into small letters besides."""

_ENGLISH_LETTERS = re.compile(r"[a-z']+\Z")
_RUN = re.compile(r"w[wm]*(?:'w[wm]*)*|(?:[ch]m{0,7})+")
_CLUSTER = re.compile(r"[ch]m{0,7}")
_CLASSES = ClassTable()
_FOLDS = FoldTable()

_JOINED = "\x01"
"""Stands for a mark that would belong to a word if one were before it."""

_MARKED_WORD = re.compile(f"[A-Za-z0-9]{_JOINED}")
_PLAIN = {" ": " ", "'": "'", "m": _JOINED}
"""What stands for characters beyond ASCII that are no letters, by their class."""

_MOST_REPLACED = 16
"""How many characters beyond ASCII a text may have, each counted once, that is read as one of ASCII."""


_ROOT = 5
"""Letters by which words are known, whatever their endings: as good as a stemmer for most languages (McNamee 2004)."""


T = TypeVar("T")


class WordCache(dict[str, T]):
    """What is made of words, by how they are written; emptied when it is full. Very long words are made anew."""

    def __init__(self, make: Callable[[str], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> T:
        made = self._make(word)
        # A pasted file can be one word of megabytes: thousands of those must not stay.
        if len(word) <= MAX_TERM_CHARACTERS:
            if len(self) >= _CACHED_WORDS:
                self.clear()
            self[word] = made
        return made


class Token(NamedTuple):
    """One term where it stands: `text[start:end]` is its surface form, `term` what it is indexed as."""

    surface: str
    term: str
    start: int
    end: int


_token = partial(tuple.__new__, Token)
"""Makes a token of a tuple of its fields."""


@dataclass(frozen=True, slots=True)
class TextWords:
    """The terms of a text in document order, as columns: each the field of that name of the text's tokens."""

    surfaces: Sequence[str]
    terms: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.terms)

    @classmethod
    def of(cls, found: Iterable[Token]) -> TextWords:
        """Return tokens as columns."""
        columns = tuple(zip(*found, strict=True)) or ((), (), (), ())
        return cls(*columns)

    def tokens(self) -> list[Token]:
        """Return them as tokens."""
        return list(map(_token, zip(self.surfaces, self.terms, self.starts, self.ends, strict=True)))

    def at(self, places: Sequence[int]) -> TextWords:
        """Return those at some places."""
        return TextWords(
            [self.surfaces[place] for place in places],
            [self.terms[place] for place in places],
            [self.starts[place] for place in places],
            [self.ends[place] for place in places],
        )


def terms(text: str) -> list[str]:
    """Return the terms of a text in document order, stop words included; never raises for any string."""
    plain = text if text.isascii() else _as_ascii(text)
    if plain is None:
        return [token.term for token in _tokens_in_letters(text)]
    spaced = plain.encode().translate(_SMALL_SPACED).decode()
    is_simple = "'" not in spaced or not _has_loose_apostrophe(spaced)
    words = spaced.split() if is_simple else _ASCII_WORD.findall(spaced)
    return list(map(_TERMS.__getitem__, words))


def tokens(text: str) -> list[Token]:
    """Return the terms of a text with their surface forms and offsets, in document order."""
    return words_in(text).tokens()


def words_in(text: str) -> TextWords:
    """Return what `tokens` does, as columns: less work where a text is read by several."""
    plain = text if text.isascii() else _as_ascii(text)
    if plain is None:
        return TextWords.of(_tokens_in_letters(text))
    words, starts, ends = _ascii_words_in(plain)
    surfaces = words if plain is text else [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return TextWords(surfaces, list(map(_TERMS.__getitem__, words)), starts, ends)


def counted_surfaces(text: str) -> list[tuple[str, str, int]]:
    """Return the surface forms of a text in lower case, each once with its term and how often it stands there.

    They are in the order of their first places.
    """
    words = words_in(text)
    counts = Counter(zip(map(str.lower, words.surfaces), words.terms, strict=True))
    return [(surface, term, count) for (surface, term), count in counts.items()]


def folded(text: str) -> str:
    """Return a text without case, compatibility forms and Latin, Greek or Cyrillic accents."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def root(term: str) -> str:
    """Return what words with the same beginning have in common, in any language; what holds a digit is itself."""
    return term if any(map(str.isdigit, term)) else term[:_ROOT]


def is_stopword(term: str) -> bool:
    """Tell whether a term (as returned by `terms`) carries structure and no subject."""
    return term in _STOP_TERMS


def stop_terms() -> frozenset[str]:
    """Return the terms that are stop words."""
    return _STOP_TERMS


@lru_cache(maxsize=1)
def stop_ids() -> frozenset[int]:
    """Return the identities of the terms that are stop words."""
    return frozenset(map(term_id, _STOP_TERMS))


def term_id(term: str) -> int:
    """Return the signed 64-bit identity of a term, from BLAKE2b."""
    return _TERM_IDS[term]


def term_ids(terms_of_text: Iterable[str]) -> Iterator[int]:
    """Return the identities of many terms, in their order."""
    return map(_TERM_IDS.__getitem__, terms_of_text)


def _ascii_words_in(text: str) -> tuple[list[str], list[int], list[int]]:
    """Return the words of a text of ASCII, where each starts and where it ends."""
    spaced = text.encode().translate(_SPACED).decode()
    if "'" in spaced and _has_loose_apostrophe(spaced):
        parts = _ASCII_WORDS_APART.split(text)
        bounds = list(accumulate(map(len, parts)))
        return parts[1::2], bounds[:-1:2], bounds[1::2]
    # Where separators stand side by side, parts are empty.
    parts = spaced.split(" ")
    words = list(filter(None, parts))
    ends = list(compress(map(add, accumulate(map(len, parts)), count()), parts))
    return words, list(map(sub, ends, map(len, words))), ends


def _tokens_in_letters(text: str) -> list[Token]:
    """Return what `tokens` does, for a text with letters beyond ASCII."""
    classes = text.translate(_CLASSES)
    found_tokens: list[Token] = []
    for run in _RUN.finditer(classes):
        start, end = run.span()
        if classes[start] == "w":
            surface = text[start:end]
            term = _LETTER_TERMS[surface]
            if term:
                found_tokens.append(_token((surface, term, start, end)))
        else:
            _clusters(text, classes, start, end, found_tokens)
    return found_tokens


def _has_loose_apostrophe(spaced: str) -> bool:
    """Tell whether there is an apostrophe in a text of words and spaces that is not within a word."""
    return "' " in spaced or " '" in spaced or "''" in spaced or spaced[0] == "'" or spaced[-1] == "'"


def _as_ascii(text: str) -> str | None:
    """Return a text of as many characters in ASCII with the same words; None where letters are not in ASCII.

    Editors put dashes and quotation marks into plain English, and people emoji: such texts take the quick way.
    """
    others = {character for character in set(text) if not character.isascii()}
    if len(others) > _MOST_REPLACED:
        return None
    for character in others:
        plain = _PLAIN.get(_CLASSES[ord(character)])
        if plain is None:
            return None
        text = text.replace(character, plain)
    return None if _JOINED in text and _MARKED_WORD.search(text) is not None else text


def _stemmed(word: str) -> str:
    if not (word.isascii() and word.isalpha()) and _ENGLISH_LETTERS.match(word) is None:
        return word
    stem: str = stemmer("english").stemWord(BASES.get(word, word))
    return stem


def _term(word: str) -> str:
    """Return the term of a folded word; "" where folding leaves nothing of it."""
    if len(word) <= MAX_TERM_CHARACTERS:
        return _stemmed(word)
    mark = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{word[:47]}~{mark}"


def _identity(term: str) -> int:
    digest = blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


_TERMS = WordCache(lambda word: _term(word.lower()))
"""Of words of ASCII."""

_LETTER_TERMS = WordCache(lambda word: _term(word.translate(_FOLDS)))
"""Of words with letters beyond ASCII, or beside some."""

_TERM_IDS = WordCache(_identity)


def _clusters(text: str, classes: str, start: int, end: int, into: list[Token]) -> None:
    spans = [match.span() for match in _CLUSTER.finditer(classes, start, end)]
    parts = [_composed(text[first:last]) for first, last in spans]
    if len(spans) == 1:
        into.append(Token(text[start:end], parts[0], start, end))
        return
    for (first, last), part in zip(spans, parts, strict=True):
        if classes[first] == "h":
            into.append(Token(text[first:last], part, first, last))
    for at, ((first, _), (_, last)) in enumerate(pairwise(spans)):
        into.append(Token(text[first:last], parts[at] + parts[at + 1], first, last))


def _composed(cluster: str) -> str:
    return ucd_3_2_0.normalize("NFC", cluster.translate(_FOLDS)) if len(cluster) > 1 else cluster.translate(_FOLDS)


_STOP_TERMS = frozenset(term for word in ENGLISH for term in terms(word))
