"""The keys and grants of one tenant, as an administrator of it sees and changes them through a serving process.

Serving cannot read or change them by itself. Each function of the database wants the administrator's key, or a session
of the console that came from it, and holds the rule: a key that is made or replaced may do no more than the
administrator's own, and ends no later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import asyncpg

from myria.access.principal import Proof
from myria.access.secrets import MadeKey
from myria.access.store import NewKey
from myria.db.clock import rfc3339_of
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import (
    ChannelNotAllowed,
    FaceNotAllowed,
    GrantNotFound,
    InvalidArgument,
    KeyNameTaken,
    KeyNotFound,
    MyriaError,
    ParticipantsNotAllowed,
    QuotaExceeded,
    RoleRequired,
)
from myria.log.jsontext import check_storable

Json = dict[str, Any]

MOST_KEYS = 1_000
"""Keys of a tenant that have not ended, from which on its administrators cannot make more."""

MAX_REASON = 500

_BEYOND: Mapping[str, tuple[type[MyriaError], str]] = {
    "roles": (RoleRequired, "has a role that yours has not"),
    "faces": (FaceNotAllowed, "may use an API that yours may not"),
    "participants": (
        ParticipantsNotAllowed,
        "asks as somebody as whom yours may not ask, or as fewer than yours (those who ask as fewer see more)",
    ),
    "channels": (ChannelNotAllowed, "may append to channels to which yours may not"),
    "limits": (RoleRequired, "may send more requests than yours"),
}


class TenantKeys:
    """Keys and grants of the tenant whose administrator shows a proof.

    Keys and grants are returned as JSON, with times in RFC 3339. Every method raises CredentialInvalid where the proof
    is not, or no longer, an administrator's.

    Args:
        database: with the rights of serving.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, proof: Proof, *, before: str | None = None, limit: int) -> list[Json]:
        """Return keys of the tenant, newest first, those that are older than the key `before`.

        `sessions` and `grants` say how many would end with a key, `is_maker` whether it is the administrator's own, and
        `beyond` what it may that the administrator's may not; None where nothing.
        """
        return await self._fetch("administered.keys", proof, None, before, limit)

    async def key(self, proof: Proof, key_id: str) -> Json:
        """Return one key of the tenant.

        Raises:
            KeyNotFound: the tenant has none of this id.
        """
        check_storable(key_id, "key_id")
        found = await self._fetch("administered.keys", proof, key_id, None, 1)
        if not found:
            raise _no_key(key_id)
        return found[0]

    async def key_names(self, proof: Proof, key_ids: Iterable[str]) -> dict[str, str]:
        """Return what keys of the tenant are called, by their ids; those that have ended too."""
        found = await self._fetch("administered.key_names", proof, sorted(set(key_ids)))
        return {key["key_id"]: key["name"] for key in found}

    async def create_key(self, proof: Proof, new: NewKey, made: MadeKey, *, reason: str, address: str | None) -> None:
        """Make a key; its text can be read nowhere later.

        Raises:
            InvalidArgument, InvalidText, InvalidParticipants: a field of the key is not allowed, or a key has its id
                already.
            KeyNameTaken: a key that has not ended has its name.
            RoleRequired, FaceNotAllowed, ParticipantsNotAllowed: it may more than the administrator's own.
            QuotaExceeded: the tenant has as many keys as it may.
        """
        new = new.checked()
        outcome = await self._change(
            "administered.create_key",
            proof,
            made.key_id,
            made.digest,
            new.name,
            list(new.roles),
            list(new.faces),
            list(new.own),
            list(new.may_ask),
            new.expires_s,
            _checked_reason(reason),
            address,
            MOST_KEYS,
        )
        if outcome != "made":
            raise _refusal(outcome, made.key_id)

    async def rotate_key(
        self, proof: Proof, key_id: str, made: MadeKey, *, overlap_s: float, reason: str, address: str | None
    ) -> None:
        """Replace a key by one of the same rights and lifetime; the old one ends after `overlap_s` seconds.

        Raises:
            KeyNotFound: there is none, or it has ended.
            InvalidArgument: it was rotated already.
            RoleRequired, FaceNotAllowed, ParticipantsNotAllowed, ChannelNotAllowed: it may more than the
                administrator's own, which would get those rights.
        """
        check_storable(key_id, "key_id")
        outcome = await self._change(
            "administered.rotate_key",
            proof,
            key_id,
            made.key_id,
            made.digest,
            overlap_s,
            _checked_reason(reason),
            address,
        )
        if outcome != "made":
            raise _refusal(outcome, key_id)

    async def revoke_key(self, proof: Proof, key_id: str, *, reason: str, address: str | None) -> None:
        """Revoke a key, whatever it may; a second call changes nothing.

        Raises:
            KeyNotFound: there is none of this id.
        """
        check_storable(key_id, "key_id")
        outcome = await self._change("administered.revoke_key", proof, key_id, _checked_reason(reason), address)
        if outcome == "none":
            raise _no_key(key_id)

    async def grants(self, proof: Proof, *, before: str | None = None, limit: int) -> list[Json]:
        """Return what programs were allowed with keys of the tenant, newest first, after the grant `before`."""
        return await self._fetch(
            "administered.grants", proof, None, None if before is None else _grant_id(before), limit
        )

    async def grant(self, proof: Proof, grant_id: str) -> Json:
        """Return one grant of the tenant.

        Raises:
            GrantNotFound: the tenant has none of this id.
        """
        found = await self._fetch("administered.grants", proof, _grant_id(grant_id), None, 1)
        if not found:
            raise _no_grant(grant_id)
        return found[0]

    async def end_grant(self, proof: Proof, grant_id: str, *, reason: str, address: str | None) -> None:
        """End a grant and all its tokens; a second call changes nothing.

        Raises:
            GrantNotFound: the tenant has none of this id.
        """
        outcome = await self._change(
            "administered.end_grant", proof, _grant_id(grant_id), _checked_reason(reason), address
        )
        if outcome == "none":
            raise _no_grant(grant_id)

    async def _fetch(self, statement: str, proof: Proof, *values: Any) -> list[Json]:
        async with self._database.read(proof.tenant) as connection:
            rows = await connection.fetch(sql(statement), proof.key_id, proof.digest, *values)
        return [_json(row) for row in rows]

    async def _change(self, statement: str, proof: Proof, *values: Any) -> str:
        async with self._database.write(proof.tenant) as connection:
            outcome: str = await connection.fetchval(sql(statement), proof.key_id, proof.digest, *values)
        return outcome


