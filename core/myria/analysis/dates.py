"""Dates in questions: windows of time that the asker probably means.

"in May", "on 31 October, 2022", "2023-07-07", "yesterday", "two weeks ago", "last Friday", "last summer". A window
is evidence, never a filter: people tell of things after they happened, so a day stands for the days around it.
All arithmetic is on whole days of the proleptic Gregorian calendar, in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from myria.analysis.tokens import terms
from myria.values import value

DAY_US: Final = 86_400_000_000

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH_NUMBERS = {
    **{name: at for at, name in enumerate(_MONTHS, 1)},
    **{name[:3]: at for at, name in enumerate(_MONTHS, 1)},
    "sept": 9,
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_NUMBERS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "couple": 2,
    "three": 3,
    "few": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_SEASON_DAYS = 92
_PREPOSITIONS = "in of since last next this by until during before after early late mid around"
_BEFORE_MONTH = frozenset(_PREPOSITIONS.split())
_AMBIGUOUS = frozenset(("may", "march", "mar", "jan", "jun", "dec", "sep"))
_YEARS = range(1900, 2101)
_MOST_YEARS = 40
_DAYS_BEFORE, _DAYS_AFTER = 4, 14
_WORD = re.compile(r"[A-Za-z]+|\d+")
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")

_SAYS_WHEN = """
yesterday today tonight tomorrow last next week month year weekend ago morning afternoon evening
summer winter autumn spring fall recently days since
"""
TIME_WORDS = frozenset(terms(" ".join((_SAYS_WHEN, *_MONTHS, *_WEEKDAYS)))) - frozenset(terms("may march"))
"""Terms by which a text says when something happens."""


@value
class Window:
    """A span of time, `start <= t < end`, in microseconds since 1970 UTC; `exact` when a day was meant."""

    start: int
    end: int
    exact: bool


def windows(text: str, *, now: int, first: int, last: int) -> tuple[Window, ...]:
    """Return the windows a question means, at most a few dozen, in the order they are named.

    Args:
        now: what relative dates count from.
        first, last: span of what can be asked for; a month without a year is looked for in each year of it.
    """
    candidates: list[Window] = []
    for year, month, day in _ISO.findall(text):
        if (start := _day(int(year), int(month), int(day))) is not None:
            candidates.append(_around(start))
    words = _WORD.findall(_ISO.sub(" ", text))
    candidates.extend(_named(words, first, last))
    candidates.extend(_relative([word.lower() for word in words], now // DAY_US))
    return tuple(dict.fromkeys(candidates))[:_MOST_YEARS]


def is_date_word(term: str) -> bool:
    """Tell whether a term of a question only says when."""
    return term in TIME_WORDS or term in _DATE_TERMS or (term.isdecimal() and len(term) <= 4)


def _named(words: list[str], first: int, last: int) -> Iterator[Window]:
    years = [int(word) for word in words if len(word) == 4 and word.isdecimal() and int(word) in _YEARS]
    months = 0
    for at in range(len(words)):
        month = _month(words, at)
        if month is None:
            continue
        months += 1
        near = years or _span(first, last)
        day = _day_of_month(words, at)
        for year in near:
            start = _day(year, month, day or 1)
            if start is None:
                continue
            if day is not None:
                yield _around(start)
            following = _days(year + month // 12, month % 12 + 1, 1)
            yield _window(_days(year, month, 1), following, exact=False)
    if not months:
        for year in years:
            yield _window(_days(year, 1, 1), _days(year + 1, 1, 1), exact=False)


def _relative(words: list[str], today: int) -> Iterator[Window]:
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        if word in ("today", "tonight"):
            yield _window(today, today + 1, exact=True)
        elif word == "yesterday":
            yield _window(today - 1, today + 1, exact=True)
        elif word == "ago" and at > 1:
            count = _NUMBERS.get(words[at - 2], _small(words[at - 2]))
            unit = _UNIT_DAYS.get(before.removesuffix("s"), 0)
            if count and unit:
                slack = max(1, unit // 2)
                yield _window(today - count * unit - slack, today - count * unit + slack + 1, exact=unit < 30)
        elif before in ("last", "past", "previous", "this"):
            yield from _last(word, before == "this", today)


def _last(word: str, this: bool, today: int) -> Iterator[Window]:
    if word == "week":
        monday = today - (today + 3) % 7
        yield _window(monday if this else monday - 7, monday + 7 if this else monday + 1, exact=False)
    elif word == "weekend":
        yield _window(today - 9, today + 1, exact=False)
    elif word == "month":
        yield _window(today - (31 if this else 62), today + 1 if this else today - 20, exact=False)
    elif word == "year":
        year = _year_of(today) - (0 if this else 1)
        yield _window(_days(year, 1, 1), _days(year + 1, 1, 1), exact=False)
    elif word in _WEEKDAYS:
        back = ((today + 3) % 7 - _WEEKDAYS.index(word)) % 7
        yield _window(today - (back if this else back or 7), today + 1, exact=True)
    elif word in _SEASONS:
        year = _year_of(today)
        while _days(year, _SEASONS[word], 1) > today - (0 if this else _SEASON_DAYS):
            year -= 1
        start = _days(year, _SEASONS[word], 1)
        yield _window(start, start + _SEASON_DAYS, exact=False)


def _month(words: list[str], at: int) -> int | None:
    word = words[at].lower()
    month = _MONTH_NUMBERS.get(word)
    if month is None or word not in _AMBIGUOUS:
        return month
    before = words[at - 1].lower() if at else ""
    after = words[at + 1] if at + 1 < len(words) else ""
    if before.isdecimal() or after.isdecimal():
        return month
    return month if before in _BEFORE_MONTH and words[at][0].isupper() else None


def _day_of_month(words: list[str], at: int) -> int | None:
    before = [word for word in words[max(0, at - 3) : at] if word not in ("of", "the", "st", "nd", "rd", "th")]
    for word in (before[-1] if before else "", words[at + 1] if at + 1 < len(words) else ""):
        if 1 <= _small(word) <= 31:
            return _small(word)
    return None


def _small(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) <= 4 else 0


def _span(first: int, last: int) -> range:
    end = _year_of(last // DAY_US)
    return range(max(_year_of(first // DAY_US), end - _MOST_YEARS), end + 1)


def _around(day: int) -> Window:
    return _window(day - _DAYS_BEFORE, day + _DAYS_AFTER + 1, exact=True)


def _window(start: int, end: int, *, exact: bool) -> Window:
    return Window(start=start * DAY_US, end=end * DAY_US, exact=exact)


def _day(year: int, month: int, day: int) -> int | None:
    if not (1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    return _days(year, month, day)


def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 (H. Hinnant, "chrono-compatible low-level date algorithms")."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _year_of(day: int) -> int:
    """Return the year a day since 1970-01-01 lies in (the inverse of `_days`)."""
    day += 719_468
    era, of_era = divmod(day, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    return year + era * 400 + ((5 * of_year + 2) // 153 >= 10)


_ONLY_WHEN = " ".join((*_MONTHS, *_WEEKDAYS, *_SEASONS, "ago past previous", *_UNIT_DAYS, *_NUMBERS))
_DATE_TERMS = frozenset(terms(_ONLY_WHEN))
