"""Dates in questions become windows of time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.text.dates import DAY_US, holds_from, local_day, meant, windows


def _day(text: str) -> int:
    return _us(f"{text}T00:00:00") // DAY_US


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


TODAY = "2026-03-18"  # a Wednesday


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("I have an appointment with the dentist tomorrow at 3pm.", ["2026-03-19"]),
        ("See you the day after tomorrow", ["2026-03-20"]),
        ("Yesterday we sang, and the day before yesterday, too.", ["2026-03-17", "2026-03-16"]),
        ("We met on Friday.", ["2026-03-13"]),
        ("We meet on Friday.", ["2026-03-20"]),
        ("Last Wednesday it rained", ["2026-03-11"]),
        ("The exam is next Friday", ["2026-03-20", "2026-03-27"]),
        ("The exam is next Tuesday", ["2026-03-24"]),
        ("in two weeks we fly", ["2026-04-01"]),
        ("It broke three days ago", ["2026-03-15"]),
        ("The party is on Friday, 27 March", ["2026-03-27"]),
        ("her birthday, the 12th of January", ["2026-01-12"]),
        ("The lease ends on December 31st.", ["2025-12-31"]),
        ("The lease ends on December 31, 2026", ["2026-12-31"]),
        ("due 2026-04-02", ["2026-04-02"]),
        ("this weekend I paint", ["2026-03-21", "2026-03-22"]),
        ("The appointment is on the 20th.", ["2026-03-20"]),
        ("The appointment was on the 20th.", ["2026-02-20"]),
        ("We fly on the 31st.", ["2026-03-31"]),
        ("On Friday the 27th we sing", ["2026-03-27"]),
        ("Dentist on Friday 3pm", ["2026-03-20"]),
        ("fällig am 02.04.2026", ["2026-04-02"]),
        ("due 2026/04/02", ["2026-04-02"]),
    ],
)
def test_the_days_a_text_means(text: str, days: list[str]) -> None:
    """They are reckoned from the day on which it was told; of a date without a year, the nearest is meant."""
    assert [day for one in meant(text, _day(TODAY)) for day in one.days] == [_day(day) for day in days]


@pytest.mark.parametrize(
    "text",
    [
        "May I ask 5 things?",
        "they march on",
        "on Mondays I swim",
        "open from Monday to Friday",
        "from 10 to 12",
        "12/03/2026",
        "1.2.2026.4",
        "on the 2nd floor of",
        "",
        "a",
    ],
)
def test_texts_that_mean_no_day(text: str) -> None:
    """Habits, other numbers and words that could be months are no days."""
    assert meant(text, _day(TODAY)) == ()


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("From 1 June the rent is 950 euros.", "2026-06-01"),
        ("Starting next Monday the gym opens at 7.", "2026-03-23"),
        ("starting tomorrow, no sugar", "2026-03-19"),
        ("As of March 25th Ana leads the team", "2026-03-25"),
        ("Prices rise, effective 2026-04-01", "2026-04-01"),
        ("From next month on we meet in Porto", "2026-04-01"),
        ("Beginning in September, I teach", "2026-09-01"),
        ("From March the rent is 950", "2026-03-01"),
        ("I will move to Porto on 3 April", "2026-04-03"),
        ("I'm moving to Berlin in three weeks", "2026-04-08"),
        ("Starting on the 5th we ship daily", "2026-04-05"),
        ("Dario takes over as team lead on 1 April", "2026-04-01"),
        ("I start at Acme next Monday", "2026-03-23"),
        ("We move to Porto on 3 April", "2026-04-03"),
        ("We moved to Porto on 3 March", None),
        ("The course starts at 9 on Friday", None),
        ("From 01.06.2026 the rent is 950", "2026-06-01"),
        ("The meeting moved to 12 June", None),
        ("We are away from 1 June to 5 June", None),
        ("I live in Porto from now on", None),
        ("The exam is on 3 April", None),
    ],
)
def test_the_day_from_which_a_text_holds(text: str, since: str | None) -> None:
    """An announcement says from when on it holds; a date that is only told of says nothing of the kind."""
    assert holds_from(meant(text, _day(TODAY))) == (None if since is None else _day(since))


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("What did I do yesterday?", "2026-03-09"),
        ("What did I do today?", "2026-03-10"),
        ("What is on tomorrow?", "2026-03-11"),
        ("What did I do last Sunday?", "2026-03-08"),
        ("What did I do two days ago?", "2026-03-08"),
        ("What did I do on Friday?", "2026-03-06"),
        ("What do I do on Friday?", "2026-03-13"),
        ("What did I do on the 4th?", "2026-03-04"),
    ],
)
def test_relative_days_are_those_of_the_place_where_is_asked(question: str, day: str) -> None:
    """At ten in the evening of a Tuesday in Los Angeles it is Wednesday in UTC."""
    found = windows(question, now=_us("2026-03-11T05:00:00"), first=0, last=_us("2026-03-11T05:00:00"), utc_offset=-420)
    days = [(window.first, window.last) for window in found if window.first <= window.last]
    assert days == [(_day(day), _day(day))]
    assert local_day(_us("2026-03-11T05:00:00"), -420) == _day("2026-03-10")


@given(
    st.text(st.sampled_from("0123456789 -/,.'frommaytinextdayweksogl") | st.characters(codec=None), max_size=80),
    st.integers(_day("0001-01-01"), _day("9999-12-31")),
)
def test_no_text_raises(text: str, today: int) -> None:
    """Whatever it says and whenever it was told, its days are days of the calendar."""
    for one in meant(text, today):
        assert _day("0001-01-01") <= one.first <= one.last <= _day("9999-12-31")
