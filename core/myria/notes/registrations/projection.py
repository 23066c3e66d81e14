"""The fold of registrations, in the append transaction: versions of one follow each other, and names are given once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import orjson

from myria.db.database import Connection
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import AgentExists, SessionMoved
from myria.log.projections import Incoming, Projection, Stored
from myria.notes.registrations.model import REGISTRATION_TYPE

_NAMES_ONCE = "registrations_name"


class RegistrationProjection(Projection):
    """Folds registrations into `registrations`."""

    types = frozenset({REGISTRATION_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock registrations, and refuse a version that does not follow the newest.

        An import repeats what happened elsewhere: nothing of it is refused.

        Raises:
            SessionMoved: another version came before.
        """
        entries = [_said(event) for event in events]
        keys = {lock_key("registration", tenant, said["kind"], said["id"]) for said in entries}
        await connection.execute(sql("registrations.lock"), sorted(keys))
        if importing:
            return
        rows = await connection.fetch(
            sql("registrations.standing"), tenant, [said["kind"] for said in entries], [said["id"] for said in entries]
        )
        newest: dict[tuple[str, str], int] = {}
        for event, said, row in zip(events, entries, rows, strict=True):
            if row["event_id"] == event.event_id:
                continue  # this very version, whose first attempt had committed unseen
            entry = (said["kind"], said["id"])
            if said["version"] != newest.get(entry, row["version"] or 0) + 1:
                raise SessionMoved("it was changed meanwhile; nothing was stored: retry")
            newest[entry] = said["version"]

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


def _said(event: Incoming) -> dict[str, Any]:
    said = orjson.loads(event.event.payload_json).get("registration")
    said = said if isinstance(said, dict) else {}
    return {
        "kind": said["kind"] if isinstance(said.get("kind"), str) else "",
        "id": said["id"] if isinstance(said.get("id"), str) else "",
        "version": said["version"] if type(said.get("version")) is int else 0,
    }
