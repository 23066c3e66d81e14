"""Which of several kept statements tell of the same thing, so that the newest stands above those that it may replace.

People seldom say that they replace something: they keep "the standup is at 10" a month after "the standup is at 9:30".
Suppose two notes answer a question about the present by the same words of it, or by some of them, and share another
word: then the newer stands first if it repeats a quarter of what the older one is about. Without such a question, they
count as of one thing where they begin alike and end in another way, or where the newer one says that something has
changed and names what the older one is about. This is soft evidence, so the older one is moved down and marked, never
hidden.

`search/successors.py` has the same rule for raw search, by the numbers of words and with a lower bar, since it hides
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final, Literal

from myria.notes.subjects import begins_notes
from myria.search.question import day_asked_for, state_asked_for
from myria.text.announcing import announces, holds_later
from myria.text.changes import tells_of_change, tells_of_move, tells_where
from myria.text.dates import local_day, windows
from myria.text.languages import function_terms, languages_of
from myria.text.words import is_stopword, root, terms, tokens
from myria.text.written import written_terms

Change = Literal["newer", "older"]

MOST_COMPARED = 50
"""First statements of an answer that are compared with each other: as many as a page of recall holds."""

_COMPARED = 200
"""First characters of a text that are compared, since a statement names its subject at its beginning."""

_MOSTLY = 0.5
_BEGUN_ALIKE = 0.4
_SAID_ALIKE = 0.6
_PARALLEL = 0.35
"""The least ratio of difflib at which two statements may say the same of two different things."""
_NAMED = 2
"""Words that the name of one of these things has at most."""
_REPEATED = 0.25
"""The share of the words that an older statement is about which a newer one repeats, where both answer a question:
with less, notes move that tell something else of the same person."""

_SPEAKERS = frozenset(map(root, "i we ich wir je nous yo nosotros eu nós io noi ik wij я мы".split()))  # noqa: SIM905
"""Words by which speakers name themselves: two statements with such words are of one person, if of nothing else."""


_RELATED_TO: Final = re.compile(
    r"([^\W\d_]+)['\u2019]s\s+([^\W\d_]+)"
    r"|([^\W\d_]+)\s+(?:(?:of|von|vom|de|del|da|do|di|van)\s+|d['\u2019])([^\W\d_a-z][^\W\d_]*)"
)
"""Somebody's relation or thing: "Ana's brother", "le frère d'Ana", "der Bruder von Ana", but not "classes of piano"."""


