"""Which words and phrases of erased events are looked for elsewhere."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from myria.text import terms
from myria.text.common_words import plain_terms, weak_terms

_WORD = re.compile(r"\w+")
_PHRASE = 3
"""Words of a phrase that is looked for."""
_TELLING = 5
_NUMBERED = 4
_IN_A_PAIR = 3
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
    """Return what betrays a text where it is quoted: words that few texts have, and pairs of neighbours."""
    row = words(text)
    found = {word for word in row if _is_telling(word)}
    found.update(
        f"{first} {second}" for first, second in pairwise(row) if len(first) >= _IN_A_PAIR and len(second) >= _IN_A_PAIR
    )
    return found


@lru_cache(maxsize=65_536)
def _is_telling(word: str) -> bool:
    if len(word) >= _NUMBERED and any(letter.isdigit() for letter in word):
        return True
    common = weak_terms() | plain_terms()
    return len(word) >= _TELLING and not any(term in common for term in terms(word))


def phrases(text: str) -> set[str]:
    """Return what a receipt proves the absence of: each three words in a row (a shorter text whole), and numbers.

    Words that people use about everything are no phrase: somebody would say them again tomorrow.
    """
    row = words(text)
    runs = [row[at : at + _PHRASE] for at in range(max(1, len(row) - _PHRASE + 1))]
    found = {" ".join(run) for run in runs if any(_is_telling(word) for word in run)}
    found.update(word for word in row if len(word) >= _TELLING and any(letter.isdigit() for letter in word))
    return found


class PhraseDigests:
    """Digests of phrases under one key, and a sieve that leaves few phrases of a long text to be digested.

    A sieve is 24 bits made of keyed hashes of a phrase's words: all phrases of a text are sieved at once, at the cost
    of a look-up per word. Without the key it tells nothing of the words.

    Args:
        key: of a receipt, 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        multipliers = hmac.digest(key, b"\0multipliers", "sha256")[: 8 * _PHRASE]
        self._multipliers = np.frombuffer(multipliers, dtype="<u8") | np.uint64(1)
        self._numbers: dict[str, int] = {}

    def digest(self, phrase: str) -> bytes:
        """Return the HMAC of a phrase, 32 bytes."""
        return hmac.digest(self._key, phrase.encode(), "sha256")

    def sieve(self, phrase: str) -> int:
        """Return the sieve of a phrase."""
        row = phrase.split(" ")
        return int(self.sieves(self.hashed(row), len(row))[0])

    def hashed(self, row: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Return a keyed hash of each word."""
        if len(self._numbers) > _WORDS_KNOWN:
            self._numbers.clear()
        known = self._numbers
        for word in set(row).difference(known):
            known[word] = int.from_bytes(hmac.digest(self._key, b"\0" + word.encode(), "sha256")[:8], "big")
        return np.fromiter(map(known.__getitem__, row), dtype=np.uint64, count=len(row))

    def sieves(self, numbers: npt.NDArray[np.uint64], size: int) -> npt.NDArray[np.uint64]:
        """Return the sieves of each `size` words in a row, given their hashes."""
        count = max(0, len(numbers) - size + 1)
        total = np.zeros(count, dtype=np.uint64)
        for at in range(size):
            total += self._multipliers[at] * numbers[at : at + count]
        return total >> np.uint64(64 - _SIEVE_BITS)


class PhraseFinder:
    """Finds in texts the phrases whose digests are known.

    Args:
        key: under which they were made.
        wanted: their sieves by digest; None where there is none: then every phrase of every text is digested.
    """

    def __init__(self, key: bytes, wanted: Mapping[bytes, int | None]) -> None:
        self._digests = PhraseDigests(key)
        self._wanted = wanted
        self._digested: dict[str, bytes] = {}
        self._passes = np.zeros(1 << _SIEVE_BITS, dtype=np.bool_)
        self._passes[[sieve for sieve in wanted.values() if sieve is not None]] = True
        if None in wanted.values():
            self._passes[:] = True

    def find(self, texts: Sequence[str]) -> list[set[bytes]]:
        """Return for each text the digests of wanted phrases that it holds."""
        found: list[set[bytes]] = [set() for _ in texts]
        rows = [words(text) for text in texts]
        row = [word for words_of_text in rows for word in words_of_text]
        text_of = np.repeat(np.arange(len(rows)), [len(words_of_text) for words_of_text in rows])
        numbers = self._digests.hashed(row)
        for size in range(1, min(_PHRASE, len(row)) + 1):
            passed = self._passes[self._digests.sieves(numbers, size)]
            passed &= text_of[: len(passed)] == text_of[size - 1 :]
            for at in np.flatnonzero(passed).tolist():
                digest = self._digest(" ".join(row[at : at + size]))
                if digest in self._wanted:
                    found[text_of[at]].add(digest)
        return found

    def _digest(self, phrase: str) -> bytes:
        digest = self._digested.get(phrase)
        if digest is None:
            if len(self._digested) > _WORDS_KNOWN:
                self._digested.clear()
            digest = self._digested[phrase] = self._digests.digest(phrase)
        return digest
