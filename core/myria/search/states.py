"""Later states of what a question asks for, found by small signs that count together.

Whoever tells how something is now often uses none of the words by which it was told before: "I weigh 88 kilos", "Scale
says 84 this morning". No sign of such a statement is strong alone. So they are added up: how good a hit it is and how
much of the question it holds, whether the same person says it, how rare a word it shares with the older statement,
whether both hold a number or name something, and whether stronger evidence speaks for it
(`myria.search.successors`). Each counts in bits, and the sum must exceed what the likeliest of so many statements
has by chance: the logarithm of their number and a margin, which is smaller the shorter the older statement is. A short
one tells a state, a long one many things.

In talk where nothing changed this puts a wrong statement first in some six of a hundred questions: `_LIKELY` was chosen
between that and what it finds (docs/retrieval.md). Nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from myria.index.block import NAMING, Ints
from myria.index.corpus import Corpus
from myria.search.frequency import log2, rarity, spans_of
from myria.search.kept import kept_later
from myria.search.plan import Plan
from myria.search.successors import Leader, Succession, told_to_change
from myria.text import stop_ids
from myria.text.common_words import weak_ids

MOST: Final = 2
"""Statements that are put before the best hit, at most."""

_BIT: Final = 256
_AS_GOOD: Final = 350
"""Percent of a bit that a statement counts which is as good a hit as the best; less as it is less good."""
_SAME_SPEAKER: Final = 150
"""The same if the older statement's speaker makes it."""
_HOLDS: Final = 150
"""The same if it holds all words of the question; less as it holds fewer."""
_SHARES: Final = 35
"""Percent of its rarity that the rarest word counts which it shares with the older statement."""
_BOTH_NUMBERS: Final = 80
"""Percent of the rarity of statements with numbers that it counts to be one where the older statement is."""
_BOTH_NAME: Final = 70
"""The same of statements that name something."""
_FOUND: Final = 470
"""Percent of a bit that a statement counts which stronger evidence found."""
_LIKELY: Final = 300
"""Percent of a bit by which the likeliest statement exceeds the logarithm of their number, to be put first."""
_TELLS_A_STATE: Final = 400
"""Percent of a bit by which that is smaller if the best hit is short."""
_SHORT: Final = (8, 40)
"""Terms of a best hit that is short in full, and of one that is not short at all."""
_IMAGINED: Final = 48
"""Statements that are thought beside the later ones: the likeliest of three is not likely for that."""
_LONG: Final = 64
"""Terms of a later statement, at most: a longer one touches many things."""
_LONGEST: Final = 128
"""Terms of an older statement, at most: a longer one shares words with everything."""
_REPEATED: Final = 4
"""How many of the likeliest are looked at: one that only says the same again is no other state."""


def later_states(leader: Leader, corpora: Sequence[Corpus], docs: int, plan: Plan) -> tuple[Succession, ...]:
    """Return what to put before the best hit, the newest state first.

    Args:
        docs: how many documents are visible in all corpora.
        plan: what is asked for.
    """
    changed = told_to_change(leader, corpora, docs, plan)
    likely = _likely_state(leader, plan, changed) if plan.reading.of_state else None
    found = (*kept_later(leader, corpora, docs, plan), likely, changed)
    seq = leader.timeline.seq
    return tuple(
        Succession(older=int(seq[leader.at]), newer=int(seq[at]), at=at)
        for at in [at for at in dict.fromkeys(found) if at is not None][:MOST]
    )


def _likely_state(leader: Leader, plan: Plan, known: int | None) -> int | None:
    """Return the place of the likeliest state among what was said later, None if none is likely.

    Args:
        known: a statement that other evidence speaks for.
    """
    timeline, older = leader.timeline, leader.at
    count = int(np.count_nonzero(leader.later))
    if not count or timeline.length[older] > _LONGEST:
        return None
    mask = leader.later & (timeline.length <= _LONG)
    is_known = np.zeros(len(timeline), dtype=np.bool_)
    if known is not None:
        mask[known] = is_known[known] = True
    places = np.flatnonzero(mask)
    evidence = _AS_GOOD * _BIT * np.minimum(leader.score[places], leader.worth) // leader.worth
    evidence += _HOLDS * _BIT * leader.held[places] // (100 * max(1, plan.rarity))
    evidence += _SAME_SPEAKER * _BIT * leader.spoken[places]
    evidence += _FOUND * _BIT * is_known[places]
    numbered, naming = leader.corpus.numbered(), timeline.flags & NAMING != 0
    for percent, alike in ((_BOTH_NUMBERS, numbered), (_BOTH_NAME, naming)):
        if alike[older]:
            evidence += percent * rarity(count, int(np.count_nonzero(alike & leader.later))) * alike[places]
    shared = _shared(leader)[places]
    evidence += _SHARES * shared
    likely = (leader.held[places] > 0) | (shared > 0) | (numbered[older] & numbered[places]) | is_known[places]
    places, evidence = places[likely], evidence[likely]
    for one in np.lexsort((places, evidence))[::-1][:_REPEATED].tolist():
        place = int(places[one])
        if leader.words(place) != leader.said:
            # What is announced has replaced nothing yet, and what comes after it in likelihood is no state.
            is_likely = not leader.announced[place] and _surplus(leader, int(evidence[one]), count) >= _LIKELY
            return place if is_likely else None
    return None


def _shared(leader: Leader) -> Ints:
    """Return by document how rare the rarest word is that it shares with the best hit, everyday words excepted: how
    rare a word is says its scope alone."""
    here = leader.here
    docs = len(leader.timeline) if here is None else int(np.count_nonzero(here))
    ids = np.array(sorted(leader.said - leader.names - stop_ids() - weak_ids()), dtype=np.int64)
    holding: dict[int, list[Ints]] = {}
    for (view, _), places in zip(leader.corpus.parts(), leader.timeline.places, strict=True):
        for one, start, end in spans_of(ids, view.terms, view.offsets).T.tolist():
            where = places[view.posting_doc[start:end]]
            where = where[where >= 0]
            holding.setdefault(one, []).append(where if here is None else where[here[where]])
    shared = np.zeros(len(leader.timeline), dtype=np.int64)
    for lists in holding.values():
        rare = rarity(docs, sum(map(len, lists)))
        for where in lists:
            shared[where] = np.maximum(shared[where], rare)
    return shared


def _surplus(leader: Leader, evidence: int, count: int) -> int:
    """Return by how many hundredths of a bit evidence, in 1/256 of them, exceeds what chance gives."""
    whole, none = _SHORT
    shortness = min(none - whole, max(0, none - int(leader.timeline.length[leader.at])))
    return (evidence - 100 * log2(count + _IMAGINED)) // _BIT + _TELLS_A_STATE * shortness // (none - whole)
