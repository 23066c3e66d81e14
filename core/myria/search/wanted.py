"""What kind of answer a question wants: a time, a name, how something is or was, or what has changed.

Told by English words. Of other languages it is told only that a question asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from myria.index.block import FAR_AWAY
from myria.text import terms
from myria.text.asking import asks
from myria.text.dates import DAY_US, Window
from myria.text.languages import languages_of

_ASKS_WHEN: Final = re.compile(
    r"(?:^|[.!?;:,]\s+|\bknow |\btell me )(?:since |until )?"
    r"(?:when\b|how long\b|(?:in |on )?(?:what|which) (?:date|day|week|month|year|time|season)s?\b)",
    re.IGNORECASE,
)


_ASKS_NAME: Final = re.compile(
    r"\b(?:which|where|who|whose)\b|\b(?:what|name)\s(?:\w+\s){0,3}(?:names?|kinds?|types?|sorts?|books?|games?|movies?|films?"
    r"|countr(?:y|ies)|cit(?:y|ies)|towns?|states?|places?|songs?|bands?|brands?|makes?|models?|titles?|artists?|authors?"
    r"|shows?|compan(?:y|ies)|restaurants?|hotels?|holidays?|series|called|teams?|stores?|shops?|events?|schools?)\b",
    re.IGNORECASE,
)

_ASKS_HELP: Final = re.compile(
    r"\b(?:how (?:do|can|should|could|would|to)|(?:can|could|would) you|should|suggest|recommend|(?:help|show) me"
    r"|explain)\b",
    re.IGNORECASE,
)

State = Literal["present", "before", "change"]
"""What a question wants to know of something that may have changed."""

_BEFORE: Final = re.compile(
    r"\b(?:before|previous(?:ly)?|original(?:ly)?|first|earlier|former(?:ly)?|initial(?:ly)?|used? to|at the time"
    r"|back then|(?:the|my|our|your|his|her|its|their|['\u2019]s) old)\b",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(
    r"\b(?:chang\w*|switch\w*|happened (?:to|with)|differ\w*|renamed|rescheduled|replaced|another|moved|became"
    r"|(?:has|have|had|did) (?:\w+ ){0,3}become|no longer)\b",
    re.IGNORECASE,
)
_AT_PRESENT: Final = re.compile(
    r"\b(?:(?:as of|right|just) (?:now|today)|at (?:the moment|present|this (?:point|time|moment))|(?:in )?these days"
    r"|nowadays|current(?:ly)?(?=\W*$| \w))\b",
    re.IGNORECASE,
)
_TO_COME: Final = re.compile(
    r"\b(?:will|going to|soon|plan(?:s|ned)?|upcoming|from when|future|announced)\b"
    r"|\bwhen\b.{0,60}\b(?:start|begin|change|move|switch|become|join|leave|take effect)",
    re.IGNORECASE,
)
"""Words of questions for what is to come: what was announced answers them, whenever it holds."""
_HAS_DONE: Final = re.compile(r"(?:(?!\b(?:do|does|must|should)\b).)*\b(?:has|have)\b", re.IGNORECASE | re.DOTALL)
_PAST: Final = re.compile(
    r"\b(?:did|was|were|had)\b"
    r"|\b(?:what|who)\s(?:\w{2,}ed|made|led|got|gave|took|went|came|said|told|won|brought|began)\b",
    re.IGNORECASE,
)


def wants_time(text: str) -> bool:
    """Tell whether the answer to a question is a time."""
    return _ASKS_WHEN.search(text) is not None


def wants_name(text: str) -> bool:
    """Tell whether the answer to a question is likely a name."""
    return _ASKS_NAME.search(text) is not None


def wants_help(text: str) -> bool:
    """Tell whether a question wants something done or advised, for which a standing wish may hold."""
    return _ASKS_HELP.search(text) is not None


def wants_what_was_done(text: str) -> bool:
    """Tell whether a question asks what has been done ("has sold"): no state, as "does he have" asks for one."""
    return _HAS_DONE.match(text) is not None


def without_present(text: str) -> str:
    """Return a question without words that only say that it asks for the present; they name no day either."""
    return _AT_PRESENT.sub(" ", text)


def state_asked_for(text: str) -> State | None:
    """Return what a question wants to know of something that may have changed; None for words that are looked up.

    Questions in other languages than English count as for the present.
    """
    if not asks(text):
        return None
    if languages_of(text, terms(text)):
        return "present"
    if _BEFORE.search(text):
        return "before"
    if _CHANGE.search(text):
        return "change"
    return None if _PAST.search(text) else "present"


def day_asked_for(text: str, meant: Iterable[Window], today: int) -> int:
    """Return the day (since 1970) on which what a question asks for holds: that which it names, else today.

    Args:
        meant: the windows that it means.
    """
    return FAR_AWAY if _TO_COME.search(text) else max(map(_last_day, meant), default=today)


def _last_day(window: Window) -> int:
    return window.last if window.last >= window.first else window.end // DAY_US - 1
