"""The fold of turns, in the append transaction: each once, and those of one session one after the other.

Marks of one session take its lock before they get their numbers. A mark names the one that its caller saw as the
newest; where another came in between, its caller alone is refused, looks again, and stores the turn behind that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from myria.db.arrays import texts
from myria.db.database import Connection
from myria.db.locks import turns_lock_key
from myria.db.queries import sql
from myria.errors import SessionMoved
from myria.log.projections import AtOnce, Incoming, Projection, Stored, numbers_alone
from myria.notes.turns.model import TURN_TYPE


class TurnProjection(Projection):
    """Folds marks into `turns` and `turn_sessions`; implements `myria.log.projections.Projection`."""

    types = frozenset({TURN_TYPE})

    def at_once(self, tenant: str, folded: Mapping[int, Incoming], order: Sequence[int]) -> AtOnce | None:
        """Return how the marks of a commit are appended with their rows.

        Args:
            folded: all events of the commit of which something is folded, by their positions in it.
            order: the positions of all events, in the order in which they are inserted.

        Returns:
            None where they need statements of their own: facts come with them, or two are of one session.
        """
        if any(event.event.type != TURN_TYPE or event.event.context_id is None for event in folded.values()):
            return None
        said = [_said(event) for event in folded.values()]
        contexts = [event.event.context_id or "" for event in folded.values()]
        owners = [one["owner"] for one in said]
        if len(set(zip(owners, contexts, strict=True))) < len(said):
            return None
        columns = (
            [place + 1 for place in folded],
            [event.scope_id for event in folded.values()],
            sorted({turns_lock_key(tenant, *session) for session in zip(owners, contexts, strict=True)}),
            owners,
            contexts,
            [one["id"] for one in said],
            [texts(one["items"]) for one in said],
            [one["previous"] for one in said],
        )
        return AtOnce("turns.append_new", columns, numbers_alone)

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
            sql("turns.standing"),
            tenant,
            [said["owner"] for _, said in marks],
            [event.event.context_id for event, _ in marks],
            [said["id"] for _, said in marks],
        )
        newest: dict[tuple[bytes, str | None], str | None] = {}
        for (event, said), row in zip(marks, rows, strict=True):
            if row["stored_id"] == event.event_id:
                continue  # this very mark, whose first attempt had committed unseen
            session = (said["owner"], event.event.context_id)
            last = newest.get(session, row["newest_id"])
            if row["stored_id"] is not None or said["previous"] != last:
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
