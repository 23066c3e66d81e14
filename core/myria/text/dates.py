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

MONTHS: Final = tuple(
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_MONTH_NUMBERS = {
    **{name: at for at, name in enumerate(MONTHS, 1)},
    **{name[:3]: at for at, name in enumerate(MONTHS, 1)},
    "sept": 9,
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_COUNTS = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
_NUMBERS = {"a": 1, "an": 1, "couple": 2, "few": 3, **{word: number for number, word in enumerate(_COUNTS, 1)}}
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
"""UTF-8 bytes of a text in which days are looked for."""

MAX_DAYS: Final = 24
"""Most days kept of a text: its first ones."""

_SAYS_WHEN = """
yesterday today tonight tomorrow last next week month year weekend ago morning afternoon evening
summer winter autumn spring fall recently days since
"""
TIME_WORDS = frozenset(terms(" ".join((_SAYS_WHEN, *MONTHS, *_WEEKDAYS)))) - frozenset(terms("may march"))
"""Terms by which a text says when something happens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A span of time that a question means, `start <= t < end`, in microseconds since 1970 by local clocks.

    `exact` tells that the question means days. `first` to `last`, in days since 1970, are the days that it means by
    themselves; there are none if `first > last`. The clock is that of the place where a text was told; for a date
    reckoned from now (`is_relative`), that of the place where the question is asked.
    """

    start: int
    end: int
    exact: bool
    first: int = 0
    last: int = -1
    is_relative: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Meant:
    """Days that a text means: from `first` to `last`, in days since 1970; `begins` tells that by the text something
    holds from the first of them on."""

    first: int
    last: int
    begins: bool = False

    @property
    def days(self) -> range:
        """The days."""
        return range(self.first, self.last + 1)


def windows(text: str, *, now: int, first: int, last: int, utc_offset: int = 0) -> tuple[Window, ...]:
    """Return the windows that a question means, at most `_MOST_YEARS`, dates before relative ones.

    Args:
        now: what relative dates count from, in microseconds since 1970 UTC.
        first, last: first and last moment that can be asked for; a month without a year means that month in each of
            these years and in the next one, of which texts may tell.
        utc_offset: minutes east of UTC of the place where `now` is.
    """
    today = local_day(now, utc_offset)
    candidates: list[Window] = []
    text = _in_iso(text)
    for year, month, day in _ISO.findall(text):
        if (day := _valid_day(int(year), int(month), int(day))) is not None:
            candidates.append(_window_around(day))
    words = _WORD.findall(_ISO.sub(" ", text))
    candidates.extend(_dated_windows(words, first, last))
    candidates.extend(_reckoned_windows(text, today))
    candidates.extend(_relative_windows([word.lower() for word in words], today))
    return tuple(dict.fromkeys(candidates))[:_MOST_YEARS]


def meant(text: str, today: int) -> tuple[Meant, ...]:
    """Return the days that a text means if it was told on the day `today` (since 1970), in the order of the text."""
    return tuple(
        dict.fromkeys(days for match, sentence in _day_expressions(text) for days in sentence.meant(match, today))
    )


def holds_from(days: Iterable[Meant]) -> int | None:
    """Return the first day from which, by a text's meant days, something holds; None if the text says none."""
    return min((meant_days.first for meant_days in days if meant_days.begins), default=None)


def local_day(moment: int, utc_offset: int) -> int:
    """Return the local day since 1970 of a moment (microseconds since 1970 UTC); the offset is minutes east of UTC."""
    return (moment + utc_offset * MINUTE_US) // DAY_US


def _in_iso(text: str) -> str:
    """Return a text with its dates in numbers, as `12.3.2026` and `2026/03/12`, in the form of ISO 8601.

    `12/03/2026` stays: it may be the twelfth of March or the third of December.
    """
    return _SLASHED.sub(r"\1-\2-\3", _DOTTED.sub(r"\3-\2-\1", text))


def is_date_word(term: str) -> bool:
    """Tell whether a term of a question says nothing but a time."""
    return term in TIME_WORDS or term in _DATE_TERMS or (term.isdecimal() and len(term) <= 4)


def _dated_windows(words: list[str], first: int, last: int) -> Iterator[Window]:
    """Yield windows of the months, days and, if no month is named, years that words of a question name."""
    years = [int(word) for word in words if len(word) == 4 and word.isdecimal() and int(word) in _YEARS]
    months_found = 0
    for index in range(len(words)):
        month = _month(words, index)
        if month is None:
            continue
        months_found += 1
        candidate_years = years or _possible_years(first, last)
        day = _day_of_month(words, index)
        for year in candidate_years:
            start = _valid_day(year, month, day or 1)
            if start is None:
                continue
            if day is not None:
                yield _window_around(start)
            next_month = _day_number(year + month // 12, month % 12 + 1, 1)
            yield _window(_day_number(year, month, 1), next_month, exact=False)
    if not months_found:
        for year in years:
            yield _window(_day_number(year, 1, 1), _day_number(year + 1, 1, 1), exact=False)


def _reckoned_windows(text: str, today: int) -> Iterator[Window]:
    """Yield windows of the days that a question reckons from today, but none for named dates (see `_dated_windows`)."""
    for match, sentence in _day_expressions(text):
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


def _relative_windows(words: list[str], today: int) -> Iterator[Window]:
    """Yield windows of "today", "yesterday", "two weeks ago", "last month" and the like; `words` are in lower case."""
    for index, word in enumerate(words):
        word_before = words[index - 1] if index else ""
        if word in ("today", "tonight"):
            yield _window(today, today + 1, exact=True, is_relative=True)
        elif word == "yesterday":
            yield _window(today - 1, today + 1, exact=True, is_relative=True)
        elif word == "ago" and index > 1:
            count = _NUMBERS.get(words[index - 2], _short_number(words[index - 2]))
            unit = _UNIT_DAYS.get(word_before.removesuffix("s"), 0)
            if count and unit:
                slack = max(1, unit // 2)
                yield _window(
                    today - count * unit - slack, today - count * unit + slack + 1, exact=unit < 30, is_relative=True
                )
        elif word_before in ("last", "past", "previous", "this"):
            yield from _windows_around(word, word_before == "this", today)


def _windows_around(word: str, is_this: bool, today: int) -> Iterator[Window]:
    """Yield the window of a week, month, weekday or season: the current one if `is_this`, else the last."""
    # A day since 1970 plus 3, modulo 7, is its day of the week: 1 January 1970 was a Thursday, Monday counts 0.
    if word == "week":
        monday = today - (today + 3) % 7
        yield _window(
            monday if is_this else monday - 7, monday + 7 if is_this else monday + 1, exact=False, is_relative=True
        )
    elif word == "weekend":
        yield _window(today - 9, today + 1, exact=False, is_relative=True)
    elif word == "month":
        yield _window(
            today - (31 if is_this else 62), today + 1 if is_this else today - 20, exact=False, is_relative=True
        )
    elif word == "year":
        year = _year_of(today) - (0 if is_this else 1)
        yield _window(_day_number(year, 1, 1), _day_number(year + 1, 1, 1), exact=False, is_relative=True)
    elif word in _WEEKDAYS:
        days_back = ((today + 3) % 7 - _WEEKDAYS.index(word)) % 7
        yield _window(today - (days_back if is_this else days_back or 7), today + 1, exact=True, is_relative=True)
    elif word in _SEASONS:
        year = _year_of(today)
        while _day_number(year, _SEASONS[word], 1) > today - (0 if is_this else _SEASON_DAYS):
            year -= 1
        start = _day_number(year, _SEASONS[word], 1)
        yield _window(start, start + _SEASON_DAYS, exact=False, is_relative=True)


def _month(words: list[str], index: int) -> int | None:
    """Return the month that the word at an index names, None for others; "may" and the like need a date around them."""
    word = words[index].lower()
    month = _MONTH_NUMBERS.get(word)
    if month is None or word not in _AMBIGUOUS:
        return month
    word_before = words[index - 1].lower() if index else ""
    word_after = words[index + 1] if index + 1 < len(words) else ""
    if word_before.isdecimal() or word_after.isdecimal():
        return month
    return month if word_before in _BEFORE_MONTH and words[index][0].isupper() else None


def _day_of_month(words: list[str], index: int) -> int | None:
    """Return the number of a day beside the month at an index, before it or behind it; None if there is none."""
    words_before = [
        word for word in words[max(0, index - 3) : index] if word not in ("of", "the", "st", "nd", "rd", "th")
    ]
    for word in (words_before[-1] if words_before else "", words[index + 1] if index + 1 < len(words) else ""):
        if 1 <= _short_number(word) <= 31:
            return _short_number(word)
    return None


def _short_number(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) <= 4 else 0


def _possible_years(first: int, last: int) -> range:
    """Return the years in which a date without a year may lie, the latest first; texts tell of the next year, too."""
    end = _year_of(last // DAY_US) + 1
    return range(end, max(_year_of(first // DAY_US), end - _MOST_YEARS) - 1, -1)


def _window_around(day: int) -> Window:
    return Window(
        start=(day - _DAYS_BEFORE) * DAY_US, end=(day + _DAYS_AFTER + 1) * DAY_US, exact=True, first=day, last=day
    )


def _window(start: int, end: int, *, exact: bool, is_relative: bool = False) -> Window:
    return Window(start=start * DAY_US, end=end * DAY_US, exact=exact, is_relative=is_relative)


def _valid_day(year: int, month: int, day: int) -> int | None:
    if not (1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    return _day_number(year, month, day)


def _day_number(year: int, month: int, day: int) -> int:
    """Return the day since 1970-01-01 of a date in any year; a `day` beyond the month's end runs into the next.

    The calendar repeats every 400 years, which brings any year into the range of `date`.
    """
    cycles, of_cycle = divmod(year - 1, 400)
    return date(of_cycle + 1, month, 1).toordinal() + cycles * _CYCLE_DAYS + day - 1 - _EPOCH


def _month_of(day: int) -> int:
    """Return the month, counted from January of the year 0, in which a day since 1970-01-01 lies."""
    cycles, of_cycle = divmod(day + _EPOCH - 1, _CYCLE_DAYS)
    day_of_cycle = date.fromordinal(of_cycle + 1)
    return (day_of_cycle.year + 400 * cycles) * 12 + day_of_cycle.month - 1


def _year_of(day: int) -> int:
    return _month_of(day) // 12


_ONLY_WHEN = " ".join((*MONTHS, *_WEEKDAYS, *_SEASONS, "ago past previous", *_UNIT_DAYS, *_NUMBERS))
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
"""An expression of a day or of days in a text in lower case."""

_NAMED_GROUPS: Final = ("iso", "month", "month_first", "from_month")
_HINTS: Final = re2.compile(
    rf"\d{{4}}[-/]\d|\d\.\d{{1,2}}\.\d{{4}}|\b(?:yesterday|today|tonight|tomorrow|last\s+night|this\s+(?:morning|afternoon|evening)|{_WEEKDAY})\b"
    rf"|\bon\s+the\s+\d|\b(?:next|last|this|coming)\s+(?:week|month|year)|\b(?:{_NUMBER})\s+(?:day|week)"
    rf"|\d(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})\b|\b(?:{_MONTH})\b\.?\s+(?:the\s+)?\d|\b(?:{_LEAD})\s+(?:{_MONTH})\b".encode()
)
"""A cheap sign that a text may name a day: nearly all texts that name none are left out by one fast search."""

_OFFSETS: Final = {
    "day after tomorrow": 2,
    "tomorrow": 1,
    "yesterday": -1,
    "last night": -1,
    "day before yesterday": -2,
}
"""Days from today by word; all other words mean today."""

_SENTENCE_END: Final = re.compile(r"[!?\n]|\.(?=\s+\D)")
"""A dot before a number ends no sentence: "Mar. 12"."""
_MOST_NAMED: Final = 2 * MAX_DAYS
"""Most expressions of days that are read in a text."""
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
"""Phrases by which people tell that something becomes so on the day that they name."""
_FIRST_DAY: Final = _day_number(1, 1, 1)
_LAST_DAY: Final = _day_number(9999, 12, 31)
_MONTHS_AHEAD: Final = 8
"""A month without a year that lies further ahead is taken for the last one, unless the text tells the future."""


class _DatedSentence:
    """A sentence in lower case that works out only once, and only if asked, whether it tells the past or the future."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def is_ahead(self) -> bool:
        """Whether the sentence speaks of the future."""
        return _IN_THE_FUTURE.search(self.text) is not None

    @cached_property
    def is_past(self) -> bool:
        """Whether the sentence speaks of the past."""
        return not self.is_ahead and _IN_THE_PAST.search(self.text) is not None

    @cached_property
    def _says_will_become(self) -> bool:
        return _WILL_BECOME.search(self.text) is not None

    def meant(self, match: re.Match[str], today: int) -> Iterator[Meant]:
        """Yield the days that an expression in the sentence means."""
        is_led = match["lead"] is not None and _TO.match(self.text, match.end()) is None
        for position, (first, last) in enumerate(_possible_days(match, today, self, is_led=is_led)):
            if first >= _FIRST_DAY and last <= _LAST_DAY:
                says_begins = is_led or (
                    first > today and not self.text.endswith("to ", 0, match.start()) and self._says_will_become
                )
                yield Meant(first=first, last=last, begins=says_begins and position == 0)


def _day_expressions(text: str) -> Iterator[tuple[re.Match[str], _DatedSentence]]:
    """Yield at most `_MOST_NAMED` expressions of days in a text's first `_READ_BYTES`, with their sentences."""
    lowercase = text[:_READ_BYTES].lower().replace("\u2019", "'").encode("utf-8", "replace")[:_READ_BYTES]
    if not _HINTS.search(lowercase):
        return
    remaining = _MOST_NAMED
    for text_of_sentence in _SENTENCE_END.split(_in_iso(lowercase.decode("utf-8", "ignore"))):
        if not _HINTS.search(text_of_sentence.encode()):
            continue
        sentence = _DatedSentence(text_of_sentence)
        for match in islice(_EXPRESSION.finditer(text_of_sentence), remaining):
            remaining -= 1
            yield match, sentence


def _possible_days(
    match: re.Match[str], today: int, sentence: _DatedSentence, *, is_led: bool
) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of the days that an expression may mean, the likeliest first.

    `is_led` tells that a word such as "from" stands before it.
    """
    day: int | None = None
    if match["iso"]:
        year, month, number = map(int, match["iso"].split("-"))
        day = _valid_day(year, month, number)
    elif match["month"]:
        day = _day_in_month(match["month"], int(match["day"]), match["year"], today)
    elif match["month_first"]:
        day = _day_in_month(match["month_first"], int(match["day_last"]), match["year_last"], today)
    elif match["word"]:
        day = today + _OFFSETS.get(" ".join(match["word"].split()), 0)
    elif match["ahead"]:
        day = today + _number_of(match["ahead"]) * _UNIT_DAYS[match["ahead_unit"]]
    elif match["back"]:
        day = today - _number_of(match["back"]) * _UNIT_DAYS[match["back_unit"]]
    elif match["number"]:
        day = _day_of_some_month(int(match["number"]), today, is_past=sentence.is_past)
    elif match["weekday"]:
        if match["which"] or is_led:
            for day in _weekdays(match["which"], match["weekday"], today, sentence):
                yield day, day
        return
    elif match["period"]:
        yield _days_of_period(match["whose"], match["period"], today)
        return
    elif match["lead"]:
        yield _days_of_month(match["from_month"], match["from_year"], today, sentence)
        return
    if day is not None:
        yield day, day


def _day_in_month(name: str, number: int, year: str | None, today: int) -> int | None:
    """Return a day of a month: in the given year, else in the year where it is nearest to today; None if invalid."""
    month = _MONTH_NUMBERS[name]
    if year is not None:
        return _valid_day(int(year), month, number)
    current_year = _year_of(today)
    candidates = [
        day
        for candidate_year in (current_year - 1, current_year, current_year + 1)
        if (day := _valid_day(candidate_year, month, number)) is not None
    ]
    return min(candidates, key=lambda day: (abs(day - today), -day), default=None)


def _day_of_some_month(number: int, today: int, *, is_past: bool) -> int | None:
    """Return the next day with a number in its month, or the last one if `is_past`; today if it has that number."""
    current_month = _month_of(today)
    for month in range(current_month, current_month - 3, -1) if is_past else range(current_month, current_month + 3):
        day = _first_day_of(month) + number - 1
        if 0 < number <= _first_day_of(month + 1) - _first_day_of(month) and (
            day <= today if is_past else day >= today
        ):
            return day
    return None


def _weekdays(which: str | None, name: str, today: int, sentence: _DatedSentence) -> Iterator[int]:
    """Yield the days that a weekday may mean: "next Friday" is the coming one, or the one of next week."""
    days_ahead = (_WEEKDAYS.index(name) - (today + 3) % 7) % 7
    if which in ("last", "past", "previous") or (which == "on" and sentence.is_past):
        yield today + days_ahead - 7
    elif which == "this":
        yield today + days_ahead
    else:
        coming = today + (days_ahead or 7)
        yield coming
        if which == "next" and (coming + 3) // 7 == (today + 3) // 7:
            yield coming + 7


def _days_of_period(whose: str, unit: str, today: int) -> tuple[int, int]:
    """Return the first and the last day of the last, this or next week, weekend, month or year."""
    step = {"last": -1, "this": 0}.get(whose, 1)
    monday = today - (today + 3) % 7 + 7 * step
    if unit == "week":
        return monday, monday + 6
    if unit == "weekend":
        return monday + 5, monday + 6
    year = _year_of(today)
    if unit == "year":
        return _day_number(year + step, 1, 1), _day_number(year + step + 1, 1, 1) - 1
    month = _month_of(today) + step
    return _first_day_of(month), _first_day_of(month + 1) - 1


def _days_of_month(name: str, year: str | None, today: int, sentence: _DatedSentence) -> tuple[int, int]:
    """Return the first and the last day of a month: in the given year, else in the likeliest one."""
    if year is not None:
        month = int(year) * 12 + _MONTH_NUMBERS[name] - 1
    else:
        current_month = _month_of(today)
        months_ahead = (_MONTH_NUMBERS[name] - 1 - current_month) % 12
        is_past = months_ahead > _MONTHS_AHEAD and not sentence.is_ahead
        month = current_month + months_ahead - (12 if is_past else 0)
    return _first_day_of(month), _first_day_of(month + 1) - 1


def _first_day_of(month: int) -> int:
    """Return the first day of a month, counted from the year 0."""
    return _day_number(month // 12, month % 12 + 1, 1)


def _number_of(word: str) -> int:
    return _NUMBERS.get(word) or _short_number(word)
