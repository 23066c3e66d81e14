"""Checks of single fields, each naming the field it refuses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from myria.errors import InvalidArgument, InvalidText, InvalidTimestamp, MyriaError, ReservedType, UnknownField
from myria.log.names import described, unseen_character
from myria.log.payloads import TopicHint
from myria.log.synonyms import nearest

MIN_TIMESTAMP = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z in microseconds since 1970."""

MAX_TIMESTAMP = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z in microseconds since 1970."""

RESERVED_TYPES = "myria."
"""The prefix of event types that only Myria itself appends."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_EVENT_ID = re.compile(r"evt_[0-9a-f]{32}")
_HINT_FIELDS = frozenset({"hint", "confidence"})


def unknown_field(name: Any, known: Collection[str], path: str = "") -> MyriaError:
    """Return the refusal of an unknown field, with the nearest known one."""
    shown = str(name)[:100].encode("utf-8", "backslashreplace").decode("utf-8")
    field = f"{path}.{shown}" if path else shown
    meant = nearest(shown, known)
    advice = f"did you mean {meant}?" if meant else "known fields: " + ", ".join(sorted(known))
    if not known:
        advice = "it takes no fields"
    return UnknownField(f"unknown field {field}; {advice}", field=field, nearest=meant)


def refuse_unknown(given: Iterable[Any], known: Collection[str], path: str = "") -> None:
    """Raise UnknownField for the first field that is not known."""
    for name in given:
        if name not in known:
            raise unknown_field(name, known, path)


def check_type(value: str, field: str) -> str:
    """Check the type of a caller's event, and return it unchanged.

    Raises:
        ReservedType: the type is reserved for Myria's own events.
    """
    if value.startswith(RESERVED_TYPES):
        raise ReservedType(
            f"{field} begins with {RESERVED_TYPES!r}, as only types of Myria's own do; use another", field=field
        )
    return value


def parse_timestamp(value: Any, field: str = "timestamp") -> int:
    """Parse an RFC 3339 timestamp into microseconds since 1970-01-01 UTC.

    Lower-case `t` and `z`, and a space for `T`, are accepted as RFC 3339 allows (section 5.6); of up to 9 fractional
    digits those beyond microseconds are cut off. The instant must lie in the years 0001-9999, in UTC too.

    Raises:
        InvalidTimestamp: anything else, for example a missing zone or a leap second (:60).
    """
    if not isinstance(value, str):
        raise InvalidTimestamp(f"{field} must be text such as 2026-03-19T20:00:00Z", field=field)
    match = _RFC3339.fullmatch(value) if len(value) <= 40 else None
    if match is None:
        raise InvalidTimestamp(f"{field} must be an RFC 3339 timestamp such as 2026-03-19T20:00:00Z", field=field)
    day, clock, fraction, zone = match.groups()
    if zone is None:
        raise InvalidTimestamp(f"{field} has no zone; add Z or an offset such as +02:00", field=field)
    try:
        if clock > "23:59:59":
            raise ValueError("hour must be in 0..23")
        moment = datetime.fromisoformat(f"{day}T{clock}{fraction[:7] if fraction else ''}{zone.upper()}")
    except ValueError as error:
        if clock.endswith(":60"):
            raise InvalidTimestamp(
                f"{field} names a leap second (:60), which has no place in UTC microseconds; send :59", field=field
            ) from error
        reason = "its offset is a day or more" if "offset" in str(error) else error
        raise InvalidTimestamp(f"{field} is not a real date and time: {reason}", field=field) from error
    micros = (moment - _EPOCH) // _MICROSECOND
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        raise InvalidTimestamp(f"{field} leaves the years 0001-9999 when converted to UTC", field=field)
    return micros


def utc_offset_of(timestamp: str) -> int:
    """Return the offset, in minutes east of UTC, of a timestamp that `parse_timestamp` has accepted."""
    if timestamp[-1] in "Zz":
        return 0
    minutes = int(timestamp[-5:-3]) * 60 + int(timestamp[-2:])
    return -minutes if timestamp[-6] == "-" else minutes


