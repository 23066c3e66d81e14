"""Which texts end in a question, with a mark or without, and which say nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.text.asking import asks


@pytest.mark.parametrize(
    "text",
    [
        "Where did you go?",
        "really?! \U0001f602",
        "Wirklich？",
        "where r u going",
        "ok so when do u start",
        "Nice to hear. How was the party",
        "sooo how was ur first day",
        "do you still have it",
        "whats up",
        "hbu",
    ],
)
def test_a_question_is_known_with_and_without_its_mark(text: str) -> None:
    """Who types quickly leaves the mark out, or puts something behind it."""
    assert asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I know where you live.",
        "What a day",
        "What we saw was great!",
        "Did it.",
        "Is it me? I think so.",
        "the house where we met",
        "when i was young we had a dog...",
        "would love to",
    ],
)
def test_what_tells_is_no_question(text: str) -> None:
    """A last sentence with another mark tells, whatever it begins with."""
    assert not asks(text)


@given(st.text())
def test_any_text_can_be_looked_at(text: str) -> None:
    """No text raises."""
    assert asks(text) in {True, False}
