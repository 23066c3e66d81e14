"""Which facts of a session belong to what is said now: those that matter whatever it is, and those it is about. Pure.

Facts that an answer must heed (a name, an allergy, a preference, today's task) are told whatever is asked, and all are
where a text is about nothing ("And now?") or about its writer ("What do you know about me?"): memory-tools recalls by
rank alone. Of a text that is about something, other facts share a word with it or with what it may be said by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from myria.notes.current import SoughtWords
from myria.notes.turns.facts import Fact, KnownFact
from myria.notes.turns.stating import Rule, rules, words_of
from myria.text.related import members, related
from myria.text.requests import without_requests
from myria.text.roots import root
from myria.text.words import terms

_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


def facts_about(facts: Iterable[KnownFact], question: str) -> list[KnownFact]:
    """Return the facts that belong to what is said, in their order."""
    about = SoughtWords.of(without_requests(question)).about
    lowered = question.lower()
    if not about or any(phrase in lowered for phrase in words_of("of_oneself")):
        return list(facts)
    said = frozenset(map(root, terms(question)))
    akin_to = {other for term in terms(question) for other in (*related(term), *members(term))}
    asked = about | set(map(root, akin_to))
    return [
        known
        for known in facts
        if _always(known.fact) or _is_of(known.fact, asked) or _names(known.fact, said, lowered)
    ]


@cache
def _rules() -> dict[str, Rule]:
    return {rule.fact_id: rule for rule in reversed(rules())}


def _rule(fact: Fact) -> Rule | None:
    return _rules().get(fact.fact_id.partition(":")[0])


def _always(fact: Fact) -> bool:
    rule = _rule(fact)
    return rule is not None and rule.always


def _is_of(fact: Fact, asked: Iterable[str]) -> bool:
    """Tell whether a fact shares a word with what is asked, or with what is akin to that."""
    said = f"{fact.key} {fact.value} {fact.fact_id.removeprefix('user_')}".replace("_", " ")
    return not set(map(root, terms(said))).isdisjoint(asked)


def _names(fact: Fact, said: frozenset[str], lowered: str) -> bool:
    """Tell whether a text holds a word by which such a fact is asked for."""
    rule = _rule(fact)
    return rule is not None and any(
        word in lowered if _UNSPACED.search(word) is not None else root("".join(terms(word))) in said
        for word in rule.about
    )
