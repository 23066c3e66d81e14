"""What a leaf may be about, from the leaf alone, and which of that it is filed under.

A key is a term of a phrase, two terms of one, the term of a kind of thing (`myria.text.kinds`), or what an
emitter's hint says. A leaf is filed under the best few keys that leaves of another unit hold too. How many units hold a
key counts up to four and no further: a key that many hold weighs the same whatever is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any

from myria.text.kinds import kinds_called, kinds_of
from myria.topics.english import NOT_ALONE
from myria.topics.phrases import key_of

SUBJECTS_MOST = 3
"""Subjects of one leaf."""

LEAST_UNITS = 2
"""Units that a subject gathers leaves from, at least: what is said in one conversation alone is in time only."""

SATURATED = 4
"""Units that hold a key, as far as they count."""

_CANDIDATES_MOST = 10
_LEAST_WEIGHT = 20
"""A word of everyday use that was said once weighs less: it says nothing of what a leaf is about."""

_LEAST_WORD = 70
"""What a single word must weigh: one that a single event says in passing weighs less."""

_KEY_BYTES = 64
_HINT_TERMS = 4
_HINT_WEIGHT = 400
"""What a hint of full confidence weighs: more than the best word of most leaves."""

_FULL_CONFIDENCE = 1000

_VAGUE_KINDS = frozenset(
    (
        *("activ", "place", "item", "event", "state", "person", "emot", "color", "weather", "degre", "allergi"),
        *("art", "cloud", "editor", "framework", "job", "payment", "program"),
    )
)
"""Kinds (as terms) that so much is of, or whose words mostly mean something else, that they say nothing."""

_AMBIGUOUS_KINDS = frozenset(
    ("citi", "devic", "messag", "relationship", "transport", "chariti", "live", "diet", "movi", "countri")
)
"""Kinds one of whose words is no sign alone where it is one of another kind, too: a hospital may be no charity."""


Candidates = Mapping[str, int]
"""Weights of what a leaf may be about, by key."""


def candidates(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Return the keys that a leaf may be filed under, with their weights, from the metadata of its rendering."""
    weights: dict[str, int] = {}
    named: set[str] = set()
    for phrase, weight in metadata["phrases"]:
        terms = key_of(phrase)
        named.update(terms)
        if len(terms) == 2 and not phrase.endswith("…"):
            weights[" ".join(terms)] = weight
    said: dict[str, int] = {}
    for surface, weight in metadata["keywords"]:
        term = key_of(surface)[0]
        if term not in named:
            said[term] = weight
            continue
        # A phrase was made of it: it is a noun, or stands beside one. Other words tell of no thing by themselves.
        said[term] = weight = weight * 3 // 2
        if weight >= _LEAST_WORD and term not in NOT_ALONE and weights.get(term, 0) < weight:
            weights[term] = weight
    for kind, weight in _kinds(said, named).items():
        weights[kind] = max(weights.get(kind, 0), weight)
    for hint, permille in metadata["hints"]:
        terms = key_of(hint)
        if len(terms) <= _HINT_TERMS:
            key = " ".join(terms)
            weights[key] = weights.get(key, 0) + _HINT_WEIGHT * min(permille, _FULL_CONFIDENCE) // _FULL_CONFIDENCE
    best = sorted([(-weight, key) for key, weight in weights.items() if weight >= _LEAST_WEIGHT and _is_plain(key)])
    return {key: -weight for weight, key in best[:_CANDIDATES_MOST]}


def _kinds(said: Mapping[str, int], named: AbstractSet[str]) -> dict[str, int]:
    """Return the weights of the kinds of thing that a leaf names.

    A word may have another sense. So a kind counts where the leaf also calls it by its name, names two of it, or names
    one as a thing.
    """
    members: dict[str, list[str]] = {}
    for term in said:
        for kind in kinds_of(term):
            if kind not in _VAGUE_KINDS:
                members.setdefault(kind, []).append(term)
    called = set(chain.from_iterable(map(kinds_called, {*said, *named}))) if members else set()
    return {
        kind: sum(said[term] for term in of)
        for kind, of in members.items()
        if kind in called
        or len(of) > 1
        or any(term in named and (kind not in _AMBIGUOUS_KINDS or len(kinds_of(term)) == 1) for term in of)
    }


@dataclass(frozen=True, slots=True)
class Claims:
    """What a leaf may be filed under, in the order of keys, with weights; all that its choice depends on."""

    keys: tuple[str, ...]
    weights: tuple[int, ...]
    rivals: tuple[int, ...]
    """For each key which keys are the same thing, itself among them, as bits: "shelter" and "homeless shelter"."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any], weights: Candidates) -> Claims:
        """Return the claims of a leaf, given its metadata and what `candidates` says of them."""
        keys = sorted(weights)
        holding: dict[str, int] = {}
        for at, key in enumerate(keys):
            for term in key.split(" "):
                holding[term] = holding.get(term, 0) | 1 << at
        things = set(holding.values())
        for phrase, _ in metadata["phrases"]:
            thing = 0
            for term in key_of(phrase):
                thing |= holding.get(term, 0)
            things.add(thing)
        rivals = [1 << at for at in range(len(keys))]
        for thing in things:
            for at in range(len(keys)):
                if thing >> at & 1:
                    rivals[at] |= thing
        return cls(tuple(keys), tuple(weights[key] for key in keys), tuple(rivals))

    def filed(self, units_of: Callable[[str], int]) -> tuple[str, ...]:
        """Return the keys that the leaf is filed under, best first, at most `SUBJECTS_MOST`.

        `units_of` tells how many units hold a key, this leaf's own among them; beyond `SATURATED` no more count.
        """
        counts = list(map(units_of, self.keys))
        ranked = sorted(
            (-weight * min(count, SATURATED), at)
            for at, (weight, count) in enumerate(zip(self.weights, counts, strict=True))
            if count >= LEAST_UNITS
        )
        best: list[str] = []
        taken = 0
        for _, at in ranked:
            if not taken >> at & 1:
                best.append(self.keys[at])
                taken |= self.rivals[at]
        return tuple(best[:SUBJECTS_MOST])


def _is_plain(key: str) -> bool:
    """Tell whether a key can be written into a path: short, and without characters that end one."""
    size = len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
    return size <= _KEY_BYTES and "\0" not in key
