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

_LEAST_KEYWORDS = 3
"""Keywords from which on two notes are compared by them: of fewer, too many notes have the same."""

_REMEMBERED_NOTES = 4 * LOOKED_AT
_KEPT_NOTES = 2 * LOOKED_AT
_REMEMBERED_WORDS = 200_000
_WORD = re.compile(r"\w+")

Words = frozenset[int]
"""Words, each as this process's hash of it: they can be compared, and not read."""


class Said(NamedTuple):
    """What a note says: the words of its text's beginning, and its keywords."""

    words: Words
    keywords: Words = frozenset()

    @property
    def size(self) -> int:
        """How much there is to remember."""
        return len(self.words) + len(self.keywords)


def said_by(text: str, keywords: Any = ()) -> Said:
    """Return what a note says, whatever its case. Keywords that are no list of texts are none."""
    named = [word for word in keywords if isinstance(word, str)] if isinstance(keywords, list | tuple) else []
    return Said(
        frozenset(map(hash, _WORD.findall(text[:BEGINNING].casefold()))),
        frozenset([hash(word.casefold()) for word in named]),
    )


def _share(one: Words, other: Words) -> float:
    """Return the share of words that both have, of all words of both (Jaccard's index); 0 where that is not enough."""
    smaller, larger = (len(one), len(other)) if len(one) < len(other) else (len(other), len(one))
    if smaller < ALIKE * larger:
        return 0.0
    common = len(one & other)
    union = smaller + larger - common
    return common / union if union and common >= ALIKE * union else 0.0


def those_alike(said: Said, others: Iterable[tuple[int, Said]]) -> tuple[tuple[int, float], ...]:
    """Return those of some notes that are like one by their texts or by keywords, each by its number and with its
    similarity, most alike first."""
    least, most = ALIKE * len(said.words), len(said.words) / ALIKE
    is_keyed = len(said.keywords) >= _LEAST_KEYWORDS
    found = []
    for number, (words, keywords) in others:
        # Most are told apart by their sizes, or have no keyword in common.
        similarity = _share(said.words, words) if least <= len(words) <= most else 0.0
        if is_keyed and len(keywords) >= _LEAST_KEYWORDS and not said.keywords.isdisjoint(keywords):
            similarity = max(similarity, _share(said.keywords, keywords))
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