_ARTICLES: Final = frozenset(
    terms("the a an der die das ein eine le la les l un une des el los las il lo gli o os as um uma de het een")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SoughtWords:
    """The words of a question: their roots (`about`), and whether it asks about the present.

    `signed` are the roots of words written with signs, such as a version or an emoji, which mean exactly one thing.
    """

    about: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    of_present: bool = False

    @classmethod
    def of(cls, text: str) -> SoughtWords:
        """Return the sought words of a question's text."""
        signed = written_terms(text)
        about = content_roots([*terms(text), *signed], text)
        return cls(about=about, signed=frozenset(map(root, signed)), of_present=state_asked_for(text) == "present")


NOTHING_ASKED = SoughtWords()


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptStatement:
    """A statement prepared for comparison: its beginning, its words, and those that say what it is about.

    `others` are pairs of a person and a relation or thing of theirs that the statement names ("Ana's brother").
    """

    beginning: str
    words: frozenset[str]
    about: frozenset[str]
    is_change: bool
    is_place: bool
    is_move: bool
    others: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, text: str) -> KeptStatement:
        """Return a text prepared for comparison."""
        beginning = " ".join(text[:_COMPARED].casefold().split())
        words = [*terms(beginning), *written_terms(text[:_COMPARED])]
        about = content_roots(words, text[:_COMPARED])
        return cls(
            beginning=beginning,
            words=frozenset(map(root, words)),
            about=about,
            is_change=tells_of_change(beginning) or announces(beginning),
            is_place=tells_where(beginning),
            is_move=tells_of_move(beginning),
            others=frozenset((who, what) for who, what in _others(text[:_COMPARED]) if what in about),
        )

    def replaces(self, older: KeptStatement, asked: SoughtWords = NOTHING_ASKED) -> bool:
        """Tell whether this statement may replace an older one.

        Args:
            asked: the question that both may answer.
        """
        if self.beginning == older.beginning or not asked.signed & older.about <= self.about:
            return False
        if self._is_of_other(older, asked) or older._is_of_other(self, asked) or self.is_parallel(older, asked):
            return False
        shared = self.about & older.about
        if self.is_move and older.is_place and (shared or not _SPEAKERS.isdisjoint(self.words & older.words)):
            return True
        # For a question about the flat in Ulm, the flat in Hof is another one: the newer statement may lack a word that
        # question and older statement have only if both statements share a word besides.
        same_subject = asked.about & older.about <= shared or not shared <= asked.about
        answers = asked.of_present and same_subject and shared & asked.about
        if (
            answers
            and len(shared) >= _REPEATED * len(older.about)
            and not _names_others(self.beginning, older.beginning)
        ):
            return True
        if self.is_change and len(shared) >= max(1, _MOSTLY * min(len(self.about), len(older.about))):
            return True
        return bool(shared) and self._begins_with_same_subject(older)

    def is_parallel(self, other: KeptStatement, asked: SoughtWords) -> bool:
        """Tell whether this statement says the same as another one, but of another thing than the question's.

        So does "Server beta runs Debian" beside "Server alpha runs Debian" where the question asks about alpha: another
        word stands in the place of a word of the question, and both go on alike.
        """
        missing = asked.about & other.about - self.about
        if not missing:
            return False
        other_terms, own_terms = terms(other.beginning), terms(self.beginning)
        function_words = _functions(other.beginning)
        matcher = SequenceMatcher(None, other_terms, own_terms, autojunk=False)
        if matcher.ratio() < _PARALLEL:
            return False
        return any(
            change == "replace"
            and next_change == "equal"
            and max(end - start, own_end - own_start) <= _NAMED
            and not missing.isdisjoint(map(root, other_terms[start:end]))
            and function_words.isdisjoint((*other_terms[start:end], *own_terms[own_start:own_end]))
            for (change, start, end, own_start, own_end), (next_change, *_) in pairwise(matcher.get_opcodes())
        )

    def _is_of_other(self, statement: KeptStatement, asked: SoughtWords) -> bool:
        """Tell whether this is about a relation or thing of a person about whom a statement and the question are."""
        return any(who in statement.about and what not in statement.about | asked.about for who, what in self.others)

    def _begins_with_same_subject(self, older: KeptStatement) -> bool:
        """Tell whether two statements begin with the same subject and say different things of it."""
        if _names_others(self.beginning, older.beginning):
            return False
        beginning = _common_beginning(self.beginning, older.beginning)
        likeness = len(self.words & older.words) / len(self.words | older.words)
        verbs = [token for token in tokens(beginning) if begins_notes(token.surface)]
        if verbs and likeness >= _SAID_ALIKE:
            return True
        subject_terms = [token.term for token in tokens(beginning) if not begins_notes(token.surface)]
        if not content_roots(subject_terms, beginning) & self.about:
            return False
        return likeness > _BEGUN_ALIKE


def content_roots(words: Sequence[str], text: str) -> frozenset[str]:
    """Return the roots of those terms of a text that tell what it is about: no function words and no numbers."""
    languages = languages_of(text, words)
    return frozenset(
        root(word)
        for word in words
        if not word.isdigit()
        and not any(word in function_terms(language) for language in languages)
        and (languages or not is_stopword(word))
    )


def replaced(statements: Sequence[KeptStatement], asked: SoughtWords = NOTHING_ASKED) -> list[list[int]]:
    """Return for each statement, given newest first, the places of the newer ones that may replace it."""
    return [
        [newer for newer in range(place) if statements[newer].replaces(statements[place], asked)]
        for place in range(len(statements))
    ]


def _names_others(one: str, other: str) -> bool:
    """Tell whether two statements are about two things of a kind: "server alpha runs 12" and "server gamma runs 11".

    Behind an equal beginning without verbs one word differs, the next is equal, and what follows differs again.
    """
    begun = _common_beginning(one, other)
    words = terms(begun)
    functions = _functions(one)
    if not functions.isdisjoint(set(words) - _ARTICLES):
        return False
    (word, *after), (word_other, *after_other) = (text[len(begun) :].split() or [""] for text in (one, other))
    if any(is_stopword(begins) or begins in functions for begins in (word, word_other)):
        return False
    return after[:1] == after_other[:1] and bool(after[1:]) and after[1:] != after_other[1:]


def _functions(text: str) -> frozenset[str]:
    """Return the function words of a text, and all function words of its languages, as terms."""
    words = terms(text)
    return frozenset(filter(is_stopword, words)).union(*map(function_terms, languages_of(text, words)))


