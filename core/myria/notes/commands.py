"""Keeping notes: each is one append, which shares its commit with others, and a repeat is found by what it says."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from myria.contract.acknowledgement import AppendResult
from myria.contract.event import NewEvent
from myria.errors import InvalidArgument, NoteExists, Overloaded, PayloadTooLarge
from myria.ids import new_id
from myria.notes.drafting import Draft, NoteText, completed
from myria.notes.kinds import Contract
from myria.notes.model import note_event
from myria.redaction.kinds import Kind
from myria.redaction.redactor import PayloadRedactor
from myria.scopes import scope_key
from myria.store.database import Database
from myria.store.queries import sql

Append = Callable[[str, Sequence[NewEvent]], Awaitable[list[AppendResult]]]
"""Appends events of a tenant as one atomic group, as `Ingest.append_events` does."""

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A note that was kept, or was there. `event_id` is that of its first version, None where it was there before."""

    note_id: str
    created: bool
    note: NoteText
    event_id: str | None
    redacted: dict[Kind, int]


class Notes:
    """The commands of one process.

    Args:
        database: where a note that was kept before is looked up.
        append: how notes reach the log.
        redactor: what is taken out of what a note says, before anything else looks at it.
        content_characters: the longest text of a note; a longer one is refused.
        payload_bytes: the largest payload of an event.
    """

    def __init__(
        self,
        database: Database,
        append: Append,
        redactor: PayloadRedactor,
        *,
        content_characters: int,
        payload_bytes: int,
    ) -> None:
        self._database = database
        self._append = append
        self._redactor = redactor
        self._content_characters = content_characters
        self._payload_bytes = payload_bytes

    async def remember(
        self,
        tenant: str,
        participants: tuple[str, ...],
        draft: Draft,
        *,
        contract: Contract,
        speaker: str | None = None,
        now: int | None = None,
    ) -> Remembered:
        """Keep a note, once: of equal ones of the same people, kind and session, the first stays and is named.

        Args:
            participants: canonical; who may see it.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            InvalidArgument: no content, too long, or a kind that the contract does not know.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this note.
            as `Ingest.append_events`.
        """
        content = draft.content.strip()
        if not content:
            raise InvalidArgument("content is empty; say what is to be remembered", field="content")
        if len(content) > self._content_characters:
            raise InvalidArgument(
                f"content has {len(content)} characters; at most {self._content_characters} are kept: "
                "say it in several notes",
                field="content",
                limit=self._content_characters,
            )
        content, redacted = self._redactor.text(content)
        note = completed(replace(draft, content=content), contract)
        for _ in range(_ATTEMPTS):
            note_id = new_id("note")
            event = note_event(
                note,
                participants,
                note_id=note_id,
                version=1,
                timestamp=time.time_ns() // 1000 if now is None else now,
                speaker=speaker,
            )
            if len(event.payload_json) > self._payload_bytes:
                raise PayloadTooLarge(
                    f"the note is {len(event.payload_json)} bytes of JSON; at most {self._payload_bytes} are stored",
                    field="content",
                    limit=self._payload_bytes,
                )
            try:
                results = await self._append(tenant, (event,))
            except NoteExists:
                earlier = await self._same(tenant, participants, note)
                if earlier is None:
                    continue  # it was withdrawn meanwhile
                return Remembered(note_id=earlier, created=False, note=note, event_id=None, redacted=dict(redacted))
            return Remembered(
                note_id=note_id, created=True, note=note, event_id=results[0].event_id, redacted=dict(redacted)
            )
        raise Overloaded("the same note is being kept and withdrawn again and again; retry")

    async def _same(self, tenant: str, participants: tuple[str, ...], note: NoteText) -> str | None:
        session = (note.session_id or "") if note.lifetime == "session" else ""
        async with self._database.read(tenant) as connection:
            note_id: str | None = await connection.fetchval(
                sql("notes.live_by_digest"), tenant, scope_key(participants), note.kind, session, note.content
            )
        return note_id
