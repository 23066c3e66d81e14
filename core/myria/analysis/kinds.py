"""Which kinds of thing a word names one of: cat is a pet, Lisbon a city. A fixed table, read once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from itertools import chain

from myria.analysis.tokens import terms


def kinds_digest() -> str:
    """Return a short text that changes with the table."""
    return sha256(_text().encode()).hexdigest()[:16]


def _text() -> str:
    return resources.files("myria.analysis").joinpath("members.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Kinds:
    kinds_by_term: dict[str, tuple[str, ...]]
    called_by_term: dict[str, tuple[str, ...]]
    names: dict[str, str]


def _table() -> _Kinds:
    kinds_by_term: dict[str, dict[str, None]] = {}
    called_by_term: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    for kind in tomllib.loads(_text())["kinds"]:
        name = kind["asked"].split()[0]
        (term, *_) = terms(name)
        names[term] = name
        for member in (term, *terms(kind["told"])):
            kinds_by_term.setdefault(member, {})[term] = None
        for word in terms(kind["asked"]):
            called_by_term.setdefault(word, {})[term] = None
    return _Kinds(
        {member: tuple(kinds) for member, kinds in kinds_by_term.items()},
        {word: tuple(kinds) for word, kinds in called_by_term.items()},
        names,
    )


_TABLE = _table()


def kinds_of(term: str) -> tuple[str, ...]:
    """Return the terms of the kinds that a term names, or names one of, in a fixed order; none for most."""
    return _TABLE.kinds_by_term.get(term, ())


def kinds_among(terms_of_text: Iterable[str]) -> Iterator[str]:
    """Yield the kinds of all these terms, those that several name as often."""
    return chain.from_iterable(filter(None, map(_TABLE.kinds_by_term.get, terms_of_text)))


def kinds_called(term: str) -> tuple[str, ...]:
    """Return the terms of the kinds that people call by a term: animal says pet and wildlife; none for most."""
    return _TABLE.called_by_term.get(term, ())


def kind_name(term: str) -> str | None:
    """Return the English word for a kind, given its term; None for what is no kind."""
    return _TABLE.names.get(term)
