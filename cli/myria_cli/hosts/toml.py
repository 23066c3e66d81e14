"""TOML, as hosts keep their settings: read it, and change tables of a group without touching the rest.

The standard library reads TOML but does not write it. tomlkit does both, but it puts a new table after the comment that
introduces the next one, removes that comment together with a table, and writes its own line ends. So here a table is
found by its header and removed line by line; a new one goes to the end. The caller parses the result to check it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

read = tomllib.loads


def edited(text: str, wanted: Json) -> str:
    """Change a text so that its groups of tables parse as `wanted`. Tables that are already right keep their bytes.

    Raises:
        ValueError: the text is no TOML, or a table to remove has no header of its own.
    """
    data = read(text)
    for group in [name for name in {**data, **wanted} if data.get(name, {}) != wanted.get(name, {})]:
        before, after = data.get(group, {}), wanted.get(group, {})
        for name in [name for name in {**before, **after} if before.get(name) != after.get(name)]:
            if name in before:
                text = _without(text, group, name)
            if name in after:
                written = table_text(group, name, after[name]).replace("\n", _newline(text))
                text = text + _newline(text) + written if text else written
    return text


def table_text(group: str, name: str, table: Json) -> str:
    """Return a table as text, with its header."""
    lines = [f"[{group}.{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    """Return a string, number, list of them or flat table as TOML, whose strings have the same escapes as JSON's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _without(text: str, group: str, name: str) -> str:
    """Remove a table and its sub-tables from a text. Comments that introduce the next table stay."""
    names = "|".join(re.escape(form) for form in (name, json.dumps(name), f"'{name}'"))
    header_of_table = re.compile(rf"[ \t]*\[[ \t]*{re.escape(group)}[ \t]*\.[ \t]*(?:{names})[ \t]*(?:\]|\.)")
    start = end = None
    position = 0
    for line in text.splitlines(keepends=True):
        at, position = position, position + len(line)
        if header_of_table.match(line):
            start = at if start is None else start
        elif start is not None and line.lstrip().startswith("["):
            break
        if start is not None and line.strip() and not line.lstrip().startswith("#"):
            end = position
    if start is None:
        raise ValueError(f"{group}.{name} is written without a header [{group}.{name}] of its own")
    newline = _newline(text)
    if not text[end:] or text[:start].endswith(2 * newline):  # `edited` put a line end before the table
        start -= len(newline) if text[:start].endswith(newline) else 0
    return text[:start] + text[end:]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
