"""Lengths of time as people write them: `90s`, `30m`, `12h`, `30d`, `8w`, or ISO 8601 (`P30D`, `PT12H`)."""

from __future__ import annotations

import re
from datetime import timedelta

from pydantic import TypeAdapter, ValidationError

from myria.errors import InvalidArgument

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SHORT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")
_ISO = TypeAdapter(timedelta)


def parse_duration(text: str, field: str) -> float:
    """Parse a length of time, and return it in seconds.

    Raises:
        InvalidArgument: the text is not a length of time.
    """
    match = _SHORT.fullmatch(text.strip())
    if match is not None:
        return float(match[1]) * _UNITS[match[2]]
    try:
        if text.startswith("P"):
            return _ISO.validate_python(text).total_seconds()
    except (ValidationError, OverflowError):
        pass
    raise InvalidArgument(f"{field} must be a length of time such as 90s, 30m, 12h, 30d, 8w or P30D", field=field)
