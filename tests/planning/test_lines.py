"""Text as a label or a summary holds it."""

from __future__ import annotations

import pytest

from myria.topics.lines import capitalised, clip


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("gas kiln", "Gas kiln"),
        ("iPhone case", "iPhone case"),
        ("v2.1 of the form", "v2.1 of the form"),
        ("tool_result of the build", "tool_result of the build"),
        ("main.py is broken", "main.py is broken"),
        ("kiln.", "Kiln."),
        ("¿has visto la factura?", "¿Has visto la factura?"),
        ("посылка", "Посылка"),
        ("会議", "会議"),
    ],
)
def test_a_title_begins_with_a_capital_where_its_word_may(text: str, title: str) -> None:
    """Names that begin small, and scripts without capitals, stay as they are."""
    assert capitalised(text) == title


def test_what_is_too_long_ends_at_a_word() -> None:
    """A clipped text ends between words."""
    assert clip("the lease of the warehouse", 20) == "the lease of the…"
