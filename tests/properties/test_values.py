"""Value types behave as the standard library's frozen dataclasses do, though most of their methods are shared."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A value of several fields."""

    x: float
    y: float = 0.0
    seen: int = field(default=0, compare=False)
    hidden: str = field(default="", repr=False)
    parts: list[Any] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardPoint:
    """The same by the standard library."""

    x: float
    y: float = 0.0
    seen: int = field(default=0, compare=False)
    hidden: str = field(default="", repr=False)
    parts: list[Any] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class One:
    """A value of one field."""

    only: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Nothing:
    """A value without fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """A value with methods of its own."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucketed:
    """A value with a hash of its own, as one has whose fields are none to be hashed."""

    parts: list[int]

    def __hash__(self) -> int:
        return len(self.parts)


GIVEN: list[dict[str, Any]] = [
    {"x": 1.0},
    {"x": 1.0, "seen": 7},
    {"x": 1.0, "parts": [1]},
    {"x": 1.0, "hidden": "h"},
    {"x": 1.0, "y": 2.0},
    {"x": True, "y": 2.0},
    {"x": math.nan},
]


@pytest.mark.parametrize("one", GIVEN)
@pytest.mark.parametrize("other", GIVEN)
def test_values_are_equal_where_those_of_the_standard_library_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The fields that count decide, and equal values have one hash."""
    standard = StandardPoint(**one) == StandardPoint(**other)
    assert (Point(**one) == Point(**other)) is standard
    assert (hash(Point(**one)) == hash(Point(**other))) or not standard


@pytest.mark.parametrize("given", GIVEN)
def test_values_are_shown_as_those_of_the_standard_library(given: dict[str, Any]) -> None:
    """By name and fields, but for those that are hidden, and within themselves by dots."""
    assert repr(Point(**given)) == repr(StandardPoint(**given)).replace("StandardPoint", "Point")
    endless = Point(x=1.0)
    endless.parts.append(endless)
    assert repr(endless).endswith("parts=[...])")


def test_values_of_other_classes_are_never_equal() -> None:
    """Not even with the same fields."""
    others: list[object] = [StandardPoint(x=1.0), 1.0, None]
    assert Point(x=1.0) not in others
    assert One(1.0) not in others
    assert Nothing() == Nothing()
    assert hash(One(1.0)) == hash(One(1))
    assert One(math.nan) != One(float("nan"))


def test_methods_of_a_class_stay_its_own() -> None:
    """What a class says of itself counts."""
    assert Own(name="A") == Own(name="a")
    assert len({Own(name="A"), Own(name="a")}) == 1
    assert repr(Own(name="A")) == "<A>"
    assert hash(Bucketed(parts=[7, 8])) == 2
    assert Bucketed(parts=[7]) == Bucketed(parts=[7]) != Bucketed(parts=[8])


def test_values_have_slots_and_fields_and_can_be_copied() -> None:
    """Everything that works on dataclasses works on them."""
    point = Point(x=1.0, parts=[1])
    assert not hasattr(point, "__dict__")
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "seen", "hidden", "parts"]
    assert dataclasses.replace(point, y=3.0) == Point(x=1.0, y=3.0)
    assert dataclasses.asdict(point)["parts"] == [1]
    for made in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):  # noqa: S301 - our own
        assert made == point
        assert made.parts == [1]
    with pytest.raises(TypeError):
        Point(1.0)  # type: ignore[call-arg]
