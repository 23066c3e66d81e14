"""English stems: those of the pinned release of Snowball, for the words it is made for."""

from __future__ import annotations

import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from myria.text import terms
from myria.versions import ANALYSIS_VERSION

_PAIRS = """
consign consign consigned consign consolation consol consolidating consolid constancy constanc knack knack
knackeries knackeri knightly knight knocking knock skis ski skies sky news news inning inning proceed proceed
generate generat generous generous communities communiti communism communism hoping hope hopping hop gas gas
gaps gap kiwis kiwi cries cri ties tie sensational sensat happiness happi geology geolog relational relat by by
say say enjoy enjoy evening evening adding add organized organiz university universiti
"""


def test_stems_are_those_that_stored_blocks_hold() -> None:
    """Another release of the stemmers may give other stems: then ANALYSIS_VERSION must change, and this test."""
    words = _PAIRS.split()
    assert (Stemmer.version(), ANALYSIS_VERSION) == ("3.1.0", 3)
    assert [terms(word) for word in words[::2]] == [[stem] for stem in words[1::2]]


@given(st.text("aeiouybdlnstz'", max_size=12))
def test_never_longer_than_the_word_plus_one(word: str) -> None:
    """Any mix of letters is stemmed without an error, to at most one letter more than it had."""
    assert all(len(term) <= len(word) + 1 for term in terms(word))
