"""Words of change: which texts tell of one, and of what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.text.changes import MAX_CHANGED, changed


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("The Golf is sold!", "golf"),
        ("No Kickstarter after all, we have a page of our own.", "kickstart"),
        ("From Monday the shop opens at eight.", "shop"),
        ("I don\u2019t eat meat any more.", "meat"),
        ("We booked two weeks on Crete instead.", "crete"),
    ],
)
def test_a_text_that_tells_of_a_change_names_its_thing(text: str, about: str) -> None:
    """The words around the phrase of change are what may have changed."""
    assert about in changed(text)


@pytest.mark.parametrize("text", ["", "I drive an old Golf.", "never give up!", "instead of tea", "\ud800 \x00"])
def test_a_text_without_a_change_names_nothing(text: str) -> None:
    """Most texts tell of none, and strange ones raise nothing."""
    assert changed(text) == []


def test_of_a_long_text_the_sentence_that_tells_of_the_change_counts() -> None:
    """What else is said in a long text did not change."""
    text = "We went to the lake and the children swam. " * 5 + "The Golf is sold."
    assert changed(text) == ["golf", "sell"]


@given(st.text(max_size=300))
def test_no_text_gives_more_words_than_allowed(text: str) -> None:
    """Any text gives a bounded number of different words."""
    found = changed(f"{text} no longer {text}")
    assert len(found) == len(set(found)) <= MAX_CHANGED
