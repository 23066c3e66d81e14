"""Which kinds of thing a word names one of: cat is a pet, Lisbon a city. A fixed table, read once."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from importlib import resources

from myria.text.related import related
from myria.text.words import terms

_TEXT = resources.files("myria.text").joinpath("members.toml").read_text(encoding="utf-8")

_NAMES: dict[str, str] = {}
"""The English word for a kind, by its term."""

_KINDS: dict[str, dict[str, None]] = {}
"""The kinds that a term names, or names one of."""

_CALLED: dict[str, dict[str, None]] = {}
"""The kinds that people call by a term."""

_MEMBERS: dict[str, set[str]] = {}
"""The terms that name a kind or one of it."""

_TOLD: dict[str, dict[str, None]] = {}
"""What names one of a kind, by each term that asks for the kind."""

for _kind in tomllib.loads(_TEXT)["kinds"]:
    _name = _kind["asked"].split()[0]
    (_term, *_) = terms(_name)
    _told = terms(_kind["told"])
    _NAMES[_term] = _name
    for _member in (_term, *_told):
        _MEMBERS.setdefault(_term, set()).add(_member)
        _KINDS.setdefault(_member, {})[_term] = None
    for _word in terms(_kind["asked"]):
        _CALLED.setdefault(_word, {})[_term] = None
        _TOLD.setdefault(_word, {}).update(dict.fromkeys(_told))


def kinds_digest() -> str:
    """Return a short text that changes with the table."""
    return sha256(_TEXT.encode()).hexdigest()[:16]


def kinds_of(term: str) -> tuple[str, ...]:
    """Return the terms of the kinds that a term names, or names one of, in a fixed order; none for most."""
    return tuple(_KINDS.get(term, ()))


def members_of(kind: str) -> frozenset[str]:
    """Return the terms that name a kind or one of it, given its own term; none for what is no kind."""
    return frozenset(_MEMBERS.get(kind, ()))


def kinds_called(term: str) -> tuple[str, ...]:
    """Return the terms of the kinds that people call by a term: animal says pet and wildlife; none for most."""
    return tuple(_CALLED.get(term, ()))


def kind_name(term: str) -> str | None:
    """Return the English word for a kind, given its term; None for what is no kind."""
    return _NAMES.get(term)


def members(term: str) -> tuple[str, ...]:
    """Return the terms that name one of the kind of thing that a term names (pet: cat, dog), in a fixed order.

    What stands in for the term anyway (`related`) is not among them.
    """
    return tuple(member for member in _TOLD.get(term, ()) if member != term and member not in related(term))
