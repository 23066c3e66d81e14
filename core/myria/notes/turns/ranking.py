"""Choose the facts of a session that belong into a prompt, and rank them by their worth (memory-tools). Pure.

Facts that an answer must heed (a name, an allergy, a preference, today's task) belong into every prompt. All facts do
where a text has no subject ("And now?") or asks about its writer ("What do you know about me?"). Else a fact must share
a word with the text, or have one that is related to a word of it. memory-tools itself recalls by rank alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from myria.log.canonical import digest
from myria.notes.current import SoughtWords
from myria.notes.turns.facts import Fact, KnownFact, Tier
from myria.notes.turns.items import Json
from myria.notes.turns.stating import Rule, rules, words_of
from myria.text.kinds import members
from myria.text.related import related
from myria.text.requests import without_requests
from myria.text.words import root, terms

_HOUR_US = 3_600 * 10**6
_TIER_BONUS: Mapping[Tier, float] = {"L0": 0.35, "L2": 0.20, "L1": 0.10}
_FRESHNESS = 0.25
_FADING_HOURS = 240
_MATCH, _PER_TERM = 0.25, 0.15
_PER_TERM_OF_INSIGHT = 0.3
_LEAST_TERM = 2
_STOP_WORDS = frozenset("the a an and or is are am to of my what who do you i".split())  # noqa: SIM905
_NO_TERM = re.compile(r"[\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


def facts_about(facts: Iterable[KnownFact], question: str) -> list[KnownFact]:
    """Return the facts that belong into the prompt of a question, in the order given."""
    about = SoughtWords.of(without_requests(question)).about
    question_in_lower_case = question.lower()
    if not about or any(phrase in question_in_lower_case for phrase in words_of("of_oneself")):
        return list(facts)
    question_roots = frozenset(map(root, terms(question)))
    related_terms = {other for term in terms(question) for other in (*related(term), *members(term))}
    sought_roots = about | set(map(root, related_terms))

    def belongs(fact: Fact) -> bool:
        # Rules name most facts "user_...", which says nothing of what they are about.
        fact_text = f"{fact.key} {fact.value} {fact.fact_id.removeprefix('user_')}".replace("_", " ")
        if not sought_roots.isdisjoint(map(root, terms(fact_text))):
            return True
        # A rule with a fact for each value names them by its own id, a colon and the value ("user_allergy:nuts").
        rule = _rules().get(fact.fact_id.partition(":")[0])
        return rule is not None and (
            rule.always
            # The rule lists words by which people ask for such facts. In scripts without spaces such a word is looked
            # for anywhere in the question, else among its words.
            or any(
                word in question_in_lower_case
                if _UNSPACED.search(word) is not None
                else root("".join(terms(word))) in question_roots
                for word in rule.about
            )
        )

    return [known for known in facts if belongs(known.fact)]


@cache
def _rules() -> dict[str, Rule]:
    """Return the first rule of each id."""
    return {rule.fact_id: rule for rule in reversed(rules())}


def terms_of(text: str) -> frozenset[str]:
    """Return the words by which facts are matched: in lower case, two characters at least, stop words left out."""
    words = _NO_TERM.sub(" ", text.lower()).split()
    return frozenset(word for word in words if len(word) >= _LEAST_TERM and word not in _STOP_WORDS)


def recall_score(known: KnownFact, asked: frozenset[str], now: int) -> float:
    """Return a fact's worth for a question: the sum of its confidence, tier, freshness, and words in common."""
    fact = known.fact
    hours = max(0, now - known.at) / _HOUR_US
    score = fact.confidence + _TIER_BONUS[fact.tier] + max(0.0, _FRESHNESS - hours / _FADING_HOURS)
    matching = _matching(f"{fact.key} {fact.value} {fact.fact_id}", asked)
    return score + (_MATCH + _PER_TERM * matching if matching else 0.0)


def best_facts(facts: Iterable[KnownFact], asked: frozenset[str], now: int, limit: int) -> list[KnownFact]:
    """Return the facts that are worth most, best first; of equals the newer, then the more confident."""
    scored = [(recall_score(known, asked, now), known.at, known.fact.confidence, known) for known in facts]
    scored.sort(key=lambda item: (-item[0], -item[1], -item[2], item[3].note_id))
    return [known for *_, known in scored[:limit]]


def best_insights(
    facts: Iterable[KnownFact], times_said: Mapping[str, int], asked: frozenset[str], limit: int
) -> list[Json]:
    """Return insights from the history of facts, best first: that a fact changed, or was stated repeatedly.

    Args:
        times_said: how often turns stated a fact's current value, by the id of its note.
    """
    found: list[tuple[float, str, Json]] = []
    for known in facts:
        key, value, times = known.fact.key, known.fact.value, times_said.get(known.note_id, 0)
        if known.version > 1:
            kind, confidence = "fact_evolution", 0.84
            summary = f"{key} changed over time; it is now: {value}"
        elif times > 1:
            kind, confidence = "fact_stability", 0.78
            summary = f"{key} was said {times} times: {value}"
        else:
            continue
        name = f"insight-{digest(['insight', known.note_id]).hex()[:16]}"
        worth = confidence + _PER_TERM_OF_INSIGHT * _matching(summary, asked)
        insight = {"id": name, "type": kind, "summary": summary, "confidence": f"{confidence:.2f}"}
        found.append((-worth, name, insight))
    return [insight for *_, insight in sorted(found, key=lambda item: item[:2])[:limit]]


def _matching(text: str, asked: frozenset[str]) -> int:
    """Count the terms asked for that a text contains, also within words."""
    lowered = text.lower()
    return sum(1 for term in asked if term in lowered)
