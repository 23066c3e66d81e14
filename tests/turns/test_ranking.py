"""Which facts belong to what is said: those that always matter, and of the others those that it is about."""

from __future__ import annotations

import pytest

from myria.notes.turns.facts import KnownFact
from myria.notes.turns.ranking import facts_about
from myria.notes.turns.stating import statements_in

TEXTS = (
    "My name is Ada. I'm allergic to nuts. I live in Porto. I work as a nurse. I'm vegan. I prefer short answers.",
    "I like green tea. Today I need two bags of clay. This week I need a new wheel.",
)
ALWAYS = {"user_name", "user_allergy:nuts", "user_diet", "user_preference", "today_task", "weekly_task"}
ALL = ALWAYS | {"user_home", "user_work", "user_like"}


def about(question: str) -> set[str]:
    """Return the facts of TEXTS that belong to a question."""
    known = [
        KnownFact(note_id=fact.fact_id, event_id="evt", version=1, fact=fact, at=0)
        for fact in statements_in(TEXTS).facts
    ]
    assert {fact.note_id for fact in known} == ALL
    return {fact.note_id for fact in facts_about(known, question)}


@pytest.mark.parametrize(
    "question",
    [
        "zebra",
        "How do I sort a list in Python?",
        "search my memory for aubergines",
        "What is Ana's mother's name?",
        "Wie sortiere ich eine Liste?",
        "Explique la photosynthèse.",
        "¿Cuántos planetas hay?",
        "Quantos planetas existem?",
        "素数とは何ですか",
    ],
)
def test_what_a_text_is_not_about_is_left_out(question: str) -> None:
    """What always matters is told in any case."""
    assert about(question) == ALWAYS


@pytest.mark.parametrize(
    ("question", "fact_id"),
    [
        ("Where do I live?", "user_home"),
        ("What will the weather be tomorrow?", "user_home"),
        ("Is Porto far from Lisbon?", "user_home"),
        ("Wie wird das Wetter morgen?", "user_home"),
        ("Où est-ce que j'habite ?", "user_home"),
        ("明日の天気は？", "user_home"),
        ("Help me with my resume", "user_work"),
        ("Was ist mein Beruf?", "user_work"),
        ("How many hours does a nurse sleep?", "user_work"),
        ("Which tea is the healthiest?", "user_like"),
        ("What would be a nice gift?", "user_like"),
        ("私は何が好きですか", "user_like"),
    ],
)
def test_what_a_text_is_about_is_told(question: str, fact_id: str) -> None:
    """By a word of the fact, or by one with which such facts are asked for."""
    assert fact_id in about(question)


@pytest.mark.parametrize(
    "question",
    ["", "hi", "And now?", "Who am I?", "What of me?", "What do you know about me?", "Was weißt du über mich?"],
)
def test_all_belongs_to_a_text_about_nothing_or_about_its_writer(question: str) -> None:
    """As contract 002 has it: the rank alone decides."""
    assert about(question) == ALL
