"""Which of several kept statements tell of the same thing, so that the newest stands above those that it may replace.

People seldom say that they replace something: they keep "the standup is at 10" a month after "the standup is at 9:30".
Of two that answer a question about the present by the same words of it, or by some of them and share another word, the
newer stands first if it repeats a quarter of what the older one is about. Without such a question they count as of one
thing where they begin alike and end in another way, or where the newer one says that something has changed and names
what the older one is about. Soft evidence: what is older is told below and marked, never hidden.

`search/kept.py` has the same rule for raw search, by the numbers of words and with a lower bar, since it hides nothing.
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
"""Statements of an answer that are compared with each other, the first ones: a page of recall holds no more."""

_COMPARED = 200
"""Characters of a text that are compared: a statement says what it is about at once."""

_MOSTLY = 0.5
_BEGUN_ALIKE = 0.4
_SAID_ALIKE = 0.6
_PARALLEL = 0.35
"""How alike two statements are at least, as difflib has it, that tell the same of two things."""
_NAMED = 2
"""Words of a name of one of these things, at most."""
_REPEATED = 0.25
"""The share of the words that an older statement is about which a newer one repeats, where both answer a question:
with less, notes move that tell something else of the same person."""

_SPEAKERS = frozenset(map(root, "i we ich wir je nous yo nosotros eu nós io noi ik wij я мы".split()))  # noqa: SIM905
"""Who speaks of himself: two such statements are of one person where they share nothing else."""


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
    """What is asked for: the roots of its words, and whether it is a question about the present.

    `signed` are those that are written with signs, such as a version or an emoji: they mean one thing and no other.
    """

    about: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    of_present: bool = False

    @classmethod
    def of(cls, text: str) -> SoughtWords:
        """Return what a text asks for."""
        signed = written_terms(text)
        about = content_roots([*terms(text), *signed], text)
        return cls(about=about, signed=frozenset(map(root, signed)), of_present=state_asked_for(text) == "present")


NOTHING_ASKED = SoughtWords()


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptStatement:
    """A statement as it is compared: its words, those of them that tell what it is about, and its beginning.

    `others` are pairs of somebody and of a relation or thing of his that it speaks of ("Ana's brother").
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
        """Return a text as it is compared."""
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
        """Tell whether it may say anew what an older statement said.

        Args:
            asked: what both may answer.
        """
        if self.beginning == older.beginning or not asked.signed & older.about <= self.about:
            return False
        if self._is_of_other(older, asked) or older._is_of_other(self, asked) or self.is_parallel(older, asked):
            return False
        shared = self.about & older.about
        if self.is_move and older.is_place and (shared or not _SPEAKERS.isdisjoint(self.words & older.words)):
            return True
        # Asked for the flat in Ulm, the one in Hof is another: a word may be missing only if they share one more.
        of_same = asked.about & older.about <= shared or not shared <= asked.about
        answers = asked.of_present and of_same and shared & asked.about
        if (
            answers
            and len(shared) >= _REPEATED * len(older.about)
            and not _names_others(self.beginning, older.beginning)
        ):
            return True
        if self.is_change and len(shared) >= max(1, _MOSTLY * min(len(self.about), len(older.about))):
            return True
        return bool(shared) and self._begins_as(older)

    def is_parallel(self, other: KeptStatement, asked: SoughtWords) -> bool:
        """Tell whether it says in the words of another statement the same of something else than is asked about.

        "Server beta runs Debian" is so beside "Server alpha runs Debian" where alpha is asked for: another word stands
        in the place of one that is asked for, and both go on alike.
        """
        missing = asked.about & other.about - self.about
        if not missing:
            return False
        others, own = terms(other.beginning), terms(self.beginning)
        functions = _functions(other.beginning)
        compared = SequenceMatcher(None, others, own, autojunk=False)
        if compared.ratio() < _PARALLEL:
            return False
        return any(
            what == "replace"
            and follows == "equal"
            and max(end - start, ends - begins) <= _NAMED
            and not missing.isdisjoint(map(root, others[start:end]))
            and functions.isdisjoint((*others[start:end], *own[begins:ends]))
            for (what, start, end, begins, ends), (follows, *_) in pairwise(compared.get_opcodes())
        )

    def _is_of_other(self, statement: KeptStatement, asked: SoughtWords) -> bool:
        """Tell whether it is of somebody's relation or thing where a statement, and the question, are of himself."""
        return any(who in statement.about and what not in statement.about | asked.about for who, what in self.others)

    def _begins_as(self, older: KeptStatement) -> bool:
        """Tell whether two statements say something else of what they both begin with."""
        if _names_others(self.beginning, older.beginning):
            return False
        begun = _common_beginning(self.beginning, older.beginning)
        alike = len(self.words & older.words) / len(self.words | older.words)
        verbs = [token for token in tokens(begun) if begins_notes(token.surface)]
        if verbs and alike >= _SAID_ALIKE:
            return True
        telling = [token.term for token in tokens(begun) if not begins_notes(token.surface)]
        if not content_roots(telling, begun) & self.about:
            return False
        return alike > _BEGUN_ALIKE


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
    """Return by statement, newest first, the places of those before it that may say anew what it says."""
    return [
        [at for at in range(place) if statements[at].replaces(statements[place], asked)]
        for place in range(len(statements))
    ]


