"""What is prose is found as quickly as it is exactly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.topics import prose

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
_WORDS_OF_LOGS = (
    *("TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "FATAL", "CRITICAL", "FAILED", "PASSED", "PASS"),
    *("FAIL", "TODO", "FIXME", "RT", "SELECT x", "INSERT x", "UPDATE x", "DELETE x", " FROM y", " INTO y", " SET y"),
    *("May 5", "commit abcdef0", "Best", "Cheers,"),
)
_ONE_BY_ONE = re.compile(
    r"[`<>{}\[\]|$#@/_\\=~^*(\d\n;]|\w\.\w|\w:\w|\bwww|[a-z][A-Z]"
    r"|\b(?:TR|DE|IN|NO|WA|ER|FA|CR|PA|TO|FI|RT|SE|UP)"
)
"""What makes a text suspect, as one would write it down."""


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_a_suspect_text_is_one_that_has_any_of_the_marks(text: str) -> None:
    """A mark of code, a stop or colon inside a word, how words of logs begin, a capital inside a word, or "www"."""
    assert bool(prose._SUSPECT.search(text)) == bool(_ONE_BY_ONE.search(text))


@given(st.lists(st.sampled_from((*_PIECES, *_WORDS_OF_LOGS)), max_size=12).map("".join))
def test_a_text_in_which_something_is_no_prose_is_suspect(text: str) -> None:
    """Whatever has a span that is no prose is looked at; a header of mail alone on one line reads as prose."""
    assert prose.may_be_no_prose(text) or not prose.not_prose(text)


@pytest.mark.parametrize("word", [word for word in _WORDS_OF_LOGS if word.isupper()])
def test_each_word_of_logs_is_suspect(word: str) -> None:
    """Also where it stands alone."""
    assert prose.may_be_no_prose(word)
