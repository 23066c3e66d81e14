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
    """Return other ways to write a name: in other case, with other joints, with or without a kind such as `user:`."""
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
    """Return, by name, other spellings that would make the masks see something; empty if they see something already.

    Args:
        may_name: whether the caller may ask as a name.
    """
    masks_tried = [mask for mask in masks if not mask.exact]
    if not masks_tried or await _visible_sets(connection, tenant, [mask.participants for mask in masks_tried]):
        return {}
    attempts = [
        (name, other, _respelled(mask, name, other))
        for mask in masks_tried
        for name in mask.participants[:_MAX_NAMES]
        if may_name(name)
        for other in candidates(name)
        if may_name(other) and other not in mask.participants
    ]
    spellings: dict[str, list[str]] = {}
    for index in sorted(await _visible_sets(connection, tenant, [names for _, _, names in attempts])):
        name, other, _ = attempts[index]
        others = spellings.setdefault(name, [])
        if other not in others and len(others) < MAX_SPELLINGS:
            others.append(other)
    return spellings


async def _visible_sets(connection: Connection, tenant: str, sets: Sequence[Sequence[str]]) -> set[int]:
    """Return the indices of the sets of participants that see some scope."""
    rows = await connection.fetch(sql("retrieval.seen"), tenant, [orjson.dumps(names).decode() for names in sets])
    return {row["place"] - 1 for row in rows}


def _respelled(mask: Mask, name: str, other: str) -> tuple[str, ...]:
    """Return a mask's participants with a name in its other spelling, first, as few scopes hold it."""
    return (other, *(participant for participant in mask.participants if participant != name))


def _without_kind(name: str) -> Iterator[str]:
    """Yield a name without its leading `@`, and without a kind such as `user:` or `agent_`."""
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
    """Yield a name with each kind of joint between its words, each in five cases."""
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
