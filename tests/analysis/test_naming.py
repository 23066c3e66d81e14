"""Texts that name something: told by capitals inside a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.text.naming import names_something


@pytest.mark.parametrize(
    "text",
    [
        "We read Dune together.",
        "it was in Paris, finally",
        "my dog, Biscuit the brave",
        "\u0432 \u041c\u043e\u0441\u043a\u0432\u0435",
    ],
)
def test_a_capital_inside_a_sentence_names_something(text: str) -> None:
    """Titles, places and pets, in scripts that have capitals."""
    assert names_something(text)


@pytest.mark.parametrize(
    "text", ["", "We read a book.", "Thanks, Maria!", "well done, Sam", "Hi John. Good to see you. Bye", "That was OK."]
)
def test_those_who_are_spoken_to_and_beginnings_name_nothing(text: str) -> None:
    """A call, and the first word of a sentence, are no names that a question asks for."""
    assert not names_something(text)


@given(st.text(max_size=300))
def test_any_text_can_be_asked(text: str) -> None:
    """No string raises."""
    assert names_something(text) in (True, False)
