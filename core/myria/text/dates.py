"""Dates in questions and in texts: the days that somebody means.

A question means windows of time: "in May", "on 31 October, 2022", "2023-07-07", "yesterday", "two weeks ago", "last
Friday", "last summer". A window is evidence, never a filter: people tell of things before and after they happen, so a
day stands for the days around it, and for itself most.

A text means days, reckoned from the day on which it was told: "tomorrow", "on 12 March", "next Friday", "in three
days". And it may say that what it tells holds from a day on: "from 1 June", "starting next Monday".

All arithmetic is on whole days of the proleptic Gregorian calendar: those of the place where a text was told, and of
the place where a question is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import islice
from typing import Final

import re2

from myria.text.words import terms

DAY_US: Final = 86_400_000_000
MINUTE_US: Final = 60_000_000

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
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE_DAYS = 146_097
_WORD = re.compile(r"[A-Za-z]+|\d+")
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")

_DOTTED = re.compile(r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.(\d{4})(?![\d.]*\d)")
_SLASHED = re.compile(r"(?<![\d/])(\d{4})/(\d{1,2})/(\d{1,2})(?![\d/])")

_READ_BYTES: Final = 8 * 1024
"""How much of a text is looked through for days, in UTF-8 bytes."""

MAX_DAYS: Final = 24
"""Days that are kept of a text: its first."""

_SAYS_WHEN = """
yesterday today tonight tomorrow last next week month year weekend ago morning afternoon evening
summer winter autumn spring fall recently days since
"""
TIME_WORDS = frozenset(terms(" ".join((_SAYS_WHEN, *_MONTHS, *_WEEKDAYS)))) - frozenset(terms("may march"))
"""Terms by which a text says when something happens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A span of time, `start <= t < end`, in microseconds since 1970 by the clock on the wall; `exact` when days were
    meant: those from `first` to `last`, in days since 1970 (`first > last` where none of them is meant by itself).

    The wall is where a document was told, for a date that is named; where the question is asked (`is_relative`), for
    one that is reckoned from now.
    """

    start: int
    end: int
    exact: bool
    first: int = 0
    last: int = -1
    is_relative: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Meant:
    """Days that a text means: from `first` to `last`, in days since 1970; `begins` where it says that what it tells
    holds from the first of them on."""

    first: int
    last: int
    begins: bool = False

    @property
    def days(self) -> range:
        """The days."""
        return range(self.first, self.last + 1)


def windows(text: str, *, now: int, first: int, last: int, utc_offset: int = 0) -> tuple[Window, ...]:
    """Return the windows a question means, at most a few dozen, in the order they are named.

    Args:
        now: what relative dates count from, in microseconds since 1970 UTC.
        first, last: span of what can be asked for; a month without a year is looked for in each year of it, and in the
            next, of which texts may tell.
        utc_offset: minutes east of UTC of the place where `now` is.
    """
    today = local_day(now, utc_offset)
    candidates: list[Window] = []
    text = _in_iso(text)
    for year, month, day in _ISO.findall(text):
        if (start := _day(int(year), int(month), int(day))) is not None:
            candidates.append(_around(start))
    words = _WORD.findall(_ISO.sub(" ", text))
    candidates.extend(_named(words, first, last))
    candidates.extend(_reckoned(text, today))
    candidates.extend(_relative([word.lower() for word in words], today))
    return tuple(dict.fromkeys(candidates))[:_MOST_YEARS]


def meant(text: str, today: int) -> tuple[Meant, ...]:
    """Return the days that a text means which was told today (days since 1970), in the order they are named."""
    return tuple(dict.fromkeys(days for match, sentence in _named_days(text) for days in sentence.meant(match, today)))


def holds_from(days: Iterable[Meant]) -> int | None:
    """Return the day from which a text says that it holds, None where it says none."""
    return min((one.first for one in days if one.begins), default=None)


def local_day(moment: int, utc_offset: int) -> int:
    """Return the day since 1970 on which a moment (microseconds since 1970 UTC) falls, so many minutes east of UTC."""
    return (moment + utc_offset * MINUTE_US) // DAY_US


def _in_iso(text: str) -> str:
    """Return a text with its dates in numbers, as `12.3.2026` and `2026/03/12`, in the form of ISO 8601.

    `12/03/2026` is the twelfth of March or the third of December, so it is no date.
    """
    return _SLASHED.sub(r"\1-\2-\3", _DOTTED.sub(r"\3-\2-\1", text))


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


def _reckoned(text: str, today: int) -> Iterator[Window]:
    """Yield windows of the days that a question reckons from today; what it names by a date is found by `_named`."""
    for match, sentence in _named_days(text):
        if not any(match[name] for name in _NAMED_GROUPS):
            for days in sentence.meant(match, today):
                is_day = days.first == days.last
                yield Window(
                    start=days.first * DAY_US,
                    end=(days.last + 1) * DAY_US,
                    exact=is_day,
                    first=days.first if is_day else 0,
                    last=days.last if is_day else -1,
                    is_relative=True,
                )


def _relative(words: list[str], today: int) -> Iterator[Window]:
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        if word in ("today", "tonight"):
            yield _window(today, today + 1, exact=True, is_relative=True)
        elif word == "yesterday":
            yield _window(today - 1, today + 1, exact=True, is_relative=True)
        elif word == "ago" and at > 1:
            count = _NUMBERS.get(words[at - 2], _small(words[at - 2]))
            unit = _UNIT_DAYS.get(before.removesuffix("s"), 0)
            if count and unit:
                slack = max(1, unit // 2)
                yield _window(
                    today - count * unit - slack, today - count * unit + slack + 1, exact=unit < 30, is_relative=True
                )
        elif before in ("last", "past", "previous", "this"):
            yield from _last(word, before == "this", today)


def _last(word: str, this: bool, today: int) -> Iterator[Window]:
    if word == "week":
        monday = today - (today + 3) % 7
        yield _window(monday if this else monday - 7, monday + 7 if this else monday + 1, exact=False, is_relative=True)
    elif word == "weekend":
        yield _window(today - 9, today + 1, exact=False, is_relative=True)
    elif word == "month":
        yield _window(today - (31 if this else 62), today + 1 if this else today - 20, exact=False, is_relative=True)
    elif word == "year":
        year = _year_of(today) - (0 if this else 1)
        yield _window(_days(year, 1, 1), _days(year + 1, 1, 1), exact=False, is_relative=True)
    elif word in _WEEKDAYS:
        back = ((today + 3) % 7 - _WEEKDAYS.index(word)) % 7
        yield _window(today - (back if this else back or 7), today + 1, exact=True, is_relative=True)
    elif word in _SEASONS:
        year = _year_of(today)
        while _days(year, _SEASONS[word], 1) > today - (0 if this else _SEASON_DAYS):
            year -= 1
        start = _days(year, _SEASONS[word], 1)
        yield _window(start, start + _SEASON_DAYS, exact=False, is_relative=True)


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
    """Return the years in which a date without a year may lie, the last one first: texts tell of the next year, too."""
    end = _year_of(last // DAY_US) + 1
    return range(end, max(_year_of(first // DAY_US), end - _MOST_YEARS) - 1, -1)


def _around(day: int) -> Window:
    return Window(
        start=(day - _DAYS_BEFORE) * DAY_US, end=(day + _DAYS_AFTER + 1) * DAY_US, exact=True, first=day, last=day
    )


def _window(start: int, end: int, *, exact: bool, is_relative: bool = False) -> Window:
    return Window(start=start * DAY_US, end=end * DAY_US, exact=exact, is_relative=is_relative)


def _day(year: int, month: int, day: int) -> int | None:
    if not (1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    return _days(year, month, day)


def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01, of any year (the calendar repeats every 400) and also beyond a month's end."""
    cycles, of_cycle = divmod(year - 1, 400)
    return date(of_cycle + 1, month, 1).toordinal() + cycles * _CYCLE_DAYS + day - 1 - _EPOCH


