"""Decoding big JSON texts in steps of bounded work, so that a process that decodes them goes on answering others.

A text is first scanned, a slice at a time, for its structure: where containers and members begin and end, how many
values there are, how deep they lie. What is too much is refused there, before anything is made of it. Then every
container is decoded in groups of members by `jsontext.decode`, no group larger than a slice, and put together. So the
result, and what is refused, are those of `jsontext.decode`; only the work comes in pieces.

Both are generators: each step does at most about `SLICE` bytes of work (or one longer text) and yields their number.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from myria.errors import BodyTooLarge, MalformedJson, MyriaError, PayloadTooDeep
from myria.log import jsontext

SLICE = 32 * 1024
"""Bytes that are scanned or decoded in one step. A text up to this size is not worth slicing."""

_WORD_BYTES = 64 * 1024
"""Longest number."""

_GROUP_ENTRIES = 8 * 1024
_SKELETON_DEPTH = 2
_SKELETON_ENTRIES = 4096
_SHOWN_MEMBERS = 32
_SHOWN_BYTES = 2048
_WHITE = b" \t\n\r"

_QUOTE, _OPEN, _CLOSE, _COMMA, _COLON = 1, 2, 3, 4, 5
_KINDS = np.zeros(256, dtype=np.uint8)
for _characters, _kind in ((b'"', _QUOTE), (b"{[", _OPEN), (b"}]", _CLOSE), (b",", _COMMA), (b":", _COLON)):
    for _character in _characters:
        _KINDS[_character] = _kind

Steps = Generator[int, None, Any]
_Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonBounds:
    """What a text may hold: `values` in all (members and elements), and bytes of one `text`."""

    values: int = 100_000
    text: int = 2 * 1024 * 1024


class Refused(Exception):
    """A text that is refused: why, and what little of it tells whose request it was (as `jsontext.outline`)."""

    def __init__(self, error: MyriaError, outline: Any) -> None:
        super().__init__(error.message)
        self.error = error
        self.outline = outline


@dataclass(slots=True)
class _Structure:
    """Where a text's structure lies: for each bracket, comma and colon its byte, its kind and its container's depth."""

    at: _Positions
    kind: npt.NDArray[np.uint8]
    depth: npt.NDArray[np.int64]
    fault: MyriaError | None = None


@dataclass(slots=True)
class _Scan:
    bounds: JsonBounds
    depth: int = 0
    inside: int = 0
    last: int = -1
    values: int = 0
    kept: int = 0
    fault: MyriaError | None = None
    fault_at: int = 0
    parts: list[tuple[_Positions, npt.NDArray[np.uint8], _Positions]] = field(default_factory=list)

    def take(self, piece: bytes, offset: int) -> None:
        """Take in the next bytes of the text, which begin at `offset`; no escape is cut at either end."""
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        kinds = _KINDS[np.frombuffer(piece, dtype=np.uint8)]
        at: _Positions = np.flatnonzero(kinds)
        kinds = kinds[at]
        at += offset
        quotes = kinds == _QUOTE
        parity = (np.cumsum(quotes) + self.inside) & 1
        outside = parity == 0
        ends = quotes | outside
        if len(at):
            self.inside = int(parity[-1])
        self._look_at_gaps(at[ends], (quotes & outside)[ends], offset + len(piece), is_inside=bool(self.inside))
        structural = outside & ~quotes
        at, kinds = at[structural], kinds[structural]
        if not len(at):
            return
        depths = self.depth + np.cumsum((kinds == _OPEN).astype(np.int64) - (kinds == _CLOSE))
        self.depth = int(depths[-1])
        depths += kinds == _CLOSE
        counted = at[(kinds == _OPEN) | (kinds == _COMMA)]
        left = self.bounds.values - self.values
        self.values += len(counted)
        if self.fault is None and len(counted) > left:
            error = BodyTooLarge(
                f"the JSON text holds more than {self.bounds.values} values; send fewer events at once",
                limit=self.bounds.values,
            )
            self._found(error, int(counted[left]))
        self._look_at_depths(at, depths)
        if self.fault is not None:
            shallow = depths <= _SKELETON_DEPTH
            at, kinds, depths = at[shallow], kinds[shallow], depths[shallow]
            if self.kept > _SKELETON_ENTRIES:
                return
            self.kept += len(at)
        self.parts.append((at, kinds, depths))

    def _look_at_gaps(
        self, ends: _Positions, closes_text: npt.NDArray[np.bool_], until: int, *, is_inside: bool
    ) -> None:
        edges = np.concatenate(([self.last], ends, [until]))
        gaps = np.diff(edges)
        if len(ends):
            self.last = int(ends[-1])
        texts = np.concatenate((closes_text, [is_inside]))
        long = np.flatnonzero((gaps > self.bounds.text) & texts)
        if len(long):
            error = BodyTooLarge(
                f"a text is longer than {self.bounds.text} bytes of JSON; keep the blob elsewhere and send a reference",
                limit=self.bounds.text,
            )
            self._found(error, int(edges[long[0]]))

    def _look_at_depths(self, at: _Positions, depths: _Positions) -> None:
        if int(depths.max()) > jsontext.MAX_DEPTH:
            first = int(at[np.argmax(depths > jsontext.MAX_DEPTH)])
            text = f"the JSON text nests deeper than {jsontext.MAX_DEPTH} levels at byte {first}; flatten it"
            self._found(PayloadTooDeep(text, limit=jsontext.MAX_DEPTH), first)
        if int(depths.min()) < 1:
            first = int(at[np.argmax(depths < 1)])
            self._found(_malformed("a bracket or comma outside any object or list", first), first)

    def _found(self, error: MyriaError, at: int) -> None:
        if self.fault is None:
            self.fault, self.fault_at = error, at

    def structure(self) -> _Structure:
        """Return what was found."""
        empty: _Positions = np.zeros(0, dtype=np.int64)
        if not self.parts:
            return _Structure(empty, empty.astype(np.uint8), empty, self.fault)
        at, kind, depth = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        return _Structure(at, kind, depth, self.fault)


def decode(data: bytes, bounds: JsonBounds) -> Steps:
    """Decode a text step by step; return what `jsontext.decode` would.

    Raises:
        Refused: with the error `jsontext.decode` would raise, or BodyTooLarge for what exceeds the bounds.
    """
    scan = _Scan(bounds)
    carry = b""
    for start in range(0, len(data), SLICE):
        piece = carry + data[start : start + SLICE]
        offset = start - len(carry)
        carry = b""
        if (len(piece) - len(piece.rstrip(b"\\"))) & 1:
            piece, carry = piece[:-1], b"\\"
        scan.take(piece, offset)
        yield len(piece)
    structure = scan.structure()
    sliced = _Sliced(data, structure)
    if structure.fault is not None:
        error = structure.fault
        if path := sliced.path_to(scan.fault_at):
            error = type(error)(f"{error.message} (in {path})", **{**error.details, "path": path})
        raise Refused(error, sliced.outline())
    try:
        return (yield from sliced.whole())
    except MyriaError as error:
        raise Refused(error, sliced.outline()) from error


class _Place(NamedTuple):
    """A value: its bytes [start, end), and the numbers [first, last) of its structure."""

    start: int
    end: int
    first: int
    last: int


class _Sliced:
    """A scanned text on its way to a value."""

    def __init__(self, data: bytes, structure: _Structure) -> None:
        self._data = data
        self._at = structure.at
        self._kind = structure.kind
        self._depth = structure.depth

    def whole(self) -> Steps:
        """Decode all of it."""
        return (yield from self._value(_Place(0, len(self._data), 0, len(self._at)), 0, ""))

    def _value(self, place: _Place, depth: int, path: str) -> Steps:
        """Decode the value at a place in a container of a depth."""
        start, end = yield from self._trimmed(place.start, place.end)
        first, last = place.first, place.last
        if first == last:
            return self._alone(start, end, path)
        if self._kind[first] != _OPEN or start != self._at[first]:
            raise _malformed("a value, then something else", int(self._at[first]))
        closes = np.flatnonzero((self._depth[first:last] == depth + 1) & (self._kind[first:last] == _CLOSE))
        if not len(closes):
            raise _malformed("an object or list is not closed", int(self._at[first]))
        close = first + int(closes[0])
        opener, closer = self._data[self._at[first]], self._data[self._at[close]]
        if close != last - 1 or end != self._at[close] + 1:
            raise _malformed("something follows a value", int(self._at[close]))
        if (opener == ord("{")) != (closer == ord("}")):
            raise _malformed("brackets do not match", int(self._at[close]))
        return (yield from self._container(first, close, depth + 1, path))

    def _container(self, first: int, close: int, depth: int, path: str) -> Steps:
        is_object = self._data[self._at[first]] == ord("{")
        inner = slice(first + 1, close)
        commas = first + 1 + np.flatnonzero((self._depth[inner] == depth) & (self._kind[inner] == _COMMA))
        # Members lie between edges: the bracket, the commas, the other bracket.
        edges = np.concatenate(([first], commas, [close]))
        places = self._at[edges]
        container: Any = {} if is_object else []
        if close == first + 1:
            start, end = yield from self._trimmed(int(places[0]) + 1, int(places[1]))
            if start == end:
                return container
        member, members = 0, len(edges) - 1
        while member < members:
            by_bytes = int(np.searchsorted(places, places[member] + SLICE, side="right")) - 1
            by_entries = int(np.searchsorted(edges, edges[member] + _GROUP_ENTRIES, side="right")) - 1
            until = min(by_bytes, by_entries)
            if until > member:
                start, end = int(places[member]) + 1, int(places[until])
                part = jsontext.Part(path=path, number=member, offset=start - 1)
                group = self._group(b"{" if is_object else b"[", start, end, part)
                if len(group) != until - member:
                    raise _malformed("a value is missing", start)
                self._add(container, group, path, is_object=is_object)
                yield end - start
                member = until
                continue
            start, end = int(places[member]) + 1, int(places[member + 1])
            inside, beyond = int(edges[member]) + 1, int(edges[member + 1])
            if is_object:
                if inside == beyond or self._kind[inside] != _COLON:
                    raise _malformed("a key and a colon are missing", start)
                colon = int(self._at[inside])
                key = self._alone(*(yield from self._trimmed(start, colon)), path)
                if type(key) is not str:
                    raise _malformed("a key must be text", start)
                below = f"{path}.{key}" if path else key
                value = yield from self._value(_Place(colon + 1, end, inside + 1, beyond), depth, below)
                self._add(container, {key: value}, path, is_object=True)
            else:
                value = yield from self._value(_Place(start, end, inside, beyond), depth, f"{path}[{member}]")
                container.append(value)
            yield 0
            member += 1
        return container

    def _trimmed(self, start: int, end: int) -> Generator[int, None, tuple[int, int]]:
        """Return where a value begins and ends within some bytes; nothing but white space leaves nothing."""
        yield 0
        while start < end:
            head = self._data[start : min(start + SLICE, end)]
            left = head.lstrip(_WHITE)
            start += len(head) - len(left)
            if left:
                break
            yield len(head)
        while start < end:
            tail = self._data[max(start, end - SLICE) : end]
            left = tail.rstrip(_WHITE)
            end -= len(tail) - len(left)
            if left:
                break
            yield len(tail)
        return start, end

    def _group(self, opener: bytes, start: int, end: int, part: jsontext.Part) -> Any:
        """Decode some members of one container."""
        return jsontext.decode(opener + self._data[start:end] + (b"}" if opener == b"{" else b"]"), part)

    def _alone(self, start: int, end: int, path: str) -> Any:
        """Decode one value that is no container, without white space around it."""
        if end - start > _WORD_BYTES and self._data[start] != ord('"'):
            raise BodyTooLarge(
                f"a number is longer than {_WORD_BYTES} bytes of JSON; send it as text",
                limit=_WORD_BYTES,
                path=path,
            )
        values = self._group(b"[", start, end, jsontext.Part(path=path, number=None, offset=start - 1))
        if len(values) != 1:
            raise _malformed("a value is missing", start)
        return values[0]

    @staticmethod
    def _add(container: Any, group: Any, path: str, *, is_object: bool) -> None:
        if not is_object:
            container.extend(group)
            return
        if container and not container.keys().isdisjoint(group):
            raise jsontext.duplicate(next(key for key in group if key in container), path)
        container.update(group)

    def path_to(self, at: int) -> str:
        """Return the path of the members, as far as they are known, within which a byte lies."""
        path: list[str] = []
        for depth in range(1, _SKELETON_DEPTH + 1):
            before = (self._at < at) & (self._depth == depth)
            colons = np.flatnonzero(before & (self._kind == _COLON))
            others = np.flatnonzero(before & (self._kind != _COLON))
            if not len(colons) or not len(others) or colons[-1] < others[-1]:
                break
            key = self._small(int(self._at[others[-1]]) + 1, int(self._at[colons[-1]]))
            if type(key) is not str:
                break
            path.append(key)
        return ".".join(path)

    def outline(self) -> Any:
        """Return the small members at the top, and those of `params`, without looking at anything large."""
        top = self._members(1, 0, len(self._data))
        if not isinstance(top, dict):
            return None
        message = {key: self._small(*place) for key, place in top.items() if key != "params"}
        if "params" in top:
            inner = self._members(2, *top["params"])
            if inner is not None:
                message["params"] = {
                    key: self._small(*place) for key, place in inner.items() if key in {"name", "_meta"}
                }
        return message

    def _members(self, depth: int, start: int, end: int) -> dict[str, tuple[int, int]] | None:
        """Return where the values of an object's first and last members lie, by key."""
        numbers = np.flatnonzero((self._depth == depth) & (self._at >= start) & (self._at < end))
        if not len(numbers) or self._data[self._at[numbers[0]]] != ord("{"):
            return None
        is_colon = self._kind[numbers] == _COLON
        edges, colons = self._at[numbers[~is_colon]], self._at[numbers[is_colon]]
        spans = np.stack((edges[:-1], edges[1:]), axis=1)
        if len(spans) > 2 * _SHOWN_MEMBERS:
            spans = np.concatenate((spans[:_SHOWN_MEMBERS], spans[-_SHOWN_MEMBERS:]))
        members: dict[str, tuple[int, int]] = {}
        for first, last in spans.tolist():
            place = int(np.searchsorted(colons, first))
            if place < len(colons) and colons[place] < last:
                key = self._small(first + 1, int(colons[place]))
                if type(key) is str:
                    members[key] = (int(colons[place]) + 1, last)
        return members

    def _small(self, start: int, end: int) -> Any:
        if end - start > _SHOWN_BYTES:
            return None
        try:
            return json.loads(self._data[start:end])
        except (ValueError, RecursionError):
            return None


def _malformed(what: str, at: int) -> MalformedJson:
    return MalformedJson(f"not JSON: {what}, at byte {at}", offset=at)
