"""Wider words for those of a question, from WordNet."""

from __future__ import annotations

from myria.analysis import terms
from myria.analysis.wordnet import wider


def test_a_word_is_widened_by_others_for_the_same_and_by_kinds_of_it() -> None:
    """A sword is a weapon, and supper a meal."""
    assert set(terms("sword dagger")) <= set(wider(*terms("weapon")))
    assert set(terms("breakfast supper")) <= set(wider(*terms("meal")))


def test_most_words_are_not_widened_and_none_by_itself_or_by_what_is_never_asked_for() -> None:
    """A word that the table does not have stands for itself alone."""
    assert wider("qwertyuiop") == ()
    for word in ("vehicle", "colour", "weapon", "food", "meal", "bird"):
        (term,) = terms(word)
        assert term not in wider(term)
        assert "" not in wider(term)
