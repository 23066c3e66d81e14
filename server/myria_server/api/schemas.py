"""The JSON Schema of a model of arguments: closed, without references, titles and alternatives for null."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, Field

Json = dict[str, Any]

_HIDDEN = "hidden"

HIDDEN: Any = Field(json_schema_extra={_HIDDEN: True})
"""Marks a field that is taken, since clients of another memory send it, and not published."""


@lru_cache
def whole_schema(model: type[BaseModel]) -> Json:
    """Return the schema of all that a model takes, hidden fields too; not to be changed."""
    schema: Json = _tidy(_inline(model.model_json_schema(by_alias=True)))
    return schema


def published_schema(model: type[BaseModel]) -> Json:
    """Return the schema that is shown to who calls."""
    schema = copy.deepcopy(whole_schema(model))
    _unhide(schema)
    return schema


def fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the published names that an object may have, as it is written.

    Args:
        path: where the object lies in the arguments.
    """
    at = published_schema(model)
    for part in path:
        at = at.get("items", {}) if isinstance(part, int) else at.get("properties", {}).get(part, {})
    return list(at.get("properties", ()))


def without(value: Mapping[str, Any], *names: str) -> Json:
    """Return a schema without some of its keys."""
    return {key: item for key, item in value.items() if key not in names}


def _unhide(schema: Json) -> None:
    properties = schema.get("properties", {})
    for name in [name for name, field in properties.items() if field.get(_HIDDEN)]:
        del properties[name]


def _inline(schema: Json) -> Json:
    definitions = schema.pop("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return resolve({**definitions[value["$ref"].rsplit("/", 1)[1]], **without(value, "$ref")})
        return {key: resolve(item) for key, item in value.items()}

    resolved: Json = resolve(schema)
    return resolved


def _tidy(value: Any, *, named: bool = False) -> Any:
    """Drop titles, docstrings of nested models, and null alternatives (null is accepted, but need not be offered)."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    if named:
        return {key: _tidy(item) for key, item in value.items()}
    arms = [arm for arm in value.get("anyOf", []) if arm != {"type": "null"}]
    if len(arms) == 1:
        value = {**arms[0], **without(value, "anyOf")}
    skipped = {"title"} | ({"default"} if value.get("default", 0) is None or value.get("default") == [] else set())
    if "properties" in value:
        skipped.add("description")
    return {key: _tidy(item, named=key == "properties") for key, item in value.items() if key not in skipped}
