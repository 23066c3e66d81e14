"""What is looked for, before any text is scored: the words of a question with how rare each is in what is visible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from myria.analysis import term_id
from myria.index.block import Ints, View, hint_ids, name_terms, whole_hint_id
from myria.index.corpus import Corpus, Mask
from myria.retrieval.called import names_like
from myria.retrieval.frequency import frequencies, rarity
from myria.retrieval.question import Question, Reading, Word, read, without_names
from myria.retrieval.weights import Weights
from myria.values import short_value, value

MAX_CONCEPTS: Final = 48
"""Words of a question that are scored: the rarest of those that occur."""
_OWN_MENTIONS: Final = 10
"""Of a name that somebody says in each tenth text that holds it, somebody else is the bearer."""
_MOST_SOUGHT: Final = 6
"""Rare words that a question is taken to hold at most, where it is told how much of it is held: a long text that is
sent as a question holds much that nobody told."""


@short_value
class Census:
    """Totals of everything visible. Names are looked up, not listed: there may be very many."""

    corpora: Sequence[Corpus]
    docs: int
    first: int
    last: int

    @classmethod
    def of(cls, corpora: Sequence[Corpus]) -> Census:
        """Count what is visible."""
        docs = 0
        spans: list[int] = []
        for corpus in corpora:
            for view, mask in corpus.parts():
                if mask is None:
                    seen = len(view)
                    first, last = view.span
                else:
                    stamps = view.timestamp[mask]
                    seen = len(stamps)
                    first, last = (int(stamps.min()), int(stamps.max())) if seen else (0, 0)
                if seen:
                    docs += seen
                    spans += (first, last)
        return cls(corpora=corpora, docs=docs, first=min(spans, default=0), last=max(spans, default=0))

    def beginning_with(self, term: str) -> set[str]:
        """Return the visible names, of speakers and of participants, whose first term is this."""
        return self._speakers_beginning_with(term) | self._participants_beginning_with(term)

    def called(self, term: str) -> set[str]:
        """Return the name of the one visible speaker whom a term that is no name is short for, or misspells.

        None where it is somebody else's: people hardly say their own name, and a misspelling stands in no text.
        """
        views = [view for corpus in self.corpora for view, _ in corpus.parts()]
        likely = {first for view in views for first in names_like(term, view.first_names)}
        names = {name for first in likely for name in self._speakers_beginning_with(first)}
        if len(names) != 1:
            return set()
        said, by_themselves = self._mentions(term, names)
        is_short = all(first.startswith(term) for name in names for first in name_terms(name)[:1])
        return names if by_themselves * _OWN_MENTIONS <= said and (is_short or not said) else set()

    def speakers(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these visible names are speakers'."""
        return frozenset(
            name for name in names for term in name_terms(name)[:1] if name in self._speakers_beginning_with(term)
        )

    def participants(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these names are those of participants of visible documents."""
        return frozenset(name for name in names if any(self._present(corpus, name) for corpus in self.corpora))

    def shared(self, name: str) -> bool:
        """Tell whether a participant belongs to every scope with a visible document."""
        return all(self._present(corpus, name) == np.count_nonzero(corpus.present) for corpus in self.corpora)

    def _speakers_beginning_with(self, term: str) -> set[str]:
        names: set[str] = set()
        for corpus in self.corpora:
            for view, mask in corpus.parts():
                for code in view.speakers_by_term.get(term, ()):
                    if view.speakers[code] not in names and _is_heard(view, mask, code):
                        names.add(view.speakers[code])
        return names

    def _mentions(self, term: str, names: set[str]) -> tuple[int, int]:
        """Return how many visible texts hold a term, and how many of those somebody of these names told."""
        said = by_them = 0
        _, located = frequencies(np.array([term_id(term)], dtype=np.int64), self.corpora)
        for corpus, rows in zip(self.corpora, located, strict=True):
            for (view, mask), spans in zip(corpus.parts(), rows, strict=True):
                theirs = [code for code, name in enumerate(view.speakers) if name in names]
                for _, start, end in spans.T.tolist():
                    docs = view.posting_doc[start:end]
                    docs = docs if mask is None else docs[mask[docs]]
                    said += len(docs)
                    by_them += int(np.isin(view.speaker[docs], theirs).sum())
        return said, by_them

    def _participants_beginning_with(self, term: str) -> set[str]:
        return {
            name
            for corpus in self.corpora
            for name in corpus.scopes.names_by_term.get(term, ())
            if self._present(corpus, name)
        }

    @staticmethod
    def _present(corpus: Corpus, name: str) -> int:
        """Return in how many scopes of a corpus with a visible document a participant is."""
        places = corpus.scopes.holders.get(name)
        return 0 if places is None else int(np.count_nonzero(corpus.present[places]))


def _is_heard(view: View, mask: Mask | None, code: int) -> bool:
    return code in view.heard and (mask is None or bool((mask & (view.speaker == code)).any()))


@value
class Concept:
    """A word to score: its ids with the percent each counts, and its idf in 1/256 bits.

    `subject` tells that a text that holds nothing else of the question may be what it asks for.
    """

    alternatives: tuple[tuple[int, int], ...]
    idf: int
    subject: bool = True


@value
class Plan:
    """A reading with the weights of its words: all that is needed to score a corpus.

    `sought` is how rare all its words are together, in 1/256 bits, those that occur nowhere as rare as one that occurs
    once; 0 where it asks for more than words.
    `located` says where the postings of `ids` are by corpus and view, as `frequencies` has it; `distinctive` are the
    participants it names who are not in every scope.
    """

    reading: Reading
    weights: Weights
    concepts: tuple[Concept, ...]
    sought: int
    hint_concepts: tuple[Concept, ...]
    hint_ids: tuple[tuple[int, int], ...]
    distinctive: frozenset[str]
    ids: Ints
    located: list[list[Ints]]

    @property
    def scores_without_words(self) -> bool:
        """Tell whether documents can match without holding a word of the question."""
        return not self.reading.asked or self.reading.by_speaker or self.reading.only_when

    @property
    def rarity(self) -> int:
        """Return the idf of all its words together, in 1/256 bits."""
        return sum(concept.idf for concept in self.concepts)

    def covered(self, words: frozenset[int]) -> int:
        """Return the percent of its words, by rarity, that a document with the words of these ids holds."""
        held = sum(
            concept.idf * max((percent for identity, percent in concept.alternatives if identity in words), default=0)
            for concept in self.concepts
        )
        return held // max(1, self.rarity)

    @classmethod
    def of(
        cls, reading: Reading, corpora: Sequence[Corpus], census: Census, former: Corpus | None, weights: Weights
    ) -> Plan:
        """Look a reading's words up.

        Args:
            former: superseded documents, whose words count where nothing visible holds them.
        """
        words = (*reading.words, *reading.hint_words)
        wanted = sorted({term_id(term) for word in words for term in word.all_terms})
        ids = np.array(wanted, dtype=np.int64)
        total, located = frequencies(ids, corpora)
        if former is not None:
            formerly, places = frequencies(ids, (former,))
            # A word that only superseded documents hold is as rare as there; any other is as rare as without them.
            total = np.where(total, total, formerly)
            located += places
        frequency = dict(zip(wanted, total.tolist(), strict=True))
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
            located=located,
        )


def meaning(question: Question, corpora: Sequence[Corpus]) -> str:
    """Return what of a question is compared by meaning: its text without the visible names and common names in it.

    A name draws the vector of a question to every text that greets that person, or says something else of them.
    """
    census = Census.of(corpora)
    words = read(question, names=census, first=census.first, last=census.last).words
    ids = np.array(sorted({term_id(term) for word in words for term in word.own_terms}), dtype=np.int64)
    frequency = dict(zip(ids.tolist(), frequencies(ids, corpora)[0].tolist(), strict=True))
    subjects = _subjects(words, frequency, census.docs)
    common = {word.term for word in words if word.name and word.subject and word.term not in subjects}
    return without_names(question, names=census, also=common)


def _concepts(words: Sequence[Word], frequency: Mapping[int, int], docs: int, weights: Weights) -> tuple[Concept, ...]:
    subjects = _subjects(words, frequency, docs)
    candidates: list[tuple[int, int, Concept]] = []
    for at, word in enumerate(words):
        own = _occurring(word.own_terms, frequency)
        others = [(identity, weights.related) for identity in _occurring(word.instead, frequency)]
        others += [(identity, weights.members) for identity in _occurring(word.members, frequency)]
        others = [(identity, percent) for identity, percent in others if percent]
        if own:
            idf = min(rarity(docs, frequency[identity]) for identity in own)
        elif others:
            idf = max(rarity(docs, frequency[identity]) for identity, _ in others)
        else:
            continue
        # Another word that is more common than the word itself counts proportionally less.
        alternatives = [(identity, 100) for identity in own] + [
            (identity, percent * min(idf, rarity(docs, frequency[identity])) // idf) for identity, percent in others
        ]
        concept = Concept(alternatives=tuple(alternatives), idf=idf, subject=word.term in subjects)
        candidates.append((-idf, at, concept))
    return tuple(concept for _, _, concept in sorted(candidates, key=lambda row: row[:2])[:MAX_CONCEPTS])


def _sought(reading: Reading, concepts: Sequence[Concept], frequency: Mapping[int, int], docs: int) -> int:
    if not reading.has_meaning or reading.windows or reading.hints:
        return 0
    rarest = rarity(docs, 1)
    unknown = sum(not _occurring(word.all_terms, frequency) for word in reading.words)
    return min(sum(concept.idf for concept in concepts) + rarest * unknown, rarest * _MOST_SOUGHT)


def _occurring(terms: Iterable[str], frequency: Mapping[int, int]) -> list[int]:
    """Return the ids of those terms that occur."""
    return [identity for identity in map(term_id, terms) if frequency[identity]]


def _subjects(words: Sequence[Word], frequency: Mapping[int, int], docs: int) -> frozenset[str]:
    """Return the terms of the words by any of which alone a text may be what is asked for.

    A name that many texts hold is none beside other words: asked for somebody's mother, a text that only names
    somebody is no answer.
    """
    subjects = [word for word in words if word.subject]

    def is_common_name(word: Word) -> bool:
        most = max((frequency[identity] for identity in _occurring(word.own_terms, frequency)), default=0)
        return word.name and most > 1 and most * most >= docs

    others = [word for word in subjects if not is_common_name(word)]
    return frozenset(word.term for word in others or subjects)


def _hint_weights(hints: Sequence[tuple[str, int]], weights: Weights) -> tuple[tuple[int, int], ...]:
    by_id: dict[int, int] = {}
    for hint, permille in hints:
        whole = whole_hint_id(hint)
        for identity in hint_ids(hint):
            weight = max(0, min(1000, permille)) * (100 if identity == whole else weights.hint_term) // 100
            by_id[identity] = max(by_id.get(identity, 0), weight)
    return tuple(sorted(by_id.items()))
