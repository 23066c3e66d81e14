"""How the fields of arguments are read, and the JSON Schema that is published of each: the rules that all APIs share.

A rule takes a value as it was sent. What it refuses is an error of ours that names the field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, ValidationInfo

from myria.errors import InvalidArgument
from myria.log.fields import check_text

Json = dict[str, Any]
Check = Callable[[Any, str], Any]
"""Returns what a value stands for; takes the value and the field's name, for refusals."""

TEXT: Json = {"type": "string"}
MOMENT: Json = {"type": "string", "format": "date-time"}

NULL = (None,)
BLANK = (None, "")
"""Values that mean a field's default: agents fill in every field that they see."""


@dataclass(frozen=True)
class FieldRule(BeforeValidator):
    """How a field is read, and its JSON Schema."""

    schema: Json = field(default_factory=dict)

    def __get_pydantic_json_schema__(self, _: Any, __: GetJsonSchemaHandler) -> Json:
        return dict(self.schema)


def needed(check: Check, schema: Json) -> FieldRule:
    """Return the rule of a field without a default."""

    def read(value: Any, info: ValidationInfo) -> Any:
        return check(value, info.field_name or "")

    return FieldRule(read, schema=schema)


def optional(check: Check, schema: Json, default: Any = None, *, blanks: tuple[Any, ...] = BLANK) -> FieldRule:
    """Return the rule of a field whose `blanks` mean its default."""

    def read(value: Any, info: ValidationInfo) -> Any:
        return default if value in blanks else check(value, info.field_name or "")

    return FieldRule(read, schema=schema)


def or_default(default: Any, *, blanks: tuple[Any, ...] = NULL) -> BeforeValidator:
    """Return a validator that reads `blanks` as the default; what else is taken says the field's type."""
    return BeforeValidator(lambda value: default if value in blanks else value)


def text(limit: int, schema: Json | None = None) -> FieldRule:
    """Return the rule of a text of 1 to `limit` characters."""
    return needed(lambda value, name: check_text(value, name, limit), schema or TEXT | {"maxLength": limit})


def optional_text(limit: int, schema: Json | None = None, *, blanks: tuple[Any, ...] = BLANK) -> FieldRule:
    """Return the rule of a text that may be left out."""
    check: Check = lambda value, name: check_text(value, name, limit)  # noqa: E731
    return optional(check, schema or TEXT | {"maxLength": limit}, blanks=blanks)


def check_list(value: Any, name: str, most: int, what: str) -> list[Any] | tuple[Any, ...]:
    """Check that a value is a list of at most so many, and return it.

    Args:
        what: plural noun for its items, for refusals.
    """
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{name} must be a list of {what}", field=name)
    if len(value) > most:
        raise InvalidArgument(f"{name} may hold at most {most} {what}", field=name, limit=most)
    return value


def check_texts(value: Any, name: str, longest: int, most: int, what: str = "texts") -> tuple[str, ...]:
    """Check that a value is a list of at most `most` texts of at most `longest` characters, and return them."""
    items = check_list(value, name, most, what)
    return tuple(check_text(item, f"{name}[{index}]", longest) for index, item in enumerate(items))


def texts(longest: int, most: int, what: str) -> FieldRule:
    """Return the rule of a list of texts, without repeats; see `check_texts`."""
    items = TEXT | {"minLength": 1, "maxLength": longest}
    return optional(
        lambda value, name: tuple(dict.fromkeys(check_texts(value, name, longest, most, what))),
        {"type": "array", "items": items, "maxItems": most},
        (),
        blanks=NULL,
    )
