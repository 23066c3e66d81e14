"""Strict JSON: what is accepted means one thing only, and what is refused says why and where."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.errors import InvalidText, MalformedJson, MyriaError, PayloadTooDeep
from myria.log.jsontext import MAX_DEPTH, check_storable, decode, envelope, holds_more, outline

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=25,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]), st.sampled_from([None, (",", ":")]))
def test_what_a_writer_writes_is_read_back(
    value: Any, ascii_only: bool, indent: int | str | None, separators: tuple[str, str] | None
) -> None:
    """Every finite value round-trips, however it is spelled."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    assert decode(text.encode()) == value


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ":", "a:b", '"', "\\u003a", "é"]), VALUES), max_size=4))
def test_a_repeated_key_is_always_refused(pairs: list[tuple[str, Any]]) -> None:
    """An object is accepted exactly when its keys differ, whatever colons and escapes its texts hold."""
    body = ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in pairs)
    data = f'{{"x":[{{{body}}}]}}'.encode()
    if len({key for key, _ in pairs}) == len(pairs):
        assert decode(data) == {"x": [dict(pairs)]}
    else:
        with pytest.raises(MalformedJson, match="twice"):
            decode(data)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a":1,"a":2}', "a"),
        ('{"p":[{},{"k":1,"k":1}]}', "p[1].k"),
        ('{"k\\u003a":1,"k:":2}', "k:"),
        ('{"p":{"q":NaN}}', "p.q"),
        ('{"p":[0,-Infinity]}', "p[1]"),
        ('{"p":1e400}', "p"),
        ('{"p":[18446744073709551616]}', "p[0]"),
        ('{"p":[-9223372036854775809]}', "p[0]"),
        ('{"p":' + "9" * 5000 + "}", "p"),
    ],
)
def test_malformed_values_are_refused_with_their_path(text: str, path: str) -> None:
    """Duplicate keys, non-finite numbers and integers beyond 64 bits are named by path."""
    with pytest.raises(MalformedJson) as caught:
        decode(text.encode())
    assert caught.value.details["path"] == path


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "01", "'a'", '{"a" 1}', '"\x01"', "\ufeff{}", "nul", "[1]]"])
def test_what_is_not_json_is_refused(text: str) -> None:
    """Syntax errors, control characters and byte order marks are malformed JSON."""
    with pytest.raises(MalformedJson):
        decode(text.encode())


@pytest.mark.parametrize("data", [b'{"a":["\\ud800"]}', b'{"a\\udfff":1}', b'"\xed\xa0\x80"', b'["\\udc00\\ud800"]'])
def test_lone_surrogates_are_invalid_text(data: bytes) -> None:
    """A lone surrogate is refused, escaped or encoded, in keys and values."""
    with pytest.raises(InvalidText):
        decode(data)


def test_bytes_that_are_not_utf8_are_malformed() -> None:
    """JSON is UTF-8; the offending byte is named."""
    with pytest.raises(MalformedJson) as caught:
        decode(b'{"a":"\xff"}')
    assert caught.value.details["offset"] == 6


@pytest.mark.parametrize("integer", [2**64 - 1, -(2**63), 10**18, -(10**17), 0])
def test_integers_of_64_bits_stay_exact(integer: int) -> None:
    """The largest integers that fit are integers, not floats."""
    value = decode(b"[%d]" % integer)[0]
    assert value == integer
    assert type(value) is int


def test_long_digits_inside_texts_are_no_numbers() -> None:
    """A text of digits is left alone, even where it looks like a number in a list."""
    texts = ["12345678901234567890123", "a: 99999999999999999999999", "[-9999999999999999999"]
    assert decode(json.dumps(texts).encode()) == texts


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting_is_refused_without_recursion(depth: int, closed: bool) -> None:
    """Nesting beyond the limit is refused whatever its depth; a text that never closes may also be malformed."""
    data = b'{"id":7,"params":{"x":' + b"[" * depth + (b"]" * depth + b"}}" if closed else b"")
    with pytest.raises(PayloadTooDeep if closed else (PayloadTooDeep, MalformedJson)):
        decode(data)
    if closed:
        assert outline(data)["id"] == 7


def test_the_deepest_allowed_nesting_is_accepted_and_can_be_written() -> None:
    """What the limit allows can be read and written."""
    value = decode(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert orjson.dumps(value) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


def test_too_deep_names_the_path() -> None:
    """The path of what is too deep begins where the nesting does."""
    with pytest.raises(PayloadTooDeep) as caught:
        decode(b'{"ok":[1],"params":{"payload":' + b'{"a":' * 300 + b"1" + b"}" * 302)
    assert caught.value.details["path"].startswith("params.payload.a.a")


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused_with_a_code(data: bytes) -> None:
    """Nothing but a coded refusal ever comes out of bytes that are not strict JSON."""
    try:
        value = decode(data)
    except MyriaError:
        return
    assert orjson.loads(data) == value


@given(st.lists(st.sampled_from(list('{}[]":,\\u003a10eE.-+ "nNaIft')), max_size=30).map("".join))
def test_json_like_noise_never_escapes_the_error_tree(text: str) -> None:
    """Noise made of JSON's own characters is read as Python reads it, or refused with a code."""
    try:
        value = decode(text.encode())
    except MyriaError:
        return
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("value", "code", "field"),
    [
        ({"a": "x\x00"}, "invalid_text", "payload.a"),
        ({"a": [{"b\x00": 1}]}, "invalid_text", "payload.a[0].b\x00"),
        ({"a": "\ud800"}, "invalid_text", "payload.a"),
        ({"a": math.nan}, "malformed_json", None),
        ({"a": 2**64}, "malformed_json", None),
    ],
)
def test_what_cannot_be_stored_is_named(value: Any, code: str, field: str | None) -> None:
    """NUL, surrogates and numbers without a JSON form are found in values of any origin."""
    with pytest.raises(MyriaError) as caught:
        check_storable(value, "payload")
    assert caught.value.code == code
    if field:
        assert caught.value.details["field"] == field


def test_outline_reads_leniently() -> None:
    """A refused text still tells which request it was."""
    assert outline(b'{"id":3,"id":4,"x":NaN}')["id"] == 4
    assert outline(b"{") is None
    assert outline(b"\xff") is None


def count(value: Any) -> int:
    """Return how many containers and further members a value has, as brackets and commas write them."""
    if not isinstance(value, list | dict):
        return 0
    members = list(value.values()) if isinstance(value, dict) else value
    return max(1, len(members)) + sum(map(count, members))


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_values_are_counted_before_decoding(value: Any, ascii_only: bool, indent: int | None) -> None:
    """Brackets, commas and quotes within texts do not count."""
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert not holds_more(data, count(value))
    assert count(value) == 0 or holds_more(data, count(value) - 1)


def test_an_envelope_says_whose_a_text_is() -> None:
    """Of a text that holds too much, what tells the call is read; a text that is wide at its top tells nothing."""
    call = b'{"id":7,"params":{"arguments":{"a":["}",%s1]},"name":"n\\"]"}}'
    told = {"id": 7, "params": {"arguments": {}, "name": 'n"]'}}
    assert envelope(call % (b"1," * 1000), 10) == told
    assert envelope(call % (b'"[\\"{",' * 1000), 10) == told
    assert envelope(b'{"id":7' + b',"a":1' * 1000 + b"}", 10) is None
    assert envelope(b'{"id":7,"params":{"arguments":["', 10) is None
