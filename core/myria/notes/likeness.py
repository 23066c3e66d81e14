"""How much two texts are alike, and what a process remembers of the newest notes so that it can tell without a read."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

LOOKED_AT = 24
"""Notes that a new one is compared with: the newest of the same people."""

MOST = 3
"""Notes that are named."""

ALIKE = 0.5
"""Share of common words, of all words of both, from which two notes are alike."""

BEGINNING = 2_000
"""Characters of a text that are compared."""

_REMEMBERED_NOTES = 4 * LOOKED_AT
_KEPT_NOTES = 2 * LOOKED_AT
_REMEMBERED_WORDS = 200_000
_WORD = re.compile(r"\w+")

Words = frozenset[int]
"""The words of a text, each as this process's hash of it: they can be compared, and not read."""


def words_of(text: str) -> Words:
    """Return the words of a text's beginning, whatever their case."""
    return frozenset(map(hash, _WORD.findall(text[:BEGINNING].casefold())))


def share(one: Words, other: Words) -> float:
    """Return the share of words that two texts have in common, of all words of both: Jaccard's index."""
    common = len(one & other)
    union = len(one) + len(other) - common
    return round(common / union, 3) if union else 0.0


def those_alike(words: Words, others: Iterable[tuple[int, Words]]) -> tuple[tuple[int, float], ...]:
    """Return those of some texts that are like one, most alike first, each by its number and with its similarity."""
    size = len(words)
    found = []
    for number, other in others:
        # Most are told apart by their sizes, without a look at a word.
        smaller, larger = (size, len(other)) if size < len(other) else (len(other), size)
        if smaller < ALIKE * larger:
            continue
        common = len(words & other)
        if common >= ALIKE * (smaller + larger - common):
            found.append((number, share(words, other)))
    return tuple(sorted(found, key=lambda pair: (-pair[1], -pair[0])))


class NewestNotes:
    """The words of the newest notes of scopes, as far as one process has come to know them; bounded.

    What a version of a note says never changes, so nothing here is ever wrong; what is missing, or was forgotten
    because something was erased, is read again.
    """

    def __init__(self) -> None:
        self._scopes: OrderedDict[tuple[str, int], dict[int, Words]] = OrderedDict()
        self._words = 0

    def of(self, tenant: str, scope_id: int) -> Mapping[int, Words]:
        """Return the words of versions of notes of a scope, by the numbers of their events."""
        return self._scopes.get((tenant, scope_id), {})

    def learn(
        self, tenant: str, scope_id: int, versions: Mapping[int, Words], *, standing: Collection[int] = ()
    ) -> None:
        """Remember what versions say; old ones of the scope are forgotten, and scopes that were not asked of long.

        Args:
            standing: those that are forgotten last.
        """
        known = self._scopes.setdefault((tenant, scope_id), {})
        self._scopes.move_to_end((tenant, scope_id))
        for number, words in versions.items():
            if number not in known:
                known[number] = words
                self._words += len(words)
        if len(known) > _REMEMBERED_NOTES:
            # Many at once, so that this is not done for every note.
            by_worth = sorted(known, key=lambda number: (number in standing, number))
            for number in by_worth[: len(known) - _KEPT_NOTES]:
                self._words -= len(known.pop(number))
        while self._words > _REMEMBERED_WORDS and len(self._scopes) > 1:
            _, dropped = self._scopes.popitem(last=False)
            self._words -= sum(map(len, dropped.values()))

    def forget(self, tenant: str) -> None:
        """Forget the notes of a tenant."""
        for key in [key for key in self._scopes if key[0] == tenant]:
            self._words -= sum(map(len, self._scopes.pop(key).values()))
