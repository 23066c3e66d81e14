"""Tenants, keys and grants in the database, as the control plane keeps them: made, shown, changed and ended.

Nobody has more of a key, a code or a token than a digest.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, get_args
from unicodedata import category, normalize

import asyncpg

from myria.access.journal import Act, write_act
from myria.access.principal import (
    API_NAMES,
    MAX_PATTERNS,
    ROLES,
    TEXT_FORMATS,
    ApiName,
    Role,
    TextFormat,
    checked_pattern,
)
from myria.access.secrets import MadeKey, make_key
from myria.access.tenants import checked_tenant
from myria.db.clock import rfc3339_of
from myria.db.database import ALL_TENANTS, Connection, Database
from myria.db.queries import sql
from myria.errors import (
    GrantNotFound,
    InvalidArgument,
    InvalidText,
    KeyNameTaken,
    KeyNotFound,
    TenantDeleting,
    TenantExists,
    TenantNotFound,
)
from myria.log.fields import check_name
from myria.log.jsontext import check_storable
from myria.log.scopes import canonical_participants
from myria.settings.database import KINDS, Kind
from myria.settings.serving import TurnsMode

Json = dict[str, Any]

MAX_NAME = 100
MAX_DESCRIPTION = 500
QUOTAS = {
    "events_per_s": (0.0, 10_000_000),
    "bytes_stored": (1, 1 << 60),
    "concurrent_builds": (0, 1),
    "model_tokens_per_day": (0, 1 << 50),
}
"""The quotas of a tenant, each with its least and greatest value; the least of events_per_s itself is excluded."""
MAX_LIFETIME_S = 100 * 365 * 86_400.0
DEFAULT_FACES: tuple[ApiName, ...] = tuple(face for face in API_NAMES if face != "admin")


@dataclass(frozen=True, kw_only=True, slots=True)
class NewKey:
    """What a new key will be allowed; see `Principal`. `expires_s` is in seconds from now, None for never."""

    name: str
    tenant: str
    roles: Sequence[Role] = ("append", "read")
    faces: Sequence[ApiName] = DEFAULT_FACES
    own: Sequence[str] = ()
    may_ask: Sequence[str] = ()
    channels: Sequence[str] | None = None
    requests_per_s: float | None = None
    concurrency: int | None = None
    text_format: TextFormat | None = None
    description: str | None = None
    expires_s: float | None = None

    def checked(self) -> NewKey:
        """Validate all fields, and return a copy with each in canonical form.

        Raises:
            InvalidArgument, InvalidText, InvalidParticipants: a value is not allowed; the error names the field.
        """
        name = _checked_name(self.name)
        if self.description is not None:
            _check_text(self.description, "description", MAX_DESCRIPTION)
        roles = _checked_choice(self.roles, ROLES, "role")
        faces = _checked_choice(self.faces, API_NAMES, "face")
        own = canonical_participants(list(self.own), field="as") if self.own else ()
        if not own and not self.may_ask and {"append", "read"} & set(roles):
            raise InvalidArgument(
                "a key that appends or reads must speak for somebody: name participants of its own, or patterns of "
                "those that it may ask as",
                field="as",
            )
        if self.text_format not in (None, *TEXT_FORMATS):
            raise InvalidArgument(f"format must be one of {', '.join(TEXT_FORMATS)}", field="format")
        if self.expires_s is not None and not 0 < self.expires_s <= MAX_LIFETIME_S:
            raise InvalidArgument("a key must expire within a hundred years, and not at once", field="expires")
        return replace(
            self,
            name=name,
            tenant=checked_tenant(self.tenant),
            roles=roles,
            faces=faces,
            own=own,
            may_ask=_patterns(self.may_ask, "may_ask"),
            channels=None if self.channels is None else _patterns(self.channels, "channel"),
        )


class AccessStore:
    """Tenants, keys and grants of one database. Each change and its journal entry are one transaction.

    Needs the rights of the control plane. Tenants, keys and grants are returned as JSON, with times in RFC 3339.

    Args:
        actor: who makes the changes, for the journal.

    Methods that name a tenant, a key or a grant raise TenantNotFound, KeyNotFound or GrantNotFound where there is none;
    those that change one raise InvalidArgument, and change nothing, for a value that it cannot have.
    """

    def __init__(self, database: Database, *, actor: str = "cli") -> None:
        self._database = database
        self._actor = actor

    async def create_tenant(self, name: str) -> Json:
        """Make a tenant.

        Raises:
            TenantExists: there is one of this name.
        """
        if not await self.ensure_tenant(name):
            raise TenantExists(f"there is a tenant {name} already", tenant=name)
        return await self.tenant(name)

    async def ensure_tenant(self, name: str) -> bool:
        """Make a tenant where there is none of this name; tell whether it was made."""
        async with self._database.write(checked_tenant(name)) as connection:
            is_new = await connection.fetchval(sql("access.create_tenant"), name) is not None
            if is_new:
                await self._write_act(connection, name, "tenant.create", name)
        return is_new

    async def tenants(self) -> list[Json]:
        """Return all tenants by name."""
        async with self._database.read(ALL_TENANTS) as connection:
            return [_tenant(row) for row in await connection.fetch(sql("access.tenants"), None)]

    async def tenant(self, name: str) -> Json:
        """Return one tenant.

        Raises:
            TenantNotFound: there is none of this name; the detail `remains` names the tables that hold rows of it
                nevertheless: none, once a tenant is deleted.
        """
        async with self._database.read(checked_tenant(name)) as connection:
            row = await connection.fetchrow(sql("access.tenants"), name)
            if row is not None:
                return _tenant(row)
            remains = [found["name"] for found in await connection.fetch(sql("access.remains_of_tenant"), name)]
        left = f"rows of it are left in {', '.join(remains)}" if remains else "nothing of it is left"
        raise TenantNotFound(
            f"there is no tenant {name}, and {left}; `myria tenant create {name}` makes it",
            tenant=name,
            remains=remains,
        )

    async def set_quotas(self, name: str, quotas: Mapping[str, float | None]) -> Json:
        """Set some of a tenant's quotas (`QUOTAS`); a quota set to None follows the settings."""
        values = {quota: _checked_quota(quota, value) for quota, value in quotas.items()}
        # The statement takes the names of the quotas to change, then a value for each quota that exists.
        changes = (list(values), *(values.get(quota) for quota in QUOTAS))
        return await self._change_tenant(name, "tenant.set", sql("access.set_quotas"), *changes, **values)

    async def set_redaction(self, name: str, kinds: Sequence[Kind] | None) -> Json:
        """Set what is redacted from a tenant's new payloads; takes effect within five seconds. Stored events stay.

        Args:
            kinds: an empty list redacts nothing; None follows the settings.
        """
        chosen = None if kinds is None else list(_checked_choice(kinds, KINDS, "kind", least=0))
        return await self._change_tenant(name, "tenant.redact", sql("access.set_redaction"), chosen, kinds=chosen)

    async def set_turns(self, name: str, mode: TurnsMode | None) -> Json:
        """Set whether turns are served to a tenant, and compared with its own results; effective within five seconds.

        Args:
            mode: None follows the settings.
        """
        if mode is not None:
            _checked_choice([mode], get_args(TurnsMode), "mode", least=1)
        return await self._change_tenant(name, "tenant.turns", sql("access.set_turns"), mode, mode=mode)

    async def suspend_tenant(self, name: str, reason: str | None = None) -> Json:
        """Refuse a tenant's credentials from now on, on every pod within a second; its data stays."""
        check_storable(reason, "reason")
        return await self._change_tenant(name, "tenant.suspend", sql("access.suspend_tenant"), reason, reason=reason)

    async def resume_tenant(self, name: str) -> Json:
        """Accept a suspended tenant's credentials again; also cancels a deletion that has removed nothing yet.

        Raises:
            TenantDeleting: a part of it is removed already.
        """
        async with self._database.write(name) as connection:
            resumed = await connection.fetchrow(sql("access.resume_tenant"), name)
            if resumed is not None:
                await self._write_act(connection, name, "tenant.resume", name)
        tenant = await self.tenant(name)
        if resumed is None:
            raise TenantDeleting(f"a part of tenant {name} is removed already; `myria tenant delete {name}` goes on")
        return tenant

    async def create_key(self, new: NewKey, made: MadeKey | None = None) -> tuple[MadeKey, Json]:
        """Make a key; return its text, which cannot be read again later, and what it may do.

        Args:
            made: the key's id and text; None to make random ones. A given one may have the name of a living key:
                that is how somebody replaces the key of a Secret.

        Raises:
            KeyNameTaken: a key that has not ended has this name.
        """
        new, is_given, made = new.checked(), made is not None, made or make_key()
        allowed = {"name": new.name, "roles": new.roles, "faces": new.faces, "as": new.own, "may_ask": new.may_ask}
        async with self._database.write(new.tenant) as connection:
            taken = None if is_given else await connection.fetchval(sql("access.key_named"), new.tenant, new.name)
            if taken is not None:
                raise KeyNameTaken(
                    f"name is that of the key {taken}, which has not ended; give this one another name, or rotate or "
                    "revoke the other",
                    field="name",
                    key_id=taken,
                )
            try:
                await connection.execute(
                    sql("access.create_key"),
                    new.tenant,
                    made.key_id,
                    new.name,
                    new.description,
                    made.digest,
                    list(new.roles),
                    list(new.faces),
                    list(new.own),
                    list(new.may_ask),
                    None if new.channels is None else list(new.channels),
                    new.requests_per_s,
                    new.concurrency,
                    new.text_format,
                    self._actor,
                    new.expires_s,
                )
            except asyncpg.ForeignKeyViolationError as error:
                raise _no_tenant(new.tenant) from error
            await self._write_act(connection, new.tenant, "key.create", made.key_id, **allowed)
        return made, await self.key(made.key_id)

    async def create_first_key(self, tenant: str, own: Sequence[str]) -> MadeKey | None:
        """Make the tenant if it is missing, and a key that may do everything but erase.

        Returns None, and makes no key, if the tenant has an active key already.
        """
        await self.ensure_tenant(tenant)
        if any(key["state"] == "active" for key in await self.keys(tenant)):
            return None
        new = NewKey(
            name="first",
            tenant=tenant,
            roles=("append", "read", "admin"),
            faces=API_NAMES,
            own=own,
            description="made by `myria up --auth`",
        )
        return (await self.create_key(new))[0]

    async def ensure_key(self, new: NewKey, made: MadeKey) -> tuple[Json, bool]:
        """Make a key whose text the caller already keeps, unless it exists; return it, and whether it was made now.

        Raises:
            InvalidArgument: a key of this id exists with another secret.
        """
        async with self._database.read(ALL_TENANTS) as connection:
            row = await connection.fetchrow(sql("access.key_digest"), made.key_id)
        if row is None:
            return (await self.create_key(new, made))[1], True
        if row["digest"] != made.digest:
            raise InvalidArgument(
                "there is a key of this id with another secret; give this one another id", field="key"
            )
        return await self.key(made.key_id), False

    async def rotate_key(self, key_id: str, *, overlap_s: float, reason: str | None = None) -> tuple[MadeKey, Json]:
        """Replace a key by one of the same rights and lifetime; the old key ends after `overlap_s` seconds.

        Raises:
            KeyNotFound: there is none, or it has ended.
            InvalidArgument: it was rotated already.
        """
        made = make_key()
        overlap_s = max(0.0, overlap_s)
        check_storable(key_id, "key_id")
        check_storable(reason, "reason")
        async with self._database.write(ALL_TENANTS) as connection:
            await connection.execute(sql("access.hold_key"), key_id)
            old = await connection.fetchrow(sql("access.keys"), None, key_id)
            if old is None:
                raise _no_key(key_id)
            if old["state"] != "active":
                raise KeyNotFound(f"the key {key_id} has ended; make a new one", key_id=key_id)
            if old["replaced_by"] is not None:
                raise InvalidArgument(
                    f"the key {key_id} was rotated already; rotate {old['replaced_by']}, which replaces it",
                    field="key_id",
                )
            rotation = (key_id, made.key_id, made.digest, self._actor, overlap_s)
            await connection.execute(sql("access.rotate_key"), *rotation)
            await self._write_act(
                connection,
                old["tenant"],
                "key.rotate",
                key_id,
                new_key=made.key_id,
                overlap_s=overlap_s,
                **_why(reason),
            )
        return made, await self.key(made.key_id)

    async def revoke_key(self, key_id: str, *, reason: str | None = None) -> Json:
        """Revoke a key; it ends on every pod within a second. A second call changes and notes nothing."""
        check_storable(key_id, "key_id")
        check_storable(reason, "reason")
        async with self._database.write(ALL_TENANTS) as connection:
            row = await connection.fetchrow(sql("access.revoke_key"), key_id)
            if row is None:
                raise _no_key(key_id)
            if not row["was_revoked"]:
                await self._write_act(connection, row["tenant_id"], "key.revoke", key_id, **_why(reason))
        return await self.key(key_id)

    async def keys(self, tenant: str | None = None) -> list[Json]:
        """Return the keys of a tenant, or of all."""
        async with self._database.read(ALL_TENANTS) as connection:
            return [_json(row) for row in await connection.fetch(sql("access.keys"), tenant, None)]

    async def key(self, key_id: str) -> Json:
        """Return one key."""
        check_storable(key_id, "key_id")
        async with self._database.read(ALL_TENANTS) as connection:
            row = await connection.fetchrow(sql("access.keys"), None, key_id)
        if row is None:
            raise _no_key(key_id)
        return _json(row)

    async def grants(self, tenant: str | None = None) -> list[Json]:
        """Return the grants of a tenant, or of all, oldest first."""
        async with self._database.read(ALL_TENANTS) as connection:
            return [_json(row) for row in await connection.fetch(sql("oauth.grants"), tenant, None)]

    async def grant(self, grant_id: str) -> Json:
        """Return one grant; those that ended long ago are forgotten."""
        async with self._database.read(ALL_TENANTS) as connection:
            row = await connection.fetchrow(sql("oauth.grants"), None, _grant_id(grant_id))
        if row is None:
            raise _no_grant(grant_id)
        return _json(row)

    async def revoke_grant(self, grant_id: str, *, reason: str | None = None) -> Json:
        """End a grant and all its tokens, on every pod within a second; an ended grant stays as it is."""
        check_storable(reason, "reason")
        async with self._database.write(ALL_TENANTS) as connection:
            ended = await connection.fetchrow(sql("oauth.end_grant"), _grant_id(grant_id), f"revoked by {self._actor}")
            if ended is not None:
                details = {name: value for name, value in ended.items() if name != "tenant_id"}
                await self._write_act(
                    connection, ended["tenant_id"], "grant.revoke", grant_id, **details, **_why(reason)
                )
        return await self.grant(grant_id)

    async def _change_tenant(self, name: str, action: str, statement: str, *values: Any, **details: Any) -> Json:
        """Run a statement that changes a tenant's row, write the act into the journal, and return the tenant."""
        async with self._database.write(checked_tenant(name)) as connection:
            if await connection.fetchrow(statement, name, *values) is None:
                raise _no_tenant(name)
            await self._write_act(connection, name, action, name, **details)
        return await self.tenant(name)

    async def _write_act(self, connection: Connection, tenant: str, action: str, target: str, **details: Any) -> None:
        act = Act(tenant=tenant, actor=self._actor, action=action, target=target, details=details)
        await write_act(connection, act)


