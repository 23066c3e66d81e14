"""Splits texts into the word pieces of BERT (uncased), on which all-MiniLM-L6-v2 was trained.

Written here because the library that does it brings 30 MB of packages for what is a page of code. The pieces are in
wordpieces.txt, each numbered by its line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Final

_BEGIN: Final = "[CLS]"
_END: Final = "[SEP]"
_UNKNOWN: Final = "[UNK]"
_LONGEST_WORD: Final = 100

# Ideographs stand for themselves: the blocks that BERT counts as such, which leave out kana and hangul.
_IDEOGRAPHS: Final = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def numbers(text: str, most: int) -> list[int]:
    """Return the numbers of a text's word pieces, with the marks of its beginning and end, `most` of them at most."""
    number_of = _pieces()
    piece_numbers = [number_of[_BEGIN]]
    for word in _words(text):
        piece_numbers += _split(word, number_of)
        if len(piece_numbers) >= most - 1:
            break
    return [*piece_numbers[: most - 1], number_of[_END]]


@cache
def _pieces() -> dict[str, int]:
    text = (files("myria.index.embeddings") / "wordpieces.txt").read_text(encoding="utf-8")
    lines = (line for line in text.split("\n") if line and not line.startswith("# "))
    return {piece: number for number, piece in enumerate(lines)}


def _words(text: str) -> Iterator[str]:
    """Yield lower-case words without accents; a mark of punctuation and an ideograph are a word each."""
    word = ""
    for character in unicodedata.normalize("NFD", "".join(_cleaned(text))):
        kind = unicodedata.category(character)
        if kind == "Mn":  # an accent: NFD has split it from its letter
            continue
        stands_alone = kind[0] == "P" or (character.isascii() and kind[0] == "S") or _is_ideograph(character)
        if word and (stands_alone or character.isspace()):
            yield word
            word = ""
        if stands_alone:
            yield character
        elif not character.isspace():
            word += character.lower()
    if word:
        yield word


def _cleaned(text: str) -> Iterable[str]:
    for character in text:
        if character in "\t\n\r":
            yield " "
        elif character != "\ufffd" and unicodedata.category(character)[0] != "C":
            yield character


def _is_ideograph(character: str) -> bool:
    return character >= "\u3400" and any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)


def _split(word: str, number_of: dict[str, int]) -> list[int]:
    """Split a word, from the left, into the longest pieces; return their numbers, or only `[UNK]` if a part is none."""
    if len(word) > _LONGEST_WORD:
        return [number_of[_UNKNOWN]]
    piece_numbers = []
    start = 0
    while start < len(word):
        mark = "##" if start else ""  # the vocabulary's mark of pieces inside a word
        end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in number_of), start)
        if end == start:
            return [number_of[_UNKNOWN]]
        piece_numbers.append(number_of[mark + word[start:end]])
        start = end
    return piece_numbers