def _common_beginning(one: str, other: str) -> str:
    """Return what two statements both begin with, in whole words where these have spaces between them."""
    pairs = enumerate(zip(one, other, strict=False))
    begun = one[: next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))]
    if _is_within_word(one, len(begun)) or _is_within_word(other, len(begun)):
        return begun[: begun.rfind(" ") + 1]
    return begun


def _others(text: str) -> Iterator[tuple[str, str]]:
    """Yield the person and the relation or thing of each phrase such as "Ana's brother", as roots."""
    pairs = ((of[1], of[2]) if of[1] else (of[4], of[3]) for of in _RELATED_TO.finditer(text))
    return ((_root(who), _root(what)) for who, what in pairs)


def _root(word: str) -> str:
    return root("".join(terms(word)))


def _is_within_word(text: str, at: int) -> bool:
    """Tell whether a place in a text of words with spaces between them is within a word."""
    return 0 < at < len(text) and text[at - 1 : at + 1].isalnum() and text[at] < "\u0e00"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedNote:
    """A note of an answer, with the time when it was kept; `number` orders notes of the same microsecond.

    `replaced_by` is the `event_id` of the note that was kept to replace this one, on a day that it announces.
    """

    text: str
    at: int
    number: int
    utc_offset: int = 0
    event_id: str | None = None
    replaced_by: str | None = None


def newest_above(
    answer: Sequence[ComparedNote | None], asked: str, *, hints: Sequence[str] = (), now: int, utc_offset: int = 0
) -> tuple[list[int], dict[int, Change | None]]:
    """Return the places of an answer's notes in a new order, and new marks of some of them by their places.

    Newer notes go above the older ones that they may replace. A question about the past moves nothing. A note that says
    the same of another thing than the question's goes below the note about that, and neither replaces the other. A note
    that holds from a later day than the one asked about goes below the notes that it will replace.

    Args:
        answer: best first; None for a hit that is not compared, such as a raw event.
        asked: the words of the question.
        hints: further words of the question, in which no day is looked for.
        now: the moment from which the question's days are counted, in microseconds since 1970 UTC.
        utc_offset: that of the asker, in minutes east of UTC.
    """
    if state_asked_for(asked) == "before":
        return list(range(len(answer))), {}
    compared = [(note, place) for place, note in enumerate(answer) if note is not None][:MOST_COMPARED]
    compared.sort(key=lambda item: (-item[0].at, -item[0].number))
    notes, places = [note for note, _ in compared], [place for _, place in compared]
    sought = SoughtWords.of(" ".join(filter(None, (asked, *hints))))
    statements = [KeptStatement.of(note.text) for note in notes]
    above: dict[int, list[int]] = {}
    marks: dict[int, Change | None] = {}
    # The note that is surely about the question's subject: the one with most of its words, of equals the first.
    surest = max(
        range(len(compared)), key=lambda index: (len(sought.about & statements[index].about), -places[index]), default=0
    )
    for statement, place in zip(statements, places, strict=True):
        if statement.is_parallel(statements[surest], sought):
            marks |= {place: None, places[surest]: None}
            if place < places[surest]:
                above.setdefault(place, []).append(places[surest])
    day_windows = windows(asked, now=now, first=now, last=now, utc_offset=utc_offset)
    asked_day = day_asked_for(asked, day_windows, local_day(now, utc_offset))
    # Computed once for each note, not for each pair: alike notes make over a thousand pairs, and texts may be long.
    holding_from = [holds_later(note.text, at=note.at, utc_offset=note.utc_offset, now=now) for note in notes]
    for older, place, newer_places in zip(notes, places, replaced(statements, sought), strict=True):
        successor_id = older.replaced_by
        announced = [
            index for index, note in enumerate(notes) if successor_id is not None and note.event_id == successor_id
        ]
        for newer in {*newer_places, *announced}:
            first_day = holding_from[newer]
            if first_day is not None and first_day > asked_day:
                above.setdefault(places[newer], []).append(place)
            else:
                above.setdefault(place, []).append(places[newer])
                marks[place] = "older"
    return _in_order(len(answer), above), marks


def _in_order(count: int, above: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the places up to a count in their order, but each behind the places that belong above it."""
    ordered: dict[int, None] = {}
    visited: set[int] = set()

    def put(place: int) -> None:
        if place not in visited:  # of places that belong above each other, the first stays first
            visited.add(place)
            for other in above.get(place, ()):
                put(other)
            ordered[place] = None

    for place in range(count):
        put(place)
    return list(ordered)
