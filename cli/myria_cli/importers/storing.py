"""Storing what a reader yields: messages as events, statements as notes, each once.

A message or statement whose text differs from an earlier import was edited at its source: a new version replaces it.
One that is missing from a later export stays, since an export rarely says why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.db.clock import to_microseconds
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.limits import MAX_CHANNEL, MAX_CONTEXT_ID, MAX_HINT, MAX_SOURCE_EVENT_KEY, Limits
from myria.log.scopes import canonical_participants
from myria.log.transfer import import_lines
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.commands import Notes
from myria.notes.histories import history
from myria.notes.model import Changes
from myria.notes.usage import keep_from
from myria_cli.importers.importing import Importing
from myria_cli.importers.records import LeftOut, Message, People, Record, Statement, identified

_FIRST_STAYS = "keep the people, speaker and time of their first import"
_TWICE = errors.InvalidArgument("two messages have one id; the first was taken", field="key")
_VERSION = 16
"""Characters of the digest that tells a version of a message from the others."""


async def store(
    records: Iterable[Record],
    importing: Importing,
    *,
    log: EventLog,
    notes: Notes,
    tenant: str,
    people: People,
    limits: Limits,
    dry_run: bool,
) -> None:
    """Store the records of an export; safe to rerun: what is already stored is not added again.

    Args:
        log: stores messages.
        notes: stores statements.
        dry_run: read and check everything, store nothing. Records that would be stored count as imported, even those
            that are already there.
    """
    messages: list[Message] = []
    statements: list[tuple[int, Statement | errors.MyriaError]] = []
    first_texts: dict[tuple[str, str], str] = {}
    for number, record in enumerate(records, 1):
        if isinstance(record, LeftOut):
            importing.left_out[record.reason] += 1
        elif isinstance(record, Message):
            if first_texts.setdefault((record.conversation, record.key), record.text) != record.text:
                statements.append((number, _TWICE))
                continue
            messages.append(record)
            importing.remarks.update(filter(None, [record.remark]))
        else:
            statements.append((number, record))
    messages.sort(key=lambda message: message.at)  # exports put new conversations first, the log goes by time
    importing.count = await import_lines(
        log,
        tenant,
        _lines(messages, people),
        limits,
        revise=_Reviser(log, tenant, people.own, importing.remarks),
        dry_run=dry_run,
        on_refused=importing.on_refused,
        on_progress=importing.on_progress,
    )
    importing.count.lines += len(statements)
    await keep_statements(notes, log.database, tenant, statements, people, importing=importing, dry_run=dry_run)
    importing.on_progress(importing.count)


class _Reviser:
    """Replaces messages of an earlier import by new versions when their text was edited.

    Only another text makes a version. Other people, speaker or time change nothing: who may see a message must not
    change unnoticed, and a renamed person or another time zone must not rewrite a whole history. A message that the
    export's owners may not see is refused, since they would not find it.
    """

    def __init__(self, log: EventLog, tenant: str, own: tuple[str, ...], remarks: Counter[str]) -> None:
        self._database = log.database
        self._tenant = tenant
        self._own = frozenset(own)
        self._remarks = remarks
        self._withdrawals = Withdrawals(log)

    async def __call__(self, differing: Sequence[tuple[NewEvent, AppendResult]]) -> list[bool | None]:
        """Replace each message that was edited; return True for it, False if it stays, None if it is refused."""
        ids = [result.event_id for _, result in differing]
        texts = [orjson.loads(event.payload_json)["text"] for event, _ in differing]
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("transfer.said"), self._tenant, ids, texts)
        return [await self._edit(event, row) for (event, _), row in zip(differing, rows, strict=True)]

    async def _edit(self, event: NewEvent, first: asyncpg.Record) -> bool | None:
        """Append a new version of a message, superseding the one in force; see `__call__` for the result."""
        if not self._own.issubset(first["participants"]):
            return None
        if first["is_known"]:  # an older export must not undo a newer one
            self._remarks[_FIRST_STAYS] += first["is_same"]
            return False
        async with self._database.read(self._tenant) as connection:
            current_id = await connection.fetchval(sql("transfer.standing"), self._tenant, first["event_id"])
        if current_id is None:
            return False  # it was forgotten, and stays forgotten
        version = event._replace(
            source_event_key=f"{event.source_event_key}~{identified(first['text'])[:_VERSION]}",
            participants=tuple(first["participants"]),
            timestamp=to_microseconds(first["occurred_at"]),
        )
        try:
            await self._withdrawals.append(self._tenant, version, supersedes=[current_id], may_see=lambda _: True)
        except errors.EventErased:
            return False
        return True


def _lines(messages: Sequence[Message], people: People) -> Iterator[bytes]:
    """Yield messages as the lines that `import_lines` reads."""
    for message in messages:
        event: dict[str, Any] = {
            "timestamp": message.at.isoformat(),
            "channel": _short(message.channel, MAX_CHANNEL),
            "participants": people.participants(message.people),
            "source_event_key": _short(f"{message.conversation}:{message.key}", MAX_SOURCE_EVENT_KEY - 1 - _VERSION),
            "context_id": _short(f"{message.channel}:{message.conversation}", MAX_CONTEXT_ID),
            "type": "message",
            "payload": {"text": message.text, "speaker": people.called(message.speaker)},
        }
        if message.title is not None:
            event["topic_hints"] = [{"hint": message.title[:MAX_HINT], "confidence": 1.0}]
        yield orjson.dumps(event)


def _short(name: str, limit: int) -> str:
    """Return a name of at most `limit` characters: a longer one is cut, and ends in a digest of the whole."""
    return name if len(name) <= limit else f"{name[: limit - 33]}~{identified(name)}"  # "~" and 32 hex digits


async def keep_statements(
    notes: Notes,
    database: Database,
    tenant: str,
    statements: Iterable[tuple[int, Statement | errors.MyriaError]],
    people: People,
    *,
    importing: Importing,
    dry_run: bool = False,
) -> None:
    """Store statements as notes; the time after which unused notes expire counts from now on.

    Args:
        statements: each with its number, which a refusal reports; an error stands for a statement that is unreadable.
    """
    count, now = importing.count, time.time_ns() // 1000

    async def revise(statement: Statement, note_id: str, at: int) -> bool:
        """Update a note to its source's text, unless the note had that text before: then the export is older.

        Returns whether the note changed.
        """
        content, _ = await notes.clean(tenant, statement.draft.content.strip())
        past = await history(database, tenant, note_id, may_see=lambda _: True)
        if any(version.note.content == content for version in past.versions):
            return False
        changes = Changes(content=content, keywords=statement.draft.keywords)
        return (await notes.amend(tenant, note_id, changes, may_see=lambda _: True, contract="memento", now=at)).changed

    async def keep(statement: Statement) -> str | None:
        """Store one statement and count it; return its note's id, None if an earlier import left it as it is."""
        at = now if statement.at is None else to_microseconds(statement.at)
        subjects = map(people.participant, statement.people)
        try:
            kept = await notes.remember(
                tenant,
                canonical_participants([*people.own, *subjects], field="participants"),
                statement.draft,
                contract="memento",
                speaker=None if statement.agent is None else people.participant(statement.agent),
                now=at,
                key=statement.key,
                dry_run=dry_run,
            )
        except errors.IdempotencyKeyReused as error:
            note_id = str(error.details["note_id"])
            is_edited = await revise(statement, note_id, at)
            count.edited += is_edited
            count.already_there += not is_edited
            return note_id if is_edited else None
        is_new = kept.created or (dry_run and not kept.note_id)
        count.imported += is_new
        count.already_there += not is_new
        count.redacted += bool(kept.redacted)
        return kept.note_id

    async for note_ids in importing.keep(statements, keep):
        if note_ids and not dry_run:
            await keep_from(database, tenant, note_ids, now)
