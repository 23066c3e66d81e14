"""The part of an answer for callers without the role `read`: only the fields that its model opens.

The toolbox applies this to every answer of every tool and route, so no handler has to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import create_model

from myria_server.api.answers import Answer, OpenAnswer

Json = dict[str, Any]


def open_part(models: Iterable[type[Answer]], content: Mapping[str, Any]) -> Json:
    """Return the part of an answer, of one of these models, that callers without the role `read` get."""
    opened: Json = {}
    for model in models:
        for name, nested in _open_fields(model).items():
            if name in content:
                opened[name] = _open_value(nested, content[name])
    return opened


@lru_cache
def open_model(model: type[Answer]) -> type[Answer]:
    """Return the model of the open part of an answer: the model itself, where it opens all it has."""
    fields: dict[str, Any] = {
        name: (_open_annotation(field.annotation), field)
        for name, field in model.model_fields.items()
        if (field.alias or name) in model.OPEN
    }
    is_unchanged = all(annotation == model.model_fields[name].annotation for name, (annotation, _) in fields.items())
    if is_unchanged and len(fields) == len(model.model_fields):
        return model
    docstring = f"{model.__doc__} To a caller without the role read."
    return create_model(f"{model.__name__}WithoutRead", __base__=OpenAnswer, __doc__=docstring, **fields)


@lru_cache
def _open_fields(model: type[Answer]) -> dict[str, tuple[type[Answer], ...]]:
    """Return the open fields of a model as they are on the wire, each with the models of what it holds."""
    return {
        field.alias or name: tuple(_models_in(field.annotation))
        for name, field in model.model_fields.items()
        if (field.alias or name) in model.OPEN
    }


def _open_value(models: tuple[type[Answer], ...], value: Any) -> Any:
    if models and isinstance(value, list):
        return [_open_value(models, item) for item in value]
    if models and isinstance(value, dict):
        return open_part(models, value)
    return value


def _models_in(annotation: Any) -> Iterable[type[Answer]]:
    if isinstance(annotation, type) and issubclass(annotation, Answer):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _open_annotation(annotation: Any) -> Any:
    """Return an annotation with the open parts of the models that it names."""
    if isinstance(annotation, type) and issubclass(annotation, Answer):
        return open_model(annotation)
    if not any(_models_in(annotation)):
        return annotation
    arguments = tuple(map(_open_annotation, get_args(annotation)))
    origin = get_origin(annotation)
    return Union[arguments] if origin in (Union, UnionType) else origin[arguments]  # noqa: UP007 - made at run time
