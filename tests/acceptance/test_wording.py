"""What refusals say is meant for people."""

from __future__ import annotations

import pytest

from myria.errors import InvalidTimestamp, MalformedJson
from myria.log.fields import parse_timestamp
from myria.log.jsontext import decode


def test_an_offset_of_more_than_a_day_is_said_in_words() -> None:
    """Nothing of Python shows through."""
    with pytest.raises(InvalidTimestamp, match=r"its offset is a day or more$"):
        parse_timestamp("2026-03-19T20:00:00+25:00", "timestamp")


def test_a_place_in_a_text_is_named_once() -> None:
    """One `at` is enough."""
    with pytest.raises(MalformedJson, match="character at line 1, column 3"):
        decode(b'{"\n":1}')
