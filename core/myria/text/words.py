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
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple, TypeVar
from unicodedata import ucd_3_2_0

from myria.text._characters import ClassTable, FoldTable
from myria.text._irregular import BASES
from myria.text._stemmers import stemmer
from myria.text._stopwords import ENGLISH

MAX_TERM_CHARACTERS = 64

_CACHED_WORDS = 65_536
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")
_ENGLISH_LETTERS = re.compile(r"[a-z']+\Z")
_RUN = re.compile(r"w[wm]*(?:'w[wm]*)*|(?:[ch]m{0,7})+")
_CLUSTER = re.compile(r"[ch]m{0,7}")
_CLASSES = ClassTable()
_FOLDS = FoldTable()

_JOINED = "\x01"
"""Replaces a non-ASCII mark, which belongs to the word before it, if there is one."""

_MARKED_WORD = re.compile(f"[A-Za-z0-9]{_JOINED}")
_PLAIN = {" ": " ", "'": "'", "m": _JOINED}
"""Replacements of non-ASCII characters other than letters, by their class."""

_MOST_REPLACED = 16
"""Most different non-ASCII characters of a text that is read by the quick way for ASCII."""


_ROOT = 5
"""First letters of a word that make its root: as good as a stemmer for most languages (McNamee 2004)."""


T = TypeVar("T")


class WordCache(dict[str, T]):
    """Results of a function of words, by word; emptied when full. Results of very long words are not kept."""

    def __init__(self, make: Callable[[str], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> T:
        value = self._make(word)
        # A pasted file can be one word of megabytes: thousands of those must not stay.
        if len(word) <= MAX_TERM_CHARACTERS:
            if len(self) >= _CACHED_WORDS:
                self.clear()
            self[word] = value
        return value


class Token(NamedTuple):
    """A term with its place: `text[start:end]` is its surface form, `term` the form in which it is indexed."""

    surface: str
    term: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextWords:
    """The tokens of a text in document order as columns: each column holds one field of all tokens."""

    surfaces: Sequence[str]
    terms: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.terms)

    @classmethod
    def of(cls, found: Iterable[Token]) -> TextWords:
        """Return the columns of tokens."""
        columns = tuple(zip(*found, strict=True)) or ((), (), (), ())
        return cls(*columns)

    def tokens(self) -> list[Token]:
        """Return the tokens of the columns."""
        return list(map(Token, self.surfaces, self.terms, self.starts, self.ends))

    def at(self, places: Sequence[int]) -> TextWords:
        """Return the tokens at some indexes, as columns."""
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
    return list(map(_TERMS.__getitem__, _ASCII_WORD.findall(plain)))


def tokens(text: str) -> list[Token]:
    """Return the terms of a text with their surface forms and offsets, in document order."""
    return words_in(text).tokens()


def words_in(text: str) -> TextWords:
    """Return what `tokens` does, as columns, which are cheaper to make and to share."""
    plain = text if text.isascii() else _as_ascii(text)
    if plain is None:
        return TextWords.of(_tokens_in_letters(text))
    found = list(_ASCII_WORD.finditer(plain))
    starts, ends = [match.start() for match in found], [match.end() for match in found]
    surfaces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return TextWords(surfaces, [_TERMS[match[0]] for match in found], starts, ends)


def counted_surfaces(text: str) -> list[tuple[str, str, int]]:
    """Return the different surface forms of a text in lower case, as (surface, term, count).

    They are in the order of their first occurrences.
    """
    words = words_in(text)
    counts = Counter(zip(map(str.lower, words.surfaces), words.terms, strict=True))
    return [(surface, term, count) for (surface, term), count in counts.items()]


def folded(text: str) -> str:
    """Return a text without case, compatibility forms and Latin, Greek or Cyrillic accents."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def root(term: str) -> str:
    """Return the first letters of a term, common to a word's forms in any language; all of it if it has a digit."""
    return term if any(map(str.isdigit, term)) else term[:_ROOT]


def is_stopword(term: str) -> bool:
    """Tell whether a term (as returned by `terms`) only holds sentences together, and names no subject."""
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


def _tokens_in_letters(text: str) -> list[Token]:
    """Return what `tokens` does, for a text with non-ASCII letters."""
    classes = text.translate(_CLASSES)
    found_tokens: list[Token] = []
    for run in _RUN.finditer(classes):
        start, end = run.span()
        if classes[start] == "w":
            surface = text[start:end]
            term = _LETTER_TERMS[surface]
            if term:
                found_tokens.append(Token(surface, term, start, end))
        else:
            _add_clusters(text, classes, start, end, found_tokens)
    return found_tokens


def _as_ascii(text: str) -> str | None:
    """Return an ASCII text of the same length with the same words; None if some letters are not ASCII.

    So plain English with the dashes and quotation marks of editors, or with emoji, takes the quick way.
    """
    non_ascii = {character for character in set(text) if not character.isascii()}
    if len(non_ascii) > _MOST_REPLACED:
        return None
    for character in non_ascii:
        replacement = _PLAIN.get(_CLASSES[ord(character)])
        if replacement is None:
            return None
        text = text.replace(character, replacement)
    return None if _JOINED in text and _MARKED_WORD.search(text) is not None else text


def _stemmed(word: str) -> str:
    if not (word.isascii() and word.isalpha()) and _ENGLISH_LETTERS.match(word) is None:
        return word
    stem: str = stemmer("english").stemWord(BASES.get(word, word))
    return stem


def _term(word: str) -> str:
    """Return the term of a folded word, "" if folding left nothing; a long word is cut and ends in its hash."""
    if len(word) <= MAX_TERM_CHARACTERS:
        return _stemmed(word)
    word_hash = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{word[:47]}~{word_hash}"  # 47 + 1 + 16 characters: MAX_TERM_CHARACTERS


def _hash_term(term: str) -> int:
    digest = blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


_TERMS = WordCache(lambda word: _term(word.lower()))
"""Terms of ASCII words."""

_LETTER_TERMS = WordCache(lambda word: _term(word.translate(_FOLDS)))
"""Terms of words in texts with non-ASCII letters."""

_TERM_IDS = WordCache(_hash_term)


def _add_clusters(text: str, classes: str, start: int, end: int, found_tokens: list[Token]) -> None:
    """Add the tokens of a run in a script without spaces: each Han ideograph, and each pair of neighbours."""
    spans = [match.span() for match in _CLUSTER.finditer(classes, start, end)]
    parts = [_folded_cluster(text[first:last]) for first, last in spans]
    if len(spans) == 1:
        found_tokens.append(Token(text[start:end], parts[0], start, end))
        return
    for (first, last), part in zip(spans, parts, strict=True):
        if classes[first] == "h":
            found_tokens.append(Token(text[first:last], part, first, last))
    for index, ((first, _), (_, last)) in enumerate(pairwise(spans)):
        found_tokens.append(Token(text[first:last], parts[index] + parts[index + 1], first, last))


def _folded_cluster(cluster: str) -> str:
    return ucd_3_2_0.normalize("NFC", cluster.translate(_FOLDS)) if len(cluster) > 1 else cluster.translate(_FOLDS)


_STOP_TERMS = frozenset(term for word in ENGLISH for term in terms(word))
