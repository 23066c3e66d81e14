"""Changing one table of a TOML text where it stands: everything else stays as it is, byte by byte.

Python reads TOML and writes none. A table under a header of its own is found by that header and replaced as lines; what
comes of it is read again, and whoever wrote it in another way is told so. Pure.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[")


class NotToml(ValueError):
    """A text is no TOML, or writes a table in a way that is not changed here; says where."""


def read(text: str) -> dict[str, Any]:
    """Return what a text says.

    Raises:
        NotToml: it is no TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotToml(str(error)) from error


def put(text: str, group: str, name: str, table: Mapping[str, Any]) -> str:
    """Return a text in which `group.name` is a table of texts, lists of texts and flat tables.

    Raises:
        NotToml: as `read`, or the table stands there without a header of its own.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{group}.{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
    written = newline.join(lines) + newline
    found = _span(text, group, name)
    if found is not None:
        changed = text[: found[0]] + written + text[found[1] :]
    else:
        begun = text if not text or text.endswith("\n") else text + newline
        changed = begun + (newline if begun.strip() else "") + written
    wanted = read(text)
    try:
        wanted.setdefault(group, {})[name] = dict(table)
        came_out = read(changed)
    except (NotToml, TypeError, AttributeError) as error:
        raise NotToml(f"{group}.{name} is written without a header [{group}.{name}] of its own") from error
    if came_out != wanted:
        raise NotToml(f"{group}.{name} is written without a header [{group}.{name}] of its own")
    return changed


def drop(text: str, group: str, name: str) -> str:
    """Return a text without the table `group.name`; unchanged where there is none.

    Raises:
        NotToml: as `put`.
    """
    wanted = read(text)
    if not isinstance(wanted.get(group), dict) or name not in wanted[group]:
        return text
    del wanted[group][name]
    found = _span(text, group, name)
    if found is None:
        raise NotToml(f"{group}.{name} is written without a header [{group}.{name}] of its own")
    before, after = text[: found[0]], text[found[1] :]
    if not after.strip():
        before, after = before.rstrip("\r\n") + ("\n" if before.strip() else ""), ""
        before = before.replace("\n", "\r\n") if "\r\n" in text and "\r\n" not in before else before
    changed = before + after
    if not wanted[group] and group not in read(changed):
        del wanted[group]
    if read(changed) != wanted:
        raise NotToml(f"{group}.{name} cannot be taken out without changing something else")
    return changed


def _span(text: str, group: str, name: str) -> tuple[int, int] | None:
    """Return where a table stands, with the tables below it, without the comments that lead what follows."""
    names = "|".join(re.escape(form) for form in {name, json.dumps(name), f"'{name}'"})
    ours = re.compile(rf"^[ \t]*\[[ \t]*{re.escape(group)}[ \t]*\.[ \t]*(?:{names})[ \t]*(?:\]|\.)")
    begin = end = at = None
    position = 0
    for line in text.splitlines(keepends=True):
        at, position = position, position + len(line)
        if _HEADER.match(line):
            if ours.match(line):
                begin = at if begin is None else begin
                end = position
                continue
            if begin is not None:
                break
        if begin is not None and line.strip() and not line.lstrip().startswith("#"):
            end = position
    return None if begin is None or end is None else (begin, end)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    """Return a value in TOML; the escapes of JSON's texts are those of TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
