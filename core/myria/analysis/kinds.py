"""Which kinds of thing a word names one of: cat is a pet, Lisbon a city. A fixed table, read once."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from importlib import resources

from myria.analysis.tokens import terms


def kinds_digest() -> str:
    """Return a short text that changes with the table."""
    return sha256(_text().encode()).hexdigest()[:16]


def _text() -> str:
    return resources.files("myria.analysis").joinpath("members.toml").read_text(encoding="utf-8")


def _table() -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    kinds_by_term: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    for kind in tomllib.loads(_text())["kinds"]:
        name = kind["asked"].split()[0]
        (term, *_) = terms(name)
        names[term] = name
        for member in (term, *terms(kind["told"])):
            kinds_by_term.setdefault(member, {})[term] = None
    return {member: tuple(kinds) for member, kinds in kinds_by_term.items()}, names


_KINDS, _NAMES = _table()


def kinds_of(term: str) -> tuple[str, ...]:
    """Return the terms of the kinds that a term names, or names one of, in a fixed order; none for most."""
    return _KINDS.get(term, ())


def kind_name(term: str) -> str | None:
    """Return the English word for a kind, given its term; None for what is no kind."""
    return _NAMES.get(term)
