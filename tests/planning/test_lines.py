"""Text as a label or a summary holds it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.planning.lines import has_one_of, listed

RANGES = (("\u0370", "\u1dff"), ("\u3005", "\u9fff"), ("\U00020000", "\U0003ffff"))
NEAR = [chr(ord(end) + step) for pair in RANGES for end in pair for step in (-1, 0, 1)]


@given(st.text(st.one_of(st.characters(), st.sampled_from(NEAR)), max_size=8))
def test_a_character_of_a_range_is_found_as_by_an_expression(text: str) -> None:
    """The first and the last of each range count, and what is beside them does not."""
    expression = re.compile("[{}]".format("".join(f"{first}-{last}" for first, last in RANGES)))
    assert has_one_of(RANGES, text) is (expression.search(text) is not None)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), ""),
        (("kiln",), "kiln"),
        (("kiln", "glaze", "clay"), "kiln, glaze and clay"),
        (("café", "thé"), "café and thé"),
        (("窯", "釉薬"), "窯、釉薬"),
        (("печь", "глина"), "печь, глина"),
        (("печь", "clay"), "печь and clay"),
    ],
)
def test_parts_are_listed_as_their_script_does(parts: tuple[str, ...], text: str) -> None:
    """English words stand between Latin letters alone."""
    assert listed(parts) == text
