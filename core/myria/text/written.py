"""Finds words written with signs, as terms beside a text's plain words: identifiers, paths, versions, c++, emoji.

The plain words of `unlock_with_fingerprint` and of `c++` are `unlock`, `fingerprint` and `c`. An identifier is also one
word, the same however it is written (`unlockWithFingerprint`, `unlock_with_fingerprint`, `unlock-with-fingerprint`),
and one in camel case is also its parts. What has other signs in it (`worker.toml`, `3.11.2`, `c#`, `.net`) is also one
as it stands; a version also what it begins with (`3.11`). An emoji is a word, whatever its skin tone and variation.
Linear in the text, for any string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from string import digits
from typing import Final, NamedTuple

from myria.text.words import MAX_TERM_CHARACTERS, WordCache, is_stopword, terms

_LETTER: Final = "A-Za-z0-9\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
_PICTURE: Final = (
    "[\u203c\u2049\u2139\u2194-\u2199\u21a9\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b55"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
)
_VARIED: Final = f"{_PICTURE}[\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?"
_WRITTEN: Final = re.compile(
    rf"(?:(?<![\w.])\.(?=[A-Za-z]))?[{_LETTER}]+(?:[-_./\\&@:]+[{_LETTER}]+)*(?:(?:\+\+[0-9]*|\#)(?![\w+#]))?"
    "|(?P<emoji>[\U0001f1e6-\U0001f1ff]{2}|\U0001f3f4[\U000e0020-\U000e007f]+|[0-9#*]\ufe0f?\u20e3"
    f"|{_VARIED}(?:\u200d{_VARIED})*)"
)
"""A word with all that signs join to it (mostly a plain word without any), or an emoji."""

_SIGNED: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]{1,15}|[A-Za-z][A-Za-z0-9]{0,15}(?:\+\+[0-9]*|\#)")
_CAMEL: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_CAMEL_PART: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_VERSION: Final = re.compile(r"v?([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_DATE: Final = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}\.(?:[0-9]{2}){1,2}")
_MODIFIERS: Final = dict.fromkeys((0xFE0E, 0xFE0F, *range(0x1F3FB, 0x1F400)))
_SHORTEST_PART: Final = 2
_MOST_NUMBERS: Final = 6
"""Most numbers of a version that is also found by its beginnings."""


class Written(NamedTuple):
    """A word written with signs: `text[start:end]` is also found by `terms`, the whole word first if it is a term.

    `is_literal` tells that its plain words mean nothing by themselves: the `c` of `c#`, the `11` of a version.
    """

    start: int
    end: int
    terms: tuple[str, ...]
    is_literal: bool

    @property
    def asked(self) -> tuple[str, ...]:
        """The terms by which a question with this word searches: only the whole if it is literal, as a version is."""
        return self.terms[:1] if self.is_literal else self.terms


def written_in(text: str) -> list[Written]:
    """Return the words written with signs in a text, in its order."""
    signed_words = (_read_match(match) for match in _WRITTEN.finditer(text) if not _is_plain(match[0]))
    return [written for written in signed_words if written.terms]


def _is_plain(word: str) -> bool:
    return word.isalnum() and (word[1:].islower() or word.isupper() or word.isdecimal() or len(word) == 1)


def written_terms(text: str) -> list[str]:
    """Return the terms of all words written with signs in a text, in its order."""
    # No such word holds a space, and nearly all pieces between spaces are in the cache.
    return list(chain.from_iterable(map(_TERMS_BY_PIECE.__getitem__, text.split())))


_TERMS_BY_PIECE: Final = WordCache(lambda piece: tuple(term for written in written_in(piece) for term in written.terms))
"""By piece of text without spaces: the terms of the words written with signs in it."""


def _read_match(match: re.Match[str]) -> Written:
    """Return a match of `_WRITTEN` with its terms; with none if it is a plain word after all."""
    surface = match[0]
    is_literal = False
    found_terms: Iterable[str]
    if match["emoji"] is not None:
        found_terms = [surface.translate(_MODIFIERS)]
    elif surface.isalnum():
        found_terms = _camel_terms(surface) if _CAMEL.search(surface) is not None else ()
    elif _SIGNED.fullmatch(surface) is not None:
        found_terms, is_literal = [surface.lower(), surface.lower().rstrip(digits)], True
    elif (version := _VERSION.fullmatch(surface)) is not None:
        found_terms, is_literal = _version_terms(version[1]), True
    else:
        found_terms = _joined_terms(surface.strip("+#"))
    return Written(*match.span(), tuple(dict.fromkeys(found_terms)), is_literal)


def _version_terms(numbers: str) -> Iterator[str]:
    """Yield a version and its beginnings (3.11 of 3.11.2); nothing for a date such as 12.3.2026."""
    if _DATE.fullmatch(numbers) is None:
        yield from _whole(numbers)
        if numbers.count(".") < _MOST_NUMBERS:
            while "." in (numbers := numbers.rpartition(".")[0]):
                yield numbers


def _joined_terms(surface: str) -> Iterator[str]:
    """Yield the terms of words joined by signs: the whole, the pieces between slashes and points, and identifiers."""
    if not any(map(str.isalpha, surface)):
        return
    pieces = [piece for piece in re.split(r"[/\\&@:]+", surface) if piece]
    if len(pieces) > 1:
        yield from _whole(surface)
    for piece in pieces:
        names = [name for name in piece.split(".") if name]
        if len(names) > 1:
            yield from _whole(piece)
        for name in names:
            if "_" in name.strip("_") or "-" in name.strip("-"):
                yield from terms(re.sub("[-_]", "", name))
            for word in re.split("[-_]+", name):
                if _CAMEL.search(word) is not None:
                    yield from (*terms(word), *_camel_terms(word))


def _whole(surface: str) -> Iterator[str]:
    """Yield a word as one term, in lower case, unless it is too long for one."""
    if len(surface) <= MAX_TERM_CHARACTERS:
        yield surface.lower()


def _camel_terms(word: str) -> Iterator[str]:
    """Yield the terms of the parts of a word in camel case, stop words and single letters left out."""
    for part in _CAMEL_PART.findall(word):
        if len(part) >= _SHORTEST_PART:
            yield from (term for term in terms(part) if not is_stopword(term))
