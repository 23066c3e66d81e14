"""UTC calendar of microsecond timestamps, years 1 to 9999, without clock, locale or time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_CACHED_MOMENTS = 4_096
"""Moments that are cached: a node's beginning and end are written in several forms."""

_PARTS_OF_DAY = ("night", "morning", "afternoon", "evening")
_MONTH, _DAY = f"(?:{'|'.join(_MONTHS)})", rf"\d{{1,2}} (?:{'|'.join(_MONTHS)}) \d{{1,4}}"
_TIME_OF_DAY = rf"(?:{'|'.join(_PARTS_OF_DAY)}|\d\d:\d\d(?:–\d\d:\d\d)?)"
_LABEL_OF_DAY = re.compile(
    rf"(?:\d{{1,2}}(?: {_MONTH}(?: \d{{1,4}})?)? ?– ?)?{_DAY}(?:, {_TIME_OF_DAY})?(?=: |$)|.*, {_DAY}, \d\d:\d\d$"
)
"""A label that begins with what `group_text` returns, or ends with what `moment_text` does."""


@lru_cache(maxsize=_CACHED_MOMENTS)
def moment(timestamp: int) -> datetime:
    """Return a timestamp in microseconds since 1970 as a UTC datetime."""
    return _EPOCH + timedelta(microseconds=timestamp)


@lru_cache(maxsize=_CACHED_MOMENTS)
def digits(timestamp: int) -> str:
    """Return a timestamp as hexadecimal calendar digits; their order is the order of time.

    Four of the year, month, week of the month (the fourth runs to its end), day of that week, part of the day, hour
    of that part, ten minutes, minute, ten seconds, second, and six of the microseconds.
    """
    at = moment(timestamp)
    week = min((at.day - 1) // 7, 3)
    day = f"{at.year:04}{at.month:x}{week}{at.day - 1 - 7 * week}"
    return f"{day}{at.hour // 6}{at.hour % 6}{at.minute:02}{at.second:02}{at.microsecond:06}"


def date_text(timestamp: int) -> str:
    """Return a day as people write it: 8 May 2023."""
    return _date(moment(timestamp))


def _date(at: datetime) -> str:
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}"


def day_of(text: str) -> int | None:
    """Return the day (since 1970) that `date_text` writes so; None where it writes none so."""
    try:
        day, month, year = text.split(" ")
        return (datetime(int(year), _MONTHS.index(month) + 1, int(day), tzinfo=UTC) - _EPOCH).days
    except ValueError:
        return None


def end_of_day(label: str) -> int:
    """Return where a label has named a day, or a time of one, as code writes it (without its zone, UTC); else 0."""
    named = _LABEL_OF_DAY.match(label)
    return 0 if named is None else named.end()


def moment_text(timestamp: int) -> str:
    """Return a minute as people write it: 8 May 2023, 13:56."""
    at = moment(timestamp)
    return f"{_date(at)}, {at.hour:02}:{at.minute:02}"


def span_text(first: int, last: int) -> str:
    """Return a span of time without repeating common parts: 8 May 2023, 13:56–14:04 UTC."""
    begins, ends = moment(first), moment(last)
    if begins.date() == ends.date():
        start, end = f"{begins.hour:02}:{begins.minute:02}", f"{ends.hour:02}:{ends.minute:02}"
        clock = start if start == end else f"{start}–{end}"
        return f"{_date(begins)}, {clock} UTC"
    if (begins.year, begins.month) == (ends.year, ends.month):
        return f"{begins.day}–{_date(ends)}"
    if begins.year == ends.year:
        return f"{begins.day} {_MONTHS[begins.month - 1]} – {_date(ends)}"
    return f"{_date(begins)} – {_date(ends)}"


def period_text(first: int, last: int) -> str:
    """Return a span of days as a sentence says it: on 8 May 2023, from 8 May to 3 June 2023."""
    begins, ends = moment(first), moment(last)
    if begins.date() == ends.date():
        return f"on {date_text(first)}"
    if begins.year != ends.year:
        return f"from {date_text(first)} to {date_text(last)}"
    start = str(begins.day) if begins.month == ends.month else f"{begins.day} {_MONTHS[begins.month - 1]}"
    return f"from {start} to {date_text(last)}"


def group_text(name: str, first: int, last: int) -> str:
    """Return a name for a group of units by its calendar level and span: 2023, May 2023, 8–14 May 2023, 8 May 2023."""
    at = moment(first)
    month = f"{_MONTHS[at.month - 1]} {at.year}"
    if name == "year":
        return f"{at.year}"
    if name == "month":
        return month
    if name == "week":
        return span_text(first, last) if moment(last).date() != at.date() else date_text(first)
    if name == "day":
        return date_text(first)
    if name == "part of day":
        return f"{date_text(first)}, {_PARTS_OF_DAY[at.hour // 6]}"
    if name == "hour":
        return f"{date_text(first)}, {at.hour:02}:00–{at.hour:02}:59"
    if moment(last).date() != at.date():
        ends = moment(last)
        return f"{at.year}–{ends.year}" if at.year != ends.year else span_text(first, last)
    return span_text(first, last).removesuffix(" UTC")
