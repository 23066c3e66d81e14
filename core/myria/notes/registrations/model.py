"""What a registration is in the log: an internal event of a reserved type, which says all of it anew. Pure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from myria.db.clock import to_microseconds, to_rfc3339
from myria.log.event import NewEvent

REGISTRATION_TYPE = "myria.registration"
REGISTRY_CHANNEL = "registry"

EntryKind = Literal["agent", "session"]

ACTIVE, CLOSED, DELETED = "active", "closed", "deleted"

Json = dict[str, Any]

_PREFIX = {"agent": "agent_", "session": "sess_"}
_ID_BYTES = 12


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
        key: its source key.
    """
    said: Json = {"kind": entry.kind, "id": entry.entry_id, "version": entry.version, "status": entry.status}
    for name in ("name", "agent_id", "description", "config", "metadata", "closed_at"):
        if (value := getattr(entry, name)) is not None:
            said[name] = value
    return NewEvent(
        timestamp=at,
        channel=REGISTRY_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps({"registration": said}, option=orjson.OPT_SORT_KEYS),
        source_event_key=key,
        context_id=entry.entry_id if entry.kind == "session" else None,
        type=REGISTRATION_TYPE,
        internal=True,
    )


def entry_of(kind: EntryKind, row: Any) -> Entry:
    """Return the registration of a row of `registrations.by_id` and its like."""
    said = orjson.loads(row["payload"]).get("registration", {})
    return Entry(
        kind=kind,
        entry_id=row["id"],
        version=row["version"],
        status=row["status"],
        name=row["name"],
        agent_id=row["agent_id"],
        description=said.get("description"),
        config=said.get("config"),
        metadata=said.get("metadata"),
        closed_at=said.get("closed_at"),
        created_at=to_microseconds(row["created_at"]),
        updated_at=to_microseconds(row["updated_at"]),
    )
