"""Typed configuration sections: checking, reading from text, describing.

A section is a frozen dataclass whose fields are annotated with a plain type (`str`, `int`, `float`, `bool`,
a `Literal`, a tuple of `str` or of a `Literal`, or one of them or `None`), optionally with a `Range`, and
followed by a docstring. This module turns such classes into a loader and into documentation. It knows no
setting by name: `myria.settings` does.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import json
import math
import textwrap
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from myria.errors import ConfigurationError

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds of a number; `None` leaves that side open."""

    low: float | None = None
    high: float | None = None

    def __contains__(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f">= {self.low}"
        if self.low is None:
            return f"<= {self.high}"
        return f"{self.low}..{self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """What a field accepts, taken apart from its annotation."""

    kind: type
    """`str`, `int`, `float`, `bool` or `tuple` (a list of text)."""
    choices: tuple[str, ...] = ()
    """The only texts allowed; empty when any text is."""
    optional: bool = False
    """True when the field may be unset (`None`)."""
    bounds: Range | None = None
    """Bounds of a number."""

    def __str__(self) -> str:
        name = {
            "str": "text",
            "int": "integer",
            "float": "number",
            "bool": "true or false",
            "tuple": "list of text",
        }
        text = name[self.kind.__name__]
        if self.choices:
            text = ("list of " if self.kind is tuple else "") + " | ".join(self.choices)
        if self.bounds is not None:
            text += f" {self.bounds}"
        return f"{text}, or unset" if self.optional else text


class Section:
    """Base of a group of settings: refuses a wrong value as soon as it is made.

    Raises:
        ConfigurationError: a field has a wrong type, is out of range, or contradicts another (`rules`).
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, field_type in field_types(type(self)).items():
            _check(_label(type(self), name), field_type, getattr(self, name))
        self.rules()

    def rules(self) -> None:
        """Raise when two fields of this section contradict each other."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name most like `name`; ties go to the first in alphabetical order."""
    candidates = sorted(known)
    return max(candidates, key=lambda known_name: difflib.SequenceMatcher(None, name, known_name).ratio())


def field_types(section: type) -> Mapping[str, FieldType]:
    """Return the fields of a section with what each accepts, in the order they are written."""
    hints = get_type_hints(section, include_extras=True)
    return types.MappingProxyType({field.name: _field_type(hints[field.name]) for field in dataclasses.fields(section)})


def field_docs(section: type) -> Mapping[str, str]:
    """Return each field's docstring: the string that follows it in the source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(section)))
    class_body = tree.body[0]
    assert isinstance(class_body, ast.ClassDef)  # noqa: S101 - inspect.getsource of a class gives a class
    docs: dict[str, str] = {}
    for statement, following in zip(class_body.body, class_body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            docs[statement.target.id] = " ".join(str(following.value.value).split())
    return types.MappingProxyType(docs)


def from_value(label: str, field_type: FieldType, value: Any) -> Any:
    """Return a value from a file or a program as the field holds it: lists become tuples, integers floats.

    Raises:
        ConfigurationError: the value is of another type or out of range; the message begins with `label`.
    """
    if field_type.kind is tuple and isinstance(value, list):
        value = tuple(value)
    elif field_type.kind is float and type(value) is int:
        value = float(value)
    _check(label, field_type, value)
    return value


def from_text(label: str, field_type: FieldType, text: str) -> Any:
    """Return the value that an environment variable's text stands for.

    Lists are comma-separated or a JSON array; an empty text unsets an optional field and empties a list.

    Raises:
        ConfigurationError: the text does not stand for such a value; the message begins with `label`.
    """
    stripped = text.strip()
    if not stripped and field_type.optional:
        return None
    value: Any = text
    try:
        if field_type.kind is bool:
            value = _boolean(stripped)
        elif field_type.kind is int:
            value = int(stripped)
        elif field_type.kind is float:
            value = float(stripped)
        elif field_type.kind is tuple:
            value = json.loads(stripped) if stripped.startswith("[") else _comma_list(stripped)
    except ValueError:
        raise ConfigurationError(f"{label}: {text!r} is not a value of type {field_type}.", field=label) from None
    return from_value(label, field_type, value)


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(text)


def _comma_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _label(section: type, name: str) -> str:
    return f"{getattr(section, 'section_name', section.__name__)}.{name}"


def _field_type(hint: Any) -> FieldType:
    bounds: Range | None = None
    optional = False
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        bounds = next((extra for extra in extras if isinstance(extra, Range)), None)
    if get_origin(hint) in {Union, types.UnionType}:
        inner = [argument for argument in get_args(hint) if argument is not type(None)]
        (hint,) = inner
        optional = True
    if get_origin(hint) is tuple:
        element = get_args(hint)[0]
        choices = get_args(element) if get_origin(element) is Literal else ()
        return FieldType(kind=tuple, choices=choices, optional=optional)
    if get_origin(hint) is Literal:
        return FieldType(kind=str, choices=get_args(hint), optional=optional)
    return FieldType(kind=hint, optional=optional, bounds=bounds)


def _check(label: str, field_type: FieldType, value: Any) -> None:
    if value is None and field_type.optional:
        return
    kinds = (int, float) if field_type.kind is float else (field_type.kind,)
    # bool is an int to isinstance, and YAML's `yes` would pass for 1.
    if type(value) not in kinds:
        raise ConfigurationError(f"{label}: expected {field_type}, got {type(value).__name__} {value!r}.", field=label)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"{label}: must be a finite number.", field=label)
    if field_type.bounds is not None and value not in field_type.bounds:
        raise ConfigurationError(f"{label}: {value} is outside {field_type.bounds}.", field=label)
    for text in value if field_type.kind is tuple else (value,):
        _check_text(label, field_type, text)


def _check_text(label: str, field_type: FieldType, text: Any) -> None:
    if field_type.kind not in {str, tuple}:
        return
    if not isinstance(text, str):
        raise ConfigurationError(f"{label}: expected text, got {text!r}.", field=label)
    if "\x00" in text:
        raise ConfigurationError(f"{label}: must not hold a NUL character.", field=label)
    if field_type.choices and text not in field_type.choices:
        hint = nearest(text, field_type.choices)
        raise ConfigurationError(
            f"{label}: {text!r} is not one of {', '.join(field_type.choices)}; did you mean {hint!r}?",
            field=label,
            nearest=hint,
        )
