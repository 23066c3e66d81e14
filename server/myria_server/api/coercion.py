"""Arguments as clients really send them, made what their schema asks for, before they are checked.

Some clients write lists, objects, numbers and truth values as JSON text, and every whole number as `5.0`. Such a value
is taken as what it stands for where the schema allows that and no text; what may be a text is never looked into.
Whatever cannot be taken so stays as it is, for the check to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from myria.errors import InputError, InvalidArgument, MyriaError
from myria.log.jsontext import decode
from myria_server.api.schemas import whole_schema

T = TypeVar("T")

MAX_JSON_TEXT = 256 * 1024
"""Characters of JSON text that are read within the arguments of one call: it is read at one go, unlike a body."""

_MAX_WHOLE = 2.0**63
_SCALAR_TEXT = 64
"""Characters of the longest text that may be a number, true or false."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shape:
    """What a schema allows: the types, and those of what lies in an object or a list."""

    types: frozenset[str]
    takes_text: bool
    properties: Mapping[str, _Shape] = field(default_factory=dict)
    items: _Shape | None = None

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> _Shape:
        branches = schema.get("anyOf", (schema,))
        properties = {name: cls.of(each) for branch in branches for name, each in branch.get("properties", {}).items()}
        items = next((cls.of(branch["items"]) for branch in branches if branch.get("items")), None)
        types = frozenset(_types(branches))
        return cls(types=types, takes_text=not types or "string" in types, properties=properties, items=items)


def _types(branches: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for branch in branches:
        named = branch.get("type", ())
        yield from (named,) if isinstance(named, str) else named


@lru_cache
def _shape_of(model: type[BaseModel]) -> _Shape:
    return _Shape.of(whole_schema(model))


def coerced(model: type[BaseModel], arguments: Any) -> Any:
    """Return arguments with their JSON texts and whole numbers as the schema of a model has them.

    Raises:
        InvalidArgument: their JSON texts are longer than `MAX_JSON_TEXT` together; the detail `field` names one.
    """
    return _Coercion().value(arguments, _shape_of(model), "")


def understood(model: type[BaseModel], arguments: Any, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of arguments, as they are or else coerced.

    Only for a reader that refuses whatever would be coerced: then nearly all arguments are walked through once.

    Raises:
        MyriaError: as `read` does of the coerced arguments, or as `coerced`.
    """
    try:
        return read(arguments)
    except InputError:
        return read(coerced(model, arguments))


def whole_arguments(given: Any) -> Any:
    """Return a call's arguments as an object where they are JSON text of one, or the empty list that PHP writes."""
    if type(given) is str and len(given) <= MAX_JSON_TEXT:
        return _decoded(given, frozenset({"object"}))
    return {} if given == [] else given


class _Coercion:
    def __init__(self) -> None:
        self._left = MAX_JSON_TEXT

    def value(self, given: Any, shape: _Shape, path: str) -> Any:
        """Return what a value stands for; the value itself where nothing of it changes."""
        if type(given) is str and not shape.takes_text:
            given = self._read(given, shape.types, path)
        if type(given) is float and "number" not in shape.types and "integer" in _types_of(given) & shape.types:
            return int(given)
        parts: Iterable[tuple[Any, Any, _Shape | None]] = ()
        if type(given) is dict and shape.properties:
            parts = [(name, part, shape.properties.get(name)) for name, part in given.items()]
        elif type(given) is list and shape.items is not None:
            parts = [(at, part, shape.items) for at, part in enumerate(given)]
        changed = {}
        for key, part, of in parts:
            # Nearly every value is a text that may be one: nothing of it is looked at.
            if of is None or (type(part) is str and of.takes_text):
                continue
            place = f"{path}[{key}]" if type(given) is list else f"{path}.{key}" if path else key
            meant = self.value(part, of, place)
            if meant is not part:
                changed[key] = meant
        if not changed:
            return given
        return {**given, **changed} if type(given) is dict else [changed.get(at, part) for at, part in enumerate(given)]

    def _read(self, text: str, types: frozenset[str], path: str) -> Any:
        """Return what a JSON text stands for, or the text where that is not of these types."""
        if text[:_SCALAR_TEXT].lstrip()[:1] in ("[", "{"):
            self._left -= len(text)
            if self._left < 0:
                raise InvalidArgument(
                    f"{path} is JSON as text, of which one call may hold {MAX_JSON_TEXT} characters; send the value "
                    "itself",
                    field=path,
                    limit=MAX_JSON_TEXT,
                )
        elif len(text) > _SCALAR_TEXT:
            return text
        return _decoded(text, types)


def _decoded(text: str, types: frozenset[str]) -> Any:
    try:
        read = decode(text.encode())
    except (MyriaError, UnicodeEncodeError):
        return text
    return text if _types_of(read).isdisjoint(types) else read


def _types_of(given: Any) -> frozenset[str]:
    """Return the types of JSON Schema that a value is of: 5.0 is an integer too."""
    if isinstance(given, bool):
        return frozenset({"boolean"})
    if isinstance(given, int):
        return frozenset({"integer", "number"})
    if isinstance(given, float):
        is_whole = given.is_integer() and abs(given) < _MAX_WHOLE
        return frozenset({"integer", "number"} if is_whole else {"number"})
    return frozenset({"array"} if isinstance(given, list) else {"object"} if isinstance(given, dict) else ())
