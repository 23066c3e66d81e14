"""Arrays of PostgreSQL as text, for statements that take many rows and cast it (`$2::text::bigint[]`).

asyncpg looks at each element of a list several times, for a microsecond in all: what costs more than the row it is of.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson


def texts(values: Sequence[str | None]) -> str:
    """Return an array of texts, whatever they hold; None is NULL."""
    if None not in values:
        known: Sequence[str] = values  # type: ignore[assignment]
        every = "".join(known)
        if '"' not in every and "\\" not in every:
            return '{"' + '","'.join(known) + '"}' if known else "{}"
    return "{" + ",".join("NULL" if value is None else _quoted(value) for value in values) + "}"


def plain(values: Sequence[int]) -> str:
    """Return an array of whole numbers of 64 bits, or of truth values."""
    return "{" + orjson.dumps(values).decode()[1:-1] + "}"


def plains(values: Sequence[Sequence[int]]) -> str:
    """Return an array of what `plain` returns of each."""
    return "{" + orjson.dumps(values).decode()[1:-1].replace("[", '"{').replace("]", '}"') + "}"


def byte_strings(values: Sequence[bytes | None]) -> str:
    """Return an array of byte strings; None is NULL."""
    if None not in values:
        known: Sequence[bytes] = values  # type: ignore[assignment]
        return "{\\\\x" + ",\\\\x".join(map(bytes.hex, known)) + "}" if known else "{}"
    return "{" + ",".join(["NULL" if value is None else f"\\\\x{value.hex()}" for value in values]) + "}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
