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
_PAST: Final = re.compile(
    r"\b(?:did|was|were|had)\b"
    r"|\b(?:what|who)\s(?:\w{2,}ed|made|led|got|gave|took|went|came|said|told|won|brought|began)\b",
    re.IGNORECASE,
)


def wants_time(text: str) -> bool:
    """Tell whether the answer to a question is a time."""
    return _ASKS_WHEN.search(text) is not None


def wants_name(text: str) -> bool:
    """Tell whether the answer to a question is likely a name."""
    return _ASKS_NAME.search(text) is not None


def wants_help(text: str) -> bool:
    """Tell whether a question wants something done or advised, for which a standing wish may hold."""
    return _ASKS_HELP.search(text) is not None


def wants_what_was_done(text: str) -> bool:
    """Tell whether a question asks what has been done ("has sold"): no state, as "does he have" asks for one."""
    return _HAS_DONE.match(text) is not None


def without_present(text: str) -> str:
    """Return a question without words that only say that it asks for the present; they name no day either."""
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


def day_asked_for(text: str, meant: Iterable[Window], today: int) -> int:
    """Return the day (since 1970) on which what a question asks for holds: that which it names, else today.

    Args:
        meant: the windows that it means.
    """
    return FAR_AWAY if _TO_COME.search(text) else max(map(_last_day, meant), default=today)


def _last_day(window: Window) -> int:
    return window.last if window.last >= window.first else window.end // DAY_US - 1


QUERY_BYTES: Final = 8 * 1024
"""How much of a query's text is read, in UTF-8 bytes."""

MAX_WORDS: Final = 256
"""How many different words of a query are looked up."""

