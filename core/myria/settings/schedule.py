"""Cron expressions, in UTC: when something was last due."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

from myria.errors import ConfigurationError

_FIELDS = 5
_SOME_DAY = datetime(2026, 1, 1)  # noqa: DTZ001 - from where on an expression is looked at for a due time


def check(expression: str, field: str) -> None:
    """Refuse a text that is no cron expression of five fields, or is never due.

    Raises:
        ConfigurationError: the message says what is wrong, and names the setting.
    """
    try:
        if len(expression.split()) != _FIELDS:
            raise CronSimError("five fields are needed")
        next(CronSim(expression, _SOME_DAY))
    except (CronSimError, StopIteration) as error:
        raise ConfigurationError(
            f"{field}: {expression!r} is no cron expression ({str(error) or 'it is never due'}); write minute, hour, "
            "day of month, month and day of week, such as '0 3 * * SUN' for Sundays at 03:00 UTC.",
            field=field,
        ) from error


def last_due(expression: str, now: datetime) -> datetime | None:
    """Return the last moment at or before `now` at which an expression was due; None when it never was.

    `now` is aware and in UTC, and so is the answer.
    """
    after_now = now.replace(microsecond=0) + timedelta(seconds=1)
    return next(CronSim(expression, after_now, reverse=True), None)