def check_text(value: Any, field: str, limit: int) -> str:
    """Check a text of 1..limit characters that can be stored, and return it unchanged.

    Raises:
        InvalidArgument: not text.
        InvalidText: empty, too long, or with NUL or a lone surrogate.
    """
    if type(value) is not str:
        raise InvalidArgument(f"{field} must be text", field=field)
    if not value:
        raise InvalidText(f"{field} is empty; leave it out or give it a value", field=field)
    if len(value) > limit:
        raise InvalidText(f"{field} is longer than {limit} characters", field=field, limit=limit)
    if "\x00" in value:
        raise InvalidText(f"{field} holds NUL (\\u0000), which cannot be stored; remove it", field=field)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidText(f"{field} holds a lone surrogate; send valid Unicode", field=field) from error
    return value


def check_name(value: Any, field: str, limit: int) -> str:
    """Check a name as `check_text` does, refuse invisible characters in it, and return it unchanged.

    It is not normalised: two spellings of one name are two names.

    Raises:
        InvalidArgument, InvalidText: the detail `code_point` names the character, `position` its place (from 0).
    """
    name = check_text(value, field, limit)
    if not name.isascii() and (position := unseen_character(name)) is not None:
        raise InvalidText(
            f"{field} holds {described(name[position])} at position {position}, which nobody sees; remove it, or names "
            "that look alike would be different ones",
            field=field,
            code_point=f"U+{ord(name[position]):04X}",
            position=position,
        )
    return name


def check_event_id(value: Any) -> str:
    """Check an event_id as an export writes it (`evt_` and 32 hexadecimal digits), and return it unchanged.

    Raises:
        InvalidArgument: anything else.
    """
    if type(value) is str and _EVENT_ID.fullmatch(value):
        return value
    raise InvalidArgument(
        "event_id must be evt_ and 32 hexadecimal digits in lower case, as an export writes it; leave it out, and give "
        "an id of your own as source_event_key",
        field="event_id",
    )


def check_flag(value: Any, field: str) -> bool:
    """Check a boolean, and return it.

    Raises:
        InvalidArgument: not true or false.
    """
    if value is True or value is False:
        return value
    raise InvalidArgument(f"{field} must be true or false", field=field)


def parse_hints(value: Any, field: str, *, limit: int, longest: int, texts: bool) -> tuple[TopicHint, ...]:
    """Parse topic hints: objects {hint, confidence}, confidence in [0, 1].

    Args:
        limit: the most hints.
        longest: the most characters of a hint.
        texts: whether a plain text means a hint of confidence 1 (in queries).

    Raises:
        InvalidArgument, InvalidText, UnknownField: the message names the hint.
    """
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{field} must be a list of {{hint, confidence}}", field=field)
    if len(value) > limit:
        raise InvalidArgument(f"{field} may hold at most {limit} hints", field=field, limit=limit)
    return tuple(_parse_hint(item, f"{field}[{i}]", longest=longest, texts=texts) for i, item in enumerate(value))


def required(value: Mapping[str, Any], names: Iterable[str]) -> MyriaError:
    """Return the refusal for the first required field that is missing; one must be."""
    for name in names:
        if value.get(name) is None:
            return InvalidArgument(f"{name} is required", field=name)
    raise AssertionError("nothing is missing")


def _parse_hint(item: Any, field: str, *, longest: int, texts: bool) -> TopicHint:
    if texts and type(item) is str:
        return TopicHint(hint=check_text(item, field, longest), confidence=1.0)
    if not isinstance(item, dict):
        raise InvalidArgument(f"{field} must be an object {{hint, confidence}}", field=field)
    if not item.keys() <= _HINT_FIELDS:
        refuse_unknown(item, _HINT_FIELDS, field)
    for name in ("hint", "confidence"):
        if name not in item:
            raise InvalidArgument(f"{field}.{name} is required", field=f"{field}.{name}")
    hint = check_text(item["hint"], f"{field}.hint", longest)
    confidence = item["confidence"]
    if type(confidence) not in (float, int) or not 0 <= confidence <= 1:
        raise InvalidArgument(f"{field}.confidence must be a number from 0 to 1", field=f"{field}.confidence")
    return TopicHint(hint=hint, confidence=float(confidence))
