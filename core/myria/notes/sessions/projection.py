"""The fold of sessions, in the append transaction: the newest run of each, which says what of it has expired.

Events of one session take its lock before they get their numbers, so the order of numbers is the order of commits, and
the row that stands is the state below them. Notes that name no session cost nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

from myria.db.database import Connection
from myria.db.locks import session_lock_key
from myria.db.queries import sql
from myria.log.projections import Incoming, Projection, Stored
from myria.notes.model import NOTE_TYPE
from myria.notes.sessions.model import SESSION_TYPE


class SessionProjection(Projection):
    """Folds notes of sessions, and their ends, into `sessions`.

    It stands after the projection of notes, whose rows it reads.
    """

    types = frozenset({NOTE_TYPE, SESSION_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock the sessions of events."""
        keys = {
            session_lock_key(tenant, event.scope_id, event.event.context_id)
            for event in events
            if event.event.context_id is not None
        }
        if keys:
            await connection.execute(sql("sessions.lock"), sorted(keys))

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the sessions of a commit, and let maintenance look at what it ended."""
        numbers = [event.event_seq for event in events if event.event.context_id is not None]
        if not numbers:
            return
        await connection.execute(sql("sessions.fold"), tenant, numbers)
        if any(event.event.type == SESSION_TYPE for event in events):
            await connection.execute(sql("sessions.look_at_ended"), tenant, numbers)
