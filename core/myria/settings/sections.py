"""Sections of settings: how one is written, checked, read from text and described.

A section is a class decorated with `section` that inherits `Section`. Each field is annotated with what it accepts
(`str`, `int`, `float`, `bool`, a `Literal`, a tuple of `str` or of a `Literal`, or one of them or `None`; bounds of a
number as `Annotated[int, Field(ge=0, le=9)]`) and followed by a docstring. pydantic checks the values; this module adds
Myria's coded errors and the words of the settings reference. It knows no setting by name: `myria.settings` does.

Annotations are read, and pydantic is imported, once a value is given that is not the default and no plain text: most
programs start without.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

from myria.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter, ValidationError

T = TypeVar("T")

_CONFIG: ConfigDict = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
_TEXTS: Mapping[str, tuple[type, ...]] = {"str": (str,), "str | None": (str, type(None))}
"""Annotations of fields that take any text, with the types of what they hold: nothing is to be checked of it."""

BASE_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
"""Where a provider of language models is: plain HTTP, without credentials."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def section(cls: type[T]) -> type[T]:
    """Make a class a section: a frozen dataclass with slots, checked as `Section` says."""
    made: Any = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    words = re.findall("[A-Z][a-z]*", cls.__name__.removesuffix("Settings"))
    made.section_name = "_".join(words).lower() or "settings"
    made.settings = {field.name: Setting(made, field) for field in dataclasses.fields(made)}
    whole: type[T] = made
    return whole


class Section:
    """Base of a group of settings: refuses a wrong value as soon as it is made.

    Raises:
        ConfigurationError: a field has a wrong type, is out of range, or contradicts another (`rules`).
    """

    __slots__ = ()
    section_name: ClassVar[str]
    """What the YAML file calls it: the name of the class, as `second_look` for `SecondLookSettings`."""
    settings: ClassVar[Mapping[str, Setting]] = {}
    """Its fields by name, as they are written."""

    def __post_init__(self) -> None:
        for name, setting in self.settings.items():
            value = getattr(self, name)
            if value is not setting.default:  # a default needs no check, which would import pydantic
                object.__setattr__(self, name, setting.checked(setting.key, value))
        self.rules()

    def rules(self) -> None:
        """Raise when two fields of this section contradict each other."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name most like `name`; ties go to the first in alphabetical order."""
    candidates = sorted(known)
    return max(candidates, key=lambda known_name: difflib.SequenceMatcher(None, name, known_name).ratio())


def variable_of(key: str) -> str:
    """Return the environment variable of a setting: `mcp.port` -> `MYRIA_MCP_PORT`."""
    return "MYRIA_" + key.replace(".", "_").upper()


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of the fields of each class of a module.

    pydantic would read them too, but as each class is made: a fifth of a second in every process that starts.
    """
    docstrings: dict[str, dict[str, str]] = {}
    for defined in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(defined, ast.ClassDef):
            fields = docstrings[defined.name] = {}
            for field, following in itertools.pairwise(defined.body):
                match field, following:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                        fields[name] = text
    return docstrings


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
    """One field of a section, as a source of settings meets it: a single value, or the text that stands for one.

    Its docstring, type and default make its row of the settings reference.
    """

    def __init__(self, section: type[Section], field: dataclasses.Field[Any]) -> None:
        self._section = section
        self._field = field
        self._texts = _TEXTS.get(str(field.type), ())

    @property
    def key(self) -> str:
        """`section.field`, as in the YAML file."""
        return f"{self._section.section_name}.{self._field.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return variable_of(self.key)

    @property
    def type(self) -> str:
        """What it accepts, in words."""
        return in_words(self.schema)

    @property
    def doc(self) -> str:
        """Reason and unit."""
        return " ".join(_docstrings(self._section.__module__)[self._section.__name__][self._field.name].split())

    @property
    def default(self) -> Any:
        """What the field holds where nothing is given."""
        return self._field.default

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of what the field accepts, with its default."""
        schema = self._adapter.json_schema()
        return {**schema, "default": list(self.default) if isinstance(self.default, tuple) else self.default}

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic import Field, TypeAdapter  # noqa: PLC0415 - a fifth of a short program's start

        hints = get_type_hints(self._section, localns={"Field": Field}, include_extras=True)
        return TypeAdapter(hints[self._field.name], config=_CONFIG)

    def from_value(self, label: str, value: Any) -> Any:
        """Return a value from a file or a program as the field holds it: lists become tuples, integers floats, and a
        bare `off`, which YAML reads as false, is the word where that may be chosen.

        Raises:
            ConfigurationError: the value is of another type or out of range; the message begins with `label`.
        """
        if value is False and "off" in self.schema.get("enum", ()):
            value = "off"
        return self.checked(label, tuple(value) if isinstance(value, list) else value)

    def from_text(self, label: str, text: str) -> Any:
        """Return the value that an environment variable's text stands for.

        Lists are comma-separated or a JSON array; an empty text unsets an optional field and empties a list.

        Raises:
            ConfigurationError: the text does not stand for such a value; the message begins with `label`.
        """
        stripped = text.strip()
        if self._texts:
            return self.checked(label, text if stripped or type(None) not in self._texts else None)
        value: Any = text if self.schema.get("type") == "string" else stripped
        if "anyOf" in self.schema:
            value = text if stripped else None
        elif self.schema.get("type") == "array":
            value = _list(stripped)
        return self._validated(label, value, strict=False)

    def to_text(self, value: Any) -> str:
        """Return the text for which `from_text` gives this value of the field."""
        if value is None:
            return ""
        return json.dumps(value) if isinstance(value, bool | tuple) else str(value)

    def checked(self, label: str, value: Any) -> Any:
        """Return a value as the field holds it.

        Raises:
            ConfigurationError: the value is of another type or out of range; the message begins with `label`.
        """
        if isinstance(value, self._texts):
            _refuse_nul(label, value)
            return value
        if not isinstance(self.default, Section):
            return self._validated(label, value, strict=True)
        if not isinstance(value, type(self.default)):
            accepted, given = type(self.default).__name__, type(value).__name__
            raise ConfigurationError(f"{label}: expected {accepted}, got {given}.", field=label)
        return value

    def _refusal(self, label: str, value: Any, error: ValidationError) -> ConfigurationError:
        """Return the error of a value that pydantic refused: what the field accepts, and what it was given."""
        accepted = in_words(self.schema)
        problem = error.errors()[0]
        text = problem["input"]
        if problem["type"] == "literal_error" and isinstance(text, str):
            choices = accepted.removeprefix("list of ").split(" | ")
            hint = nearest(text, choices)
            message = f"{label}: {text!r} is not one of {', '.join(choices)}; did you mean {hint!r}?"
            return ConfigurationError(message, field=label, nearest=hint)
        return ConfigurationError(f"{label}: expected {accepted}, got {type(value).__name__} {value!r}.", field=label)

    def _validated(self, label: str, value: Any, *, strict: bool) -> Any:
        from pydantic import ValidationError  # noqa: PLC0415

        try:
            validated = self._adapter.validate_python(value, strict=strict)
        except ValidationError as error:
            raise self._refusal(label, value, error) from None
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


def _refuse_nul(label: str, value: Any) -> None:
    """Refuse a text with a NUL character: neither PostgreSQL nor the operating system can hold it."""
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str) and "\x00" in text:
            raise ConfigurationError(f"{label}: must not hold a NUL character.", field=label)
