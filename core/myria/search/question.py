"""What a question asks for: words, whom it names, when, what kind of answer it wants, and what its hints say.

Names are taken out of the words and kept as evidence of who spoke: people greet each other by name, so a name as a word
finds the wrong turns. Dates become windows of time. The kind of answer (a time, a name, how something is or was, what
has changed) is told by English words; of other languages it is told only that a question asks. Pure: the same question
over the same visible names and span of time always reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from myria.index.block import FAR_AWAY, name_terms
from myria.log.payloads import TopicHint
from myria.search.census import Census
from myria.text import Token, is_stopword, terms, tokens
from myria.text.asking import asks
from myria.text.dates import DAY_US, Window, is_date_word, local_day, windows
from myria.text.kinds import members
from myria.text.languages import STEMMED, is_function_word, languages_of, stem_of
from myria.text.related import related
from myria.text.requests import asked_in, is_common_part, is_request_term, without_requests, without_talk
from myria.text.verbforms import verb_forms
from myria.text.written import Written, written_in

_ASKS_WHEN: Final = re.compile(
    r"(?:^|[.!?;:,]\s+|\bknow |\btell me )(?:since |until )?"
    r"(?:when\b|how long\b|(?:in |on )?(?:what|which) (?:date|day|week|month|year|time|season)s?\b)",
    re.IGNORECASE,
)


_ASKS_NAME: Final = re.compile(
    r"\b(?:which|where|who|whose)\b|\b(?:what|name)\s(?:\w+\s){0,3}(?:names?|kinds?|types?|sorts?|books?|games?|movies?|films?"
    r"|countr(?:y|ies)|cit(?:y|ies)|towns?|states?|places?|songs?|bands?|brands?|makes?|models?|titles?|artists?|authors?"
    r"|shows?|compan(?:y|ies)|restaurants?|hotels?|holidays?|series|called|teams?|stores?|shops?|events?|schools?)\b",
    re.IGNORECASE,
)

_ASKS_HELP: Final = re.compile(
    r"\b(?:how (?:do|can|should|could|would|to)|(?:can|could|would) you|should|suggest|recommend|(?:help|show) me"
    r"|explain)\b",
    re.IGNORECASE,
)

State = Literal["present", "before", "change"]
"""What a question wants to know of something that may have changed."""

_BEFORE: Final = re.compile(
    r"\b(?:before|previous(?:ly)?|original(?:ly)?|first|earlier|former(?:ly)?|initial(?:ly)?|used? to|at the time"
    r"|back then|(?:the|my|our|your|his|her|its|their|['\u2019]s) old)\b",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(
    r"\b(?:chang\w*|switch\w*|happened (?:to|with)|differ\w*|renamed|rescheduled|replaced|another|moved|became"
    r"|(?:has|have|had|did) (?:\w+ ){0,3}become|no longer)\b",
    re.IGNORECASE,
)
_AT_PRESENT: Final = re.compile(
    r"\b(?:(?:as of|right|just) (?:now|today)|at (?:the moment|present|this (?:point|time|moment))|(?:in )?these days"
    r"|nowadays|current(?:ly)?(?=\W*$| \w))\b",
    re.IGNORECASE,
)
_TO_COME: Final = re.compile(
    r"\b(?:will|going to|soon|plan(?:s|ned)?|upcoming|from when|future|announced)\b"
    r"|\bwhen\b.{0,60}\b(?:start|begin|change|move|switch|become|join|leave|take effect)",
    re.IGNORECASE,
)
"""Words of questions for what is to come: what was announced answers them, whenever it holds."""
_HAS_DONE: Final = re.compile(r"(?:(?!\b(?:do|does|must|should)\b).)*\b(?:has|have)\b", re.IGNORECASE | re.DOTALL)
"""A question for what has been done ("has sold"), which is no state; "does he have" asks for one."""
_PAST: Final = re.compile(
    r"\b(?:did|was|were|had)\b"
    r"|\b(?:what|who)\s(?:\w{2,}ed|made|led|got|gave|took|went|came|said|told|won|brought|began)\b",
    re.IGNORECASE,
)


def without_present(text: str) -> str:
    """Remove words such as "right now" or "currently", which only say that a question is about the present.

    They must not be read as dates either.
    """
    return _AT_PRESENT.sub(" ", text)


def state_asked_for(text: str) -> State | None:
    """Return what a question wants to know of something that may have changed; None for words that are looked up.

    Questions in other languages than English count as for the present.
    """
    if not asks(text):
        return None
    if languages_of(text, terms(text)):
        return "present"
    if _BEFORE.search(text):
        return "before"
    if _CHANGE.search(text):
        return "change"
    return None if _PAST.search(text) else "present"


def day_asked_for(text: str, time_windows: Iterable[Window], today: int) -> int:
    """Return the day (since 1970) for which a question wants to know how something is.

    It is the last day that the question means, today if it means none, and `FAR_AWAY` if it asks for what is to come.

    Args:
        time_windows: the windows of time that the question means.
    """
    if _TO_COME.search(text):
        return FAR_AWAY
    last_days = [window.last if window.last >= window.first else window.end // DAY_US - 1 for window in time_windows]
    return max(last_days, default=today)


QUERY_BYTES: Final = 8 * 1024
"""How much of a query's text is read, in UTF-8 bytes."""

