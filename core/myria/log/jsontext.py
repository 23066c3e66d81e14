"""Strict JSON decoding: accepted text means the same to every reader.

RFC 8259 lets each reader decide about duplicate keys, numbers beyond double or 64 bits and lone surrogates, and
Python's reader also accepts NaN. All of them are refused here, so that what was acknowledged is what is stored.

orjson does the reading, but it silently keeps the last of duplicate keys, and turns integers beyond 64 bits into
floats. If writing the value back gives the same bytes, neither happened; most clients write JSON as orjson does. Any
other text is read a second time, by Python's reader, which tells of both.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from myria.errors import InvalidText, MalformedJson, MyriaError, PayloadTooDeep

MAX_DEPTH = 254
"""How deep any JSON text may nest; payloads have their own, smaller limit. (orjson writes no more.)"""

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_WALK_LIMIT = 200_000
_OPENING, _CLOSING = list(b"{["), list(b"}]")
_VALUE_BEGINS = list(b"{[,")
_ENVELOPE_DEPTH = 2
_SURROGATE = re.compile("[\ud800-\udfff]")


def decode(data: bytes) -> Any:
    """Decode a JSON text strictly, and return its value.

    Args:
        data: UTF-8 without a byte order mark.

    Raises:
        MalformedJson: not JSON, or duplicate keys, NaN, Infinity, numbers beyond double or integers beyond 64 bits.
        InvalidText: a lone surrogate. (NUL is legal JSON: `check_storable` refuses it where it would be stored.)
        PayloadTooDeep: nested deeper than `MAX_DEPTH`.
        The details hold the JSON path as `path` where there is one.
    """
    try:
        value = orjson.loads(data)
        written = orjson.dumps(value)
    except orjson.JSONDecodeError as error:
        raise _refusal(data, f"not JSON: {error}") from error
    except orjson.JSONEncodeError as error:
        raise _too_deep(data) from error
    if written != data and _is_ambiguous(data):
        raise _refusal(
            data, "an object has a key twice (keep one), or an integer does not fit 64 bits (send it as text)"
        )
    return value


def check_storable(value: Any, path: str) -> None:
    """Raise for the first thing in a decoded value that cannot be stored, naming its path below `path`.

    Raises:
        InvalidText: NUL or a lone surrogate, in a key or a value.
        MalformedJson: NaN, Infinity or an integer beyond 64 bits (values that did not come through `decode`).
    """
    for where, item in _walk(value, path):
        if isinstance(item, str):
            if "\x00" in item:
                raise nul(where)
            if _SURROGATE.search(item):
                raise _surrogate_refusal(where)
        else:
            _check_scalar(item, where)


def path_of_nul(value: Any, path: str) -> str | None:
    """Return the path below `path` of the first NUL in a JSON value, or None.

    Found by bisection on the written JSON: a payload may hold many thousand values.
    """
    if not _writes_nul(value):
        return None
    while isinstance(value, list | dict):
        members = list(value.items()) if isinstance(value, dict) else value
        first, last = 0, len(members)
        while last - first > 1:
            middle = (first + last) // 2
            first_half = members[first:middle]
            if _writes_nul(dict(first_half) if isinstance(value, dict) else first_half):
                last = middle
            else:
                first = middle
        if isinstance(value, dict):
            key, value = members[first]
            path = f"{path}.{key}"
            if "\x00" in key:
                return path
        else:
            path, value = f"{path}[{first}]", members[first]
    return path


def _writes_nul(value: Any) -> bool:
    # Escaped backslashes are removed first: `\\u0000` in JSON is a text with a backslash, no NUL.
    written = orjson.dumps(value)
    return b"\\u0000" in written and b"\\u0000" in written.replace(b"\\\\", b"")


def nul(where: str) -> InvalidText:
    """Return the error for text with NUL."""
    return InvalidText(f"{where} holds NUL (\\u0000), which cannot be stored; remove it", field=where)


def outline(data: bytes) -> Any:
    """Decode a refused text leniently, only to find out which request it belongs to; None if even that fails.

    Uses Python's lenient reader (last duplicate wins, NaN allowed), and cuts off what nests deeper than `MAX_DEPTH`.
    """
    try:
        return json.loads(_prune(data, MAX_DEPTH), parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def holds_more(data: bytes, values: int) -> bool:
    """Tell whether a text has more than `values` members and elements, without decoding it."""
    if sum(map(data.count, (b"{", b"[", b","))) <= values:
        return False
    raw, outside = _outside_strings(data)  # brackets and commas within strings do not count
    return int(np.count_nonzero(np.isin(raw, _VALUE_BEGINS) & outside)) > values


def envelope(data: bytes, values: int) -> Any:
    """Return the outline of a text that holds more than `values`, or None.

    A JSON-RPC message with what `params` holds directly, containers there empty. None where that is too much as well.
    """
    shallow = _prune(data, _ENVELOPE_DEPTH)
    return None if holds_more(shallow, values) else outline(shallow)


class _Duplicate:
    """Stands where an object had one key twice."""

    def __init__(self, key: str) -> None:
        self.key = key


class _NotANumber:
    """Stands where NaN, Infinity or -Infinity was written."""

    def __init__(self, text: str) -> None:
        self.text = text


def _refusal(data: bytes, otherwise: str) -> MyriaError:
    """Decode a text again with the slow reader, and return an error that says what is wrong and where.

    `otherwise` is the message if the slow reader finds nothing.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return _not_utf8(data, error)
    if text.startswith("\ufeff"):
        return MalformedJson("JSON text must not begin with a byte order mark; remove it")
    try:
        value = json.loads(text, object_pairs_hook=_object_or_duplicate, parse_constant=_NotANumber, parse_int=_integer)
    except json.JSONDecodeError as error:
        return MalformedJson(
            f"not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}",
            line=error.lineno,
            column=error.colno,
        )
    except RecursionError:
        return _too_deep(data)
    try:
        for where, item in itertools.islice(_walk(value, ""), _WALK_LIMIT):
            _check_scalar(item, where)
    except MyriaError as error:
        return error
    return MalformedJson(otherwise)