_SAME_FIRST_NAME: Final = 3
_NO_SUBJECT: Final = frozenset(terms("happen talk chat discuss say mention speak conversation message event news new"))
_ROLES: Final = frozenset(terms("user assistant system tool agent bot human ai model"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question as asked. `now` (microseconds since 1970 UTC) is what relative dates count from; None stands for the
    newest visible event. `utc_offset` (minutes east of UTC) is that of `now`, whose days relative dates are.
    `present` (as `now`; None stands for that) is when what was announced must hold to be so at present. An empty text
    asks for the most recent events."""

    text: str | None = None
    topic_hints: tuple[TopicHint, ...] = ()
    now: int | None = None
    utc_offset: int = 0
    present: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """One thing to look for: a term, and others that may stand in for it.

    `stems` are its stems in the languages that the question may be in, English excepted: as good as the term itself.
    `instead` may stand in for it; `members` name one of a kind of thing that it names.
    `subject` tells that a
    text that holds nothing else of the question may be what it asks for, `name` that the term is a name as it stands.
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
    """A question understood.

    `words` are to be matched; `speakers` and `participants` are the visible names it names; `by_speaker` tells that it
    names speakers and nothing else, so it asks for what they said; `windows` are the times it means, `day` is the
    last day of them, or that on which it is asked (`utc_offset` minutes east of UTC), and `only_when`
    tells that it says nothing else; `asks_when` tells that the answer is a time, `asks_name` that it is likely a name;
    `asks_help` that it wants something done or advised;
    `asks_for` tells whether it asks how something is, how it was before, or what changed (None: none of them), and
    `of_state` that it asks so of one person at most. `asked` is False when there is no text, or none that names
    anything ("what do you remember?"): the most recent events.
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
    """Return what a question asks for.

    Args:
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
    named, taken = _named(question_tokens, names)
    heard = names.speakers(named)
    signed = [term for whole in written for term in whole.asked]
    unique = list(dict.fromkeys([*(token.term for token in question_tokens), *signed]))
    spoken = [term for term in unique if not is_stopword(term)]
    content = [term for term in spoken if not heard or term not in taken]
    languages = languages_of(text, unique)
    spoken_languages = asked_in(text, languages)
    telling_words = _telling(question_tokens, spoken_languages)
    telling = [term for term in content if term in telling_words or term in signed]
    content = telling or content
    asking = {term for term in content if is_request_term(term, spoken_languages)}
    if asking and asking.issuperset(content) and not heard:
        return Reading(asked=False, hints=hints, hint_words=hint_words)
    # A word or two without any function word, such as "cheval", may be of any language.
    stems_by_term = _stems(question_tokens, languages or (() if any(map(is_stopword, unique)) else STEMMED))
    now = last if question.now is None else question.now
    meant = windows(text, now=now, first=first, last=last, utc_offset=utc_offset)
    subject = [term for term in content if not (term in _NO_SUBJECT or term in asking or is_date_word(term))]
    by_speaker = bool(heard) and not subject
    only_when = bool(meant) and not subject
    if only_when:
        content = [term for term in content if not is_date_word(term)]
        spoken = unique = []
    is_english = not languages and (text.isascii() or any(map(is_stopword, unique)))
    words = content or spoken or unique
    subjects = _subjects(words, asking, has_windows=bool(meant))
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
        speakers=heard,
        participants=names.participants(named),
        by_speaker=by_speaker,
        windows=meant,
        day=day_asked_for(text, meant, local_day(now if question.present is None else question.present, utc_offset)),
        utc_offset=utc_offset,
        only_when=only_when,
        asks_when=wants_time(text),
        asks_name=wants_name(text),
        asks_help=wants_help(text),
        asks_for=asks_for,
        of_state=asks_for is not None
        and is_english
        and not any(window.exact for window in meant)
        and len(heard) < 2
        and not wants_what_was_done(text),
    )


def _telling(question_tokens: Sequence[Token], languages: Sequence[str]) -> frozenset[str]:
    """Return the terms of the words that are more than function words of these languages."""
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
    """Return the words by any of which alone a text may be what is asked for: all of them if that would be none.

    Args:
        asking: those that only ask.
        has_windows: whether the question means a time; then words that say when are no subject beside others.
    """
    telling = [word for word in words if not (word in asking or is_common_part(word))]
    if has_windows:
        telling = [word for word in telling if not is_date_word(word)] or telling
    return frozenset(telling or words)


def _names_as_written(question_tokens: Sequence[Token], languages: Sequence[str]) -> frozenset[str]:
    """Return the terms that are names by how they stand: with a capital inside a sentence, or with what belongs to it.

    In German all nouns have capitals, which so tell nothing.
    """
    has_capitals = "german" not in languages
    return frozenset(
        token.term
        for at, token in enumerate(question_tokens)
        if token.surface.lower().endswith(("'s", "\u2019s"))
        or (has_capitals and at and token.surface[:1].isupper() and not token.surface.isupper())
    ) - {token.term for token in question_tokens if is_date_word(token.term)}


def _stems(question_tokens: Sequence[Token], languages: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the stems of each term's word in these languages."""
    by_term: dict[str, dict[str, None]] = {}
    for token in question_tokens if languages else ():
        for language in languages:
            # With a capital, too: it may be a name that was typed without one.
            for surface in (token.surface, token.surface.capitalize()):
                by_term.setdefault(token.term, {}).update(dict.fromkeys(stem_of(surface, language)))
    return {term: tuple(found) for term, found in by_term.items()}


def without_names(question: Question, *, names: Census, also: Collection[str] = ()) -> str:
    """Return the text of a question without the visible names in it and what it says of the talk itself, in one line;
    empty where it says nothing else.

    Args:
        also: terms that are taken out as well.
    """
    text = without_talk(_cut(question.text or ""))
    question_tokens = tokens(text)
    _, taken = _named(question_tokens, names)
    pieces: list[str] = []
    at = 0
    for token in question_tokens:
        if token.term in taken or token.term in also:
            pieces.append(text[at : token.start])
            at = token.end + (2 if text[token.end : token.end + 2] in ("'s", "’s") else 0)
    return " ".join("".join([*pieces, text[at:]]).split())


def _cut(text: str) -> str:
    if len(text) * 4 <= QUERY_BYTES:
        return text
    return text[:QUERY_BYTES].encode("utf-8", "replace")[:QUERY_BYTES].decode("utf-8", "ignore")


def _named(question_tokens: Sequence[Token], names: Census) -> tuple[set[str], set[str]]:
    """Return the names a question names, and the terms it names them by (roles excepted)."""
    question_terms = [token.term for token in question_tokens]
    named: set[str] = set()
    taken: set[str] = set()
    for term, at in {term: at for at, term in reversed(list(enumerate(question_terms)))}.items():
        sharing = names.beginning_with(term)
        is_a_name = len(sharing) <= _SAME_FIRST_NAME and _is_a_name(question_tokens[at], at)
        for name in sharing:
            parts = name_terms(name)
            whole = _follows(question_terms, parts)
            if whole or is_a_name:
                named.add(name)
                taken.update(parts if whole else parts[:1])
    return named, taken - _ROLES


def _follows(question_terms: Sequence[str], parts: Sequence[str]) -> bool:
    """Tell whether all parts of a name stand in a question one after another; a stop word alone is no name."""
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