MAX_WORDS: Final = 256
"""How many different words of a query are looked up."""

_SAME_FIRST_NAME: Final = 3
"""Visible names up to which their first term alone names them all: "user" in a memory of very many names none."""
_NO_SUBJECT: Final = frozenset(terms("happen talk chat discuss say mention speak conversation message event news new"))
_ROLES: Final = frozenset(terms("user assistant system tool agent bot human ai model"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question before it is understood; an empty text asks for the most recent events.

    Relative dates count from `now` (microseconds since 1970 UTC; None: the newest visible event), in days of the place
    that is `utc_offset` minutes east of UTC. Announced facts count as true at present if they hold by `present` (in the
    same unit; None: by `now`).
    """

    text: str | None = None
    topic_hints: tuple[TopicHint, ...] = ()
    now: int | None = None
    utc_offset: int = 0
    present: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """One thing to look for: a term, and others that may stand in for it.

    `stems` are the term's stems in the languages that the question may be in, English excepted: they match as well as
    the term itself. `instead` are related terms and verb forms that may stand in for it; `members` name things of the
    kind that the term names. `subject` tells that a text that holds only this word of the question may be what it asks
    for, `name` that the word is written as a name.
    """

    term: str
    stems: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    subject: bool = True
    name: bool = False

    @property
    def own_terms(self) -> tuple[str, ...]:
        """Return the term itself and its stems."""
        return (self.term, *self.stems)

    @property
    def all_terms(self) -> tuple[str, ...]:
        """Return every term by which it is found."""
        return (*self.own_terms, *self.instead, *self.members)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What a question asks for, as `read` understands it.

    `asked` is False without a text, or for one that names nothing ("what do you remember?"): then the most recent
    events are the answer. `words` are to be matched in texts, `hint_words` and `hints` with topic hints.
    `speakers` and `participants` are the visible names in the question; `by_speaker` tells that it holds speakers'
    names and nothing else, so it asks for what they said. `windows` are the times it means, and `only_when` tells that
    it means nothing else; `day` is their last day or, without any, the day on which the question is asked (its place
    is `utc_offset` minutes east of UTC). `asks_when`: the answer is a time; `asks_name`: it is likely a name;
    `asks_help`: something is to be done or advised. `asks_for` tells whether the question is how something is, how it
    was before, or what changed (None: none of them), and `of_state` that it asks this of one person at most.
    """

    asked: bool
    words: tuple[Word, ...] = ()
    hint_words: tuple[Word, ...] = ()
    hints: tuple[tuple[str, int], ...] = ()
    speakers: frozenset[str] = frozenset()
    participants: frozenset[str] = frozenset()
    by_speaker: bool = False
    windows: tuple[Window, ...] = ()
    day: int = 0
    utc_offset: int = 0
    only_when: bool = False
    asks_when: bool = False
    asks_name: bool = False
    asks_help: bool = False
    asks_for: State | None = None
    of_state: bool = False

    @property
    def has_meaning(self) -> bool:
        """Whether it says more than who spoke and when."""
        return self.asked and not (self.by_speaker or self.only_when)


def read(question: Question, *, names: Census, first: int, last: int, utc_offset: int = 0) -> Reading:
    """Understand a question: find its words, names, times and kind of answer.

    Args:
        names: looks up which names are visible.
        first, last: span of the visible events, microseconds since 1970 UTC.
        utc_offset: minutes east of UTC of the place where it is asked.
    """
    hints = tuple((hint.hint, round(hint.confidence * 1000)) for hint in question.topic_hints)
    hint_words = tuple(
        Word(term=term)
        for term in dict.fromkeys(term for hint, _ in hints for term in terms(hint) if not is_stopword(term))
    )[:MAX_WORDS]
    text = _cut(question.text or "")
    if not text.strip():
        return Reading(asked=False, hints=hints, hint_words=hint_words)
    asks_for = state_asked_for(text)
    if asks_for == "present":
        text = without_present(text)
    written = written_in(text)
    question_tokens = _without_literals(tokens(without_requests(text)), written)
    if not (question_tokens or written) and tokens(text):
        return Reading(asked=False, hints=hints, hint_words=hint_words)
    found_names, terms_of_names = _find_names(question_tokens, names)
    speakers = names.speakers(found_names)
    sign_terms = [term for sign in written for term in sign.asked]
    all_terms = list(dict.fromkeys([*(token.term for token in question_tokens), *sign_terms]))
    meaningful_terms = [term for term in all_terms if not is_stopword(term)]
    content = [term for term in meaningful_terms if not speakers or term not in terms_of_names]
    languages = languages_of(text, all_terms)
    spoken_languages = asked_in(text, languages)
    content_terms = _content_terms(question_tokens, spoken_languages)
    content_only = [term for term in content if term in content_terms or term in sign_terms]
    content = content_only or content
    request_terms = {term for term in content if is_request_term(term, spoken_languages)}
    if request_terms and request_terms.issuperset(content) and not speakers:
        return Reading(asked=False, hints=hints, hint_words=hint_words)
    # A word or two without any function word, such as "cheval", may be of any language.
    stems_by_term = _stems(question_tokens, languages or (() if any(map(is_stopword, all_terms)) else STEMMED))
    now = last if question.now is None else question.now
    time_windows = windows(text, now=now, first=first, last=last, utc_offset=utc_offset)
    subject = [term for term in content if not (term in _NO_SUBJECT or term in request_terms or is_date_word(term))]
    by_speaker = bool(speakers) and not subject
    only_when = bool(time_windows) and not subject
    if only_when:
        content = [term for term in content if not is_date_word(term)]
        meaningful_terms = all_terms = []
    is_english = not languages and (text.isascii() or any(map(is_stopword, all_terms)))
    words = content or meaningful_terms or all_terms
    subjects = _subjects(words, request_terms, has_windows=bool(time_windows))
    names_as_written = _names_as_written(question_tokens, languages)
    return Reading(
        asked=True,
        words=tuple(
            Word(
                term=term,
                stems=stems_by_term.get(term, ()),
                instead=(*related(term), *verb_forms(term, languages)),
                members=tuple(member for member in members(term) if member not in content),
                subject=term in subjects,
                name=term in names_as_written,
            )
            for term in words[:MAX_WORDS]
        ),
        hint_words=hint_words,
        hints=hints,
        speakers=speakers,
        participants=names.participants(found_names),
        by_speaker=by_speaker,
        windows=time_windows,
        day=day_asked_for(
            text, time_windows, local_day(now if question.present is None else question.present, utc_offset)
        ),
        utc_offset=utc_offset,
        only_when=only_when,
        asks_when=_ASKS_WHEN.search(text) is not None,
        asks_name=_ASKS_NAME.search(text) is not None,
        asks_help=_ASKS_HELP.search(text) is not None,
        asks_for=asks_for,
        of_state=asks_for is not None
        and is_english
        and not any(window.exact for window in time_windows)
        and len(speakers) < 2
        and _HAS_DONE.match(text) is None,
    )


def _content_terms(question_tokens: Sequence[Token], languages: Sequence[str]) -> frozenset[str]:
    """Return the terms of the words that are function words in none of these languages."""
    return frozenset(
        token.term
        for token in question_tokens
        if not any(is_function_word(token.surface, language) for language in languages)
    )


def _without_literals(question_tokens: list[Token], written: Sequence[Written]) -> list[Token]:
    """Return the tokens without those within something whose words mean nothing by themselves (`c#`, a version)."""
    literal = [whole for whole in written if whole.is_literal]
    return [
        token
        for token in question_tokens
        if not any(whole.start <= token.start and token.end <= whole.end for whole in literal)
    ]


def _subjects(words: Sequence[str], asking: Collection[str], *, has_windows: bool) -> frozenset[str]:
    """Return the words that can be what a question is about; all of them if none qualifies.

    A text that holds a single one of them, and nothing else of the question, may answer it.

    Args:
        asking: words that only ask, such as "tell".
        has_windows: whether the question means a time; then words of dates are no subject beside others.
    """
    subjects = [word for word in words if not (word in asking or is_common_part(word))]
    if has_windows:
        subjects = [word for word in subjects if not is_date_word(word)] or subjects
    return frozenset(subjects or words)


def _names_as_written(question_tokens: Sequence[Token], languages: Sequence[str]) -> frozenset[str]:
    """Return the terms that are names by how they stand: with a capital inside a sentence, or with what belongs to it.

    In German all nouns have capitals, which so tell nothing.
    """
    has_capitals = "german" not in languages
    return frozenset(
        token.term
        for position, token in enumerate(question_tokens)
        if token.surface.lower().endswith(("'s", "\u2019s"))
        or (has_capitals and position and token.surface[:1].isupper() and not token.surface.isupper())
    ) - {token.term for token in question_tokens if is_date_word(token.term)}


def _stems(question_tokens: Sequence[Token], languages: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the stems of each term's word in these languages."""
    by_term: dict[str, dict[str, None]] = {}
    for token in question_tokens if languages else ():
        for language in languages:
            # With a capital, too: it may be a name that was typed without one.
            for surface in (token.surface, token.surface.capitalize()):
                by_term.setdefault(token.term, {}).update(dict.fromkeys(stem_of(surface, language)))
    return {term: tuple(stems) for term, stems in by_term.items()}


def without_names(question: Question, *, names: Census, also: Collection[str] = ()) -> str:
    """Return a question's text, in one line, without visible names and without words about the talk itself.

    The result is empty if the question holds nothing else.

    Args:
        also: further terms to take out.
    """
    text = without_talk(_cut(question.text or ""))
    question_tokens = tokens(text)
    _, terms_of_names = _find_names(question_tokens, names)
    pieces: list[str] = []
    end_of_last = 0
    for token in question_tokens:
        if token.term in terms_of_names or token.term in also:
            pieces.append(text[end_of_last : token.start])
            end_of_last = token.end + (2 if text[token.end : token.end + 2] in ("'s", "’s") else 0)
    return " ".join("".join([*pieces, text[end_of_last:]]).split())


def _cut(text: str) -> str:
    """Return the first `QUERY_BYTES` of a text, without a character that the cut would split."""
    if len(text) * 4 <= QUERY_BYTES:  # no character takes more than four bytes
        return text
    return text[:QUERY_BYTES].encode("utf-8", "replace")[:QUERY_BYTES].decode("utf-8", "ignore")


def _find_names(question_tokens: Sequence[Token], names: Census) -> tuple[set[str], set[str]]:
    """Find visible names in a question, whole or by their first term.

    Returns:
        the names, and the terms of the question that name them; terms of roles such as "user" are left out.
    """
    question_terms = [token.term for token in question_tokens]
    found_names: set[str] = set()
    terms_of_names: set[str] = set()
    for term, position in {term: position for position, term in reversed(list(enumerate(question_terms)))}.items():
        candidates = names.beginning_with(term)
        is_a_name = len(candidates) <= _SAME_FIRST_NAME and _is_a_name(question_tokens[position], position)
        for name in candidates:
            parts = name_terms(name)
            is_whole = _holds_parts(question_terms, parts)
            if is_whole or is_a_name:
                found_names.add(name)
                terms_of_names.update(parts if is_whole else parts[:1])
    return found_names, terms_of_names - _ROLES


def _holds_parts(question_terms: Sequence[str], parts: Sequence[str]) -> bool:
    """Tell whether a question holds all parts of a name, one right after the other; a stop word alone is no name."""
    if len(parts) == 1 and is_stopword(parts[0]):
        return False
    return any(list(question_terms[at : at + len(parts)]) == list(parts) for at in range(len(question_terms)))


def _is_a_name(token: Token, at: int) -> bool:
    """Tell whether a word is a name although it could be another word: "Will" inside a sentence, not "will"."""
    if len(token.term) < 2 or token.term.isdecimal():
        return False
    if is_stopword(token.term) or is_date_word(token.term):
        return at > 0 and token.surface[:1].isupper()
    return True