def _why(reason: str | None) -> Json:
    """Return what the journal says of why somebody acted: nothing where it was not said."""
    return {} if reason is None else {"reason": reason}


def _checked_quota(quota: str, value: float | None) -> float | int | None:
    """Validate a quota's new value and return it as the stored type: float for events_per_s, int for the others.

    None (use the value of the settings) stays None.
    """
    if quota not in QUOTAS:
        raise InvalidArgument(f"there is no quota {quota!r}; there are {', '.join(QUOTAS)}", field="key")
    if value is None:
        return None
    least, most = QUOTAS[quota]
    if quota == "events_per_s":
        if not least < value <= most:
            raise InvalidArgument(f"events_per_s must lie above 0, up to {most:,}", field=quota)
        return float(value)
    if not least <= value <= most or value != int(value):
        raise InvalidArgument(f"{quota} must be a whole number from {least:,} to {most:,}", field=quota)
    return int(value)


def _check_text(text: str, field: str, limit: int) -> None:
    check_storable(text, field)
    if not 1 <= len(text.strip()) <= limit:
        raise InvalidArgument(f"{field} must have 1..{limit} characters", field=field, limit=limit)


def _checked_name(name: str) -> str:
    """Validate a key's name as names of participants are, and return it normalised (NFC) and trimmed."""
    _check_text(name, "name", MAX_NAME)
    canonical = check_name(normalize("NFC", name).strip(), "name", MAX_NAME)
    if any(category(character) == "Cc" for character in canonical):
        raise InvalidText("name holds a control character; remove it", field="name")
    return canonical


