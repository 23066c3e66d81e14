"""The set of facts that changed up to three times: what the ranking is promised to find of it."""

from __future__ import annotations

from benchmarks.changed_states import conversations, figures, places


def test_most_questions_find_the_statement_that_they_ask_for() -> None:
    """Although it is said in passing, about others, and in words that the question does not hold."""
    shares = figures([(fact, places(talk, fact)) for talk in conversations() for fact in talk.facts])
    assert shares["now: newest in the first five"] >= 0.6
    assert shares["before: the one before in the first five"] >= 0.75
    assert shares["first: oldest in the first five"] >= 0.7
