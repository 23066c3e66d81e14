"""Storing what a reader yields: messages as events, statements as notes, each once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from myria import errors
from myria.contract.limits import MAX_CHANNEL, MAX_CONTEXT_ID, MAX_HINT, MAX_SOURCE_EVENT_KEY, Limits
from myria.importers.records import LeftOut, Message, People, Record, Statement, Unreadable, identified
from myria.ingest import Ingest
from myria.notes.commands import Notes
from myria.notes.usage import keep_from
from myria.redaction.redactor import PayloadRedactor
from myria.scopes import canonical_participants
from myria.store.clock import to_microseconds
from myria.store.database import Database
from myria.transfer import ImportCount, RefusedLine, import_lines

AT_ONCE = 32
"""Statements that are stored at the same time: they share commits."""

OnRefused = Callable[[RefusedLine], None]
OnProgress = Callable[[ImportCount], None]


@dataclass(slots=True, kw_only=True)
class Imported:
    """What became of an export. `left_out` counts by reason what is no memory."""

    count: ImportCount = field(default_factory=ImportCount)
    left_out: Counter[str] = field(default_factory=Counter)


async def store(
    records: Iterable[Record],
    *,
    ingest: Ingest,
    notes: Notes,
    tenant: str,
    people: People,
    limits: Limits,
    redactor: PayloadRedactor,
    dry_run: bool,
    on_refused: OnRefused,
    on_progress: OnProgress = lambda _: None,
) -> Imported:
    """Store an export; run again, it adds nothing twice.

    Args:
        notes: keeps statements; its redactor takes out of them what must not be kept.
        redactor: the same of messages.
        dry_run: read and check everything, store nothing. What would be stored counts as imported, also where it is
            there already.
        on_refused: told about each message and statement that was not stored, by its number in the export.
    """
    outcome = Imported()
    messages: list[Message] = []
    statements: list[tuple[int, Statement | Unreadable]] = []
    for number, record in enumerate(records, 1):
        if isinstance(record, LeftOut):
            outcome.left_out[record.reason] += 1
        elif isinstance(record, Message):
            messages.append(record)
        else:
            statements.append((number, record))
    messages.sort(key=lambda message: message.at)  # exports list newest conversations first; the log goes with time
    said = await import_lines(
        ingest,
        tenant,
        _lines(messages, people),
        limits,
        redactor=redactor,
        dry_run=dry_run,
        on_refused=on_refused,
        on_progress=on_progress,
    )
    outcome.count = said
    await keep_statements(
        notes, ingest.database, tenant, statements, people, count=said, dry_run=dry_run, on_refused=on_refused
    )
    on_progress(said)
    return outcome


def _lines(messages: Sequence[Message], people: People) -> Iterator[bytes]:
    """Yield messages as the lines that `import_lines` reads."""
    for message in messages:
        event: dict[str, Any] = {
            "timestamp": message.at.isoformat(),
            "channel": _short(message.channel, MAX_CHANNEL),
            "participants": people.participants(message.people),
            "source_event_key": _short(f"{message.conversation}:{message.key}", MAX_SOURCE_EVENT_KEY),
            "context_id": _short(f"{message.channel}:{message.conversation}", MAX_CONTEXT_ID),
            "type": "message",
            "payload": {"text": message.text, "speaker": people.called(message.speaker)},
        }
        if message.title is not None:
            event["topic_hints"] = [{"hint": message.title[:MAX_HINT], "confidence": 1.0}]
        yield orjson.dumps(event)


def _short(name: str, limit: int) -> str:
    """Return a name that may be stored: a longer one ends in a digest of all of it."""
    return name if len(name) <= limit else f"{name[: limit - 33]}~{identified(name)}"


async def keep_statements(
    notes: Notes,
    database: Database,
    tenant: str,
    statements: Iterable[tuple[int, Statement | Unreadable]],
    people: People,
    *,
    count: ImportCount,
    dry_run: bool = False,
    on_refused: OnRefused,
    on_progress: OnProgress = lambda _: None,
) -> None:
    """Keep statements as notes and count them; how long they last without a use counts from now on.

    Args:
        statements: each with its number, by which a refusal names it.
        count: added to.
    """
    waiting: list[tuple[int, Statement]] = []
    now = time.time_ns() // 1000

    def refuse(number: int, error: errors.MyriaError) -> None:
        count.refused += 1
        on_refused(RefusedLine(line=number, code=error.code, message=error.message))

    async def keep(number: int, statement: Statement) -> str | None:
        try:
            named = [people.known(name) or name for name in statement.people]
            kept = await notes.remember(
                tenant,
                canonical_participants([*people.own, *named], field="participants"),
                statement.draft,
                contract="004",
                speaker=None if statement.agent is None else people.known(statement.agent) or statement.agent,
                now=now if statement.at is None else to_microseconds(statement.at),
                key=statement.key,
                dry_run=dry_run,
            )
        except (errors.InputError, errors.ConflictError) as error:
            refuse(number, error)
            return None
        is_new = kept.created or (dry_run and not kept.note_id)
        count.imported += is_new
        count.already_there += not is_new
        count.redacted += bool(kept.redacted)
        return kept.note_id

    async def keep_all() -> None:
        kept = await asyncio.gather(*(keep(number, statement) for number, statement in waiting))
        waiting.clear()
        stored = [note_id for note_id in kept if note_id]
        if stored and not dry_run:
            await keep_from(database, tenant, stored, now)
        on_progress(count)

    for number, statement in statements:
        count.lines += 1
        if isinstance(statement, Unreadable):
            refuse(number, statement.error)
        else:
            waiting.append((number, statement))
        if len(waiting) >= AT_ONCE:
            await keep_all()
    await keep_all()
