"""Timestamps at the database edge: integer microseconds since 1970 UTC inside, aware datetimes on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(microseconds: int) -> datetime:
    """Return the aware UTC datetime of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Return microseconds since 1970 of an aware datetime, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def offset_in(zone: ZoneInfo | None, microseconds: int) -> int:
    """Return how many minutes east of UTC a zone's clocks are at a moment since 1970; 0 without a zone."""
    offset = None if zone is None else to_datetime(microseconds).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds() // 60)


def rfc3339_of(moment: datetime, utc_offset: int | None = 0) -> str:
    """Return the RFC 3339 text of an aware datetime, without superfluous digits.

    Args:
        utc_offset: minutes east of UTC of the clock that the text shows; 0 or None, as the log may have it, for UTC.
    """
    if utc_offset and (local_moment := _at_offset(moment, utc_offset)) is not None:
        # The offset, "+02:00", is six characters.
        text, zone = local_moment.isoformat()[:-6], local_moment.isoformat()[-6:]
    else:
        text = (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat()[: -len("+00:00")]
        zone = "Z"
    return (text.rstrip("0") if "." in text else text) + zone


def rfc3339_or_none(moment: datetime | None) -> str | None:
    """Return the RFC 3339 text of an aware datetime in UTC; None where there is none."""
    return None if moment is None else rfc3339_of(moment)


@lru_cache(maxsize=8192)
def to_rfc3339(microseconds: int, utc_offset: int = 0) -> str:
    """Return the RFC 3339 text of microseconds since 1970, without superfluous digits; see `rfc3339_of`."""
    return rfc3339_of(to_datetime(microseconds), utc_offset)


def day_text(day: int) -> str:
    """Return a day since 1970 as `2026-06-01`."""
    return to_rfc3339(day * 86_400_000_000)[:10]


def _at_offset(moment: datetime, utc_offset: int) -> datetime | None:
    """Return a moment at an offset from UTC, in minutes; None where that would leave the years 1 to 9999."""
    try:
        return moment.astimezone(timezone(timedelta(minutes=utc_offset)))
    except OverflowError:
        return None