def _month_of(day: int) -> int:
    """Return the month, counted from the year 0, that a day since 1970-01-01 lies in."""
    cycles, of_cycle = divmod(day + _EPOCH - 1, _CYCLE_DAYS)
    found = date.fromordinal(of_cycle + 1)
    return (found.year + 400 * cycles) * 12 + found.month - 1


def _year_of(day: int) -> int:
    return _month_of(day) // 12


_ONLY_WHEN = " ".join((*_MONTHS, *_WEEKDAYS, *_SEASONS, "ago past previous", *_UNIT_DAYS, *_NUMBERS))
_DATE_TERMS = frozenset(terms(_ONLY_WHEN))


_NUMBER = "|".join(("\\d{1,3}", *(word for word in _NUMBERS if word not in ("couple", "few"))))
_MONTH = "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True))
_WEEKDAY = "|".join(_WEEKDAYS)
_LEAD = (
    r"from|starting(?:\s+(?:on|from|in|with))?|beginning(?:\s+(?:on|in|with))?|commencing(?:\s+(?:on|in))?"
    r"|effective(?:\s+(?:from|on|as\s+of))?|as\s+(?:of|from)|with\s+effect\s+from"
)
"""Words before a day by which people say that something holds from then on."""

_EXPRESSION: Final = re.compile(
    rf"""(?:\b(?P<lead>{_LEAD})\s+(?:the\s+)?)?(?:
    (?<![\d-])(?P<iso>\d{{4}}-\d{{1,2}}-\d{{1,2}})(?!\d)
    |(?<![\d.:/-])(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})\b\.?(?:,?\s+(?P<year>\d{{4}})\b)?
    |\b(?P<month_first>{_MONTH})\.?\s+(?:the\s+)?(?P<day_last>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:\d)
        (?:,?\s+(?P<year_last>\d{{4}})\b)?
    |\b(?P<word>day\s+after\s+tomorrow|day\s+before\s+yesterday|yesterday|last\s+night|today|tonight|tomorrow
        |this\s+(?:morning|afternoon|evening))\b
    |\b(?:(?P<which>next|last|past|previous|this|coming|on)\s+)?(?P<weekday>{_WEEKDAY})\b
        (?!,?\s+(?:(?:the\s+)?\d{{1,2}}(?:st|nd|rd|th)\b|\d{{1,2}}\s+(?:of\s+)?(?:{_MONTH})\b|(?:{_MONTH})\b))
    |\b(?:on|(?:{_WEEKDAY}),?)\s+the\s+(?P<number>\d{{1,2}})(?:st|nd|rd|th)\b(?!\s+(?:of\b|{_MONTH}|\w+\s+of\b))
    |\bin\s+(?P<ahead>{_NUMBER})\s+(?P<ahead_unit>day|week)s?\b
    |\b(?P<back>{_NUMBER})\s+(?P<back_unit>day|week)s?\s+ago\b
    |\b(?P<whose>next|last|this|coming)\s+(?P<period>week|weekend|month|year)\b
    |\b(?P<from_month>{_MONTH})\b(?:\s+(?P<from_year>\d{{4}})\b)?
    )""",
    re.VERBOSE,
)
"""A day, or days, as a text names them, in lower case."""

