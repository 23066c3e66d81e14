"""Value types made by the thousand: frozen as `dataclass(frozen=True)` is, and quick to make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class a value type with slots, whose fields are given by name, equal and hashed by them.

    Nobody may set a field: the type checker refuses it. Python does not, because what keeps it from that makes each
    value in four times the time.
    """
    make: Any = dataclass(slots=True, kw_only=True, unsafe_hash=True)
    made: type[T] = make(cls)
    return made


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def short_value(cls: type[T]) -> type[T]:
    """Make a class a value type as `value` does, whose fields may be given by their order."""
    make: Any = dataclass(slots=True, unsafe_hash=True)
    made: type[T] = make(cls)
    return made