def _checked_choice(choices: Sequence[Any], allowed: Sequence[Any], name: str, *, least: int = 1) -> tuple[Any, ...]:
    """Validate a choice of known values; return it without repeats, in the order of `known`."""
    for choice in choices:
        if choice not in allowed:
            raise InvalidArgument(f"{name} must be one of {', '.join(allowed)}", field=name)
    if len(choices) < least:
        raise InvalidArgument(f"name at least one {name}", field=name)
    return tuple(choice for choice in allowed if choice in choices)


def _patterns(patterns: Sequence[str], name: str) -> tuple[str, ...]:
    if len(patterns) > MAX_PATTERNS:
        raise InvalidArgument(f"at most {MAX_PATTERNS} patterns", field=name, limit=MAX_PATTERNS)
    return tuple(sorted({checked_pattern(pattern, name) for pattern in patterns}))


def _json(row: asyncpg.Record) -> Json:
    """Return a row as it is shown, with times in RFC 3339."""
    return {name: rfc3339_of(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _tenant(row: asyncpg.Record) -> Json:
    tenant = _json(row)
    return {
        "tenant": tenant["tenant_id"],
        "state": "deleting" if tenant["deleting_at"] else "suspended" if tenant["suspended_at"] else "active",
        "created_at": tenant["created_at"],
        "suspended_at": tenant["suspended_at"],
        "suspended_reason": tenant["suspended_reason"],
        **{quota: tenant[quota] for quota in QUOTAS},
        "redacted": tenant["redacted"],
        "turns": tenant["turns_mode"],
        "use": {
            "bytes_stored": tenant["stored"],
            "concurrent_builds": tenant["builds"],
            "model_tokens_per_day": tenant["model_tokens"],
        },
        "active_keys": tenant["keys"],
        "active_snapshot": tenant["snapshot_id"],
    }


def _grant_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise _no_grant(text) from error


def _no_tenant(name: str) -> TenantNotFound:
    return TenantNotFound(f"there is no tenant {name}; `myria tenant create {name}` makes it", tenant=name)


def _no_key(key_id: str) -> KeyNotFound:
    return KeyNotFound(f"there is no key {key_id}; `myria key list` shows them", key_id=key_id)


def _no_grant(grant_id: str) -> GrantNotFound:
    return GrantNotFound(f"there is no grant {grant_id[:100]}; `myria grant list` shows them", grant_id=grant_id[:100])
