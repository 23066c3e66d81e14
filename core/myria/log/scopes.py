"""Scopes: a scope is one exact set of participants within a tenant. `myria.log.masks` decides who sees which."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from typing import Any

from myria.errors import InvalidParticipants
from myria.log.canonical import canonical_json
from myria.log.names import described, unseen_character

MAX_PARTICIPANTS = 64
MAX_PARTICIPANT_CHARACTERS = 200


def canonical_participants(names: Any, *, field: str = "participants") -> tuple[str, ...]:
    """Return the canonical participant set: NFC, trimmed, unique, in code-point order, case-sensitive.

    Raises:
        InvalidParticipants: not a list of 1..64 texts of 1..200 characters without control characters,
            lone surrogates, NUL, or characters that nobody sees (`myria.log.names`). Duplicates after normalisation
            collapse into one.
    """
    if not isinstance(names, list | tuple):
        raise InvalidParticipants(f"{field} must be a list of names", field=field)
    if not names:
        raise InvalidParticipants(
            f"{field} must not be empty: an empty set would see everything; name who asks", field=field
        )
    unique_names: set[str] = set()
    for position, name in enumerate(names):
        # A printable ASCII name is canonical already once trimmed, so the slow check is skipped.
        is_plain = (
            type(name) is str and len(name) <= MAX_PARTICIPANT_CHARACTERS and name.isascii() and name.isprintable()
        )
        unique_names.add((name.strip() if is_plain else "") or _canonical_name(name, f"{field}[{position}]"))
        if len(unique_names) > MAX_PARTICIPANTS:
            raise InvalidParticipants(
                f"{field} may name at most {MAX_PARTICIPANTS} participants",
                field=field,
                limit=MAX_PARTICIPANTS,
            )
    return tuple(sorted(unique_names))


def scope_key(participants: Iterable[str]) -> bytes:
    """Return the 32-byte identity of a canonical participant set."""
    return hashlib.sha256(b"myria.scope.v1\n" + canonical_json(list(participants))).digest()


def _canonical_name(name: Any, field: str) -> str:
    """Validate one name, and return it normalised (NFC) and trimmed."""
    if not isinstance(name, str):
        raise InvalidParticipants(f"{field} must be text", field=field)
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidParticipants(f"{field} holds a lone surrogate; send valid Unicode", field=field) from error
    # A bound on the work of normalising, which may shorten a name.
    if len(name) > 16 * MAX_PARTICIPANT_CHARACTERS:
        raise InvalidParticipants(
            f"{field} is longer than {MAX_PARTICIPANT_CHARACTERS} characters",
            field=field,
            limit=MAX_PARTICIPANT_CHARACTERS,
        )
    if (position := unseen_character(name)) is not None:
        raise InvalidParticipants(
            f"{field} holds {described(name[position])} at position {position}, which nobody sees; remove it, or names "
            "that look alike would be different participants",
            field=field,
            code_point=f"U+{ord(name[position]):04X}",
            position=position,
        )
    canonical = unicodedata.normalize("NFC", name).strip()
    if not canonical:
        raise InvalidParticipants(f"{field} is empty", field=field)
    if len(canonical) > MAX_PARTICIPANT_CHARACTERS:
        raise InvalidParticipants(
            f"{field} is longer than {MAX_PARTICIPANT_CHARACTERS} characters",
            field=field,
            limit=MAX_PARTICIPANT_CHARACTERS,
        )
    if not canonical.isprintable() and any(unicodedata.category(c) == "Cc" for c in canonical):
        raise InvalidParticipants(f"{field} holds a control character; remove it", field=field)
    return canonical
