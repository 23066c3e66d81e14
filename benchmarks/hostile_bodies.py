"""Request bodies made to cost much: a tool call whose arguments are of a shape and a size."""

from __future__ import annotations

from collections.abc import Callable

NAME = "myria_append_events"

SHAPES: dict[str, Callable[[int], bytes]] = {
    "duplicate_key": lambda size: b'{"events":[' + b'{"a":"b"},' * (size // 10) + b'{"a":1,"a":1}]}',
    "duplicate_keys": lambda size: b"{" + b'"a":1,' * (size // 6) + b'"a":1}',
    "empty_objects": lambda size: b'{"events":[' + b"{}," * (size // 3) + b"{}]}",
    "unknown_fields": lambda size: b"{" + b",".join(b'"field_%d":%d' % (n, n) for n in range(size // 21)) + b"}",
    "deep": lambda size: b'{"events":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    "deep_objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "long_number": lambda size: b'{"events":[' + b"9" * size + b"]}",
    "long_fraction": lambda size: b'{"events":[0.' + b"9" * size + b"]}",
    "many_long_numbers": lambda size: b'{"events":[' + (b"9" * 400 + b",") * (size // 401) + b"1]}",
    "bad_utf8": lambda size: b'{"events":["' + b"a" * size + b'\xff"]}',
    "bad_utf8_each": lambda size: b'{"events":[' + b'"\xff",' * (size // 4) + b'"a"]}',
    "lone_surrogates": lambda size: b'{"events":[' + b'"\\ud800",' * (size // 9) + b'"a"]}',
    "huge_text": lambda size: b'{"events":["' + b"a" * size + b'"]}',
    "escapes": lambda size: b'{"events":["' + b"\\u00e9" * (size // 6) + b'"]}',
    "unfinished": lambda size: b'{"events":[' + b'{"a":[' * (size // 6),
    "text": lambda size: b"}" * size,
    "nothing": lambda size: b"\x00" * size,
    "small_events": lambda size: b'{"events":[' + b'{"channel":"c"},' * (size // 16) + b"{}]}",
}


def hostile(shape: str, size: int, *, call_first: bool = True) -> bytes:
    """Return a tool call whose arguments are of a shape and about `size` bytes."""
    arguments = SHAPES[shape](size)
    if call_first:
        return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%s","arguments":%s}}' % (
            NAME.encode(),
            arguments,
        )
    return b'{"params":{"arguments":%s,"name":"%s"},"method":"tools/call","id":7,"jsonrpc":"2.0"}' % (
        arguments,
        NAME.encode(),
    )
