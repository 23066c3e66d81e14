"""Which kinds of thing a word names one of: cat is a pet, Lisbon a city. A fixed table, read once."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources

from myria.text.words import terms


def kinds_digest() -> str:
    """Return a short text that changes with the table."""
    return sha256(_text().encode()).hexdigest()[:16]


def _text() -> str:
    return resources.files("myria.text").joinpath("members.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Kinds:
    kinds_by_term: dict[str, tuple[str, ...]]
    called_by_term: dict[str, tuple[str, ...]]
    names: dict[str, str]
    members: dict[str, frozenset[str]]


def _table() -> _Kinds:
    kinds_by_term: dict[str, dict[str, None]] = {}
    called_by_term: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    members: dict[str, set[str]] = {}
    for kind in tomllib.loads(_text())["kinds"]:
        name = kind["asked"].split()[0]
        (term, *_) = terms(name)
        names[term] = name
        for member in (term, *terms(kind["told"])):
            members.setdefault(term, set()).add(member)
            kinds_by_term.setdefault(member, {})[term] = None
        for word in terms(kind["asked"]):
            called_by_term.setdefault(word, {})[term] = None
    return _Kinds(
        {member: tuple(kinds) for member, kinds in kinds_by_term.items()},
        {word: tuple(kinds) for word, kinds in called_by_term.items()},
        names,
        {kind: frozenset(of) for kind, of in members.items()},
    )


_TABLE = _table()
_NONE: frozenset[str] = frozenset()


def kinds_of(term: str) -> tuple[str, ...]:
    """Return the terms of the kinds that a term names, or names one of, in a fixed order; none for most."""
    return _TABLE.kinds_by_term.get(term, ())


def members_of(kind: str) -> frozenset[str]:
    """Return the terms that name a kind or one of it, given its own term; none for what is no kind."""
    return _TABLE.members.get(kind, _NONE)


def kinds_called(term: str) -> tuple[str, ...]:
    """Return the terms of the kinds that people call by a term: animal says pet and wildlife; none for most."""
    return _TABLE.called_by_term.get(term, ())


def kind_name(term: str) -> str | None:
    """Return the English word for a kind, given its term; None for what is no kind."""
    return _TABLE.names.get(term)
