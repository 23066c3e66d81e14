"""Timestamps at the database edge: integer microseconds since 1970 UTC inside, aware datetimes on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(microseconds: int) -> datetime:
    """Return the aware UTC datetime of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Return microseconds since 1970 of an aware datetime, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def rfc3339_of(moment: datetime) -> str:
    """Return the RFC 3339 text of an aware datetime, in UTC, without superfluous digits."""
    text = (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat()[: -len("+00:00")]
    return (text.rstrip("0") if "." in text else text) + "Z"


@lru_cache(maxsize=8192)
def to_rfc3339(microseconds: int) -> str:
    """Return the RFC 3339 text of microseconds since 1970, in UTC, without superfluous digits."""
    return rfc3339_of(to_datetime(microseconds))
