"""What a question says of the talk itself is taken out of it, and nothing else."""

from __future__ import annotations

import pytest

from myria.text.requests import without_requests


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("Can you remind me what oven I have?", "what oven I have?"),
        ("What did I tell you about the kiln in our last chats?", "What the kiln ?"),
        ("Could you list the order in which I brought up my pets, in order? Name only three items.", "my pets, ? ."),
        ("Have we ever discussed the roof?", "the roof?"),
        ("Please give an overview of the plan, across all of our sessions", "Please give the plan,"),
        ("How much was it you said the deposit was?", "How much was it the deposit was?"),
    ],
)
def test_phrases_about_the_talk_itself_are_taken_out(question: str, left: str) -> None:
    """What is left is the subject, and every word stays where it was."""
    found = without_requests(question)
    assert " ".join(found.split()) == left
    assert len(found) == len(question)


@pytest.mark.parametrize(
    "question",
    [
        "When does my order arrive?",
        "What is on the list of guests?",
        "Which chat model does the support desk use?",
        "Who can tell me apart from my sister?",
        "How long is a therapy session?",
        "What did Ana say about the discussion on parking?",
    ],
)
def test_the_same_words_as_a_subject_stay(question: str) -> None:
    """An order, a list, a chat or a session may be what is asked for."""
    assert without_requests(question) == question


def test_a_question_about_nothing_but_the_talk_stays() -> None:
    """Without its phrases it would ask for nothing."""
    assert without_requests("What did we talk about in our last chat?") == "What did we talk about in our last chat?"
