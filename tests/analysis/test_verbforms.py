"""Forms of everyday verbs stand in for each other in questions of their language."""

from __future__ import annotations

import pytest

from myria.text import terms
from myria.text.verbforms import verb_forms


@pytest.mark.parametrize(
    ("one", "other", "languages"),
    [
        ("live", "lives", ()),
        ("vit", "vécu", ("french",)),
        ("isst", "gegessen", ("german",)),
        ("juega", "jugó", ("spanish",)),
        ("купила", "покупает", ("russian",)),
        ("isst", "aß", ()),
    ],
)
def test_each_form_leads_to_the_other(one: str, other: str, languages: tuple[str, ...]) -> None:
    """Where no language is known, it may be any."""
    (first,), (second,) = terms(one), terms(other)
    assert second in verb_forms(first, languages)
    assert first in verb_forms(second, languages)


def test_a_form_is_of_its_own_language() -> None:
    """What looks like a form of another language is none."""
    assert verb_forms("vit", ("spanish",)) == ()
    assert verb_forms("kiln", ()) == ()
