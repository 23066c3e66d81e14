"""What is looked for, before any text is scored: the words of a question with how rare each is in what is visible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from myria.index.block import Ints, hint_ids, whole_hint_id
from myria.index.corpus import Corpus
from myria.search.census import Census, frequencies, rarity
from myria.search.question import Question, Reading, Word, read, without_names
from myria.search.weights import Weights
from myria.text import term_id, terms

MAX_CONCEPTS: Final = 48
"""Words of a question that are scored: the rarest of those that occur."""

WISHES: Final = frozenset(map(term_id, terms("always prefer")))
"""Words of texts by which people wish something once and for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Concept:
    """A word to score: its ids with the percent each counts, and its idf in 1/256 bits.

    `subject` tells that a text that holds nothing else of the question may be what it asks for.
    """

    alternatives: tuple[tuple[int, int], ...]
    idf: int
    subject: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A question's reading with the rarity of its words: all that is needed to score a corpus.

    `sought` is the rarity of all its words together, in 1/256 bits, where a word that occurs nowhere counts like one
    that occurs once; 0 if the question asks for more than words (times, hints). `ids` are the ids of all its words and
    stand-ins. `distinctive` are the participants it names who do not belong to every scope.
    """

    reading: Reading
    weights: Weights
    concepts: tuple[Concept, ...]
    sought: int
    hint_concepts: tuple[Concept, ...]
    hint_ids: tuple[tuple[int, int], ...]
    distinctive: frozenset[str]
    ids: Ints

    @property
    def scores_without_words(self) -> bool:
        """Tell whether documents can match without holding a word of the question."""
        return not self.reading.asked or self.reading.by_speaker or self.reading.only_when

    @property
    def rarity(self) -> int:
        """Return the idf of all its words together, in 1/256 bits."""
        return sum(concept.idf for concept in self.concepts)

    @classmethod
    def of(cls, reading: Reading, corpus: Corpus, census: Census, superseded: Corpus | None, weights: Weights) -> Plan:
        """Look up how often a reading's words occur, and weigh them by that.

        Args:
            superseded: superseded documents; a word that nothing visible holds is counted there.
        """
        words = (*reading.words, *reading.hint_words)
        sought = {term_id(term) for word in words for term in word.all_terms}
        term_ids = sorted(sought | WISHES if reading.asks_help else sought)
        ids = np.array(term_ids, dtype=np.int64)
        counts = frequencies(ids, corpus)
        if superseded is not None:
            # A word that only superseded documents hold is as rare as there; any other is as rare as without them.
            counts = np.where(counts, counts, frequencies(ids, superseded))
        frequency = dict(zip(term_ids, counts.tolist(), strict=True))
        concepts = _concepts(reading.words, frequency, census.docs, weights)
        if not any(concept.subject for concept in concepts):
            concepts = ()
        return cls(
            reading=reading,
            weights=weights,
            concepts=concepts,
            sought=_sought(reading, concepts, frequency, census.docs),
            hint_concepts=_concepts(reading.hint_words, frequency, census.docs, weights),
            hint_ids=_hint_weights(reading.hints, weights),
            distinctive=frozenset(name for name in reading.participants if not census.shared(name)),
            ids=ids,
        )


def meaning(question: Question, corpus: Corpus) -> str:
    """Return what of a question is compared by meaning: its text without the visible names and common names in it.

    A name draws the vector of a question to every text that greets that person, or says something else of them.
    """
    census = Census.of(corpus)
    words = read(question, names=census, first=census.first, last=census.last).words
    ids = np.array(sorted({term_id(term) for word in words for term in word.own_terms}), dtype=np.int64)
    frequency = dict(zip(ids.tolist(), frequencies(ids, corpus).tolist(), strict=True))
    subjects = _subjects(words, frequency, census.docs)
    common = {word.term for word in words if word.name and word.subject and word.term not in subjects}
    return without_names(question, names=census, also=common)


def _concepts(words: Sequence[Word], frequency: Mapping[int, int], docs: int, weights: Weights) -> tuple[Concept, ...]:
    """Return the words that occur, rarest first, at most `MAX_CONCEPTS`, with what may stand in for each.

    Args:
        frequency: how many documents hold a term, by its id.
        docs: how many documents are visible.
    """
    subjects = _subjects(words, frequency, docs)
    ranked: list[tuple[int, int, Concept]] = []
    for position, word in enumerate(words):
        own_ids = _occurring(word.own_terms, frequency)
        stand_ins = [(identity, weights.related) for identity in _occurring(word.instead, frequency)]
        stand_ins += [(identity, weights.members) for identity in _occurring(word.members, frequency)]
        stand_ins = [(identity, percent) for identity, percent in stand_ins if percent]
        if own_ids:
            idf = min(rarity(docs, frequency[identity]) for identity in own_ids)
        elif stand_ins:
            idf = max(rarity(docs, frequency[identity]) for identity, _ in stand_ins)
        else:
            continue
        # Another word that is more common than the word itself counts proportionally less.
        alternatives = [(identity, 100) for identity in own_ids] + [
            (identity, percent * min(idf, rarity(docs, frequency[identity])) // idf) for identity, percent in stand_ins
        ]
        concept = Concept(alternatives=tuple(alternatives), idf=idf, subject=word.term in subjects)
        ranked.append((-idf, position, concept))
    return tuple(concept for _, _, concept in sorted(ranked, key=lambda row: row[:2])[:MAX_CONCEPTS])


def _sought(reading: Reading, concepts: Sequence[Concept], frequency: Mapping[int, int], docs: int) -> int:
    """Return `Plan.sought`: the rarity of all words of a question together, 0 if it asks for more than words."""
    if not reading.has_meaning or reading.windows or reading.hints:
        return 0
    rarest = rarity(docs, 1)
    unknown = sum(not _occurring(word.all_terms, frequency) for word in reading.words)
    return sum(concept.idf for concept in concepts) + rarest * unknown


def _occurring(terms: Iterable[str], frequency: Mapping[int, int]) -> list[int]:
    """Return the ids of those terms that occur."""
    return [identity for identity in map(term_id, terms) if frequency[identity]]


def _subjects(words: Sequence[Word], frequency: Mapping[int, int], docs: int) -> frozenset[str]:
    """Return the terms of the words that can be what the question is about.

    A name that many texts hold is no subject beside other words: if the question is about Ada's mother, a text that
    only names Ada is no answer.
    """
    subjects = [word for word in words if word.subject]

    def is_common_name(word: Word) -> bool:
        frequency_of_name = max((frequency[identity] for identity in _occurring(word.own_terms, frequency)), default=0)
        # Common: at least the square root of all documents hold it.
        return word.name and frequency_of_name > 1 and frequency_of_name * frequency_of_name >= docs

    others = [word for word in subjects if not is_common_name(word)]
    return frozenset(word.term for word in others or subjects)


def _hint_weights(hints: Sequence[tuple[str, int]], weights: Weights) -> tuple[tuple[int, int], ...]:
    """Return (id, weight in permille) of whole hints and of each of their words; of a repeated id the greatest."""
    by_id: dict[int, int] = {}
    for hint, permille in hints:
        whole = whole_hint_id(hint)
        for identity in hint_ids(hint):
            weight = max(0, min(1000, permille)) * (100 if identity == whole else weights.hint_term) // 100
            by_id[identity] = max(by_id.get(identity, 0), weight)
    return tuple(sorted(by_id.items()))
