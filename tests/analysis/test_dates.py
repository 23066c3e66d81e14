"""Dates in questions become windows of time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.analysis.dates import windows


def _us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


NOW = _us("2023-07-12T15:00:00")  # a Wednesday
FIRST = _us("2022-11-01T00:00:00")


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        ("What happened in May?", "2023-05-20", "2023-06-02"),
        ("What happened in December", "2022-12-24", "2023-05-20"),
        ("Where was she on 31 October, 2022?", "2022-11-01", "2023-03-01"),
        ("What did he say on July 7, 2023?", "2023-07-08", "2023-08-02"),
        ("the meeting of 2023-03-05", "2023-03-05", "2023-04-20"),
        ("Who won in 2022?", "2022-06-01", "2023-01-01"),
        ("What did I do yesterday?", "2023-07-11", "2023-07-09"),
        ("What did I do last week?", "2023-07-05", "2023-07-12"),
        ("two weeks ago", "2023-06-28", "2023-07-10"),
        ("last Friday", "2023-07-07", "2023-07-05"),
        ("last month", "2023-06-10", "2023-07-10"),
        ("last year", "2022-03-01", "2023-01-02"),
        ("this year", "2023-03-01", "2022-12-30"),
        ("last summer", "2022-07-15", "2023-07-01"),
    ],
)
def test_what_a_question_means(question: str, inside: str, outside: str) -> None:
    """A named or relative date covers the time it means and not the time it does not."""
    found = windows(question, now=NOW, first=FIRST, last=NOW)
    assert any(window.start <= _us(f"{inside}T12:00:00") < window.end for window in found)
    assert not any(window.start <= _us(f"{outside}T12:00:00") < window.end for window in found)


@pytest.mark.parametrize("question", ["May I ask?", "they march on", "What may happen", "Why?", "Room 12", ""])
def test_what_is_no_date(question: str) -> None:
    """Words that could be months, and plain numbers, are no dates by themselves."""
    assert windows(question, now=NOW, first=FIRST, last=NOW) == ()


@given(st.text(st.sampled_from("0123456789 -/,agomaylstweekyr\u0663") | st.characters(codec=None), max_size=80))
def test_never_raises(text: str) -> None:
    """No text raises, and a window never ends before it starts."""
    for window in windows(text, now=NOW, first=FIRST, last=NOW):
        assert window.start < window.end


def test_many_years() -> None:
    """A month without a year in a memory of centuries gives a bounded number of windows."""
    assert len(windows("in June", now=NOW, first=_us("1100-01-01T00:00:00"), last=NOW)) <= 41
