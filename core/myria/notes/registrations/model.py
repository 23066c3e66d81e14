"""The form of a registration in the log, and its fold: each version is an internal event with all of its fields.

Versions of one registration follow each other, and no two agents have the same name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
import orjson

from myria.db.clock import to_microseconds, to_rfc3339
from myria.db.database import Connection
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import AgentExists, SessionMoved
from myria.log.event import NewEvent
from myria.log.projections import Incoming, Projection, Stored, payload_of

REGISTRATION_TYPE = "myria.registration"
REGISTRY_CHANNEL = "registry"

EntryKind = Literal["agent", "session"]

ACTIVE, CLOSED, DELETED = "active", "closed", "deleted"

Json = dict[str, Any]

_PREFIX = {"agent": "agent_", "session": "sess_"}
_ID_BYTES = 12
_NAMES_ONCE = "registrations_name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An agent or a session; times in microseconds since 1970 UTC.

    An agent has `name`, and may have `description` and `config`; a session has `agent_id`, and may have `metadata`;
    `closed_at` is when it was closed.
    """

    kind: EntryKind
    entry_id: str
    version: int = 1
    status: str = ACTIVE
    name: str | None = None
    agent_id: str | None = None
    description: str | None = None
    config: Json | None = None
    metadata: Json | None = None
    closed_at: int | None = None
    created_at: int = 0
    updated_at: int = 0

    def agent_json(self, tenant: str, *, last_active_at: int | None) -> Json:
        """Return an agent in the contract's form."""
        body: Json = {"id": self.entry_id, "org_id": tenant, "name": self.name}
        if self.description is not None:
            body["description"] = self.description
        if self.config is not None:
            body["config"] = self.config
        body["created_at"] = to_rfc3339(self.created_at)
        if last_active_at is not None:
            body["last_active_at"] = to_rfc3339(last_active_at)
        return body

    def session_json(self, tenant: str) -> Json:
        """Return a session in the contract's form."""
        body: Json = {"id": self.entry_id, "org_id": tenant, "agent_id": self.agent_id, "status": self.status}
        if self.metadata is not None:
            body["metadata"] = self.metadata
        body |= {"created_at": to_rfc3339(self.created_at), "updated_at": to_rfc3339(self.updated_at)}
        if self.closed_at is not None:
            body["closed_at"] = to_rfc3339(self.closed_at)
        return body


def new_entry_id(kind: EntryKind) -> str:
    """Return a new id such as `agent_` or `sess_` and 24 hexadecimal digits."""
    return _PREFIX[kind] + os.urandom(_ID_BYTES).hex()


def registration_event(entry: Entry, participants: tuple[str, ...], *, at: int, key: str | None = None) -> NewEvent:
    """Return the event of a version of a registration.

    Args:
        at: in microseconds since 1970 UTC.
        key: the source key of the event.
    """
    registration: Json = {"kind": entry.kind, "id": entry.entry_id, "version": entry.version, "status": entry.status}
    for name in ("name", "agent_id", "description", "config", "metadata", "closed_at"):
        if (value := getattr(entry, name)) is not None:
            registration[name] = value
    return NewEvent(
        timestamp=at,
        channel=REGISTRY_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps({"registration": registration}, option=orjson.OPT_SORT_KEYS),
        source_event_key=key,
        context_id=entry.entry_id if entry.kind == "session" else None,
        type=REGISTRATION_TYPE,
        internal=True,
    )


def entry_of(kind: EntryKind, row: Any) -> Entry:
    """Return the registration of a row of `registrations.by_id` and its like."""
    registration = orjson.loads(row["payload"]).get("registration", {})
    return Entry(
        kind=kind,
        entry_id=row["id"],
        version=row["version"],
        status=row["status"],
        name=row["name"],
        agent_id=row["agent_id"],
        description=registration.get("description"),
        config=registration.get("config"),
        metadata=registration.get("metadata"),
        closed_at=registration.get("closed_at"),
        created_at=to_microseconds(row["created_at"]),
        updated_at=to_microseconds(row["updated_at"]),
    )


class RegistrationProjection(Projection):
    """Folds registrations into `registrations`."""

    types = frozenset({REGISTRATION_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock registrations, and refuse a version that does not follow the newest.

        An import repeats what another server accepted, so nothing of it is refused.

        Raises:
            SessionMoved: another call stored the next version meanwhile.
        """
        entries = [_read_registration(event) for event in events]
        lock_keys = {
            lock_key("registration", tenant, registration["kind"], registration["id"]) for registration in entries
        }
        await connection.execute(sql("registrations.lock"), sorted(lock_keys))
        if importing:
            return
        rows = await connection.fetch(
            sql("registrations.standing"),
            tenant,
            [registration["kind"] for registration in entries],
            [registration["id"] for registration in entries],
        )
        newest: dict[tuple[str, str], int] = {}
        for event, registration, row in zip(events, entries, rows, strict=True):
            if row["event_id"] == event.event_id:
                continue  # a retry of a version whose first append had committed, though its caller did not learn of it
            entry = (registration["kind"], registration["id"])
            if registration["version"] != newest.get(entry, row["version"] or 0) + 1:
                raise SessionMoved("it was changed meanwhile; nothing was stored: retry")
            newest[entry] = registration["version"]

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the registrations of a commit.

        Raises:
            AgentExists: another agent has the name.
        """
        try:
            await connection.execute(sql("registrations.fold"), tenant, [event.event_seq for event in events])
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != _NAMES_ONCE:
                raise
            raise AgentExists("an agent with this name is registered already; nothing was stored") from error


def _read_registration(event: Incoming) -> dict[str, Any]:
    """Return kind, id and version of a registration's event, with empty values where it lacks them."""
    fields = payload_of(event.event).get("registration")
    fields = fields if isinstance(fields, dict) else {}
    return {
        "kind": fields["kind"] if isinstance(fields.get("kind"), str) else "",
        "id": fields["id"] if isinstance(fields.get("id"), str) else "",
        "version": fields["version"] if type(fields.get("version")) is int else 0,
    }
