"""What a leaf says of a subject: its statements, and which of them tells a state.

A statement tells a state where it says enough beside what the subject is called. Words that are said about everything
count little, greetings nothing; what exclaims must say more. So "That violin is gorgeous!" tells nothing, "The
violin went to the luthier in Porto!" does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from myria.text import is_stopword, terms
from myria.text.common_words import plain_terms, weak_terms
from myria.text.kinds import members_of
from myria.topics.model import Node
from myria.topics.phrases import key_of
from myria.topics.quoting import Quoted, quotes_of
from myria.topics.wording import GREETINGS, is_function_word

_REMEMBERED = 4_096
"""Leaf summaries whose statements are cached: a leaf is described in up to three subjects and their divisions."""

_WEAK, _PLAIN, _TELLING = 1, 2, 4
"""What a word weighs: one that is said about everything, an everyday noun, and any other; a number too."""

_LEAST_CONTENT = 4
"""What a statement must say beside the subject: one telling word, or several others."""

_QUESTION_MARKS = ("?", "？", "؟")
_EXCLAMATIONS = ("!", "！", "!…")


@dataclass(frozen=True, slots=True)
class Told:
    """A statement as a summary quotes it, and the terms of its words."""

    quote: Quoted
    terms: frozenset[str]

    def content(self, key: str) -> int:
        """Return the weight of the statement's words other than the key's; 0 if too little to tell a state.

        An exclamation must weigh one more.
        """
        content = sum(map(_weight, self.terms.difference(key.split(" "))))
        return content if content >= _LEAST_CONTENT + self.quote.words.endswith(_EXCLAMATIONS) else 0

    def only_renumbers(self, other: Told) -> bool:
        """Tell whether the statement says nothing that the other does not, but for a number: "then 95 degrees"."""
        new = self.terms - other.terms
        return any(map(str.isdigit, new)) and all(term.isdigit() or not _weight(term) for term in new)


def names(said: Set[str], key: str) -> bool:
    """Tell whether the terms of a text name the subject of a key, or something of that kind.

    Of a key of several words those count that tell the most: not every price is the price of kestrels.
    """
    return not said.isdisjoint(_naming(key)) or not said.isdisjoint(members_of(key))


@lru_cache(maxsize=_REMEMBERED)
def _naming(key: str) -> frozenset[str]:
    words = key.split(" ")
    most = max(map(_weight, words))
    return frozenset(word for word in words if _weight(word) == most)


def hinted_keys(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the emitters' hints in a leaf's metadata; what was said need not repeat them."""
    return frozenset(" ".join(key_of(hint)) for hint, _ in metadata["hints"])


@lru_cache(maxsize=_REMEMBERED)
def told_by(summary: str) -> tuple[Told, ...]:
    """Return the statements that a leaf's summary quotes, in its order, without questions."""
    return tuple(
        Told(quote, frozenset(terms(quote.words.removesuffix("…"))))
        for quote in quotes_of(summary)
        if not quote.words.endswith(_QUESTION_MARKS)
    )


def state_of(keys: Sequence[str], leaf: Node) -> Quoted | None:
    """Return what a leaf's summary says about the first of the keys that it says anything about; None if about none.

    Of several statements about that key it is the newest that says at least half as much about it as the one that says
    the most: a later one that is like an earlier one holds now, as does one that only gives another number of it.
    """
    statements = told_by(leaf.summary)
    hints = hinted_keys(leaf.metadata)
    for key in keys:
        # For a key from an emitter's hint every statement counts.
        candidates = [statement for statement in statements if names(statement.terms, key)] or (
            statements if key in hints else ()
        )
        contents = [statement.content(key) for statement in candidates]
        most = max(contents, default=0)
        if most:  # a leaf quotes the newest first
            latest = next(told for told, content in zip(candidates, contents, strict=True) if 2 * content >= most)
            newer = statements[: statements.index(latest)]
            return next((told for told in newer if told.only_renumbers(latest)), latest).quote
    return None


@lru_cache(maxsize=_REMEMBERED)
def _weight(term: str) -> int:
    if (len(term) < 2 and not term.isdigit()) or is_stopword(term) or is_function_word(term) or term in GREETINGS:
        return 0
    return _WEAK if term in weak_terms() else _PLAIN if term in plain_terms() else _TELLING
