"""Sections of settings: how one is written, checked, read from text and described.

A section is a frozen pydantic dataclass that inherits `Section`. Each field is annotated with what it accepts (`str`,
`int`, `float`, `bool`, a `Literal`, a tuple of `str` or of a `Literal`, or one of them or `None`; bounds of a number
as `Annotated[int, Field(ge=0, le=9)]`) and followed by a docstring. pydantic checks the values; this module adds
Myria's coded errors and the words of the settings reference. It knows no setting by name: `myria.settings` does.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, ClassVar, Self, get_type_hints

from pydantic import ConfigDict, ModelWrapValidatorHandler, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from myria.errors import ConfigurationError

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Base of a group of settings: refuses a wrong value as soon as it is made.

    Raises:
        ConfigurationError: a field has a wrong type, is out of range, or contradicts another (`rules`).
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG
    section_name: ClassVar[str] = "settings"

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            made = handler(values)
        except ValidationError as error:
            raise _refused(cls, error) from None
        for field in dataclasses.fields(made):
            _refuse_nul(f"{cls.section_name}.{field.name}", getattr(made, field.name))
        made.rules()
        return made

    def rules(self) -> None:
        """Raise when two fields of this section contradict each other."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name most like `name`; ties go to the first in alphabetical order."""
    candidates = sorted(known)
    return max(candidates, key=lambda known_name: difflib.SequenceMatcher(None, name, known_name).ratio())


def field_schemas(section: type[Section]) -> Mapping[str, Mapping[str, Any]]:
    """Return the JSON schema of each field of a section, with its docstring as `description`, as they are written."""
    properties = TypeAdapter(section).json_schema()["properties"]
    docstrings = _docstrings(section.__module__)[section.__name__]
    return {name: {**schema, "description": " ".join(docstrings[name].split())} for name, schema in properties.items()}


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of the fields of each class of a module.

    pydantic would read them too, but as each class is made: a fifth of a second in every process that starts.
    """
    classes = (
        node for node in ast.parse(inspect.getsource(sys.modules[module])).body if isinstance(node, ast.ClassDef)
    )
    return {defined.name: dict(_field_docstrings(defined)) for defined in classes}


def _field_docstrings(defined: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, following in itertools.pairwise(defined.body):
        match field, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                yield name, text


def in_words(schema: Mapping[str, Any]) -> str:
    """Return what a field accepts, from its JSON schema: `integer 0..65535`, `list of text`, `number, or unset`."""
    if "anyOf" in schema:
        (accepted,) = (branch for branch in schema["anyOf"] if branch["type"] != "null")
        return f"{in_words(accepted)}, or unset"
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if choices:
        return " | ".join(choices)
    if schema["type"] == "array":
        return f"list of {in_words(schema['items'])}"
    name = {"string": "text", "boolean": "true or false"}.get(schema["type"], schema["type"])
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{name} {low}..{high}"
    return name if low is None else f"{name} >= {low}"


class Setting:
    """One field of a section, as a source of settings meets it: a single value, or the text that stands for one."""

    def __init__(self, section: type[Section], name: str) -> None:
        self.section = section
        self.name = name

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(get_type_hints(self.section, include_extras=True)[self.name], config=_CONFIG)

    @cached_property
    def _schema(self) -> Mapping[str, Any]:
        return self._adapter.json_schema()

    def from_value(self, label: str, value: Any) -> Any:
        """Return a value from a file or a program as the field holds it: lists become tuples, integers floats.

        Raises:
            ConfigurationError: the value is of another type or out of range; the message begins with `label`.
        """
        return self._validated(label, tuple(value) if isinstance(value, list) else value, strict=True)

    def from_text(self, label: str, text: str) -> Any:
        """Return the value that an environment variable's text stands for.

        Lists are comma-separated or a JSON array; an empty text unsets an optional field and empties a list.

        Raises:
            ConfigurationError: the text does not stand for such a value; the message begins with `label`.
        """
        stripped = text.strip()
        value: Any = text if self._schema.get("type") == "string" else stripped
        if "anyOf" in self._schema:
            value = text if stripped else None
        elif self._schema.get("type") == "array":
            value = _list(stripped)
        return self._validated(label, value, strict=False)

    def refusal(self, label: str, value: Any, error: ValidationError) -> ConfigurationError:
        """Return the error of a value that pydantic refused: what the field accepts, and what it was given."""
        accepted = in_words(self._schema)
        problem = error.errors()[0]
        text = problem["input"]
        if problem["type"] == "literal_error" and isinstance(text, str):
            choices = accepted.removeprefix("list of ").split(" | ")
            hint = nearest(text, choices)
            message = f"{label}: {text!r} is not one of {', '.join(choices)}; did you mean {hint!r}?"
            return ConfigurationError(message, field=label, nearest=hint)
        return ConfigurationError(f"{label}: expected {accepted}, got {type(value).__name__} {value!r}.", field=label)

    def _validated(self, label: str, value: Any, *, strict: bool) -> Any:
        try:
            validated = self._adapter.validate_python(value, strict=strict)
        except ValidationError as error:
            raise self.refusal(label, value, error) from None
        _refuse_nul(label, validated)
        return validated


def _list(text: str) -> Any:
    """Return the list that a text stands for, or the text itself where it only begins like a JSON array."""
    if not text.startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _refused(section: type[Section], error: ValidationError) -> ConfigurationError:
    """Return the error of a section that was made in code with a wrong value or an unknown name."""
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    label = f"{section.section_name}.{name}"
    known = [field.name for field in dataclasses.fields(section)]
    if name not in known:
        hint = nearest(name, known)
        return ConfigurationError(f"{label}: unknown setting; did you mean {hint!r}?", field=label, nearest=hint)
    return Setting(section, name).refusal(label, problem["input"], error)


def _refuse_nul(label: str, value: Any) -> None:
    """Refuse a text with a NUL character: neither PostgreSQL nor the operating system can hold it."""
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str) and "\x00" in text:
            raise ConfigurationError(f"{label}: must not hold a NUL character.", field=label)
