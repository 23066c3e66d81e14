"""Later states of what a question asks for, found by small signs that count together.

Whoever tells how something is now often uses none of the words by which it was told before: "I weigh 88 kilos", "Scale
says 84 this morning". No sign of such a statement is strong alone. So they are added up: how good a hit it is and how
much of the question it holds, whether the same person says it, how rare a word it shares with the older statement,
whether both hold a number or name something, and whether stronger evidence speaks for it
(`myria.retrieval.successors`). Each counts in bits, and the sum must exceed what the likeliest of so many statements
has by chance: the logarithm of their number and a margin, which is smaller the shorter the older statement is. A short
one tells a state, a long one many things.

In talk where nothing changed this puts a wrong statement first in some six of a hundred questions: `_LIKELY` was chosen
between that and what it finds (docs/retrieval.md). Nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from myria.analysis import stop_ids
from myria.analysis.common_words import weak_ids
from myria.index.block import NAMING, Ints
from myria.index.corpus import Corpus
from myria.retrieval.frequency import log2, rarity, spans_of
from myria.retrieval.kept import kept_later
from myria.retrieval.plan import Plan
from myria.retrieval.successors import Later, Leader, Succession, names_in, succession

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
    known = succession(leader, corpora, docs, plan)
    found = () if known is None else (known.at,)
    if plan.reading.of_state:
        signs = _Signs(leader=leader, corpus=corpora[leader.corpus], plan=plan)
        likely = signs.after(leader.at, None if known is None else known.at)
        found = found if likely is None else (likely, *found)
    found = (*kept_later(leader, corpora, docs, plan), *found)
    older = int(leader.timeline.seq[leader.at])
    return tuple(
        Succession(older=older, newer=int(leader.timeline.seq[at]), at=at) for at in list(dict.fromkeys(found))[:MOST]
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Signs:
    """What is compared: the statements of the best hit's corpus."""

    leader: Leader
    corpus: Corpus
    plan: Plan

    def after(self, at: int, known: int | None) -> int | None:
        """Return the place of the likeliest state among what was said after a statement, None if none is likely.

        Args:
            known: a statement that other evidence speaks for.
        """
        leader, timeline = self.leader, self.leader.timeline
        later = leader.later(self.corpus, at)
        count = int(np.count_nonzero(later.mask))
        if not count or timeline.length[at] > _LONGEST:
            return None
        mask = later.mask & (timeline.length <= _LONG)
        if known is not None:
            mask[known] = True
        places = np.flatnonzero(mask)
        evidence = _AS_GOOD * _BIT * np.minimum(leader.score[places], leader.worth) // leader.worth
        evidence += _HOLDS * _BIT * leader.held[places] // (100 * max(1, self.plan.rarity))
        evidence += _SAME_SPEAKER * _BIT * later.spoken[places]
        if known is not None:
            evidence += _FOUND * _BIT * (places == known)
        numbered, naming = self.corpus.numbered(), timeline.flags & NAMING != 0
        for percent, alike in ((_BOTH_NUMBERS, numbered), (_BOTH_NAME, naming)):
            if alike[at]:
                evidence += percent * rarity(count, int(np.count_nonzero(alike & later.mask))) * alike[places]
        # A shared word is held by two at least: where the rarest would not be enough, none is looked up.
        if self._surplus(int(evidence.max(initial=0)) + _SHARES * rarity(later.count, 2), count) < _LIKELY:
            return None
        shared = self._shared(at, later)[places]
        evidence += _SHARES * shared
        likely = (leader.held[places] > 0) | (shared > 0) | (numbered[at] & numbered[places])
        if known is not None:
            likely |= places == known
        places, evidence = places[likely], evidence[likely]
        order = np.lexsort((places, evidence))[::-1][:_REPEATED]
        said = {leader.words(self.corpus, one) for one in (at, leader.at)}
        for one in order.tolist():
            place = int(places[one])
            if leader.words(self.corpus, place) not in said:
                # What is announced has replaced nothing yet, and what comes after it in likelihood is no state.
                is_likely = later.holding[place] and self._surplus(int(evidence[one]), count) >= _LIKELY
                return place if is_likely else None
        return None

    def _shared(self, at: int, later: Later) -> Ints:
        """Return by document how rare the rarest word is that it shares with a statement, everyday words excepted.

        Args:
            later: what was said after the statement: how rare a word is says its scope alone.
        """
        timeline, here = self.leader.timeline, later.here
        said = self.leader.words(self.corpus, at) - names_in(self.corpus, self.leader, later.speaker)
        ids = np.array(sorted(said - stop_ids() - weak_ids()), dtype=np.int64)
        holding: dict[int, list[Ints]] = {}
        for (part, mask), places in zip(self.corpus.parts(), timeline.places, strict=True):
            for one, start, end in spans_of(ids, part.terms, part.offsets).T.tolist():
                where = places[part.posting_doc[start:end]]
                if mask is not None:
                    where = where[where >= 0]
                holding.setdefault(one, []).append(where if here is None else where[here[where]])
        shared = np.zeros(len(timeline), dtype=np.int64)
        ranked = [(rarity(later.count, sum(map(len, lists))), one) for one, lists in holding.items()]
        # The rarest last: it stays.
        for rare, one in sorted(ranked):
            for where in holding[one]:
                shared[where] = rare
        return shared

    def _surplus(self, evidence: int, count: int) -> int:
        """Return by how many hundredths of a bit evidence, in 1/256 of them, exceeds what chance gives."""
        whole, none = _SHORT
        shortness = min(none - whole, max(0, none - int(self.leader.timeline.length[self.leader.at])))
        return (evidence - 100 * log2(count + _IMAGINED)) // _BIT + _TELLS_A_STATE * shortness // (none - whole)