_NAMED_GROUPS: Final = ("iso", "month", "month_first", "from_month")
_HINTS: Final = re2.compile(
    rf"\d{{4}}[-/]\d|\d\.\d{{1,2}}\.\d{{4}}|\b(?:yesterday|today|tonight|tomorrow|last\s+night|this\s+(?:morning|afternoon|evening)|{_WEEKDAY})\b"
    rf"|\bon\s+the\s+\d|\b(?:next|last|this|coming)\s+(?:week|month|year)|\b(?:{_NUMBER})\s+(?:day|week)"
    rf"|\d(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})\b|\b(?:{_MONTH})\b\.?\s+(?:the\s+)?\d|\b(?:{_LEAD})\s+(?:{_MONTH})\b".encode()
)
"""What a text holds that names a day: nearly all that names none is told by one fast look."""

_OFFSETS: Final = {
    "day after tomorrow": 2,
    "tomorrow": 1,
    "yesterday": -1,
    "last night": -1,
    "day before yesterday": -2,
}
"""Days from today; all other words mean today."""

_SENTENCE_END: Final = re.compile(r"[!?\n]|\.(?=\s+\D)")
"""A dot before a number ends no sentence: "Mar. 12"."""
_MOST_NAMED: Final = 2 * MAX_DAYS
"""Expressions of days in a text that are read, at most."""
_TO: Final = re.compile(rf"\s*(?:(?:to|till|til|until|through)\b|[-\u2013]\s*(?:\d|(?:{_MONTH}|{_WEEKDAY})\b))")
_IN_THE_PAST: Final = re.compile(
    r"\b(?:was|were|did|had|went|saw|met|got|came|took|made|said|told|bought|ate|left|ran|gave|\w{2,}ed)\b"
)
_IN_THE_FUTURE: Final = re.compile(r"\b(?:will|shall|going to|i'll|we'll|he'll|she'll|they'll|it'll|you'll)\b")
_WILL_BECOME: Final = re.compile(
    r"(?:\b(?:will|shall|going to)|'ll)\s+(?:\w+ly\s+)?(?:be\s+)?"
    r"(?:start|begin|move|switch|change|become|join|leave|take over|work|live)"
    r"|(?:\b(?:am|is|are)|'m|'re)\s+(?:starting|beginning|moving|switching|changing|joining|leaving|becoming)\b"
    r"|\b(?:takes?\s+over|becomes?|starts?\s+(?:at|with|as)\s+(?=[^\d\s])\w+|(?:moves?|switch(?:es)?|changes?)\s+(?:in)?to)\b"
)
"""How people tell of what is not so yet, and will be from the day that they name."""
_FIRST_DAY: Final = _days(1, 1, 1)
_LAST_DAY: Final = _days(9999, 12, 31)
_MONTHS_AHEAD: Final = 8
"""A month without a year from which something holds lies at most so far ahead, unless the text speaks of the future."""


