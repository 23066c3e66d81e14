"""Facts of a session: what they are, how long they last, and how they are ranked for recall (memory-tools). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from myria.log.canonical import digest
from myria.notes.likeness import essence

Tier = Literal["L0", "L1", "L2"]

VALUE_BYTES = 128
"""The longest value that is found by form, in UTF-8: of a longer one nobody knows where it ends."""

_HOME = "home"
_HOUR_US = 3_600 * 10**6
_TIER_BONUS: Mapping[Tier, float] = {"L0": 0.35, "L2": 0.20, "L1": 0.10}
_FRESHNESS = 0.25
_FADING_HOURS = 240
_MATCH, _PER_TERM = 0.25, 0.15
_PER_TERM_OF_INSIGHT = 0.3
_LEAST_TERM = 2
_STOP_WORDS = frozenset("the a an and or is are am to of my what who do you i".split())  # noqa: SIM905
_NO_TERM = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a context knows under one name. `confidence` is in 0..1."""

    fact_id: str
    key: str
    value: str
    tier: Tier
    confidence: float

    @property
    def identity(self) -> str:
        """What it is known by: a newer value of the same identity replaces it."""
        return identity_of(self.fact_id, self.key)

    @property
    def text(self) -> str:
        """What its note says."""
        return f"{self.key}: {self.value}"

    def says_the_same(self, other: Fact) -> bool:
        """Tell whether another fact has the same value in the same tier."""
        return self.tier == other.tier and essence(self.value) == essence(other.value)

    def is_denied_by(self, denied: Fact) -> bool:
        """Tell whether a fact of its identity that is said not to hold is this one: "Porto" denies "Porto, Brazil"."""
        own, other = essence(self.value).casefold(), essence(denied.value).casefold()
        return own == other or (self.key == _HOME and _town(own) == _town(other))

    def to_json(self) -> dict[str, Any]:
        """Return what the event of its note says of it."""
        return {"fact_id": self.fact_id, "key": self.key, "value": self.value, "confidence": self.confidence}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFact:
    """A fact as it stands: its note, its version, and when that was made, in microseconds since 1970 UTC."""

    note_id: str
    event_id: str
    version: int
    fact: Fact
    at: int


def identity_of(fact_id: str, key: str) -> str:
    """Return the identity of a fact."""
    return f"{fact_id.lower()}::{key.lower()}"


def note_id_of(tenant: str, owner: bytes, participants: Iterable[str], context_id: str, identity: str) -> str:
    """Return the id of the note that holds a fact: the same for every version of it, and of its tenant alone.

    Args:
        owner: whose session it is; see `myria.notes.turns.model.Session`.
    """
    return f"note_{digest([tenant, owner.hex(), list(participants), context_id, identity]).hex()[:32]}"


def _town(place: str) -> str:
    """Return a place without where it is."""
    return place.partition(",")[0].strip()


def terms_of(text: str) -> frozenset[str]:
    """Return the words by which facts are matched: in lower case, two characters at least, stop words left out."""
    words = _NO_TERM.sub(" ", text.lower()).split()
    return frozenset(word for word in words if len(word) >= _LEAST_TERM and word not in _STOP_WORDS)


def recall_score(known: KnownFact, terms: frozenset[str], now: int) -> float:
    """Return what a fact is worth to a question (memory-tools): confidence, tier, freshness, and words in common."""
    fact = known.fact
    hours = max(0, now - known.at) / _HOUR_US
    score = fact.confidence + _TIER_BONUS[fact.tier] + max(0.0, _FRESHNESS - hours / _FADING_HOURS)
    matching = _matching(f"{fact.key} {fact.value} {fact.fact_id}", terms)
    return score + (_MATCH + _PER_TERM * matching if matching else 0.0)


def best_facts(facts: Iterable[KnownFact], terms: frozenset[str], now: int, limit: int) -> list[KnownFact]:
    """Return the facts that are worth most, best first; of equals the newer, then the more confident."""
    scored = [(recall_score(known, terms, now), known.at, known.fact.confidence, known) for known in facts]
    scored.sort(key=lambda item: (-item[0], -item[1], -item[2], item[3].note_id))
    return [known for *_, known in scored[:limit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """What the history of a fact comes to: that it changed, or that it was said again. `confidence` is in 0..1."""

    insight_id: str
    type: Literal["fact_evolution", "fact_stability"]
    summary: str
    confidence: float


def insight_of(known: KnownFact, times_said: int) -> Insight | None:
    """Return the insight about a fact, None where there is none.

    Args:
        times_said: how often turns said what it says now.
    """
    fact = known.fact
    name = digest(["insight", known.note_id]).hex()[:16]
    if known.version > 1:
        summary = f"{fact.key} changed over time; it is now: {fact.value}"
        return Insight(insight_id=f"insight-{name}", type="fact_evolution", summary=summary, confidence=0.84)
    if times_said > 1:
        summary = f"{fact.key} was said {times_said} times: {fact.value}"
        return Insight(insight_id=f"insight-{name}", type="fact_stability", summary=summary, confidence=0.78)
    return None


def best_insights(insights: Iterable[Insight], terms: frozenset[str], limit: int) -> list[Insight]:
    """Return the insights that are worth most, best first."""
    return sorted(
        insights,
        key=lambda insight: (
            -(insight.confidence + _PER_TERM_OF_INSIGHT * _matching(insight.summary, terms)),
            insight.insight_id,
        ),
    )[:limit]


def _matching(text: str, terms: frozenset[str]) -> int:
    lowered = text.lower()
    return sum(1 for term in terms if term in lowered)
