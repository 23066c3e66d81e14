"""The English stemmer against the published examples of its algorithm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.analysis._porter2 import porter2

_PAIRS = """
consign consign consigned consign consigning consign consignment consign consist consist consisted consist
consistency consist consistent consist consistently consist consisting consist consists consist consolation
consol consolations consol consolatory consolatori console consol consoled consol consoles consol
consolidate consolid consolidated consolid consolidating consolid consoling consol consolingly consol
consols consol consonant conson consort consort consorted consort consorting consort conspicuous conspicu
conspicuously conspicu conspiracy conspiraci conspirator conspir conspirators conspir conspire conspir
conspired conspir conspiring conspir constable constabl constables constabl constance constanc constancy
constanc constant constant knack knack knackeries knackeri knacks knack knag knag knave knave knaves knave
knavish knavish kneaded knead kneading knead knee knee kneel kneel kneeled kneel kneeling kneel kneels kneel
knees knee knell knell knelt knelt knew knew knick knick knif knif knife knife knight knight knightly knight
knights knight knit knit knits knit knitted knit knitting knit knives knive knob knob knobs knob knock knock
knocked knock knocker knocker knockers knocker knocking knock knocks knock knopp knopp knot knot knots knot
skis ski skies sky dying die news news inning inning proceed proceed generate generat generous generous
communities communiti communism communism hoping hope hopping hop gas gas gaps gap kiwis kiwi cries cri ties
tie sensational sensat happiness happi geology geolog apologies apolog relational relat by by say say enjoy
enjoy
"""
PUBLISHED = _PAIRS.split()


@pytest.mark.parametrize(("word", "stem"), list(zip(PUBLISHED[::2], PUBLISHED[1::2], strict=True)))
def test_published_examples(word: str, stem: str) -> None:
    """The examples of the published algorithm come out as printed there."""
    assert porter2(word) == stem


@given(st.text("aeiouybdlnstz'", max_size=12))
def test_never_longer_than_the_word_plus_one(word: str) -> None:
    """Any mix of letters is stemmed without an error, to at most one letter more than it had."""
    assert len(porter2(word)) <= len(word) + 1
