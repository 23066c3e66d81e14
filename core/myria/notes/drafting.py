"""Complete drafts of notes: fill in by rule the kind, topic, keywords and importance that a caller leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from myria.log.redaction.expressions import first_look
from myria.notes.details import NO_DETAILS, Details
from myria.notes.kinds import Contract, Lifetime, policy_of
from myria.notes.subjects import GENERAL, WordCounts, begins_notes, subject_of
from myria.text import terms
from myria.text.languages import is_function_word, languages_of
from myria.topics.unspaced import is_in as is_unspaced

KEYWORDS = 5
"""Keywords that are taken from the text of a note whose caller gives none, at most."""

_KIND_RULES = (
    (
        "preference",
        r"\b(?:prefers?|preferred|preference|favou?rite|likes?|loves?|hates?|dislikes?|always wants?|never wants?|"
        r"rather than|bevorzugt?|mag|préfère|prefiere|prefere)\b|선호|좋아|싫어|好き|嫌い|苦手|喜欢|讨厌",
    ),
    (
        "error",
        r"\b(?:errors?|exception|traceback|stack ?trace|failed|fails|failure|crash(?:ed|es)?|bug|broken|segfault|"
        r"timed? ?out|root cause|fehler|erreur|fallo)\b|에러|오류|エラー|不具合|错误|报错",
    ),
    (
        "decision",
        r"\b(?:decided|decide|decision|agreed|we(?:'ll| will) use|chose|chosen|settled on|entschieden|décidé|"
        r"decidimos)\b|"
        r"결정|決め|決定|决定",
    ),
    (
        "procedure",
        r"\b(?:how to|steps?|first,? .* then|procedure|runbook|run `|to deploy|in order to|make sure to|anleitung)\b|"
        r"절차|방법|手順|方法|步骤|^\s*1[.)]\s",
    ),
    (
        "relation",
        r"\b(?:depends on|reports to|works (?:for|with)|belongs to|is married to|(?:sister|brother|mother|father|"
        r"colleague|manager|owner|member) of|part of|linked to|calls? the)\b|의존|依存",
    ),
)
_RULES = tuple(
    # RE2 searches first, which is forty times as fast; without the bounds of words, which it knows for ASCII alone.
    (kind, first_look(pattern.replace(r"\b", "")), re.compile(pattern, re.IGNORECASE))
    for kind, pattern in _KIND_RULES
)
_ANY_RULE = first_look("|".join(pattern.replace(r"\b", "") for _, pattern in _KIND_RULES))
_LOOKED_AT = 4_000
"""First characters of a text that the rules read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A note as a caller gives it; `Notes` redacts it. `completed` fills in fields that are None."""

    content: str
    kind: str | None = None
    topic: str | None = None
    keywords: tuple[str, ...] | None = None
    importance: float | None = None
    source: str | None = None
    lifetime: Lifetime = "permanent"
    anchor: bool = False
    session_id: str | None = None
    details: Details = NO_DETAILS


class NoteText(NamedTuple):
    """A complete note. `inferred` names the fields that were filled in by rule.

    `memory` has the further fields of a note kept over REST (`myria.notes.memories.model`), and `further` those
    of a fact of a turn, which are kept beside the others.
    """

    content: str
    kind: str
    topic: str
    keywords: tuple[str, ...]
    importance: float
    source: str | None
    lifetime: Lifetime
    anchor: bool
    session_id: str | None
    inferred: tuple[str, ...] = ()
    memory: Mapping[str, Any] | None = None
    details: Details = NO_DETAILS
    further: Mapping[str, Any] | None = None


def completed(draft: Draft, contract: Contract) -> NoteText:
    """Return the complete note of a draft.

    Raises:
        InvalidArgument: the contract does not know the draft's kind.
    """
    kind = draft.kind or inferred_kind(draft.content)
    policy = policy_of(kind, contract)
    keywords, topic = draft.keywords, draft.topic
    if keywords is None:
        keywords, topic = keywords_of(draft.content), topic or subject_of(draft.content)
    draft_fields = {
        "type": draft.kind,
        "topic": draft.topic,
        "keywords": draft.keywords,
        "importance": draft.importance,
    }
    return NoteText(
        content=draft.content,
        kind=kind,
        topic=topic or next(iter(keywords), GENERAL),
        keywords=keywords if draft.keywords is None else _tidied(keywords),
        importance=policy.importance if draft.importance is None else draft.importance,
        source=draft.source,
        lifetime=draft.lifetime,
        anchor=draft.anchor,
        session_id=draft.session_id,
        inferred=tuple(name for name, value in draft_fields.items() if value is None),
        details=draft.details,
    )


def _tidied(keywords: Iterable[str]) -> tuple[str, ...]:
    """Return keywords in lower case, each once."""
    return tuple(dict.fromkeys(keyword.strip().lower() for keyword in keywords if keyword.strip()))


def inferred_kind(content: str) -> str:
    """Return the kind of a text whose writer named none: the first rule that finds its words, else `fact`."""
    beginning = content[:_LOOKED_AT]
    raw = beginning.encode()
    if not _ANY_RULE.search(raw):
        return "fact"
    return next((kind for kind, look, rule in _RULES if look.search(raw) and rule.search(beginning)), "fact")


def keywords_of(content: str) -> tuple[str, ...]:
    """Return the most frequent words of a text as they are written, without stop words; of equals the earlier first.

    Words are divided as in search (`myria.text`), so a keyword finds its note. Scripts without spaces give no keywords:
    there, only a dictionary could tell where a word ends.
    """
    beginning = content[:_LOOKED_AT]
    words = WordCounts.of_text(beginning)
    languages = languages_of(beginning, terms(beginning))
    candidates = (
        words.shown[term]
        for term in words.ranked
        if not (
            is_unspaced(words.shown[term])
            or any(is_function_word(words.shown[term], language) for language in languages)
            or (languages and begins_notes(words.shown[term]))
        )
    )
    return tuple(islice(dict.fromkeys(candidates), KEYWORDS))
