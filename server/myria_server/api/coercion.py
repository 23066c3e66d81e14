"""Arguments as clients really send them, made what their schema asks for, before they are checked.

Some clients write lists, objects, numbers and truth values as JSON text, and every whole number as `5.0`. Such a value
is taken as what it stands for where the schema allows that and no text; what may be a text is never looked into.
Whatever cannot be taken so stays as it is, for the check to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, TypeVar

from pydantic import BaseModel

from myria.errors import InputError, InvalidArgument, MyriaError
from myria.log.jsontext import decode
from myria_server.api.schemas import whole_schema

T = TypeVar("T")
Path = tuple[int | str, ...]
"""Names and indexes that lead to a field."""

MAX_JSON_TEXT = 256 * 1024
"""Characters of JSON text that are read within the arguments of one call: it is read at one go, unlike a body."""

_MAX_WHOLE = 2.0**63
_SCALAR_TEXT = 64
"""Characters of the longest text that may be a number, true or false."""


def coerced(model: type[BaseModel], arguments: Any) -> Any:
    """Return arguments with JSON texts and whole numbers turned into the types of a model's schema.

    Raises:
        InvalidArgument: their JSON texts are longer than `MAX_JSON_TEXT` together; the detail `field` names one.
    """
    return _Coercer().coerce(arguments, whole_schema(model), ())


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

    def coerce(self, value: Any, schema: Mapping[str, Any], path: Path) -> Any:
        """Return a value with everything in it coerced to a schema; the same object where nothing changes."""
        branches = schema.get("anyOf", (schema,))
        types = {name for branch in branches for name in _listed(branch.get("type", []))}
        if type(value) is str and types and "string" not in types:
            value = self._parse_text(value, types, path)
        if type(value) is float and "number" not in types and "integer" in _types_of_value(value) & types:
            return int(value)
        parts: list[tuple[Any, Mapping[str, Any]]] = []
        if type(value) is dict:
            properties = {name: part for branch in branches for name, part in branch.get("properties", {}).items()}
            parts = [(name, part) for name, part in properties.items() if name in value]
        elif type(value) is list and (items := [branch["items"] for branch in branches if "items" in branch]):
            parts = [(index, items[0]) for index in range(len(value))]
        changed = {}
        for key, part_schema in parts:
            # Most values are texts where texts are taken: skipping them here saves most of the work.
            if type(value[key]) is str and "string" in _listed(part_schema.get("type", "")):
                continue
            part = self.coerce(value[key], part_schema, (*path, key))
            if part is not value[key]:
                changed[key] = part
        if not changed:
            return value
        if type(value) is dict:
            return {**value, **changed}
        return [changed.get(index, part) for index, part in enumerate(value)]

    def _parse_text(self, text: str, types: Set[str], path: Path) -> Any:
        """Return the value that a JSON text stands for, or the text itself where that value has none of these types."""
        if text[:_SCALAR_TEXT].lstrip()[:1] in ("[", "{"):
            self._characters_left -= len(text)
            if self._characters_left < 0:
                field = field_path(path)
                raise InvalidArgument(
                    f"{field} is JSON as text, of which one call may hold {MAX_JSON_TEXT} characters; send the value "
                    "itself",
                    field=field,
                    limit=MAX_JSON_TEXT,
                )
        elif len(text) > _SCALAR_TEXT:
            return text
        return _parse_json(text, types)


def field_path(path: Path) -> str:
    """Return a path as text, such as `masks[0].exact`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _listed(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def _parse_json(text: str, types: Set[str]) -> Any:
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
