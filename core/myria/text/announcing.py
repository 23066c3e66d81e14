"""Days from which on something holds, as texts in languages other than English say them: "ab dem 1. Januar 2028".

They are put into the words of `myria.text.dates`, which reads English alone. For what is compared on reading, and
for headings that tell a latest state; search blocks say of such a text what they always said. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from myria.text.dates import MONTHS, holds_from, local_day, meant

_READ: Final = 2_000
"""Characters of a text that are read: an announcement tells its day early."""

_MONTHS: Final = {
    name: english
    for names in (
        "januar februar märz april mai juni juli august september oktober november dezember",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "januari februari maart april mei juni juli augustus september oktober november december",
        "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    )
    for name, english in zip(names.split(), MONTHS, strict=True)
}
MONTH: Final = "|".join(sorted(_MONTHS, key=lambda name: (-len(name), name)))
"""An expression that matches the name of a month in these languages, in lower case."""

_LEAD: Final = r"ab(?:\s+dem)?|à\s+partir\s+du|dès\s+le|a\s+partir\s+del?|desde\s+el|dal|dall'|vanaf|с"
_BEGINNING: Final = re.compile(
    rf"(?<!\w)(?:{_LEAD})\s*(?P<day>\d{{1,2}})(?:\.|er|º|ro)?\s+(?:de\s+)?(?P<month>{MONTH})(?!\w)"
    r"(?:\s+(?:de\s+)?(?P<year>\d{4}))?"
    r"|(?:从|從|自)?(?P<cjk_year>\d{4})年(?P<cjk_month>\d{1,2})月(?P<cjk_day>\d{1,2})日(?:起|から)",
    re.IGNORECASE,
)


def announces(text: str) -> bool:
    """Tell whether a text in one of these languages names a day from which on something holds."""
    return _BEGINNING.search(text[:_READ]) is not None


def _with_english_beginnings(text: str) -> str:
    """Return a text with its "from a day on" in English, for `myria.text.dates`; most texts stay as they are."""
    return _BEGINNING.sub(_in_english, text[:_READ]) + text[_READ:]


def holds_later(text: str, *, at: int, utc_offset: int = 0, now: int) -> int | None:
    """Return the future day (since 1970) from which on a text's statement holds; None if it holds now.

    Args:
        at: when the text was told, in microseconds since 1970 UTC.
        utc_offset: minutes east of UTC at the place where the text was told.
        now: the time that counts as now, in microseconds since 1970 UTC.
    """
    first_day = holds_from(meant(_with_english_beginnings(text), local_day(at, utc_offset)))
    return None if first_day is None or first_day <= local_day(now, utc_offset) else first_day


def _in_english(match: re.Match[str]) -> str:
    if match["cjk_year"]:
        return f" from {match['cjk_year']}-{match['cjk_month']}-{match['cjk_day']} "
    year = f" {match['year']}" if match["year"] else ""
    return f"from {match['day']} {_MONTHS[match['month'].lower()]}{year}"
