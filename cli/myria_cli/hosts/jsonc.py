"""Changing JSON with comments where it stands: only what is changed moves, comments, order and layout of the rest stay.

Hosts keep their settings so, and people write comments into them, which no parser of Python keeps. A text is read into
nodes that know their place; a change replaces the fewest characters. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 100
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n\r]*|/\*.*?\*/)|(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[\w.+-]+)""",
    re.DOTALL,
)
_INDENT = re.compile(r"\n([ \t]+)\S")


class NotJson(ValueError):
    """A text is not JSON, with or without comments; says where."""


@dataclass(slots=True, kw_only=True)
class _Node:
    """A value, from `start` to `end` in its text. Of containers `parts` are what they hold, in order."""

    start: int
    end: int = 0
    value: Any = None
    parts: list[_PlacedPart] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _PlacedPart:
    """A member of an object, with its key, or an element of a list. `start` is where its key begins, or its value.

    `comma` is the place of the comma that follows it, None where none does.
    """

    key: str | int
    start: int
    node: _Node
    comma: int | None = None


def read(text: str) -> Any:
    """Return what a text says; an empty one, or one of comments alone, says an empty object.

    Raises:
        NotJson: it is no JSON, names a key twice, or is nested too deeply.
    """
    try:
        return _PLAIN.decode(text)
    except (ValueError, RecursionError):  # comments, or wrong: whoever reads slowly says what
        return _Reader(text, None).document().value


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Return a text in which a member has a value; objects on the way to it are made where they are missing.

    Raises:
        NotJson: as `read`; or something on the way to it is no object.
    """
    node = _Reader(text, path).document()
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise NotJson(f"{'.'.join(path[:depth]) or 'the whole'} is no object")
        part = next((part for part in node.parts if part.key == key), None)
        if part is None:
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return _inserted(text, node, value, key)
        node = part.node
    return text[: node.start] + _written(text, value, _indent_at(text, node.start)) + text[node.end :]


def add(text: str, path: Sequence[str], value: Any) -> str:
    """Return a text in which a list has one more element; it is made where it is missing.

    Raises:
        NotJson: as `put`; or it is no list.
    """
    node = _Reader(text, path).document()
    for key in path:
        part = next((part for part in node.parts if part.key == key), None)
        if part is None:
            return put(text, path, [value])
        node = part.node
    if not isinstance(node.value, list):
        raise NotJson(f"{'.'.join(path)} is no list")
    return _inserted(text, node, value, None)


def drop(text: str, path: Sequence[str | int]) -> str:
    """Return a text without a member, or an element by its place; unchanged where there is none.

    Raises:
        NotJson: as `read`.
    """
    node = parent = _Reader(text, path).document()
    place = 0
    for key in path:
        found = next((place for place, part in enumerate(node.parts) if part.key == key), None)
        if found is None:
            return text
        parent, place = node, found
        node = node.parts[place].node
    return _removed(text, parent, place) if path else text


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


_PLAIN = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_without_twins)
"""Reads JSON without comments, as fast as Python can."""


class _Reader:
    """Reads a text into nodes; only what lies on a path has parts, for hosts keep histories in their files."""

    def __init__(self, text: str, path: Sequence[str | int] | None) -> None:
        self.text = text
        self.path = path
        self.at = 0
        self.depth = 0

    def document(self) -> _Node:
        """Read the whole text."""
        kind, word = self._peek()
        if kind == "end":
            end = len(self.text)
            return _Node(start=end, end=end, value={})
        node = self._value(self.path)
        kind, word = self._peek()
        if kind != "end":
            raise self._wrong(f"{word!r} after its end")
        return node

    def _peek(self) -> tuple[str, str]:
        """Return the next token that says something, without taking it."""
        while self.at < len(self.text):
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                raise self._wrong(f"{self.text[self.at]!r} is not expected")
            if match.lastgroup != "space":
                return match.lastgroup or "", match[0]
            self.at = match.end()
        return "end", ""

    def _take(self, *marks: str) -> str:
        kind, word = self._peek()
        if kind != "mark" or word not in marks:
            raise self._wrong(f"{word or 'the end'!r} where {' or '.join(marks)} is expected")
        self.at += 1
        return word

    def _value(self, path: Sequence[str | int] | None) -> _Node:
        """Read a value; with a path those parts of it that lie on that, without one none."""
        kind, word = self._peek()
        start = self.at
        if kind == "mark" and word in "{[":
            return (None if path is not None else self._plain()) or self._container(word, path)
        if kind not in ("string", "word"):
            raise self._wrong(f"{word or 'the end'!r} where a value is expected")
        self.at += len(word)
        return _Node(start=start, end=self.at, value=self._scalar(word, start))

    def _plain(self) -> _Node | None:
        """Read a value without comments at once; None where it is not one."""
        try:
            value, end = _PLAIN.raw_decode(self.text, self.at)
        except (ValueError, RecursionError):
            return None
        node = _Node(start=self.at, end=end, value=value)
        self.at = end
        return node

    def _scalar(self, word: str, start: int) -> Any:
        try:
            return json.loads(word, parse_constant=self._refuse_constant)
        except ValueError as error:
            self.at = start
            raise self._wrong(f"{word[:40]!r} is no value") from error

    def _refuse_constant(self, name: str) -> Any:
        raise self._wrong(f"{name} is no number")

    def _container(self, opening: str, path: Sequence[str | int] | None) -> _Node:
        node = _Node(start=self.at)
        keys = set()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._wrong(f"it is nested deeper than {MAX_DEPTH}")
        self._take(opening)
        closing = "}" if opening == "{" else "]"
        while self._peek() != ("mark", closing):
            start, key = self.at, self._key() if opening == "{" else len(node.parts)
            if key in keys:
                raise self._wrong(f"the key {str(key)[:40]!r} comes twice")
            keys.add(key)
            value = self._value(path[1:] if path and path[0] == key else None)
            part = _PlacedPart(key=key, start=start, node=value)
            node.parts.append(part)
            if self._peek() != ("mark", closing):
                part.comma = self.at
                self._take(",")
        self._take(closing)
        self.depth -= 1
        node.end = self.at
        node.value = (
            {part.key: part.node.value for part in node.parts}
            if opening == "{"
            else [part.node.value for part in node.parts]
        )
        return node

    def _key(self) -> str:
        kind, word = self._peek()
        start = self.at
        if kind != "string":
            raise self._wrong(f"{word or 'the end'!r} where a key is expected")
        self.at += len(word)
        key: str = self._scalar(word, start)
        self._take(":")
        return key

    def _wrong(self, what: str) -> NotJson:
        line = self.text.count("\n", 0, self.at) + 1
        return NotJson(f"line {line}: {what}")


def _inserted(text: str, node: _Node, value: Any, key: str | None) -> str:
    """Return a text in which a container has one more part, the last."""
    said = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    if node.start == node.end:  # an empty document
        return (
            f"{text}{'' if not text or text.endswith(_newline(text)) else _newline(text)}"
            + _written(text, {key: value}, "")
            + _newline(text)
        )
    outer = _indent_at(text, node.start)
    close = node.end - 1
    if not node.parts:
        inner = outer + _unit(text)
        before = text[:close].rstrip() if text[node.start + 1 : close].strip() else text[: node.start + 1]
        return (
            f"{before}{_newline(text)}{inner}{said}{_written(text, value, inner)}{_newline(text)}{outer}{text[close:]}"
        )
    last = node.parts[-1]
    comma, after = (",", "") if last.comma is None else ("", ",")  # where one follows the last part, it goes on so
    if "\n" not in text[node.start : node.parts[0].start]:
        said = f"{said}{json.dumps(value, ensure_ascii=False)}"
        end = last.node.end if last.comma is None else last.comma + 1
        return f"{text[:end]}{comma} {said}{after}{text[end:]}"
    inner = _indent_at(text, node.parts[0].start)
    end = len(text[:close].rstrip())  # behind comments, which belong to what they follow
    after_last = text[last.node.end : end]
    return (
        f"{text[: last.node.end]}{comma}{after_last}"
        f"{_newline(text)}{inner}{said}{_written(text, value, inner)}{after}{text[end:]}"
    )


def _removed(text: str, parent: _Node, place: int) -> str:
    """Return a text without a part of a container, and without the comma that is one too many then."""
    part = parent.parts[place]
    if len(parent.parts) == 1:
        begin = part.node.end if part.comma is None else part.comma + 1
        head, tail = text[parent.start + 1 : part.start], text[begin : parent.end - 1]
        kept = (head.rstrip() + tail.rstrip()) if (head + tail).strip() else ""
        if kept:
            kept += _newline(text) + _indent_at(text, parent.start)
        return text[: parent.start + 1] + kept + text[parent.end - 1 :]
    if place < len(parent.parts) - 1:
        end = (part.comma or part.node.end) + 1
        return text[: part.start] + text[end + len(text[end:]) - len(text[end:].lstrip()) :]
    if part.comma is not None:  # commas follow the last part, too: that of the one before it stays
        return _joined(text[: part.start].rstrip(), text[part.comma + 1 :], text)
    comma = parent.parts[place - 1].comma
    if comma is None:
        raise AssertionError("a part that another follows has a comma")
    return _joined(text[:comma] + text[comma + 1 : part.start].rstrip(), text[part.node.end :], text)


def _joined(head: str, tail: str, text: str) -> str:
    """Return two ends of a text as one; a comment to the end of a line keeps that end."""
    is_open = "//" in head.rpartition("\n")[2] and not tail.startswith(("\n", "\r"))
    return head + (_newline(text) if is_open else "") + tail


def _written(text: str, value: Any, indent: str) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return written.replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return by what lines are indented in a text: as its first that is."""
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _indent_at(text: str, at: int) -> str:
    """Return the white space that begins the line of a place."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]
