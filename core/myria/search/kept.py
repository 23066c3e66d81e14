"""What was kept later of the same thing: the note that says anew what the best hit, an older note, says.

A kept statement says how something is, and what replaces it may hold no word of the question: asked who the intern is,
"The intern is Callum" answers, and "Callum left, Beatriz sits at his desk" names only whom it replaces. Each note says
one thing, so the bar is lower than in talk (`successors.py`): nothing is hidden by it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from myria.search.census import frequencies, rarity, spans_of
from myria.search.plan import Plan
from myria.search.successors import Leader
from myria.text import stop_ids, term_id
from myria.text.function_words import FUNCTION_WORDS
from myria.text.languages import function_terms

_REPEATED: Final = 25
"""Percent of the words of an older note, by rarity, that a later one must repeat."""
_IMAGINED: Final = 48
"""Documents that are thought beside the visible ones: in a memory of three notes a shared word tells something, too."""
_ANSWERED: Final = 50
"""Percent of what the older note holds of the question that a later one must hold, if it repeats nothing else: of two
notes that only name the same person, neither says anew what the other says."""
_LOOKED_AT: Final = 16
"""Notes whose words are read one by one, the newest: to read those of one costs as much as the log is long."""


def kept_later(leader: Leader, docs: int, plan: Plan) -> tuple[int, ...]:
    """Find later notes that may update the best hit, which is a note; return their places, the newest first.

    Empty if the best hit is no note.

    Args:
        docs: how many documents are visible.
        plan: what is asked for.
    """
    corpus, timeline, best_place = leader.corpus, leader.timeline, leader.at
    notes = corpus.notes
    if not notes[best_place]:
        return ()
    is_later = timeline.timestamp > timeline.timestamp[best_place]
    is_later |= (timeline.timestamp == timeline.timestamp[best_place]) & (timeline.seq > timeline.seq[best_place])
    is_later &= notes & ~leader.announced
    for condition in (leader.here, leader.allowed):
        if condition is not None:
            is_later &= condition
    if not is_later.any():
        return ()
    unspecific = leader.names | stop_ids() | _function_ids()
    own_words = leader.said - unspecific
    ids = np.array(sorted(own_words), dtype=np.int64)
    rarities = [rarity(docs + _IMAGINED, max(2, count)) for count in frequencies(ids, corpus).tolist()]
    question_ids = {identity for concept in plan.concepts for identity, _ in concept.alternatives}
    repeated = np.zeros(len(timeline), dtype=np.int64)
    answers = leader.held * 100 >= leader.held[best_place] * _ANSWERED
    for (part, _), places in zip(corpus.parts, timeline.places, strict=True):
        for index, start, end in spans_of(ids, part.terms, part.offsets).T.tolist():
            where = places[part.posting_doc[start:end]]
            where = where[where >= 0]
            repeated[where] += rarities[index]
            if int(ids[index]) not in question_ids:
                answers[where] = True
    candidates = np.flatnonzero(is_later & answers & (repeated * 100 >= max(1, sum(rarities)) * _REPEATED))
    newest = candidates[np.lexsort((timeline.seq[candidates], timeline.timestamp[candidates]))][::-1][:_LOOKED_AT]
    # What is written with signs, such as a version, means one thing and no other.
    signed = {term_id(word.term) for word in plan.reading.words if not word.term.isalnum()}

    def says_anew(words: frozenset[int]) -> bool:
        """Tell whether a note's words say something new about the thing that is asked about.

        One that repeats the best hit does not, nor one that says the same of another thing: "server beta runs Debian"
        shares most words with "server alpha runs Debian", but lacks "alpha".
        """
        missing = own_words & question_ids - words
        is_parallel = bool(missing) and 2 * len(words & own_words) >= len(words)
        return words != own_words and not (is_parallel or signed & missing)

    return tuple(index for index in newest.tolist() if says_anew(leader.words(index) - unspecific))


@cache
def _function_ids() -> frozenset[int]:
    return frozenset(term_id(term) for language in FUNCTION_WORDS for term in function_terms(language))