def _refusal(outcome: str, key_id: str) -> MyriaError:
    """Return the error for an outcome of the database's functions."""
    match outcome:
        case "none":
            return _no_key(key_id)
        case "ended":
            return KeyNotFound(f"the key {key_id} has ended; make a new one", key_id=key_id)
        case "replaced":
            return InvalidArgument(f"the key {key_id} was rotated already; rotate the one that replaces it")
        case "exists":
            return InvalidArgument(
                "This form has made its key already. It was shown then; if nobody saw it, revoke it and make another."
            )
        case "named":
            return KeyNameTaken(
                "name is that of a key that has not ended; give this one another name, or replace or revoke the other",
                field="name",
            )
        case "many":
            message = f"This tenant has {MOST_KEYS} keys, as many as its administrators may make. Revoke some first."
            return QuotaExceeded(message, limit="keys", value=MOST_KEYS)
    kind, what = _BEYOND[outcome]
    return kind(f"Your key gives nobody more than it has itself: the other key {what}.", roles=[])


def _checked_reason(reason: str) -> str:
    check_storable(reason, "reason")
    if len(reason) > MAX_REASON:
        raise InvalidArgument(f"the reason may have {MAX_REASON} characters", field="reason", limit=MAX_REASON)
    return reason.strip()


def _json(row: asyncpg.Record) -> Json:
    """Return a row as it is shown, with times in RFC 3339."""
    return {name: rfc3339_of(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _grant_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise _no_grant(text) from error


def _no_key(key_id: str) -> KeyNotFound:
    return KeyNotFound(f"this tenant has no key {key_id[:40]}", key_id=key_id[:40])


def _no_grant(grant_id: str) -> GrantNotFound:
    return GrantNotFound(f"this tenant has no grant {grant_id[:40]}", grant_id=grant_id[:40])
