"""The rules of facts, and how facts are ranked."""

from __future__ import annotations

import pytest

from myria.turns.facts import Fact, KnownFact, best_facts, facts_in, recall_score, rules, terms_of

HOUR = 3_600 * 10**6


def found(text: str) -> list[tuple[str, str, str]]:
    return [(f"{fact.fact_id}/{fact.key}", fact.tier, fact.value) for fact in facts_in([text])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My name is Ada.", [("user_name/name", "L0", "ada")]),
        ("I prefer dark mode, always", [("user_preference/preference", "L0", "dark mode")]),
        ("i like tea!", [("user_like/like", "L2", "tea")]),
        ("Today I need milk; eggs", [("today_task/today_task", "L1", "milk")]),
        ("This week I need a bike\nsoon", [("weekly_task/weekly_task", "L2", "a bike")]),
        ("I like tea. I like coffee.", [("user_like/like", "L2", "tea")]),
        ("Mein Name ist Jürgen Groß.", [("user_name/name", "L0", "jürgen groß")]),
        (
            "Me llamo Inês, y prefiero té.",
            [("user_name/name", "L0", "inês"), ("user_preference/preference", "L0", "té")],
        ),
        ("Je m\u2019appelle Zoé", [("user_name/name", "L0", "zoé")]),
        ("我叫小明。", [("user_name/name", "L0", "小明")]),
        ("Hi like-minded people", []),
        ("my name is ", []),
        ("my name is .", []),
        ("What is my name?", []),
    ],
)
def test_what_a_text_says_of_its_writer(text: str, expected: list[tuple[str, str, str]]) -> None:
    """The first match of each rule, up to the end of the clause."""
    assert found(text) == expected


def test_a_value_is_at_most_128_bytes() -> None:
    """Cut between characters."""
    (fact,) = facts_in(["my name is " + "é" * 200])
    assert fact.value == "é" * 64


def test_the_rules_are_the_contract_s() -> None:
    """Five rules with their tiers and confidences, the English phrase first."""
    assert [(rule.fact_id, rule.key, rule.tier, rule.confidence, rule.phrases[0]) for rule in rules()] == [
        ("user_name", "name", "L0", 0.95, "my name is "),
        ("user_preference", "preference", "L0", 0.92, "i prefer "),
        ("user_like", "like", "L2", 0.85, "i like "),
        ("today_task", "today_task", "L1", 0.80, "today i need "),
        ("weekly_task", "weekly_task", "L2", 0.82, "this week i need "),
    ]


def known(name: str, *, tier: str = "L0", at: int = 0, confidence: float = 0.9) -> KnownFact:
    fact = Fact(fact_id=name, key="k", value=name, tier=tier, confidence=confidence)  # type: ignore[arg-type]
    return KnownFact(note_id=f"note_{name}", event_id="evt", version=1, fact=fact, at=at)


def test_the_score_is_the_contract_s() -> None:
    """Confidence, a bonus of the tier, freshness, and matching words."""
    assert recall_score(known("tea"), frozenset(), 0) == pytest.approx(0.9 + 0.35 + 0.25)
    assert recall_score(known("tea", tier="L1"), frozenset(), 24 * HOUR) == pytest.approx(0.9 + 0.10 + 0.15)
    assert recall_score(known("tea", tier="L2"), frozenset(), 240 * HOUR) == pytest.approx(0.9 + 0.20)
    assert recall_score(known("tea"), terms_of("Tea, or what?"), 240 * HOUR) == pytest.approx(0.9 + 0.35 + 0.25 + 0.15)


def test_of_equals_the_newer_and_then_the_surer_comes_first() -> None:
    """Beyond the time in which freshness counts."""
    facts = [known("old"), known("new", at=HOUR)]
    assert [fact.note_id for fact in best_facts(facts, frozenset(), 10_000 * HOUR, 2)] == ["note_new", "note_old"]
    assert len(best_facts(facts, frozenset(), 0, 1)) == 1