class _DatedSentence:
    """A sentence in lower case, of which is told only once whether it speaks of the past or of the future."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def is_ahead(self) -> bool:
        """Whether it speaks of what will be."""
        return _IN_THE_FUTURE.search(self.text) is not None

    @cached_property
    def is_past(self) -> bool:
        """Whether it speaks of what was."""
        return not self.is_ahead and _IN_THE_PAST.search(self.text) is not None

    @cached_property
    def _tells_a_beginning(self) -> bool:
        return _WILL_BECOME.search(self.text) is not None

    def meant(self, match: re.Match[str], today: int) -> Iterator[Meant]:
        """Yield the days that an expression in it means."""
        leads = match["lead"] is not None and _TO.match(self.text, match.end()) is None
        for place, (first, last) in enumerate(_spans(match, today, self, leads=leads)):
            if first >= _FIRST_DAY and last <= _LAST_DAY:
                begins = leads or (
                    first > today and not self.text.endswith("to ", 0, match.start()) and self._tells_a_beginning
                )
                yield Meant(first=first, last=last, begins=begins and place == 0)


def _named_days(text: str) -> Iterator[tuple[re.Match[str], _DatedSentence]]:
    """Yield the expressions of days in a text, each with its sentence; a bounded number, of a bounded part of it."""
    raw = text[:_READ_BYTES].lower().replace("\u2019", "'").encode("utf-8", "replace")[:_READ_BYTES]
    if not _HINTS.search(raw):
        return
    left = _MOST_NAMED
    for text_of_sentence in _SENTENCE_END.split(_in_iso(raw.decode("utf-8", "ignore"))):
        if not _HINTS.search(text_of_sentence.encode()):
            continue
        sentence = _DatedSentence(text_of_sentence)
        for match in islice(_EXPRESSION.finditer(text_of_sentence), left):
            left -= 1
            yield match, sentence


def _spans(match: re.Match[str], today: int, sentence: _DatedSentence, *, leads: bool) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of the days that an expression may mean, the likeliest first."""
    day: int | None = None
    if match["iso"]:
        year, month, number = map(int, match["iso"].split("-"))
        day = _day(year, month, number)
    elif match["month"]:
        day = _nearest(match["month"], int(match["day"]), match["year"], today)
    elif match["month_first"]:
        day = _nearest(match["month_first"], int(match["day_last"]), match["year_last"], today)
    elif match["word"]:
        day = today + _OFFSETS.get(" ".join(match["word"].split()), 0)
    elif match["ahead"]:
        day = today + _count(match["ahead"]) * _UNIT_DAYS[match["ahead_unit"]]
    elif match["back"]:
        day = today - _count(match["back"]) * _UNIT_DAYS[match["back_unit"]]
    elif match["number"]:
        day = _day_of_some_month(int(match["number"]), today, is_past=sentence.is_past)
    elif match["weekday"]:
        if match["which"] or leads:
            for day in _weekdays(match["which"], match["weekday"], today, sentence):
                yield day, day
        return
    elif match["period"]:
        yield _period(match["whose"], match["period"], today)
        return
    elif match["lead"]:
        yield _whole_month(match["from_month"], match["from_year"], today, sentence)
        return
    if day is not None:
        yield day, day