def _names_others(one: str, other: str) -> bool:
    """Tell whether two statements are of two things of a kind: "server alpha runs 12" and "server gamma runs 11".

    Behind a beginning that only names, one word differs, the next is the same, and then something else is told.
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
    """Return the terms of a text's function words, and the others of its languages."""
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
    pairs = ((of[1], of[2]) if of[1] else (of[4], of[3]) for of in _RELATED_TO.finditer(text))
    return ((_root(who), _root(what)) for who, what in pairs)


def _root(word: str) -> str:
    return root("".join(terms(word)))


def _is_within_word(text: str, at: int) -> bool:
    """Tell whether a place in a text of words with spaces between them is within a word."""
    return 0 < at < len(text) and text[at - 1 : at + 1].isalnum() and text[at] < "\u0e00"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedNote:
    """A kept statement of an answer, with when it was kept; `number` orders those of one microsecond.

    `replaced_by` is the `event_id` of the one that was said to replace it, on a day that it announces.
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
    """Return the places of an answer in their new order, and how some of them are to be marked from now on.

    A question for how something was before moves nothing. What tells in the same words of another thing than is asked
    about stands below what tells of that, and neither replaces the other. What holds from a later day on than the one
    that is asked for stands below what it will replace.

    Args:
        answer: best first; None for what is no kept statement, and stays where it is among them.
        asked: the words of the question.
        hints: more of them, which name no day.
        now: from where days of the question are reckoned, in microseconds since 1970 UTC.
        utc_offset: minutes east of UTC of who asks.
    """
    if state_asked_for(asked) == "before":
        return list(range(len(answer))), {}
    kept = [(note, place) for place, note in enumerate(answer) if note is not None][:MOST_COMPARED]
    kept.sort(key=lambda item: (-item[0].at, -item[0].number))
    notes, places = [note for note, _ in kept], [place for _, place in kept]
    sought = SoughtWords.of(" ".join(filter(None, (asked, *hints))))
    statements = [KeptStatement.of(note.text) for note in notes]
    above: dict[int, list[int]] = {}
    marks: dict[int, Change | None] = {}
    # Which tells of what is asked about: the one that holds most of its words, of equals the first.
    sure = max(range(len(kept)), key=lambda at: (len(sought.about & statements[at].about), -places[at]), default=0)
    for statement, place in zip(statements, places, strict=True):
        if statement.is_parallel(statements[sure], sought):
            marks |= {place: None, places[sure]: None}
            if place < places[sure]:
                above.setdefault(place, []).append(places[sure])
    meant = windows(asked, now=now, first=now, last=now, utc_offset=utc_offset)
    day = day_asked_for(asked, meant, local_day(now, utc_offset))
    # Once for each: where all begin alike there are over a thousand pairs, and texts may be long.
    holding_from = [holds_later(note.text, at=note.at, utc_offset=note.utc_offset, now=now) for note in notes]
    for older, place, anew in zip(notes, places, replaced(statements, sought), strict=True):
        by = older.replaced_by
        named = [at for at, note in enumerate(notes) if by is not None and note.event_id == by]
        for newer in {*anew, *named}:
            begins = holding_from[newer]
            if begins is not None and begins > day:
                above.setdefault(places[newer], []).append(place)
            else:
                above.setdefault(place, []).append(places[newer])
                marks[place] = "older"
    return _in_order(len(answer), above), marks


def _in_order(count: int, above: Mapping[int, Sequence[int]]) -> list[int]:
    """Return places in their order, but each behind those that belong above it."""
    ordered: dict[int, None] = {}
    begun: set[int] = set()

    def put(place: int) -> None:
        if place not in begun:  # of places that belong above each other, the first stays first
            begun.add(place)
            for other in above.get(place, ()):
                put(other)
            ordered[place] = None

    for place in range(count):
        put(place)
    return list(ordered)
