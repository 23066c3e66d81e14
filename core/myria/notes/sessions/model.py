"""A session: the notes of one context within a scope, from its first note to its end or to an idle hour.

Its end is an event of a reserved type. It is internal, so it is never part of a topic and no trigger counts it as text.
The append transaction folds the newest run of each session, which says what of it has expired. Events of one session
take its lock before they get their numbers, so the order of numbers is the order of commits, and the row that stands is
the state below them. Notes that name no session cost nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson

from myria.db.database import Connection
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.log.event import NewEvent
from myria.log.projections import Incoming, Projection, Stored
from myria.notes.model import NOTE_TYPE

SESSION_TYPE = "myria.session"
SESSION_CHANNEL = "myria"

EndReason = Literal["reflect", "closed"]


def session_end(
    session_id: str | None,
    participants: tuple[str, ...],
    *,
    timestamp: int,
    reason: EndReason,
    idle_s: int,
    key: str,
    about: Mapping[str, Any],
) -> NewEvent:
    """Return the event that ends a session of a scope.

    Args:
        session_id: None where the caller named no session: then the event only keeps `about`, and ends nothing.
        participants: the session's, in canonical form.
        timestamp: in microseconds since 1970 UTC.
        idle_s: seconds without a note after which a session is over by itself.
        key: equal for repeats of the call.
        about: further facts to keep with the end.
    """
    session: dict[str, Any] = {"state": "ended", "reason": reason, "idle_s": idle_s}
    payload: dict[str, Any] = {"session": session}
    if about:
        payload["about"] = dict(about)
    return NewEvent(
        timestamp=timestamp,
        channel=SESSION_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
        context_id=session_id,
        source_event_key=f"session:{key}",
        type=SESSION_TYPE,
        internal=True,
    )


class SessionProjection(Projection):
    """Folds notes of sessions, and their ends, into `sessions`.

    It comes after the projection of notes, whose rows it reads.
    """

    types = frozenset({NOTE_TYPE, SESSION_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock the sessions of events."""
        keys = {
            lock_key("session", tenant, event.scope_id, event.event.context_id)
            for event in events
            if event.event.context_id is not None
        }
        if keys:
            await connection.execute(sql("sessions.lock"), sorted(keys))

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of a commit's sessions, and queue the notes of those that it ended for maintenance."""
        numbers = [event.event_seq for event in events if event.event.context_id is not None]
        if not numbers:
            return
        await connection.execute(sql("sessions.fold"), tenant, numbers)
        if any(event.event.type == SESSION_TYPE for event in events):
            await connection.execute(sql("sessions.look_at_ended"), tenant, numbers)
