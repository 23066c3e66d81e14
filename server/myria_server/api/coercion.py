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
    """What a schema allows: its types, and the shapes of an object's properties and of a list's items."""

    types: frozenset[str]
    takes_text: bool
    properties: Mapping[str, _Shape] = field(default_factory=dict)
    items: _Shape | None = None

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> _Shape:
        branches = schema.get("anyOf", (schema,))
        properties = {name: cls.of(part) for branch in branches for name, part in branch.get("properties", {}).items()}
        items = next((cls.of(branch["items"]) for branch in branches if branch.get("items")), None)
        types = frozenset(_declared_types(branches))
        return cls(types=types, takes_text=not types or "string" in types, properties=properties, items=items)


def _declared_types(branches: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for branch in branches:
        types = branch.get("type", ())
        yield from (types,) if isinstance(types, str) else types


@lru_cache
def _shape_of(model: type[BaseModel]) -> _Shape:
    return _Shape.of(whole_schema(model))


def coerced(model: type[BaseModel], arguments: Any) -> Any:
    """Return arguments with JSON texts and whole numbers turned into the types of a model's schema.

    Raises:
        InvalidArgument: their JSON texts are longer than `MAX_JSON_TEXT` together; the detail `field` names one.
    """
    return _Coercer().coerce(arguments, _shape_of(model), "")


def understood(model: type[BaseModel], arguments: Any, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of the arguments; if it refuses them, of the coerced arguments.

    Only for a reader that refuses every value that coercion would change. It saves a walk through most arguments.

    Raises:
        MyriaError: as `read` does of the coerced arguments, or as `coerced`.
    """
    try:
        return read(arguments)
    except InputError:
        return read(coerced(model, arguments))


def whole_arguments(arguments: Any) -> Any:
    """Return a call's arguments as an object where they are JSON text of one, or the empty list that PHP writes."""
    if type(arguments) is str and len(arguments) <= MAX_JSON_TEXT:
        return _parse_json(arguments, frozenset({"object"}))
    return {} if arguments == [] else arguments


class _Coercer:
    def __init__(self) -> None:
        self._characters_left = MAX_JSON_TEXT

    def coerce(self, value: Any, shape: _Shape, path: str) -> Any:
        """Return a value with everything in it coerced to the shape; the same object where nothing changes."""
        if type(value) is str and not shape.takes_text:
            value = self._parse_text(value, shape.types, path)
        if type(value) is float and "number" not in shape.types and "integer" in _types_of_value(value) & shape.types:
            return int(value)
        parts: Iterable[tuple[Any, Any, _Shape | None]] = ()
        if type(value) is dict and shape.properties:
            parts = [(name, part, shape.properties.get(name)) for name, part in value.items()]
        elif type(value) is list and shape.items is not None:
            parts = [(index, part, shape.items) for index, part in enumerate(value)]
        changed = {}
        for key, part, part_shape in parts:
            # Most values are texts where texts are allowed: skipping them here saves most of the work.
            if part_shape is None or (type(part) is str and part_shape.takes_text):
                continue
            place = f"{path}[{key}]" if type(value) is list else f"{path}.{key}" if path else key
            coerced_part = self.coerce(part, part_shape, place)
            if coerced_part is not part:
                changed[key] = coerced_part
        if not changed:
            return value
        return (
            {**value, **changed}
            if type(value) is dict
            else [changed.get(index, part) for index, part in enumerate(value)]
        )

    def _parse_text(self, text: str, types: frozenset[str], path: str) -> Any:
        """Return the value that a JSON text stands for, or the text itself where that value has none of these types."""
        if text[:_SCALAR_TEXT].lstrip()[:1] in ("[", "{"):
            self._characters_left -= len(text)
            if self._characters_left < 0:
                raise InvalidArgument(
                    f"{path} is JSON as text, of which one call may hold {MAX_JSON_TEXT} characters; send the value "
                    "itself",
                    field=path,
                    limit=MAX_JSON_TEXT,
                )
        elif len(text) > _SCALAR_TEXT:
            return text
        return _parse_json(text, types)


def _parse_json(text: str, types: frozenset[str]) -> Any:
    try:
        value = decode(text.encode())
    except (MyriaError, UnicodeEncodeError):
        return text
    return text if _types_of_value(value).isdisjoint(types) else value


def _types_of_value(value: Any) -> frozenset[str]:
    """Return the JSON Schema types of a value; 5.0 is an integer, too."""
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < _MAX_WHOLE
        return frozenset({"integer", "number"} if is_whole else {"number"})
    return frozenset({"array"} if isinstance(value, list) else {"object"} if isinstance(value, dict) else ())
