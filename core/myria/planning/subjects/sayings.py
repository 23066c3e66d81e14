"""What the nodes under a subject say, taken together: read once for its label, its name and its metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

from myria.analysis.kinds import kind_name, members_of
from myria.planning.describe import hint_title, main_language, most_named, ranked_phrases
from myria.planning.model import LEAF, Node
from myria.planning.phrases import key_of
from myria.planning.subjects.packing import PackedMetadata
from myria.values import short_value

_PHRASES = 2
_SHARED_MOST = 4
"""Children that share a phrase's words, as far as they count."""

_OF_KIND = 4
"""How much more what names one of a kind says of the kind than other phrases do."""

_KIND_NOUNS = {"live": "home"}
"""Kinds that are called by a word that is no noun, and what a label calls them."""

_POSSESSIVES = ("'s", "’s")

_KEPT = 3
"""Phrases and speakers that the metadata keep: what is shown, and what nodes above are described from."""

_Terms = tuple[str, ...]
_Weighted = Sequence[Sequence[Any]]


@short_value
class _Said:
    """What a child says: its phrases and keywords, each with its weight and beside it its terms."""

    child: Node
    metadata: Mapping[str, Any]
    phrases: _Weighted
    of_phrases: list[_Terms]
    keywords: _Weighted
    of_keywords: list[_Terms]

    @classmethod
    def by(cls, child: Node) -> _Said:
        metadata = child.metadata.plain() if isinstance(child.metadata, PackedMetadata) else child.metadata
        phrases, keywords = metadata["phrases"], metadata["keywords"]
        return cls(
            child,
            metadata,
            phrases,
            [key_of(phrase) for phrase, _ in phrases],
            keywords,
            [key_of(keyword) for keyword, _ in keywords],
        )

    def worded(self) -> Iterator[tuple[_Terms, Sequence[Any]]]:
        return chain(zip(self.of_phrases, self.phrases, strict=True), zip(self.of_keywords, self.keywords, strict=True))


class Sayings:
    """What several children say, taken together."""

    def __init__(self, children: Sequence[Node]) -> None:
        self._said = list(map(_Said.by, children))
        self.first_at = min([child.first_at for child in children])
        self.last_at = max([child.last_at for child in children])
        self.language = main_language([(said.metadata.get("language", ""), said.child.events) for said in self._said])
        self.speakers = most_named(chain.from_iterable([said.metadata["speakers"] for said in self._said]), _KEPT)
        self._totals: dict[_Terms, int] = {}
        """What each phrase weighs in all children."""
        self._firsts: dict[_Terms, str] = {}
        self._best: dict[_Terms, tuple[int, str]] = {}
        for said in self._said:
            self._add(said)

    def _add(self, said: _Said) -> None:
        totals, best = self._totals, self._best
        for of, (wording, weight) in zip(said.of_phrases, said.phrases, strict=True):
            if of not in totals:
                totals[of] = weight
                self._firsts[of] = wording
                best[of] = (weight, wording)
                continue
            totals[of] += weight
            if best[of][0] < weight:
                best[of] = (weight, wording)

    @cached_property
    def phrases(self) -> list[tuple[str, int]]:
        """The phrases that say most, with their weights."""
        words: dict[str, int] = {}
        for said in self._said:
            for of, (_, weight) in zip(said.of_keywords, said.keywords, strict=True):
                words[of[0]] = words.get(of[0], 0) + weight
        return ranked_phrases(self._totals, self._best, words)[:_KEPT]

    def about(self, names: Sequence[str], keys: Sequence[str]) -> list[str]:
        """Return the phrases that say most beside the names: children share their words, or they name one of a kind."""
        words_of_all: list[str] = []
        for said in self._said:
            words_of_all += set().union(*said.of_phrases, *said.of_keywords)
        shared = Counter(words_of_all)
        ones = frozenset[str]().union(*map(members_of, keys)).difference(keys)
        totals, firsts = self._naming(ones) if ones else (self._totals, self._firsts)
        taken = {term for name in (*names, *keys) for term in key_of(name)}
        ranked = [
            (
                -weight
                * min(max([shared[term] for term in of]), _SHARED_MOST)
                * (1 if ones.isdisjoint(of) else _OF_KIND),
                of,
            )
            for of, weight in totals.items()
            if taken.isdisjoint(of)
        ]
        chosen: list[str] = []
        while ranked and len(chosen) < _PHRASES:
            _, best = min(ranked)
            chosen.append(_without_possessive(firsts[best]))
            ranked = [pair for pair in ranked if frozenset(best).isdisjoint(pair[1])]
        return chosen

    def _naming(self, ones: AbstractSet[str]) -> tuple[dict[_Terms, int], dict[_Terms, str]]:
        """Return the weights and the first wordings of all phrases, and of the words that name one of a kind.

        A single word is worth showing where it is one of the kind; phrases are nouns.
        """
        totals: dict[_Terms, int] = {}
        firsts: dict[_Terms, str] = {}
        for said in self._said:
            for of, (wording, weight) in zip(said.of_phrases, said.phrases, strict=True):
                totals[of] = totals.get(of, 0) + weight
                firsts.setdefault(of, wording)
            for of, (wording, weight) in zip(said.of_keywords, said.keywords, strict=True):
                if not ones.isdisjoint(of):
                    totals[of] = totals.get(of, 0) + weight
                    firsts.setdefault(of, wording)
        return totals, firsts

    def name(self, key: str, place: int) -> str:
        """Return a key as people said it; `place` is that of the key among those of a division."""
        kind = kind_name(key)
        if kind is not None:
            return _KIND_NOUNS.get(kind, kind)
        weights: dict[str, int] = {}
        hinted: dict[str, int] = {}
        fuller: dict[_Terms, list[str]] = {}
        is_long = " " in key
        for said in self._said:
            if said.child.node_type != LEAF:
                names = said.metadata["names"]
                if place < len(names):
                    weights[names[place]] = weights.get(names[place], 0) + said.child.leaves
                continue
            for hint, permille in said.metadata["hints"]:
                if " ".join(key_of(hint)) == key and (name := hint_title(hint)):
                    hinted[name] = hinted.get(name, 0) + permille
            for of, (name, weight) in said.worded():
                is_in = key in of
                if (is_in and len(of) == 1) or (is_long and " ".join(of) == key):
                    weights[name] = weights.get(name, 0) + weight
                if is_in and " " in name:
                    _add_fuller(key, of, name, fuller)
        for of in sorted(fuller, key=lambda of: (-len(fuller[of]), of)):
            # "Harry Potter" where most of them say so, not "Potter".
            if len(fuller[of]) * 2 > len(self._said):
                return min(fuller[of])
        weights = weights or hinted
        return _without_possessive(min(weights, key=lambda name: (-weights[name], name))) if weights else key


def _add_fuller(key: str, of: _Terms, name: str, fuller: dict[_Terms, list[str]]) -> None:
    """Add the pairs of words of a phrase that end with a key and may be its whole name."""
    for pair in pairwise(name.split(" ")):
        of_pair = key_of(" ".join(pair))
        if of_pair[-1] == key and len(of_pair) == len(pair) and (len(of) == len(pair) or pair[0][:1].isupper()):
            fuller.setdefault(of_pair, []).append(" ".join(pair))


def _without_possessive(wording: str) -> str:
    """Return "weight" for "weight's"; what has a capital may be a name, such as that of a bar."""
    return wording[:-2] if wording.endswith(_POSSESSIVES) and wording[:1].islower() else wording
