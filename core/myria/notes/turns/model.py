"""Sessions of turns, and what a turn is in the log: an event for each item, notes for its facts, and a mark.

The mark says that the turn is complete. It is an internal event of a reserved type that names the items, and the mark
of the turn before: so turns of one session follow each other, whoever stores them. The append transaction folds marks,
which take their session's lock before they get their numbers. Where another turn came in between, the caller of the
later one alone is refused, looks again, and stores it behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from myria.db.database import Connection
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import SessionMoved
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.ids import new_id
from myria.log.projections import Incoming, Projection, Stored
from myria.notes.turns.facts import FactContext
from myria.notes.turns.items import Json, packed, text_of, unpacked

TURN_TYPE = "myria.turn"
INPUT_TYPE, OUTPUT_TYPE = "input_item", "output_item"
CHANNEL_PREFIX = "turn:"

_OWNER_SHOWN = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Whose turns follow each other: of `own` participants, of a project and a session.

    `participants` are canonical, those of its events: `own` and the user.
    """

    own: tuple[str, ...]
    participants: tuple[str, ...]
    project: str
    session_id: str

    @property
    def owner(self) -> bytes:
        """What tells it from a session of others with the same names: 32 bytes."""
        return _owner(self.own)

    @property
    def context_id(self) -> str:
        """The context of its events: a slash in the project is escaped, so that no two sessions share one."""
        return f"{self.project.replace('%', '%25').replace('/', '%2F')}/{self.session_id}"

    @property
    def channel(self) -> str:
        """The channel of its events."""
        return f"{CHANNEL_PREFIX}{self.context_id}"

    def facts_of(self, tenant: str) -> FactContext:
        """Return where a tenant keeps its facts."""
        return FactContext(tenant=tenant, owner=self.owner, participants=self.participants, context_id=self.context_id)

    def key(self, name: str) -> str:
        """Return the source key of one of its events."""
        return f"{name}@{self.owner.hex()[:_OWNER_SHOWN]}"


@lru_cache(maxsize=16_384)
def _owner(own: tuple[str, ...]) -> bytes:
    return digest(["turns", *own])


def item_events(
    session: Session,
    turn_id: str,
    given: Sequence[Json],
    came_out: Sequence[Json],
    *,
    at: int,
    user_id: str | None,
) -> list[NewEvent]:
    """Return the events of a turn's items, with their ids.

    Args:
        at: in microseconds since 1970 UTC.
    """
    channel, context_id, source_key = session.channel, session.context_id, session.key("")
    items = [(f"{turn_id}-in-{place}", INPUT_TYPE, item) for place, item in enumerate(given)]
    items += [(f"{turn_id}-out-{place}", OUTPUT_TYPE, item) for place, item in enumerate(came_out)]
    return [
        NewEvent(
            timestamp=at,
            channel=channel,
            participants=session.participants,
            payload_json=orjson.dumps(
                {
                    "text": text_of(item),
                    "speaker": _speaker(item, kind, user_id),
                    "item": packed(item),
                    "item_id": name,
                },
                option=orjson.OPT_SORT_KEYS,
            ),
            source_event_key=name + source_key,
            context_id=context_id,
            type=kind,
            event_id=new_id("evt"),
        )
        for name, kind, item in items
    ]


def _speaker(item: Json, kind: str, user_id: str | None) -> str:
    role: str = item.get("role") or ("tool" if "output" in item else "")
    if role == "user" or (not role and kind == INPUT_TYPE):
        return user_id or "user"
    return role or "assistant"


def mark_event(
    session: Session, turn_id: str, items: Sequence[str], facts: Sequence[str], *, previous: str | None, at: int
) -> NewEvent:
    """Return the mark of a turn.

    Args:
        items: the ids of its events.
        facts: the ids of the notes of the facts that it says, also of those that were known.
        previous: the mark of the turn before, None for the first.
    """
    said = {
        "id": turn_id,
        "owner": session.owner.hex(),
        "items": list(items),
        "facts": list(facts),
        "previous": previous,
        "project": session.project,
        "session_id": session.session_id,
    }
    return NewEvent(
        timestamp=at,
        channel=session.channel,
        participants=session.participants,
        payload_json=orjson.dumps({"turn": said}, option=orjson.OPT_SORT_KEYS),
        source_event_key=session.key(turn_id),
        context_id=session.context_id,
        type=TURN_TYPE,
        internal=True,
        event_id=new_id("evt"),
    )


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
        keys = {lock_key("turns", tenant, said["owner"], event.event.context_id or "") for event, said in marks}
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


async def visible_scopes(connection: Connection, tenant: str, session: Session) -> list[int]:
    """Return the scopes of a session that its participants see, ascending."""
    rows = await connection.fetch(sql("turns.sessions"), tenant, session.owner, session.context_id)
    asking = set(session.participants)
    return [row["scope_id"] for row in rows if asking.issubset(row["participants"])]


async def recent_items(
    connection: Connection, tenant: str, session: Session, scopes: Sequence[int], limit: int
) -> tuple[Json, ...]:
    """Return the last items of a session in some of its scopes, oldest first."""
    if not scopes or not limit:
        return ()
    rows = await connection.fetch(sql("turns.recent"), tenant, session.owner, session.context_id, scopes, limit)
    return tuple(unpacked(orjson.loads(row["payload"])) for row in rows)
