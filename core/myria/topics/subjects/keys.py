"""What a leaf may be about, from the leaf alone, and which of that it is filed under.

A key is a term of a phrase, two terms of one, the term of a kind of thing (`myria.text.kinds`), or what an
emitter's hint says. A leaf is filed under the best few keys that leaves of another unit hold too. How many units hold a
key counts up to four and no further: a key that many hold weighs the same whatever is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any

from myria.text.kinds import kind_name, kinds_called, kinds_of
from myria.topics.english import NOT_ALONE
from myria.topics.phrases import key_of

SUBJECTS_MOST = 3
"""Most subjects of one leaf."""

LEAST_UNITS = 2
"""Fewest units whose leaves make a subject: what a single conversation says stands in the tree of time only."""

SATURATED = 4
"""Number of units holding a key beyond which more of them change nothing."""

_CANDIDATES_MOST = 10
_LEAST_WEIGHT = 20
"""Least weight of a key: an everyday word that was said once weighs less."""

_LEAST_WORD = 70
"""Least weight of a single word: one that a single event says in passing weighs less."""

_KEY_BYTES = 64
_HINT_TERMS = 4
_HINT_WEIGHT = 400
"""Weight of a hint of full confidence: more than the best word of most leaves."""

_FULL_CONFIDENCE = 1000

_VAGUE_KINDS = frozenset(
    (
        *("activ", "place", "item", "event", "state", "person", "emot", "color", "weather", "degre", "allergi"),
        *("art", "cloud", "editor", "framework", "job", "payment", "program"),
    )
)
"""Kinds (as terms) that say nothing: too many things are of them, or their words mostly mean something else."""

_AMBIGUOUS_KINDS = frozenset(
    ("citi", "devic", "messag", "relationship", "transport", "chariti", "live", "diet", "movi", "countri")
)
"""Kinds for which one word that belongs to another kind too is not enough: a hospital may be no charity."""


Candidates = Mapping[str, int]
"""Weights of what a leaf may be about, by key."""


def candidates(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Return the keys that a leaf may be filed under, with their weights, from the metadata of its rendering."""
    weights: dict[str, int] = {}
    phrase_terms: set[str] = set()
    for phrase, weight in metadata["phrases"]:
        terms = key_of(phrase)
        phrase_terms.update(terms)
        if len(terms) == 2 and not phrase.endswith("…"):
            weights[" ".join(terms)] = weight
    word_weights: dict[str, int] = {}
    for surface, weight in metadata["keywords"]:
        term = key_of(surface)[0]
        if term not in phrase_terms:
            word_weights[term] = weight
            continue
        # A word of a phrase is a noun, or stands beside one; other words name no thing by themselves.
        word_weights[term] = weight = weight * 3 // 2
        if weight >= _LEAST_WORD and term not in NOT_ALONE and weights.get(term, 0) < weight:
            weights[term] = weight
    for kind, weight in _kind_weights(word_weights, phrase_terms).items():
        weights[kind] = max(weights.get(kind, 0), weight)
    for hint, permille in metadata["hints"]:
        terms = key_of(hint)
        if len(terms) <= _HINT_TERMS:
            key = " ".join(terms)
            weights[key] = weights.get(key, 0) + _HINT_WEIGHT * min(permille, _FULL_CONFIDENCE) // _FULL_CONFIDENCE
    best = sorted([(-weight, key) for key, weight in weights.items() if weight >= _LEAST_WEIGHT and _fits_path(key)])
    return {key: -weight for weight, key in best[:_CANDIDATES_MOST]}


def _kind_weights(word_weights: Mapping[str, int], phrase_terms: AbstractSet[str]) -> dict[str, int]:
    """Return the weights of the kinds of thing that a leaf names; `word_weights` are those of its keywords.

    As a word may have another sense, a kind counts only if the leaf also says the kind's name, or two words of the
    kind, or one that stands in a phrase.
    """
    words_of_kind: dict[str, list[str]] = {}
    for term in word_weights:
        for kind in kinds_of(term):
            if kind not in _VAGUE_KINDS:
                words_of_kind.setdefault(kind, []).append(term)
    named_kinds = (
        set(chain.from_iterable(map(kinds_called, {*word_weights, *phrase_terms}))) if words_of_kind else set()
    )
    return {
        kind: sum(word_weights[term] for term in kind_words)
        for kind, kind_words in words_of_kind.items()
        if kind in named_kinds
        or len(kind_words) > 1
        or any(
            term in phrase_terms and (kind not in _AMBIGUOUS_KINDS or len(kinds_of(term)) == 1) for term in kind_words
        )
    }


@dataclass(frozen=True, slots=True)
class Claims:
    """The keys that a leaf may be filed under, sorted, with their weights; its choice depends on nothing else."""

    keys: Sequence[str]
    weights: Sequence[int]
    rivals: Sequence[int]
    """For each key, as bits, the keys that mean the same thing ("shelter", "homeless shelter"; "pet", "dog"), itself
    among them."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any], weights: Candidates) -> Claims:
        """Return the claims of a leaf, given its metadata and the weights that `candidates` returned for it."""
        keys = sorted(weights)
        key_bits_by_term: dict[str, int] = {}
        for index, key in enumerate(keys):
            for term in key.split(" "):
                key_bits_by_term[term] = key_bits_by_term.get(term, 0) | 1 << index
        # Keys with a common term, keys whose terms stand in one phrase, and a kind and one of it mean the same thing.
        things = set(key_bits_by_term.values())
        for term, key_bits in key_bits_by_term.items():
            things.update(key_bits | 1 << keys.index(kind) for kind in kinds_of(term) if kind in weights)
        for phrase, _ in metadata["phrases"]:
            thing = 0
            for term in key_of(phrase):
                thing |= key_bits_by_term.get(term, 0)
            things.add(thing)
        rivals = [1 << index for index in range(len(keys))]
        for thing in things:
            for index in range(len(keys)):
                if thing >> index & 1:
                    rivals[index] |= thing
        return cls(tuple(keys), tuple(weights[key] for key in keys), tuple(rivals))

    def filed(self, units_of: Callable[[str], int]) -> tuple[str, ...]:
        """Return the keys that the leaf is filed under, best first, at most `SUBJECTS_MOST`.

        `units_of` tells how many units hold a key, this leaf's own among them; beyond `SATURATED` no more count. Of
        a kind and one of it that count as much, the kind is better where it may gather more, which nobody counts.
        """
        counts = list(map(units_of, self.keys))
        ranked = sorted(
            (-weight * min(count, SATURATED), (kind_name(self.keys[index]) is None) == (count >= SATURATED), index)
            for index, (weight, count) in enumerate(zip(self.weights, counts, strict=True))
            if count >= LEAST_UNITS
        )
        best: list[str] = []
        excluded = 0
        for *_, index in ranked:
            if not excluded >> index & 1:
                best.append(self.keys[index])
                excluded |= self.rivals[index]
        return tuple(best[:SUBJECTS_MOST])


def _fits_path(key: str) -> bool:
    """Tell whether a key can be written into a path: it is short and has no NUL character, which ends keys there."""
    size = len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
    return size <= _KEY_BYTES and "\0" not in key
