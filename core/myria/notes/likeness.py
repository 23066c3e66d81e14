"""How much two texts are alike, and what a process remembers of the newest notes so that it can tell without a read."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

LOOKED_AT = 24
"""Notes that a new one is compared with: the newest of the same people."""

MOST = 3
"""Notes that are named."""

ALIKE = 0.5
"""Share of common words, of all words of both, from which two notes are alike."""

BEGINNING = 2_000
"""Characters of a text that are compared."""

_TOGETHER = (1 + ALIKE) / ALIKE
"""How many times the words that two alike notes have in common are at least as many as those of both, counted apart."""

_MARKS = tuple(1 << bit for bit in range(512))
"""Bits in which words are marked, so that most notes are told apart without looking at their words."""

_LEAST_KEYWORDS = 3
"""Keywords from which on two notes are compared by them: of fewer, too many notes have the same."""

_REMEMBERED_NOTES = 4 * LOOKED_AT
_KEPT_NOTES = 2 * LOOKED_AT
_REMEMBERED_WORDS = 200_000
_WORD = re.compile(r"\w+")
_FINAL_STOP = re.compile(r"(?<=[^\s.。．])[.。．]\Z")

Words = frozenset[int]
"""Words, each as this process's hash of it: they can be compared, and not read."""


def essence(text: str) -> str:
    """Return what a text says: two texts are the same, everywhere in Myria, where this is equal.

    Space around it and one final stop are nothing; case and all else count: "5 mW" is not "5 MW". Where a note is kept,
    a narrower rule finds repeats at once (the same but for space around it); maintenance finds the rest.
    """
    return _FINAL_STOP.sub("", text.strip())


class Said(NamedTuple):
    """What a note says: the words of its text's beginning, and its keywords; and each of both as marked bits."""

    words: Words
    keywords: Words = frozenset()
    marks: int = 0
    keyword_marks: int = 0

    @property
    def size(self) -> int:
        """How much there is to remember."""
        return len(self.words) + len(self.keywords)


def said_by(text: str, keywords: Any = ()) -> Said:
    """Return what a note says, whatever its case. Keywords that are no list of texts are none."""
    named = [word for word in keywords if isinstance(word, str)] if isinstance(keywords, list | tuple) else []
    words = frozenset(map(hash, _WORD.findall(text[:BEGINNING].casefold())))
    keyed = frozenset([hash(word.casefold()) for word in named])
    return Said(words, keyed, _marked(words), _marked(keyed))


def _marked(words: Words) -> int:
    marks = 0
    for word in words:
        marks |= _MARKS[word & 511]
    return marks


def _share(one: Words, other: Words) -> float:
    """Return the share of words that both have, of all words of both (Jaccard's index); 0 where that is not enough."""
    common = len(one & other)
    union = len(one) + len(other) - common
    return common / union if union and common >= ALIKE * union else 0.0


def those_alike(said: Said, others: Iterable[tuple[int, Said]]) -> tuple[tuple[int, float], ...]:
    """Return those of some notes that are like one by their texts or by keywords, each by its number and with its
    similarity, most alike first."""
    words, keywords, marks, keyword_marks = said
    count, keyed = len(words), len(keywords)
    # Two notes have no more words in common than marks, and words of the one that share a mark.
    sharing, keyed_sharing = count - marks.bit_count(), keyed - keyword_marks.bit_count()
    found = []
    for number, (other_words, other_keywords, other_marks, other_keyword_marks) in others:
        similarity = 0.0
        if _TOGETHER * ((marks & other_marks).bit_count() + sharing) >= count + len(other_words):
            similarity = _share(words, other_words)
        if (
            keyed >= _LEAST_KEYWORDS
            and len(other_keywords) >= _LEAST_KEYWORDS
            and _TOGETHER * ((keyword_marks & other_keyword_marks).bit_count() + keyed_sharing)
            >= keyed + len(other_keywords)
        ):
            similarity = max(similarity, _share(keywords, other_keywords))
        if similarity:
            found.append((number, round(similarity, 3)))
    return tuple(sorted(found, key=lambda pair: (-pair[1], -pair[0])))


class NewestNotes:
    """The words of the newest notes of scopes, as far as one process has come to know them; bounded.

    What a version of a note says never changes, so nothing here is ever wrong; what is missing, or was forgotten
    because something was erased, is read again.
    """

    def __init__(self) -> None:
        self._scopes: OrderedDict[tuple[str, int], dict[int, Said]] = OrderedDict()
        self._words = 0

    def of(self, tenant: str, scope_id: int) -> Mapping[int, Said]:
        """Return the words of versions of notes of a scope, by the numbers of their events."""
        return self._scopes.get((tenant, scope_id), {})

    def learn(
        self, tenant: str, scope_id: int, versions: Mapping[int, Said], *, standing: Collection[int] = ()
    ) -> None:
        """Remember what versions say; old ones of the scope are forgotten, and scopes that were not asked of long.

        Args:
            standing: those that are forgotten last.
        """
        known = self._scopes.setdefault((tenant, scope_id), {})
        self._scopes.move_to_end((tenant, scope_id))
        for number, said in versions.items():
            if number not in known:
                known[number] = said
                self._words += said.size
        if len(known) > _REMEMBERED_NOTES:
            # Many at once, so that this is not done for every note.
            by_worth = sorted(known, key=lambda number: (number in standing, number))
            for number in by_worth[: len(known) - _KEPT_NOTES]:
                self._words -= known.pop(number).size
        while self._words > _REMEMBERED_WORDS and len(self._scopes) > 1:
            _, dropped = self._scopes.popitem(last=False)
            self._words -= sum([said.size for said in dropped.values()])

    def forget(self, tenant: str) -> None:
        """Forget the notes of a tenant."""
        for key in [key for key in self._scopes if key[0] == tenant]:
            self._words -= sum([said.size for said in self._scopes.pop(key).values()])
