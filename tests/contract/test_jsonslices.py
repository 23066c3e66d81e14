"""Big JSON texts decoded in steps: the same value or refusal as at one go, by bounded work."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.errors import MyriaError
from myria.log import jsonslices, jsontext
from myria.log.jsonslices import SLICE, JsonBounds, Refused
from tests.contract.test_jsontext import VALUES

MEBIBYTE = 1024 * 1024
FEW = JsonBounds(values=10_000)
HEAD = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"myria_append_events","arguments":'


def steps(data: bytes, bounds: JsonBounds = FEW) -> tuple[Any, list[int]]:
    """Return the value, or what refused the text, and how many bytes each step worked on."""
    work: list[int] = []
    decoding = jsonslices.decode(data, bounds)
    try:
        while True:
            work.append(next(decoding))
    except StopIteration as end:
        return end.value, work
    except Refused as refused:
        return refused, work


TINY = st.sampled_from([1, 7, 40])
"""Slices of so few bytes that every cut is met."""


def in_tiny_steps(data: bytes, tiny: int) -> Any:
    """Return the value, or what refused the text, when slices are so small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonslices, "SLICE", tiny)
        return steps(data)[0]


@given(tiny=TINY, value=VALUES, indent=st.sampled_from([None, 2]), ascii_only=st.booleans())
def test_slices_give_the_value(tiny: int, value: Any, indent: int | None, ascii_only: bool) -> None:
    """Wherever a text is cut, the value is that of the whole."""
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert in_tiny_steps(data, tiny) == value


@given(tiny=TINY, value=VALUES, seed=st.integers(0, 2**32))
def test_what_is_damaged_is_refused_alike(tiny: int, value: Any, seed: int) -> None:
    """A text with some bytes replaced, dropped or doubled is refused in slices exactly when it is refused whole."""
    data = bytearray(json.dumps([value, {"key": value}], ensure_ascii=False).encode())
    chosen = random.Random(seed)
    for _ in range(chosen.randint(1, 3)):
        at = chosen.randrange(len(data))
        cut = chosen.randint(0, 2)
        data[at : at + cut] = bytes(chosen.choices(b'{}[],:"\\ 0a\n\xff', k=chosen.randint(0, 2)))
        if not data:
            return
    try:
        whole: Any = jsontext.decode(bytes(data))
    except MyriaError:
        assert isinstance(in_tiny_steps(bytes(data), tiny), Refused), bytes(data)
    else:
        assert in_tiny_steps(bytes(data), tiny) == whole


@pytest.mark.parametrize("tiny", [1, 7, 40])
@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ('{"a":1,"b":[1,2,3],"a":2}', "malformed_json", "a"),
        ('{"p":[{},{"k":1,"k":1}]}', "malformed_json", "p[1].k"),
        ('{"p":[0,1,2,3,4,-Infinity]}', "malformed_json", "p[5]"),
        ('{"p":[0,1,{"q":[18446744073709551616]}]}', "malformed_json", "p[2].q[0]"),
        ('{"p":{"q":["\\ud800"]}}', "invalid_text", "p.q[0]"),
    ],
)
def test_a_refusal_names_the_place(tiny: int, text: str, code: str, path: str) -> None:
    """The path is that in the whole text, wherever it was cut."""
    refused = in_tiny_steps(text.encode(), tiny)
    assert (refused.error.code, refused.error.details["path"]) == (code, path)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "containers": lambda size: b"[" + b"{}," * (size // 3) + b"1]",
    "duplicates": lambda size: b"{" + b'"a":1,' * (size // 6) + b'"a":1}',
    "fields": lambda size: b"{" + b",".join(b'"field_%d":%d' % (n, n) for n in range(size // 20)) + b"}",
    "deep": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "digits": lambda size: b"[" + b"9" * size + b"]",
    "text": lambda size: b'["' + b"a" * size + b'"]',
    "backslashes": lambda size: b'["' + b"\\" * size + b'"]',
    "unfinished": lambda size: b'["' + b'\\"' * (size // 2),
    "closed": lambda size: b"]" * size,
}


@pytest.mark.parametrize("within_a_call", [False, True])
@pytest.mark.parametrize("shape", sorted(HOSTILE))
def test_what_is_too_much_is_refused_before_anything_is_made_of_it(shape: str, within_a_call: bool) -> None:
    """Four MiB of anything: scanned in slices, never decoded, within memory of a fixed size, and the call is known."""
    data = HOSTILE[shape](4 * MEBIBYTE)
    if within_a_call:
        data = HEAD + data + b"}}"
    tracemalloc.start()
    refused, work = steps(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert refused.error.code in {"body_too_large", "payload_too_deep", "malformed_json"}
    assert max(work) <= SLICE + 1
    assert sum(work) <= len(data) + len(work)
    assert peak < 4 * MEBIBYTE
    if within_a_call and shape not in {"unfinished", "closed"}:
        assert refused.outline["id"] == 7
        assert refused.outline["params"] == {"name": "myria_append_events"}
        assert refused.error.details["path"].startswith("params.arguments")


def test_no_step_decodes_more_than_a_slice() -> None:
    """A legitimate batch of 500 events near the largest body: every step is a slice, or one longer event's text."""
    events = [{"channel": "c", "participants": ["a", "b"], "payload": {"text": "é" * 15_000}} for _ in range(500)]
    data = json.dumps({"events": events}, ensure_ascii=False).encode()
    value, work = steps(data, JsonBounds())
    assert value == {"events": events}
    assert max(work) <= SLICE + 1
    assert len(data) <= sum(work) <= 2 * len(data) + len(work)


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"[%s]", []), (b"{%s}", {}), (b"%s1", 1), (b'{"a"%s:%s[1,%s2]%s}', {"a": [1, 2]}), (b'%s{"a":1}%s', {"a": 1})],
)
def test_white_space_is_no_harm(text: bytes, value: Any) -> None:
    """A MiB of white space wherever JSON allows it changes nothing, and is stepped over."""
    found, work = steps(text.replace(b"%s", b" \t\r\n" * (MEBIBYTE // 4)))
    assert found == value
    assert max(work) <= SLICE + 1


def test_bad_utf8_is_refused_with_its_byte() -> None:
    """Bytes that are no UTF-8 are named by their place in the whole text."""
    data = b'{"a":[' + b'"text",' * 20_000 + b'"\xff"]}'
    refused = steps(data, JsonBounds())[0]
    assert refused.error.code == "malformed_json"
    assert refused.error.details["offset"] == data.index(b"\xff")
