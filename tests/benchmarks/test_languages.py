"""The questions in eight languages: what the ranking is promised to find of them."""

from __future__ import annotations

from benchmarks.languages import across, conversations, english, figures, place


def test_most_questions_are_answered_first_in_every_language_and_among_the_others() -> None:
    """Although they say it in other forms of the words."""
    made = conversations()
    everything = tuple(conversation.corpus for conversation in made)
    for conversation in made:
        asked = [question for question in conversation.questions if question.half == "dev"]
        first, *_ = figures([place((conversation.corpus,), question) for question in asked])
        among_others, *_ = figures([place(everything, question) for question in asked])
        assert min(first, among_others) >= 0.75, conversation.language


def test_the_facts_are_the_same_in_english() -> None:
    """Each question of another language has its answer at its own place in the English memory."""
    told = english()
    for asking in conversations():
        assert len(across(asking, told)) == len(told.questions) == len(asking.questions)
    first, *_ = figures([place((told.corpus,), question) for question in told.questions])
    assert first >= 0.75
