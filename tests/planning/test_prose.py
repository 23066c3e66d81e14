"""What is prose is found as quickly as it is exactly."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from myria.planning import prose

_PIECES = (
    "w",
    "www",
    "www.x",
    "a",
    "B",
    "AB",
    "aB",
    " ",
    ".",
    ":",
    ",",
    "1",
    "\u0663",
    "e\u0301",
    "\u4eac",
    "`",
    "$",
    "\n",
    "(",
    "é",
)
_ONE_BY_ONE = re.compile(r"[`<>{}\[\]|$#@/_\\=~^*(\d\n;]|\w\.\w|\w:\w|\bwww|[A-Z]{2}|[a-z][A-Z]")
"""What makes a text suspect, as one would write it down."""


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_a_suspect_text_is_one_that_has_any_of_the_marks(text: str) -> None:
    """A mark of code, a stop or colon inside a word, two capitals, a capital inside a word, or "www"."""
    assert bool(prose._SUSPECT.search(text)) == bool(_ONE_BY_ONE.search(text))