def _check_scalar(item: Any, where: str) -> None:
    if isinstance(item, str):
        if _SURROGATE.search(item):
            raise _surrogate_refusal(where)
    elif isinstance(item, _Duplicate):
        shown = _printable(f"{where}.{item.key}" if where else item.key)
        raise MalformedJson(f"the key {shown} appears twice in one object; keep one", path=shown)
    elif isinstance(item, _NotANumber):
        raise MalformedJson(
            f"{item.text} at {_printable(where)} is not JSON; send a finite number", path=_printable(where)
        )
    elif isinstance(item, float) and not math.isfinite(item):
        raise MalformedJson(f"the number at {_printable(where)} is not finite; send it as text", path=_printable(where))
    elif isinstance(item, int) and not _INT_MIN <= item <= _INT_MAX:
        raise MalformedJson(
            f"the integer at {_printable(where)} does not fit 64 bits; send it as text",
            path=_printable(where),
        )


def _is_ambiguous(data: bytes) -> bool:
    """Tell whether an object of a JSON text has a key twice, or an integer does not fit 64 bits."""
    faults: list[bool] = []

    def look_at_keys(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len({key for key, _ in pairs}):
            faults.append(True)

    def look_at_integer(digits: str) -> None:
        if len(digits) > 20 or not _INT_MIN <= int(digits) <= _INT_MAX:
            faults.append(True)

    try:
        json.loads(data, object_pairs_hook=look_at_keys, parse_int=look_at_integer)
    except RecursionError:
        return True
    return bool(faults)


def _object_or_duplicate(pairs: list[tuple[str, Any]]) -> Any:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Duplicate(key)
        seen.add(key)
    raise AssertionError("unreachable")


def _integer(text: str) -> int:
    return int(text[:21])


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, item) for every scalar and marker, and for keys that cannot be stored, in document order."""
    stack: list[tuple[str, Any]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, dict):
            children = []
            for key, child in item.items():
                below = f"{where}.{key}" if where else key
                if "\x00" in key or _SURROGATE.search(key):
                    yield below, key
                children.append((below, child))
            stack.extend(reversed(children))
        elif isinstance(item, list):
            stack.extend((f"{where}[{position}]", item[position]) for position in range(len(item) - 1, -1, -1))
        else:
            yield where, item


def _outside_strings(data: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Return the bytes with escapes replaced by `_`, and for each byte whether it is outside all strings."""
    raw = np.frombuffer(data.replace(b"\\\\", b"__").replace(b'\\"', b"__"), dtype=np.uint8)
    # A byte is outside strings if an even number of quotes comes before it.
    return raw, np.cumsum(raw == ord('"'), dtype=np.uint8) & 1 == 0


def _prune(data: bytes, depth: int) -> bytes:
    """Return JSON text without what nests deeper than `depth`; containers at that depth become empty."""
    if data.count(b"[") + data.count(b"{") <= depth:
        return data
    raw, outside = _outside_strings(data)
    depth_change = (np.isin(raw, _OPENING) & outside).astype(np.int8) - (np.isin(raw, _CLOSING) & outside)
    depth_after = np.cumsum(depth_change, dtype=np.int32)
    shallow: bytes = np.frombuffer(data, dtype=np.uint8)[
        np.minimum(depth_after, depth_after - depth_change) <= depth
    ].tobytes()
    return shallow


def _too_deep(data: bytes) -> MyriaError:
    """Return the refusal of a text that nests too deep, with the path of a container at the limit."""
    stack: list[tuple[str, Any, int]] = [("", outline(data), 1)]
    path = ""
    while stack:
        path, item, depth = stack.pop()
        if depth >= MAX_DEPTH:
            break
        if isinstance(item, dict):
            stack.extend((f"{path}.{key}" if path else key, child, depth + 1) for key, child in item.items())
        elif isinstance(item, list):
            stack.extend((f"{path}[{position}]", child, depth + 1) for position, child in enumerate(item))
    return PayloadTooDeep(
        f"the JSON text nests deeper than {MAX_DEPTH} levels at {_printable(path)}; flatten it",
        path=_printable(path),
        limit=MAX_DEPTH,
    )


def _not_utf8(data: bytes, error: UnicodeDecodeError) -> MyriaError:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return MalformedJson(f"JSON text must be UTF-8; byte {error.start} is not", offset=error.start)
    return InvalidText(f"a lone surrogate is encoded at byte {error.start}; send valid Unicode", offset=error.start)


def _surrogate_refusal(where: str) -> MyriaError:
    return InvalidText(
        f"{_printable(where)} holds a lone surrogate; send valid Unicode",
        field=_printable(where),
        path=_printable(where),
    )


def _printable(path: str) -> str:
    text = path.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\u0000")
    return (text if len(text) <= 120 else text[:117] + "...") or "the top level"
