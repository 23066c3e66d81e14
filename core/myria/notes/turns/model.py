"""Sessions of turns, and the form of a turn in the log: an event for each item, notes for its facts, and a mark.

The mark says that the turn is complete. It is an internal event of a reserved type that names the turn's items and the
mark of the turn before, so the turns of a session form a chain, whichever process stores them. The append transaction
folds marks, and takes their session's lock before they get their numbers. Where another turn was stored in between,
only the later turn's caller is refused; it reads the session again, and stores its turn behind that one.
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
    """A session of turns, identified by its `own` participants, its project and its id.

    `participants` see its events: the `own` ones and the user, in canonical form.
    """

    own: tuple[str, ...]
    participants: tuple[str, ...]
    project: str
    session_id: str

    @property
    def owner(self) -> bytes:
        """A digest of the `own` participants, 32 bytes: others may have a session with the same project and id."""
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
        given: the items that went into the turn.
        came_out: the items that came out of it.
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
    """Return who said an item: its role, for a user's the user's id if known; without a role told by its kind."""
    role: str = item.get("role") or ("tool" if "output" in item else "")
    if role == "user" or (not role and kind == INPUT_TYPE):
        return user_id or "user"
    return role or "assistant"


def mark_event(
    session: Session, turn_id: str, items: Sequence[str], facts: Sequence[str], *, previous: str | None, at: int
) -> NewEvent:
    """Return the mark of a turn.

    Args:
        items: the ids of its items' events.
        facts: the ids of the notes of all facts that the turn states, also of known ones.
        previous: the mark of the turn before, None for the first.
    """
    mark = {
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
        payload_json=orjson.dumps({"turn": mark}, option=orjson.OPT_SORT_KEYS),
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
        """Lock the sessions of marks, and refuse a mark that does not name its session's newest mark as the one before.

        An import repeats what another server accepted, so nothing of it is refused.

        Raises:
            SessionMoved: another turn of the session was stored meanwhile.
        """
        marks = [(event, _read_mark(event)) for event in events]
        lock_keys = {lock_key("turns", tenant, mark["owner"], event.event.context_id or "") for event, mark in marks}
        # Sorted, so that two transactions that lock the same sessions never wait for each other crosswise.
        await connection.execute(sql("turns.lock"), sorted(lock_keys))
        if importing:
            return
        rows = await connection.fetch(
            sql("turns.before_marks"),
            tenant,
            [mark["owner"] for _, mark in marks],
            [event.event.context_id for event, _ in marks],
            [event.event_id for event, _ in marks],
        )
        newest_of_session: dict[tuple[bytes, str | None], str | None] = {}
        for (event, mark), row in zip(marks, rows, strict=True):
            if row["is_stored"]:
                continue  # a retry of a mark whose first append had committed, though its caller did not learn of it
            session = (mark["owner"], event.event.context_id)
            newest_mark = newest_of_session.get(session, row["newest_id"])
            if mark["previous"] != newest_mark:
                raise SessionMoved("another turn of this session was stored meanwhile; nothing was stored: retry")
            newest_of_session[session] = event.event_id

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the marks of a commit."""
        await connection.execute(sql("turns.fold"), tenant, [event.event_seq for event in events])


def _read_mark(event: Incoming) -> dict[str, Any]:
    """Return the fields of a mark, with empty values for those that a foreign event of its type lacks."""
    mark = orjson.loads(event.event.payload_json).get("turn")
    mark = mark if isinstance(mark, dict) else {}
    owner = mark.get("owner")
    return {
        "owner": bytes.fromhex(owner) if isinstance(owner, str) and _is_hex(owner) else b"",
        "id": mark["id"] if isinstance(mark.get("id"), str) else "",
        "items": mark["items"] if isinstance(mark.get("items"), list) else [],
        "previous": mark.get("previous"),
    }


def _is_hex(text: str) -> bool:
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


async def visible_scopes(connection: Connection, tenant: str, session: Session) -> list[int]:
    """Return the scopes that hold the session's events and are visible to its participants, ascending."""
    rows = await connection.fetch(sql("turns.sessions"), tenant, session.owner, session.context_id)
    participants = set(session.participants)
    return [row["scope_id"] for row in rows if participants.issubset(row["participants"])]


async def recent_items(
    connection: Connection, tenant: str, session: Session, scopes: Sequence[int], limit: int
) -> tuple[Json, ...]:
    """Return the last items of a session in some of its scopes, oldest first."""
    if not scopes or not limit:
        return ()
    rows = await connection.fetch(sql("turns.recent"), tenant, session.owner, session.context_id, scopes, limit)
    return tuple(unpacked(orjson.loads(row["payload"])) for row in rows)
