"""How else a word may stand in a text that was typed in a hurry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.analysis.misspelling import clipped, misspelling_ids, misspellings


@pytest.mark.parametrize("typed", ["walet", "wlalet", "walllet", "wallett", "waaaallet"])
def test_one_error_is_found(typed: str) -> None:
    """A letter left out, exchanged, doubled or drawn out."""
    assert typed in misspellings("wallet")


@pytest.mark.parametrize("other", ["wallet", "allet", "ballet", "wallets", "wall"])
def test_other_words_are_not(other: str) -> None:
    """Neither the word itself nor one with another first letter or another letter in it."""
    assert other not in misspellings("wallet")


@pytest.mark.parametrize("term", ["", "lake", "zx81k", "кошелек", "a" * 30])
def test_short_long_and_other_terms_have_none(term: str) -> None:
    """They would become other words, or cost too much."""
    assert misspellings(term) == ()


@given(st.text(alphabet="abcdefgh", max_size=30))
def test_there_are_few_and_each_once(term: str) -> None:
    """At most five for each letter."""
    assert len(misspellings(term)) <= 5 * len(term)
    assert len(set(misspelling_ids(term))) == len(misspelling_ids(term)) == len(misspellings(term))


@pytest.mark.parametrize(
    ("word", "short"),
    [("festival", ("fest", "festi")), ("photograph", ("phot", "photo")), ("hotel", ()), ("zx81kk", ())],
)
def test_a_long_word_is_cut_short_to_four_or_five_letters(word: str, short: tuple[str, ...]) -> None:
    """Short words and identifiers are not."""
    assert clipped(word) == short
