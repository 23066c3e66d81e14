"""The JSON Schemas that are published: of arguments, closed and without references, and of answers."""

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


def _tidy(value: Any, *, of_arguments: bool = True, named: bool = False) -> Any:
    """Drop titles and docstrings of models.

    Of arguments alternatives for null go too: null is accepted, but need not be offered. Of answers go defaults, and
    OpenAPI's discriminator.
    """
    if isinstance(value, list):
        return [_tidy(item, of_arguments=of_arguments) for item in value]
    if not isinstance(value, dict):
        return value
    if named:
        return {key: _tidy(item, of_arguments=of_arguments) for key, item in value.items()}
    skipped = {"title"}
    if not of_arguments:
        skipped |= {"default", "discriminator"}
    else:
        arms = [arm for arm in value.get("anyOf", []) if arm != {"type": "null"}]
        if len(arms) == 1:
            value = {**arms[0], **without(value, "anyOf")}
        if value.get("default", 0) is None or value.get("default") == []:
            skipped.add("default")
    if "properties" in value:
        skipped.add("description")
    return {
        key: _tidy(item, of_arguments=of_arguments, named=key in ("properties", "$defs"))
        for key, item in value.items()
        if key not in skipped
    }


@lru_cache
def schema_of_any(model: type[BaseModel], also: tuple[type[BaseModel], ...]) -> Json:
    """Return the schema of an answer that is of one model, or else of one of the others; not to be changed."""
    answer = _tidy(model.model_json_schema(), of_arguments=False)
    others = [_tidy(other.model_json_schema(), of_arguments=False) for other in also]
    definitions = {**answer.pop("$defs", {})}
    for other in others:
        definitions |= other.pop("$defs", {})
    schema: Json = {"type": "object", "anyOf": [answer, *others]}
    if "RootNode" in definitions:
        definitions = _one_node(definitions)
        answer["properties"]["root"] = {"$ref": "#/$defs/Node"}
    if definitions:
        schema["$defs"] = definitions
    return schema


def _one_node(definitions: Json) -> Json:
    """Merge the kinds of nodes into one definition that tells them apart by `if`.

    A oneOf of five kinds makes validators try every kind on every subtree: exponential in depth.
    """
    kinds = [name for name, body in definitions.items() if "const" in body.get("properties", {}).get("kind", {})]
    properties: Json = {}
    rules = []
    for name in kinds:
        body = definitions[name]
        kind = body["properties"]["kind"]["const"]
        for field, shape in body["properties"].items():
            properties.setdefault(field, shape)
        rules.append(
            {
                "if": {"properties": {"kind": {"const": kind}}},
                "then": {"required": body["required"], "propertyNames": {"enum": sorted(body["properties"])}},
            }
        )
    properties["kind"] = {"enum": [definitions[name]["properties"]["kind"]["const"] for name in kinds]}
    properties["children"] = {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    node = {
        "type": "object",
        "properties": properties,
        "required": ["kind", "participants"],
        "additionalProperties": False,
        "allOf": rules,
    }
    return {"Node": node} | {name: body for name, body in definitions.items() if name not in kinds}
