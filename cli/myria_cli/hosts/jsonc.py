"""JSON with comments, as hosts keep their settings: read it, and change values without touching the rest of the text.

No maintained library for Python preserves such a text to the byte, so the standard library's parser finds the places to
change. Comments and trailing commas are first replaced by spaces, which leaves JSON of the same length ("plain" text).

A new part goes to the front of its object or list. There no comma or comment of others has to move, and removing the
part restores the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|[\[{{,]\s*,|,(?=\s*[}}\]])", re.DOTALL)
"""Matches a trailing comma alone. A comma after no part is matched with what precedes it, and stays: an error."""

_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)\S")


class PlacedPart(NamedTuple):
    """A member of an object, or an element of a list: its key or number, where it begins, and where its value lies."""

    key: str | int
    start: int
    value: int
    end: int


class Splice(NamedTuple):
    """A replacement for the piece of a text from `start` to `end`."""

    start: int
    end: int
    text: str


def read(text: str) -> Any:
    """Parse a text; an empty one, or one of comments alone, is an empty object.

    Raises:
        ValueError: it is no JSON, or names a key twice.
        RecursionError: it is nested too deeply.
    """
    try:
        return _JSON.decode(text)  # hosts keep megabytes of history in theirs, and few have comments
    except ValueError:
        plain = _plain(text)
        return _JSON.decode(plain) if plain.strip() else {}


def edited(text: str, wanted: Any) -> str:
    """Change a text so that it parses as `wanted`. Parts that are already right keep their bytes.

    Raises:
        ValueError: as `read`.
    """
    plain = _plain(text)
    if not plain.strip():
        return text + json.dumps(wanted, ensure_ascii=False, indent=2) + "\n" if wanted else text
    while (splice := _splice(text, plain, _after_space(plain, 0), wanted)) is not None:
        text = text[: splice.start] + splice.text + text[splice.end :]
        plain = _plain(text)
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated_key = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated_key[:40]!r} comes twice")
    return members


_JSON = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_without_twins)


def _plain(text: str) -> str:
    """Return a text of the same length in which spaces replace comments and trailing commas."""
    text = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\r\n]", " ", found[0]), text)
    return _COMMA.sub(lambda found: " " if found[0] == "," else found[0], text)


def _after_space(plain: str, at: int) -> int:
    found = _SPACE.match(plain, at)
    return found.end() if found else at


def _parts(plain: str, at: int) -> Iterator[PlacedPart]:
    """Yield the parts of the object or list that begins at `at`."""
    is_object, number = plain[at] == "{", 0
    at = _after_space(plain, at + 1)
    while plain[at] not in "}]":
        key, start = number, at
        if is_object:
            key, at = _JSON.raw_decode(plain, at)
            at = _after_space(plain, _after_space(plain, at) + 1)  # past the colon
        _, end = _JSON.raw_decode(plain, at)
        yield PlacedPart(key, start, at, end)
        at = _after_space(plain, end)
        if plain[at] == ",":
            at = _after_space(plain, at + 1)
        number += 1


def _splice(text: str, plain: str, at: int, wanted: Any) -> Splice | None:
    """Return the next replacement that brings the value at `at` nearer to `wanted`; None if it is equal."""
    value, end = _JSON.raw_decode(plain, at)
    if value == wanted:
        return None
    if type(value) is type(wanted) and isinstance(value, dict | list):
        parts = list(_parts(plain, at))
        for number, part in enumerate(parts):
            if isinstance(value, list):
                is_wanted = value[number] in wanted
            else:
                is_wanted = part.key in wanted
                if is_wanted and value[part.key] != wanted[part.key]:
                    return _splice(text, plain, part.value, wanted[part.key])
            if not is_wanted:
                return _removal(text, plain, at, parts, number)
        missing = [part for part in wanted if part not in value]
        if missing:  # the last first: each goes to the front
            return _insertion(text, at, parts, missing[-1], wanted)
    return Splice(at, end, _written(text, wanted, _indent_at(text, at)))


def _insertion(text: str, at: int, parts: list[PlacedPart], key: Any, wanted: Any) -> Splice:
    """Return the replacement that adds a part to the front of the object or list that begins at `at`."""
    name, value = (f"{json.dumps(key, ensure_ascii=False)}: ", wanted[key]) if isinstance(wanted, dict) else ("", key)
    newline, outer = _newline(text), _indent_at(text, at)
    if not parts:
        inner = outer + _unit(text)
        written = f"{newline}{inner}{name}{_written(text, value, inner)}{newline}{outer}"
    elif "\n" in text[at : parts[0].start]:
        inner = _indent_at(text, parts[0].start)
        written = f"{newline}{inner}{name}{_written(text, value, inner)},"
    else:
        written = f"{name}{json.dumps(value, ensure_ascii=False)},"
    return Splice(at + 1, at + 1, written)


def _removal(text: str, plain: str, at: int, parts: list[PlacedPart], number: int) -> Splice:
    """Return the replacement that removes a part of the object or list at `at`, with the comma that becomes surplus."""
    part = parts[number]
    end = part.end
    start = len(plain[: part.start].rstrip())
    if text[start : part.start].strip():  # a comment
        start = part.start
    if number + 1 < len(parts):
        return Splice(start, plain.index(",", end) + 1, "")
    if number:
        comma = plain.index(",", parts[number - 1].end)
        return Splice(comma, end, text[comma + 1 : start])
    if text[end:].lstrip().startswith(","):  # behind the last part
        end = text.index(",", end) + 1
    if text.startswith(_newline(text) + _indent_at(text, at), end):
        end += len(_newline(text) + _indent_at(text, at))
    return Splice(start, end, "")


def _written(text: str, value: Any, indent: str) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return written.replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return the indentation unit of a text: that of its first indented line."""
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _indent_at(text: str, at: int) -> str:
    """Return the white space at the beginning of the line that contains the position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]
