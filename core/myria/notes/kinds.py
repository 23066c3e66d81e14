"""Kinds of notes: each a name with a policy, all of them data (kinds.toml), and the tier that follows at a moment."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import log
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from myria.errors import InvalidArgument

Tier = Literal["hot", "warm", "cold", "permanent"]
Contract = Literal["turns", "memtrace", "memento"]
Lifetime = Literal["permanent", "session"]

PERMANENT_IMPORTANCE = 0.8
"""From this importance on a note is permanent (Memento's contract, 5.2)."""

FACT_KINDS = ("fact_l0", "fact_l1", "fact_l2")
"""The kinds of facts by tier (memory-tools): what one context knows under one name, so that none stands for another."""

WARM_IMPORTANCE = 0.5
"""Below this importance a new note begins cold, where its kind says nothing else."""

_COLD_IMPORTANCE = 0.3
_HOT_DAYS = 1.0
_WARM_DAYS = 30.0
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Policy:
    """How notes of a kind are treated; kinds.toml says what each field means."""

    importance: Annotated[float, Field(ge=0, le=1)]
    lifetime: Literal["permanent", "tier", "session"] | Annotated[int, Field(ge=1)]
    decay_days: Annotated[int, Field(ge=0)]
    stale_days: Annotated[int, Field(ge=0)]
    shown: Annotated[int, Field(ge=40)]
    contracts: tuple[Contract, ...]
    first_tier: Tier | None = None


@cache
def policies() -> Mapping[str, Policy]:
    """Return every kind with its policy."""
    text = resources.files("myria.notes").joinpath("kinds.toml").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, Policy]).validate_python(tomllib.loads(text))


@cache
def kinds_of(contract: Contract) -> tuple[str, ...]:
    """Return the kinds that a contract knows, in the file's order."""
    return tuple(kind for kind, policy in policies().items() if contract in policy.contracts)


def policy_of(kind: str, contract: Contract) -> Policy:
    """Return the policy of a kind that a contract knows.

    Raises:
        InvalidArgument: it does not know it.
    """
    known = kinds_of(contract)
    if kind not in known:
        raise InvalidArgument(f"type must be one of {', '.join(known)}", field="type")
    return policies()[kind]


def importance_now(kind: str, importance: float, *, anchor: bool, idle_days: float) -> float:
    """Return a note's present importance: it halves with each `decay_days` without use; an anchor's stays.

    Args:
        idle_days: days since the note was made, changed or used last.
    """
    decay = policies()[kind].decay_days
    if anchor or not decay or idle_days <= 0:
        return importance
    faded: float = importance * _HALF ** (idle_days / decay)
    return faded


def often(uses: int) -> float:
    """Return how much a note is used, from 0 (once or never) towards 1, which no number of uses reaches."""
    return 1 - 1 / usefulness(uses)


def usefulness(uses: int) -> float:
    """Return the factor by which a note's uses raise its utility (Memento's contract)."""
    return 1 + log(max(uses, 1))


_LEAST_UTILITY = 0.5
"""The factor on the utility of a note that a model rates 0; of one rated 1 it is higher by one: 1.5."""


def utility(importance: float, uses: int, worth: float | None) -> float:
    """Return a note's utility: its importance as it is now, times its use, times how a model rates it (None: not)."""
    return importance * usefulness(uses) * (1.0 if worth is None else _LEAST_UTILITY + worth)


def tier(kind: str, importance: float, *, anchor: bool, age_days: float, idle_days: float) -> Tier:
    """Return a note's tier at a moment (Memento's contract, 5.2, 8): a function of policy, use and time alone.

    A note begins hot, warm or cold; a hot one is warm after a day without use, and a warm one is cold after thirty, or
    once its importance has faded.
    """
    policy = policies()[kind]
    if anchor or policy.lifetime == "permanent" or importance >= PERMANENT_IMPORTANCE:
        return "permanent"
    first: Tier = policy.first_tier or ("warm" if importance >= WARM_IMPORTANCE else "cold")
    if first == "hot" and idle_days < _HOT_DAYS:
        return "hot"
    faded = importance_now(kind, importance, anchor=anchor, idle_days=idle_days) < _COLD_IMPORTANCE
    if first == "cold" or faded or idle_days >= _WARM_DAYS:
        return "hot" if age_days > idle_days and idle_days < _HOT_DAYS else "cold"
    return "warm"
