"""A wall clock that is wrong by WRONG_CLOCK_S seconds, for a Python process that has this folder on its PYTHONPATH.

What a process reads as wall-clock time is shifted: `time.time`, `time.time_ns`, and the present of `datetime`. The
monotonic clock goes on as it does on a machine whose time was set wrong. Nothing outside of Python is shifted.
"""

from __future__ import annotations

import datetime as datetimes
import os
import time
from typing import Any

_SHIFT_S = int(os.environ.get("WRONG_CLOCK_S", "0"))
_Real = datetimes.datetime
_real_time, _real_time_ns = time.time, time.time_ns


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _Real)


class _Datetime(_Real, metaclass=_AnyDatetime):
    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        return _Real(*arguments, **named)

    @classmethod
    def now(cls, tz: datetimes.tzinfo | None = None) -> Any:
        return _Real.now(tz) + datetimes.timedelta(seconds=_SHIFT_S)

    @classmethod
    def utcnow(cls) -> Any:
        return _Real.now(datetimes.UTC).replace(tzinfo=None) + datetimes.timedelta(seconds=_SHIFT_S)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


if _SHIFT_S:
    time.time = lambda: _real_time() + _SHIFT_S
    time.time_ns = lambda: _real_time_ns() + _SHIFT_S * 1_000_000_000
    datetimes.datetime = _Datetime  # type: ignore[misc]
