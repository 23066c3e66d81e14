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
    """Return the schema of all that a model takes, hidden fields too. It is cached: do not change it."""
    schema: Json = _tidy(_inline_references(model.model_json_schema(by_alias=True)))
    return schema


def published_schema(model: type[BaseModel]) -> Json:
    """Return the schema that is shown to who calls."""
    schema = copy.deepcopy(whole_schema(model))
    _drop_hidden(schema)
    return schema


def fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the published field names of the object at a path of the arguments, as callers write them.

    Args:
        path: field names and list indexes that lead to the object.
    """
    schema = published_schema(model)
    for part in path:
        schema = schema.get("items", {}) if isinstance(part, int) else schema.get("properties", {}).get(part, {})
    return list(schema.get("properties", ()))


def without(value: Mapping[str, Any], *names: str) -> Json:
    """Return a schema without some of its keys."""
    return {key: item for key, item in value.items() if key not in names}


def _drop_hidden(schema: Json) -> None:
    properties = schema.get("properties", {})
    for name in [name for name, field in properties.items() if field.get(_HIDDEN)]:
        del properties[name]


def _inline_references(schema: Json) -> Json:
    """Return a schema with every `$ref` replaced by its definition."""
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


def _tidy(value: Any, *, of_arguments: bool = True, is_name_map: bool = False) -> Any:
    """Return a schema without titles and without docstrings of models.

    Schemas of arguments also lose alternatives for null, which is accepted but need not be offered; those of answers
    lose defaults and OpenAPI's discriminator.

    Args:
        is_name_map: `value` maps field or model names to schemas, so a key such as `title` is a name and stays.
    """
    if isinstance(value, list):
        return [_tidy(item, of_arguments=of_arguments) for item in value]
    if not isinstance(value, dict):
        return value
    if is_name_map:
        return {key: _tidy(item, of_arguments=of_arguments) for key, item in value.items()}
    dropped_keys = {"title"}
    if not of_arguments:
        dropped_keys |= {"default", "discriminator"}
    else:
        alternatives = [alternative for alternative in value.get("anyOf", []) if alternative != {"type": "null"}]
        if len(alternatives) == 1:
            value = {**alternatives[0], **without(value, "anyOf")}
        if value.get("default", 0) is None or value.get("default") == []:
            dropped_keys.add("default")
    if "properties" in value:
        dropped_keys.add("description")
    return {
        key: _tidy(item, of_arguments=of_arguments, is_name_map=key in ("properties", "$defs"))
        for key, item in value.items()
        if key not in dropped_keys
    }


@lru_cache
def schema_of_any(model: type[BaseModel], other_models: tuple[type[BaseModel], ...]) -> Json:
    """Return the schema of an answer of any of these models. It is cached: do not change it."""
    answer = _tidy(model.model_json_schema(), of_arguments=False)
    others = [_tidy(other.model_json_schema(), of_arguments=False) for other in other_models]
    definitions = {**answer.pop("$defs", {})}
    for other in others:
        definitions |= other.pop("$defs", {})
    schema: Json = {"type": "object", "anyOf": [answer, *others]}
    if "RootNode" in definitions:
        definitions = _merge_node_kinds(definitions)
        answer["properties"]["root"] = {"$ref": "#/$defs/Node"}
    if definitions:
        schema["$defs"] = definitions
    return schema


def _merge_node_kinds(definitions: Json) -> Json:
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
