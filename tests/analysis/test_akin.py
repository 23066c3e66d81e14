"""Words akin to those of a question."""

from __future__ import annotations

import pytest

from myria.analysis import terms
from myria.analysis.akin import akin


@pytest.mark.parametrize(("asked", "told"), [("audience", "crowd"), ("salary", "wage"), ("storm", "rain")])
def test_a_word_has_others_beside_it_that_mean_something_near(asked: str, told: str) -> None:
    """What people tell in other words than those that they are asked with."""
    assert set(terms(told)) <= set(akin(*terms(asked)))


@pytest.mark.parametrize("word", ["qwertyuiop", "august", "seven", "conversation", ""])
def test_rare_words_numbers_dates_and_words_about_talking_have_none(word: str) -> None:
    """July is no answer to a question about August."""
    assert akin(word) == akin("".join(terms(word))) == ()


def test_no_word_is_akin_to_itself() -> None:
    """Nor to a stop word, and each is named once."""
    for word in ("museum", "festival", "hobby", "car"):
        (term,) = terms(word)
        assert term not in akin(term)
        assert len(set(akin(term))) == len(akin(term)) > 5
