"""What the nodes under a subject say, taken together: read once for its label, its name and its metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import chain, pairwise
from operator import itemgetter
from sys import intern

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

_REMEMBERED = 20_480
"""Leaves that are remembered: each is described in up to three subjects and their divisions."""

_Terms = tuple[str, ...]
_Weighed = tuple[_Terms, str, int]
"""(terms, wording, weight) of a phrase or a keyword."""

_TERMS = itemgetter(0)


@short_value
class _Said:
    """What a node says: its phrases and keywords with their weights, and all of their terms once."""

    language: str
    speakers: Sequence[tuple[str, int]]
    hints: Sequence[tuple[str, int]]
    names: Sequence[str]
    phrases: list[_Weighed]
    keywords: list[_Weighed]
    terms: tuple[str, ...]

    @classmethod
    def by(cls, node: Node) -> _Said:
        metadata = node.metadata.plain() if isinstance(node.metadata, PackedMetadata) else node.metadata
        # Many leaves say the same: interned, a wording is held once.
        phrases = [(key_of(phrase), intern(phrase), weight) for phrase, weight in metadata["phrases"]]
        keywords = [(key_of(keyword), intern(keyword), weight) for keyword, weight in metadata["keywords"]]
        terms = tuple(set(chain.from_iterable(map(_TERMS, chain(phrases, keywords)))))
        return cls(
            metadata.get("language", ""),
            metadata["speakers"],
            metadata["hints"],
            metadata.get("names", ()),
            phrases,
            keywords,
            terms,
        )

    def naming(self, key: str) -> list[_Weighed]:
        """Return the phrases and keywords that hold a key of one term, or are a longer one."""
        worded = chain(self.phrases, self.keywords)
        if " " in key:
            return [weighed for weighed in worded if " ".join(weighed[0]) == key]
        return [weighed for weighed in worded if key in weighed[0]]


class _ByLeaf(dict[bytes, _Said]):
    """What leaves say, by their renderings; emptied when it is full."""

    def of(self, leaf: Node) -> _Said:
        said = self.get(leaf.rendering_id)
        if said is None:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[leaf.rendering_id] = said = _Said.by(leaf)
        return said


_LEAVES = _ByLeaf()


def forget_sayings() -> None:
    """Let go of what leaves say: once the subjects of their scope are made, nobody asks again."""
    _LEAVES.clear()


class Sayings:
    """What several children say, taken together."""

    def __init__(self, children: Sequence[Node]) -> None:
        self._children = children
        self._said = [_LEAVES.of(child) if child.node_type == LEAF else _Said.by(child) for child in children]
        self.first_at = min([child.first_at for child in children])
        self.last_at = max([child.last_at for child in children])
        self.language = main_language(
            [(said.language, child.events) for said, child in zip(self._said, children, strict=True)]
        )
        self.speakers = most_named(chain.from_iterable([said.speakers for said in self._said]), _KEPT)
        self._totals: dict[_Terms, int] = {}
        """What each phrase weighs in all children."""
        self._firsts: dict[_Terms, str] = {}
        """How it is written in the first of them."""
        self._best: dict[_Terms, tuple[int, str]] = {}
        """What it weighs most in one of them, and how it is written there."""
        for said in self._said:
            self._add(said)

    def _add(self, said: _Said) -> None:
        totals, best = self._totals, self._best
        for of, wording, weight in said.phrases:
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
        known = words.get
        for said in self._said:
            for of, _, weight in said.keywords:
                term = of[0]
                words[term] = known(term, 0) + weight
        return ranked_phrases(self._totals, self._best, words, most=_KEPT)

    def about(self, names: Sequence[str], keys: Sequence[str]) -> list[str]:
        """Return the phrases that say most beside the names: children share their words, or they name one of a kind."""
        shared = Counter(chain.from_iterable([said.terms for said in self._said]))
        ones = frozenset[str]().union(*map(members_of, keys)).difference(keys)
        totals, firsts = self._naming(ones) if ones else (self._totals, self._firsts)
        taken = set().union(*map(key_of, names), *map(key_of, keys))
        ranked = []
        for of, weight in totals.items():
            if taken.isdisjoint(of):
                children = shared[of[0]] if len(of) == 1 else max(map(shared.__getitem__, of))
                times = min(_SHARED_MOST, children)
                ranked.append((-weight * times, of))
        if ones:
            ranked = [(weight if ones.isdisjoint(of) else _OF_KIND * weight, of) for weight, of in ranked]
        chosen: list[str] = []
        while ranked:
            _, best = min(ranked)
            chosen.append(_without_possessive(firsts[best]))
            if len(chosen) == _PHRASES:
                break
            is_beside = frozenset(best).isdisjoint
            ranked = [pair for pair in ranked if is_beside(pair[1])]
        return chosen

    def _naming(self, ones: AbstractSet[str]) -> tuple[dict[_Terms, int], dict[_Terms, str]]:
        """Return the weights and the first wordings of all phrases, and of the words that name one of a kind.

        A single word is worth showing where it is one of the kind; phrases are nouns.
        """
        totals: dict[_Terms, int] = {}
        firsts: dict[_Terms, str] = {}
        for said in self._said:
            for of, wording, weight in said.phrases:
                totals[of] = totals.get(of, 0) + weight
                firsts.setdefault(of, wording)
            for of, wording, weight in said.keywords:
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
        for said, child in zip(self._said, self._children, strict=True):
            if child.node_type != LEAF:
                names = said.names
                if place < len(names):
                    weights[names[place]] = weights.get(names[place], 0) + child.leaves
                continue
            for hint, permille in said.hints:
                if " ".join(key_of(hint)) == key and (name := hint_title(hint)):
                    hinted[name] = hinted.get(name, 0) + permille
            for of, name, weight in said.naming(key):
                if is_long or len(of) == 1:
                    weights[name] = weights.get(name, 0) + weight
                elif " " in name:
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