def _nearest(name: str, number: int, year: str | None, today: int) -> int | None:
    """Return the day of a month: in the year that is named, else where it lies nearest to today."""
    month = _MONTH_NUMBERS[name]
    if year is not None:
        return _day(int(year), month, number)
    this = _year_of(today)
    candidates = [day for at in (this - 1, this, this + 1) if (day := _day(at, month, number)) is not None]
    return min(candidates, key=lambda day: (abs(day - today), -day), default=None)


def _day_of_some_month(number: int, today: int, *, is_past: bool) -> int | None:
    """Return the next day with a number in its month, the last one where what was is told; today where it has it."""
    this = _month_of(today)
    for month in range(this, this - 3, -1) if is_past else range(this, this + 3):
        day = _first_of(month) + number - 1
        if 0 < number <= _first_of(month + 1) - _first_of(month) and (day <= today if is_past else day >= today):
            return day
    return None


def _weekdays(which: str | None, name: str, today: int, sentence: _DatedSentence) -> Iterator[int]:
    """Yield the days that a day of the week may mean: "next Friday" is the coming one, or that of next week."""
    ahead = (_WEEKDAYS.index(name) - (today + 3) % 7) % 7
    if which in ("last", "past", "previous") or (which == "on" and sentence.is_past):
        yield today + ahead - 7
    elif which == "this":
        yield today + ahead
    else:
        coming = today + (ahead or 7)
        yield coming
        if which == "next" and (coming + 3) // 7 == (today + 3) // 7:
            yield coming + 7


def _period(whose: str, unit: str, today: int) -> tuple[int, int]:
    """Return the first and the last day of this week, weekend, month or year, of the one before or after it."""
    step = {"last": -1, "this": 0}.get(whose, 1)
    monday = today - (today + 3) % 7 + 7 * step
    if unit == "week":
        return monday, monday + 6
    if unit == "weekend":
        return monday + 5, monday + 6
    year = _year_of(today)
    if unit == "year":
        return _days(year + step, 1, 1), _days(year + step + 1, 1, 1) - 1
    month = _month_of(today) + step
    return _first_of(month), _first_of(month + 1) - 1


def _whole_month(name: str, year: str | None, today: int, sentence: _DatedSentence) -> tuple[int, int]:
    """Return the first and the last day of a month: in the year that is named, else of the likeliest."""
    if year is not None:
        month = int(year) * 12 + _MONTH_NUMBERS[name] - 1
    else:
        now = _month_of(today)
        ahead = (_MONTH_NUMBERS[name] - 1 - now) % 12
        is_past = ahead > _MONTHS_AHEAD and not sentence.is_ahead
        month = now + ahead - (12 if is_past else 0)
    return _first_of(month), _first_of(month + 1) - 1


def _first_of(month: int) -> int:
    """Return the first day of a month, counted from the year 0."""
    return _days(month // 12, month % 12 + 1, 1)


def _count(word: str) -> int:
    return _NUMBERS.get(word) or _small(word)
