"""Which words and phrases of an erased event are searched for elsewhere, and how."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from myria.text import terms
from myria.text.common_words import plain_terms, weak_terms

_WORD = re.compile(r"\w+")
_PHRASE_WORDS = 3
"""Words of a phrase that is looked for."""
_TELLING_LETTERS = 5
"""Letters of the shortest word that alone betrays a text."""
_NUMBERED_LETTERS = 4
"""The same for a word that holds a digit."""
_PAIR_LETTERS = 3
"""Letters of the shortest word in a pair of neighbours."""
_ESCAPES = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[nrtbf\"/])")
"""How JSON, and JSON within JSON, writes what is no letter, and letters by their numbers."""

_SIEVE_BITS = 24
_WORDS_KNOWN = 1_000_000


def strings(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, names of fields too, and every number."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)


def words(text: str) -> list[str]:
    """Return the words of a text, which may be JSON, in their order, case folded."""
    if "\\" in text:
        text = _ESCAPES.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text)
    return _WORD.findall(text.casefold())


def telling(text: str) -> set[str]:
    """Return what shows that another text quotes this one: its rare words, and its pairs of neighbouring words."""
    text_words = words(text)
    telltales = {word for word in text_words if _is_telling(word)}
    telltales.update(
        f"{first} {second}"
        for first, second in pairwise(text_words)
        if len(first) >= _PAIR_LETTERS and len(second) >= _PAIR_LETTERS
    )
    return telltales


def holds_name(text: str, names: Iterable[str]) -> bool:
    """Tell whether a text holds one of some names: its words in a row, whatever their case."""
    row = f" {' '.join(words(text))} "
    return any(f" {' '.join(name_words)} " in row for name in names if (name_words := words(name)))


@lru_cache(maxsize=65_536)
def _is_telling(word: str) -> bool:
    if len(word) >= _NUMBERED_LETTERS and any(letter.isdigit() for letter in word):
        return True
    common = weak_terms() | plain_terms()
    return len(word) >= _TELLING_LETTERS and not any(term in common for term in terms(word))


def phrases(text: str) -> set[str]:
    """Return the phrases whose absence a receipt proves: each three words in a row (a shorter text whole), and numbers.

    Runs of common words only are left out: somebody would say them again tomorrow.
    """
    text_words = words(text)
    runs = [text_words[at : at + _PHRASE_WORDS] for at in range(max(1, len(text_words) - _PHRASE_WORDS + 1))]
    phrases_found = {" ".join(run) for run in runs if any(_is_telling(word) for word in run)}
    phrases_found.update(
        word for word in text_words if len(word) >= _TELLING_LETTERS and any(letter.isdigit() for letter in word)
    )
    return phrases_found


class PhraseDigests:
    """Digests of phrases under one key, and sieves, which rule out most phrases before the slower digest is computed.

    A sieve is 24 bits made of keyed hashes of a phrase's words. All sieves of a text are computed at once, for one
    look-up per word. Without the key, a sieve reveals nothing about the words.

    Args:
        key: of a receipt, 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        # Odd multipliers (one per position), so that the order of words counts and no bits of a hash are lost.
        multipliers = hmac.digest(key, b"\0multipliers", "sha256")[: 8 * _PHRASE_WORDS]
        self._multipliers = np.frombuffer(multipliers, dtype="<u8") | np.uint64(1)
        self._hash_by_word: dict[str, int] = {}

    def digest(self, phrase: str) -> bytes:
        """Return the HMAC of a phrase, 32 bytes."""
        return hmac.digest(self._key, phrase.encode(), "sha256")

    def sieve(self, phrase: str) -> int:
        """Return the sieve of a phrase."""
        row = phrase.split(" ")
        return int(self.sieves(self.hashed(row), len(row))[0])

    def hashed(self, row: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Return a keyed hash of each word."""
        if len(self._hash_by_word) > _WORDS_KNOWN:
            self._hash_by_word.clear()
        known = self._hash_by_word
        for word in set(row).difference(known):
            known[word] = int.from_bytes(hmac.digest(self._key, b"\0" + word.encode(), "sha256")[:8], "big")
        return np.fromiter(map(known.__getitem__, row), dtype=np.uint64, count=len(row))

    def sieves(self, numbers: npt.NDArray[np.uint64], size: int) -> npt.NDArray[np.uint64]:
        """Return the sieves of each `size` words in a row, given their hashes."""
        count = max(0, len(numbers) - size + 1)
        sums = np.zeros(count, dtype=np.uint64)
        for position in range(size):
            sums += self._multipliers[position] * numbers[position : position + count]
        return sums >> np.uint64(64 - _SIEVE_BITS)


class PhraseFinder:
    """Finds in texts the phrases whose digests are known.

    Args:
        key: under which they were made.
        wanted: the sieves of the phrases, by digest. If a sieve is None (unknown), every phrase of every text is
            digested.
    """

    def __init__(self, key: bytes, wanted: Mapping[bytes, int | None]) -> None:
        self._digests = PhraseDigests(key)
        self._wanted = wanted
        self._digest_by_phrase: dict[str, bytes] = {}
        self._passes = np.zeros(1 << _SIEVE_BITS, dtype=np.bool_)
        self._passes[[sieve for sieve in wanted.values() if sieve is not None]] = True
        if None in wanted.values():
            self._passes[:] = True

    def find(self, texts: Sequence[str]) -> list[set[bytes]]:
        """Return, for each text, the digests of the wanted phrases that it holds.

        All texts are sieved as one row of words; a phrase that crosses from one text into the next is dropped.
        """
        found: list[set[bytes]] = [set() for _ in texts]
        words_by_text = [words(text) for text in texts]
        all_words = [word for words_of_text in words_by_text for word in words_of_text]
        text_of = np.repeat(np.arange(len(words_by_text)), [len(words_of_text) for words_of_text in words_by_text])
        hashes = self._digests.hashed(all_words)
        for size in range(1, min(_PHRASE_WORDS, len(all_words)) + 1):
            passed = self._passes[self._digests.sieves(hashes, size)]
            passed &= text_of[: len(passed)] == text_of[size - 1 :]
            for start in np.flatnonzero(passed).tolist():
                digest = self._digest(" ".join(all_words[start : start + size]))
                if digest in self._wanted:
                    found[text_of[start]].add(digest)
        return found

    def _digest(self, phrase: str) -> bytes:
        digest = self._digest_by_phrase.get(phrase)
        if digest is None:
            if len(self._digest_by_phrase) > _WORDS_KNOWN:
                self._digest_by_phrase.clear()
            digest = self._digest_by_phrase[phrase] = self._digests.digest(phrase)
        return digest
