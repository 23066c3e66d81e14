"""Value types: frozen as `dataclass(frozen=True)` is for the type checker, quick to make, and quick to define.

A program that starts defines some hundreds of them. The standard library writes and compiles six methods for each; here
it writes `__init__` alone, and the others are the same few functions for all: a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class a value type with slots, whose fields are given by name, equal and hashed by them.

    Nobody may set a field: the type checker refuses it. Python does not, because what keeps it from that makes each
    value in four times the time.
    """
    return _made(cls, kw_only=True)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def short_value(cls: type[T]) -> type[T]:
    """Make a class a value type as `value` does, whose fields may be given by their order."""
    return _made(cls, kw_only=False)


def _made(cls: type[T], *, kw_only: bool) -> type[T]:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the standard library spells out the signature: a tenth of its time
    own = vars(cls)
    make: Any = dataclass(slots=True, kw_only=kw_only, repr=False, eq=False)
    made: Any = make(cls)
    if "__repr__" not in own:
        made.__repr__ = _shown
    if "__eq__" not in own:
        of = _fields_of(tuple([each.name for each in fields(made) if each.compare]))
        made.__eq__ = _equality(of)
        if "__hash__" not in own:
            made.__hash__ = _hashing(of)
    whole: type[T] = made
    return whole


def _fields_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of some fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda each: tuple([getattr(each, name) for name in names])


def _equality(of: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], bool]:
    def __eq__(self: Any, other: Any) -> bool:  # noqa: N807 - the name that a traceback shows
        return of(self) == of(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hashing(of: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(of(self))

    return __hash__


@recursive_repr()
def _shown(self: Any) -> str:
    parts = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(parts)})"
