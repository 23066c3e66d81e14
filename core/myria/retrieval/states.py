"""Later states of what a question asks for, found by small signs that count together.

Whoever tells how something is now often uses none of the words by which it was told before: "I weigh 88 kilos", "Scale
says 84 this morning". No sign of such a statement is strong alone. So they are added up: how good a hit it is and how
much of the question it holds, whether the same person says it, how rare a word it shares with the older statement, and
whether both hold a number or name something. Each counts in bits, as far as few others have it, and the sum must exceed
what the likeliest of so many statements has by chance: the logarithm of their number and a margin, which is smaller the
shorter the older statement is. A short one tells a state, a long one many things.

What is found so, or by stronger evidence (`myria.retrieval.successors`), may have changed again: one more step is taken
from there. A step that is less sure stands below what it may have replaced, and so does a second statement that is
nearly as likely. All of them come before the best hit. Soft evidence: nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from myria.analysis import stop_ids
from myria.analysis.common_words import weak_ids
from myria.index.block import EMPTY, NAMING, Ints
from myria.index.corpus import Corpus, Mask, Timeline
from myria.retrieval.frequency import log2, rarity, spans_of
from myria.retrieval.successors import AskedAbout, Later, Leader, Succession, names_in
from myria.values import value

MOST: Final = 4
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
_NUMBER_ASKED: Final = 20
"""The same where the question asks for a number."""
_BOTH_NAME: Final = 70
"""Percent of the rarity of statements that name something, where the older one does."""
_NAME_ASKED: Final = 30
"""The same where the question asks for a name."""
_FOUND: Final = 470
"""Percent of a bit that a statement counts which stronger evidence found."""

_LIKELY: Final = 120
"""Percent of a bit by which the likeliest statement exceeds the logarithm of their number, to be put first."""
_NEXT: Final = 370
"""The same of what replaced it in its turn."""
_PERHAPS_NEXT: Final = 170
"""The same of what is put below what it may have replaced."""
_SECOND: Final = 0
"""The same of the second likeliest, where the likeliest is put first."""
_TELLS_A_STATE: Final = 400
"""Percent of a bit by which these are smaller if the best hit is short."""
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


def later_states(
    leader: Leader, corpora: Sequence[Corpus], asked: AskedAbout, known: Succession | None, *, certain: bool
) -> tuple[Succession, ...]:
    """Return what to put before the best hit of a question about a state, the newest state first.

    Args:
        known: the newer statement that was found otherwise.
        certain: whether it was found by more than its score.
    """
    found = () if known is None else (known,)
    corpus, timeline = corpora[leader.corpus], leader.timeline
    signs = _Signs(leader=leader, corpus=corpus, asked=asked, numbered=corpus.numbered())
    if asked.asks_many and not signs.numbered[leader.at]:
        return found
    step = signs.after(leader.at, known.at if known is not None and certain else None, least=_LIKELY)
    if step is None or step.surplus < _LIKELY:
        return found
    newer = [step.at, *(one.at for one in found)]
    below = step.second
    then = signs.after(step.at, None, least=_PERHAPS_NEXT)
    if then is not None and then.surplus >= _NEXT:
        newer, below = [then.at, *newer], below + then.second
    elif then is not None and then.surplus >= _PERHAPS_NEXT:
        below = (then.at, *below)
    older = int(timeline.seq[leader.at])
    return tuple(
        Succession(older=older, newer=int(timeline.seq[at]), at=at)
        for at in list(dict.fromkeys((*newer, *below)))[:MOST]
    )


@value
class _Likeliest:
    """The likeliest later statement, and by how many hundredths of a bit it exceeds what chance gives.

    `second` holds the next likeliest, where that is likely as well.
    """

    at: int
    surplus: int
    second: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Signs:
    """What is compared: the statements of the best hit's corpus, of which `numbered` hold a number."""

    leader: Leader
    corpus: Corpus
    asked: AskedAbout
    numbered: Mask

    def after(self, at: int, known: int | None, *, least: int) -> _Likeliest | None:
        """Return the likeliest state among what was said after a statement, or None.

        Args:
            known: a statement that other evidence speaks for.
            least: the surplus below which nobody asks for it.
        """
        leader, timeline, asked = self.leader, self.leader.timeline, self.asked
        later = leader.later(self.corpus, at)
        mask = later.mask & timeline.derived(_saying)
        count = int(np.count_nonzero(mask))
        if not count or timeline.length[at] > _LONGEST:
            return None
        mask &= timeline.derived(_brief)
        if known is not None:
            mask[known] = True
        places = np.flatnonzero(mask)
        if not len(places):
            return None
        spoken = later.spoken
        naming = timeline.derived(_naming)
        numbers = _BOTH_NUMBERS * bool(self.numbered[at]) + _NUMBER_ASKED * asked.asks_number
        names = _BOTH_NAME * bool(naming[at]) + _NAME_ASKED * asked.asks_name
        evidence = _AS_GOOD * _BIT * np.minimum(leader.score[places], leader.worth) // leader.worth
        evidence += _HOLDS * _BIT * leader.held[places] // (100 * asked.weight)
        evidence += _SAME_SPEAKER * _BIT * spoken[places]
        for percent, held in ((numbers, self.numbered), (names, naming)):
            if percent:
                evidence += percent * rarity(count, int(np.count_nonzero(held & later.mask))) * held[places]
        if known is not None:
            evidence += _FOUND * _BIT * (places == known)
        # A shared word is held by two at least: where the rarest would not be enough, none is looked up.
        if self._surplus(int(evidence.max()) + _SHARES * rarity(later.count, 2), count) < least:
            return None
        shared = self._shared(at, later)
        evidence += _SHARES * shared[places]
        likely = (leader.held[places] > 0) | (shared[places] > 0)
        if self.numbered[at]:
            likely |= self.numbered[places]
        if known is not None:
            likely |= places == known
        places, evidence = places[likely], evidence[likely]
        order = np.lexsort((places, evidence))[::-1][:_REPEATED]
        said = {leader.words(self.corpus, one) for one in (at, leader.at)}
        new = (one for one in order.tolist() if leader.words(self.corpus, int(places[one])) not in said)
        others = list(islice(new, 2))
        if not others or not later.holding[places[others[0]]]:
            return None  # the next state is announced: what comes after it in likelihood is none
        surplus = [self._surplus(int(evidence[one]), count) for one in others]
        return _Likeliest(
            at=int(places[others[0]]),
            surplus=surplus[0],
            second=tuple(
                int(places[one])
                for one in others[1:]
                if surplus[-1] >= _SECOND and spoken[places[one]] and later.holding[places[one]]
            ),
        )

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


def _saying(timeline: Timeline) -> Mask:
    """Return which documents say something."""
    mask: Mask = timeline.flags & EMPTY == 0
    return mask


def _brief(timeline: Timeline) -> Mask:
    """Return which documents are not too long to tell a state."""
    mask: Mask = timeline.length <= _LONG
    return mask


def _naming(timeline: Timeline) -> Mask:
    """Return which documents name something."""
    mask: Mask = timeline.flags & NAMING != 0
    return mask
