"""Reads forms, and what their fields and an address say: texts, numbers, ids, and moments as browsers write them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

from starlette.requests import Request

from myria.errors import InvalidArgument, InvalidTimestamp

FORM_BYTES = 256 * 1024
"""Bytes of a form: a note of 10,000 characters takes up to 120,000, as browsers write them."""

FORM_S = 30.0
"""Seconds within which a form must have arrived."""

_MOST_FIELDS = 100

_KEPT = 2_000
"""Characters that are kept of each field of a form that is too large."""

_NO_TEXT = "\N{REPLACEMENT CHARACTER}"

_MAX_ID = 200
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?")

_MOST_DIGITS = 18
"""Of a number that PostgreSQL's bigint surely holds: ids may have as many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentForm:
    """The fields of a form, as far as they can be read; `refusal` says why nothing can be done with it, if so."""

    fields: Mapping[str, str]
    refusal: InvalidArgument | None = None


async def form_of(request: Request) -> SentForm | None:
    """Return a form that was sent; None where the body is none, or too late."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for part in request.stream():
                body += part
                if len(body) > FORM_BYTES:
                    return _too_large(body[:FORM_BYTES])
    except TimeoutError:
        return None
    try:
        return SentForm(fields=_fields(body, "strict"))
    except UnicodeDecodeError:
        fields = _fields(body, "replace")
        name = next((name for name, value in fields.items() if _NO_TEXT in value), "")
        refusal = InvalidArgument(f"{name} holds bytes that are no text in UTF-8. Type it again.", field=name)
        return SentForm(fields=fields, refusal=refusal)
    except ValueError:
        return SentForm(fields={}, refusal=InvalidArgument(f"A form takes {_MOST_FIELDS} fields."))


def _too_large(body: bytes) -> SentForm:
    """Return the beginning of a form that is too large, and the refusal of its longest field."""
    try:
        fields = _fields(body, "replace")
    except ValueError:
        fields = {}
    name = max(fields, key=lambda name: len(fields[name]), default="")
    message = f"{name} is too long: a form takes {FORM_BYTES // 1024} KiB. Its beginning is kept."
    kept = {field: value[:_KEPT] for field, value in fields.items()}
    return SentForm(fields=kept, refusal=InvalidArgument(message, field=name))


def _fields(body: bytes, errors: str) -> dict[str, str]:
    text = body.decode("ascii", errors)
    return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors=errors))


def text_of(text: str | None) -> str:
    """Return the text in a field without NUL, which PostgreSQL cannot compare with anything."""
    return (text or "").replace("\0", "").strip()


def whole_number_of(text: str | None) -> int:
    """Return the whole number that an address holds, 0 for anything else."""
    number = number_of(text, default=0)
    return number if isinstance(number, int) else 0


def number_of(text: str | None, *, default: int) -> int | str:
    """Return the whole number in a field, `default` where it is empty.

    Any other text is returned as it is, for the tool to refuse.
    """
    text = (text or "").strip()
    if not text:
        return default
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else text


def moment_of(text: str | None) -> str:
    """Return the moment in a field as RFC 3339 has it: a browser's date, or its date and time, count as UTC."""
    text = (text or "").strip()
    match = _LOCAL.fullmatch(text)
    if match is None:
        return text
    if match[1] is None:
        return text + "T00:00:00Z"
    return text + ("Z" if match[2] is not None else ":00Z")


def time_of(text: str | None, field: str) -> datetime | None:
    """Return the moment in a field, in UTC; None where it is empty.

    Raises:
        InvalidTimestamp: it is none.
    """
    written = moment_of(text)
    if not written:
        return None
    try:
        moment = datetime.fromisoformat(written)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"{field} is no date, and no date with a time of day, such as 2026-03-04T16:00:00Z"
        raise InvalidTimestamp(message, field=field) from error


def browser_moment(text: str, *, is_end: bool = False) -> str | None:
    """Return a moment (RFC 3339) as a browser's field takes it: in UTC, and of milliseconds; None where it is none.

    It is rounded so that a time that begins or ends with it gets no shorter.

    Args:
        is_end: a time ends with it.
    """
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
        beyond = timedelta(microseconds=moment.microsecond % 1000)
        if beyond:
            moment += timedelta(milliseconds=1 if is_end else 0) - beyond
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds").removesuffix(".000")


def id_of(text: str) -> str:
    """Return the id that an address holds.

    Raises:
        InvalidArgument: nothing has such an id.
    """
    if not text.isprintable() or len(text) > _MAX_ID:
        raise InvalidArgument("This address holds no id. It may be cut off: follow a link on another page.", field="id")
    return text
