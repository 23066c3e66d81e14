"""The fold of turns, in the append transaction: each once, and those of one session one after the other.

Marks of one session take its lock before they get their numbers. A mark names the one that its caller saw as the
newest; where another came in between, its caller alone is refused, looks again, and stores the turn behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from myria.db.database import Connection
from myria.db.locks import turns_lock_key
from myria.db.queries import sql
from myria.errors import SessionMoved
from myria.log.projections import Incoming, Projection, Stored
from myria.notes.turns.model import TURN_TYPE


class TurnProjection(Projection):
    """Folds marks into `turns` and `turn_sessions`."""

    types = frozenset({TURN_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock the sessions of marks, and refuse a turn that is stored, or that another came before.

        An import repeats what happened elsewhere: nothing of it is refused.

        Raises:
            SessionMoved: the newest mark of the session is another than the mark says.
        """
        marks = [(event, _said(event)) for event in events]
        keys = {turns_lock_key(tenant, said["owner"], event.event.context_id or "") for event, said in marks}
        await connection.execute(sql("turns.lock"), sorted(keys))
        if importing:
            return
        rows = await connection.fetch(
            sql("turns.before_marks"),
            tenant,
            [said["owner"] for _, said in marks],
            [event.event.context_id for event, _ in marks],
            [event.event_id for event, _ in marks],
        )
        newest: dict[tuple[bytes, str | None], str | None] = {}
        for (event, said), row in zip(marks, rows, strict=True):
            if row["is_stored"]:
                continue  # this very mark, whose first attempt had committed unseen
            session = (said["owner"], event.event.context_id)
            last = newest.get(session, row["newest_id"])
            if said["previous"] != last:
                raise SessionMoved("another turn of this session was stored meanwhile; nothing was stored: retry")
            newest[session] = event.event_id

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the marks of a commit."""
        await connection.execute(sql("turns.fold"), tenant, [event.event_seq for event in events])


def _said(event: Incoming) -> dict[str, Any]:
    said = orjson.loads(event.event.payload_json).get("turn")
    said = said if isinstance(said, dict) else {}
    owner = said.get("owner")
    return {
        "owner": bytes.fromhex(owner) if isinstance(owner, str) and _is_hex(owner) else b"",
        "id": said["id"] if isinstance(said.get("id"), str) else "",
        "items": said["items"] if isinstance(said.get("items"), list) else [],
        "previous": said.get("previous"),
    }


def _is_hex(text: str) -> bool:
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)
