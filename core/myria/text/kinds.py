"""A fixed table of kinds of thing and their members, read once: a cat is a pet, Lisbon a city."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from importlib import resources

from myria.text.related import related
from myria.text.words import terms

_TEXT = resources.files("myria.text").joinpath("members.toml").read_text(encoding="utf-8")

_NAME_BY_KIND: dict[str, str] = {}
"""The English word for a kind, by the kind's term."""

_KINDS_BY_MEMBER: dict[str, dict[str, None]] = {}
"""By term: the kinds (as terms) that it names, or of which it names a member."""

_KINDS_BY_NAME: dict[str, dict[str, None]] = {}
"""By term: the kinds (as terms) that people ask for by it; a kind has several such names."""

_MEMBERS_BY_KIND: dict[str, set[str]] = {}
"""By kind: its own term and the terms of its members."""

_MEMBERS_BY_NAME: dict[str, dict[str, None]] = {}
"""By each term that asks for a kind: the terms of the kind's members."""

for _kind in tomllib.loads(_TEXT)["kinds"]:
    _name = _kind["asked"].split()[0]
    (_term, *_) = terms(_name)
    _kind_members = terms(_kind["told"])
    _NAME_BY_KIND[_term] = _name
    for _member in (_term, *_kind_members):
        _MEMBERS_BY_KIND.setdefault(_term, set()).add(_member)
        _KINDS_BY_MEMBER.setdefault(_member, {})[_term] = None
    for _word in terms(_kind["asked"]):
        _KINDS_BY_NAME.setdefault(_word, {})[_term] = None
        _MEMBERS_BY_NAME.setdefault(_word, {}).update(dict.fromkeys(_kind_members))


def kinds_digest() -> str:
    """Return a short text that changes with the table."""
    return sha256(_TEXT.encode()).hexdigest()[:16]


def kinds_of(term: str) -> tuple[str, ...]:
    """Return the kinds (as terms) that a term names, or of which it names a member, in a fixed order; none for most."""
    return tuple(_KINDS_BY_MEMBER.get(term, ()))


def members_of(kind: str) -> frozenset[str]:
    """Return a kind's own term and those of its members; none for a term that is no kind."""
    return frozenset(_MEMBERS_BY_KIND.get(kind, ()))


def kinds_called(term: str) -> tuple[str, ...]:
    """Return the kinds (as terms) that people call by a term: by "animal", pet and wildlife; none for most terms."""
    return tuple(_KINDS_BY_NAME.get(term, ()))


def kind_name(term: str) -> str | None:
    """Return the English word for a kind, given its term; None for a term that is no kind."""
    return _NAME_BY_KIND.get(term)


def members(term: str) -> tuple[str, ...]:
    """Return the terms of the members of the kinds that a term asks for (pet: cat, dog), in a fixed order.

    Terms that may replace the term anyway (`related`) are left out.
    """
    return tuple(member for member in _MEMBERS_BY_NAME.get(term, ()) if member != term and member not in related(term))
