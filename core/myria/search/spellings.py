"""Other spellings of a name under which nothing is visible: `Ada`, `ada`, `user:ada` are three participants.

Only what the caller would see by asking under the other name counts, so nobody learns of names that they could not have
asked as. Candidates are made from the name and looked up: names are never listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import orjson

from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.masks import Mask, Masks

MAX_SPELLINGS = 5
"""Other spellings of one name that are pointed out."""

_KINDS = ("user", "agent", "person", "bot")
_SEPARATORS = (":", "_", "/", "-")
_JOINTS = (" ", "_", "-", ".")
_MAX_CANDIDATES = 150
_MAX_NAMES = 8


def candidates(name: str) -> tuple[str, ...]:
    """Return how else people and programs write a name: other case, other joints, with or without what it is."""
    bases = [name, *_without_kind(name)]
    written = [form for base in bases for form in _forms(base)]
    plain = bases[-1]
    kinds = [
        f"{kind}{separator}{form}"
        for form in dict.fromkeys((plain, plain.lower()))
        for separator in _SEPARATORS
        for kind in _KINDS
    ]
    return tuple(other for other in dict.fromkeys([*written, f"@{plain}", *kinds]) if other != name)[:_MAX_CANDIDATES]


async def other_spellings(
    connection: Connection, tenant: str, masks: Masks, may_name: Callable[[str], bool]
) -> dict[str, list[str]]:
    """Return, by name, other spellings as which the same question would see something, where it sees nothing now."""
    asked = [mask for mask in masks if not mask.exact]
    if not asked or await _seen(connection, tenant, [mask.participants for mask in asked]):
        return {}
    tried = [
        (name, other, _instead(mask, name, other))
        for mask in asked
        for name in mask.participants[:_MAX_NAMES]
        if may_name(name)
        for other in candidates(name)
        if may_name(other) and other not in mask.participants
    ]
    spellings: dict[str, list[str]] = {}
    for at in sorted(await _seen(connection, tenant, [names for _, _, names in tried])):
        name, other, _ = tried[at]
        others = spellings.setdefault(name, [])
        if other not in others and len(others) < MAX_SPELLINGS:
            others.append(other)
    return spellings


async def _seen(connection: Connection, tenant: str, sets: Sequence[Sequence[str]]) -> set[int]:
    """Return the places of those sets of participants that see something."""
    rows = await connection.fetch(sql("retrieval.seen"), tenant, [orjson.dumps(names).decode() for names in sets])
    return {row["place"] - 1 for row in rows}


def _instead(mask: Mask, name: str, other: str) -> tuple[str, ...]:
    """Return who asks under the other spelling, which stands first: few scopes have it."""
    return (other, *(participant for participant in mask.participants if participant != name))


def _without_kind(name: str) -> Iterator[str]:
    bare = name.removeprefix("@")
    if bare != name:
        yield bare
    for separator in (":", "/"):
        if separator in bare:
            yield bare.rpartition(separator)[2]
            return
    kind, separator, rest = bare.partition("_") if "_" in bare else bare.partition("-")
    if separator and rest and kind.lower() in _KINDS:
        yield rest


def _forms(base: str) -> Iterator[str]:
    if not base:
        return
    joined = [base]
    if any(joint in base for joint in _JOINTS):
        words = base
        for joint in _JOINTS:
            words = words.replace(joint, " ")
        joined += [words.replace(" ", joint) for joint in _JOINTS]
    for form in joined:
        yield from (form, form.lower(), form.title(), form.capitalize(), form.upper())
