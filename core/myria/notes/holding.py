"""Which notes the policy of review holds back, and in which form.

A held note is a note of its own, withdrawn in the append that keeps it. Its payload says which rule held it, and which
notes it would replace; they stand until a reviewer approves it (`myria.notes.reviewing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import ConfigurationError
from myria.log.event import NewEvent
from myria.log.ids import new_id
from myria.log.payloads import dedupe_key, speaker_of
from myria.log.scopes import scope_key
from myria.log.withdrawal.model import Withdrawal, withdrawal_event
from myria.notes.drafting import NoteText
from myria.notes.kinds import FACT_KINDS, policies
from myria.notes.model import note_of
from myria.settings import ReviewSettings

Api = Literal["agent", "reflect", "turns", "rest"]
"""By which API a note comes; `reflect` is the tool of the agent's API that keeps a session's reflection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """The policy of a server; see `ReviewSettings`."""

    kinds: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    confidence_below: float = 0.0

    @classmethod
    def configured(cls, settings: ReviewSettings) -> Holding:
        """Return the policy that settings describe.

        Raises:
            ConfigurationError: there is no such kind of note.
        """
        for kind in settings.kinds:
            if kind not in policies():
                raise ConfigurationError(
                    f"review.kinds has {kind!r}; the kinds are {', '.join(policies())}.", field="review.kinds"
                )
        return cls(
            kinds=frozenset(settings.kinds),
            sources=frozenset(settings.sources),
            confidence_below=settings.confidence_below,
        )

    def rule_for(self, note: NoteText, event: NewEvent, *, api: Api) -> str | None:
        """Return the rule that holds the note of an event back, as the setting and its value; None if none does."""
        if not (self.kinds or self.sources or self.confidence_below):
            return None
        if note.kind in self.kinds:
            return f"review.kinds={note.kind}"
        # What nobody in particular says counts as said by each of those whose it is, so nobody escapes by being silent.
        speaker = speaker_of(orjson.loads(event.payload_json))
        names = event.participants if speaker is None else (speaker,)
        for source in (f"api:{api}", f"source:{note.source}", *(f"speaker:{name}" for name in names)):
            if source in self.sources:
                return f"review.sources={source}"
        if note.kind in FACT_KINDS and note.importance < self.confidence_below:
            return f"review.confidence_below={self.confidence_below:g}"
        return None


HOLDS_NOTHING = Holding()


def held_events(event: NewEvent, *, rule: str, replaces: Sequence[str], note_id: str | None = None) -> list[NewEvent]:
    """Return the event of a note as that of a held one, and the withdrawal that hides it; both share an append.

    Args:
        rule: why it is held.
        replaces: the ids of the notes in whose place it would stand.
        note_id: the id of the note of its own that a further version of another note becomes.
    """
    event = event._replace(event_id=event.event_id or new_id("evt"))
    payload = orjson.loads(event.payload_json)
    payload["note"]["held"] = {"rule": rule, "replaces": list(replaces)}
    if note_id is not None:
        payload["note"] |= {"id": note_id, "version": 1}
        payload["note"].pop("previous", None)
        if "memory" in payload["note"]:
            # It says again what another one says, and so is no repeat of that.
            payload["note"]["memory"]["dedup_within_s"] = 0
    held = event._replace(payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS))
    key = None
    if event.source_event_key is not None:
        key = f"held:{dedupe_key(event.channel, event.source_event_key).hex()}"
    withdrawal = Withdrawal(reason="held", events=(held.event_id or "",))
    hiding = withdrawal_event(withdrawal, event.participants, timestamp=event.timestamp, source_event_key=key)
    return [held, hiding]


async def keep_held(
    database: Database, tenant: str, event: NewEvent, *, note_id: str, rule: str, replaces: Sequence[str]
) -> tuple[str, list[NewEvent]]:
    """Return the id of a held note and the events that keep it: none where one that says the same waits already.

    Args:
        event: the event that would keep the note, or make the next version of another one.
        note_id: the held note's id, if it is a new one.
        rule: why it is held.
        replaces: the ids of the notes in whose place it would stand.
    """
    payload = orjson.loads(event.payload_json)
    note = note_of(payload, context_id=event.context_id)
    session = (note.session_id or "") if note.lifetime == "session" else ""
    async with database.read(tenant) as connection:
        waiting_id: str | None = await connection.fetchval(
            sql("notes.held_alike"),
            tenant,
            scope_key(event.participants),
            note.kind,
            session,
            note.content,
            event.context_id,
        )
    if waiting_id is not None:
        return waiting_id, []
    own_id = None if note_id == payload["note"]["id"] else note_id
    return note_id, held_events(event, rule=rule, replaces=replaces, note_id=own_id)
