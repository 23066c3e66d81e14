"""The row of a note's first version, made from its event here: PostgreSQL would read its JSON a dozen times for it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import orjson

from myria.notes.kinds import FACT_KINDS
from myria.notes.model import NOTE_CHANNEL
from myria.projections import Stored
from myria.store.arrays import plain, texts
from myria.store.clock import to_rfc3339

_UNUSUAL = frozenset({"previous", "lasts_days"})
_MOST_DIGITS = 15
"""Up to so many a number means the same here, where it is binary, and in PostgreSQL, where it is decimal."""


@dataclass(frozen=True, slots=True)
class NewNote:
    """The first version of a note, column by column as `notes.fold_new` takes it; `digest` is in hexadecimal digits."""

    event_seq: int
    note_id: str
    scope_id: int
    kind: str
    topic: str
    importance: str
    anchor: bool
    context_id: str | None
    session: bool
    digest: str
    occurred_at: str


def columns_of(rows: Sequence[NewNote]) -> list[str]:
    """Return rows as the statements take them: an array for each column, in the order of the fields."""
    return [written(list(map(column, rows))) for column, written in _COLUMNS]


_PLAIN = frozenset({"event_seq", "scope_id", "anchor", "session"})
_COLUMNS: tuple[tuple[Callable[[NewNote], Any], Callable[[list[Any]], str]], ...] = tuple(
    (attrgetter(name), plain if name in _PLAIN else texts) for name in NewNote.__slots__
)


def payloads_of(events: Iterable[Stored]) -> dict[int, dict[str, Any]]:
    """Return what events say, by their numbers; nothing for what only PostgreSQL can read."""
    payloads: dict[int, dict[str, Any]] = {}
    for event in events:
        try:
            payloads[event.event_seq] = orjson.loads(event.event.payload_json)
        except orjson.JSONDecodeError:
            payloads[event.event_seq] = {}
    return payloads


def new_notes(events: Sequence[Stored], payloads: Mapping[int, Mapping[str, Any]]) -> list[NewNote]:
    """Return the rows that the view `note_versions` makes of events that are first versions of the usual form.

    They come in the order in which rows are written: of scopes and digests. A note of which the commit brings several
    versions is not among them.
    """
    rows = [row for event in events if (row := _new_note(event, payloads[event.event_seq])) is not None]
    if len(rows) > 1:
        named = Counter(_note_id(payload) for payload in payloads.values())
        rows = [row for row in rows if named[row.note_id] == 1]
        rows.sort(key=lambda row: (row.scope_id, row.digest))
    return rows


def _note_id(payload: Mapping[str, Any]) -> str | None:
    note = payload.get("note")
    note_id = note.get("id") if isinstance(note, dict) else None
    return note_id if isinstance(note_id, str) else None


def _new_note(stored: Stored, payload: Mapping[str, Any]) -> NewNote | None:
    event = stored.event
    note, text = payload.get("note"), payload.get("text")
    if type(note) is not dict or type(text) is not str or event.internal or event.channel != NOTE_CHANNEL:
        return None
    note_id, kind, topic, version = note.get("id"), note.get("kind"), note.get("topic"), note.get("version")
    if type(note_id) is not str or type(kind) is not str or type(topic) is not str:
        return None
    if type(version) is not int or version != 1 or not _UNUSUAL.isdisjoint(note) or kind in FACT_KINDS:
        return None
    importance = written_share(note.get("importance"))
    if importance is None:
        return None
    session = note.get("lifetime") == "session"
    alone = (event.context_id or "") if session else ""
    return NewNote(
        event_seq=stored.event_seq,
        note_id=note_id,
        scope_id=stored.scope_id,
        kind=kind,
        topic=topic,
        importance=importance,
        anchor=note.get("anchor") is True,
        context_id=event.context_id,
        session=session,
        digest=hashlib.sha256(f"{kind}\n{note_id if 'memory' in note else alone}\n{text}".encode()).hexdigest(),
        occurred_at=to_rfc3339(event.timestamp),
    )


def written_share(value: object) -> str | None:
    """Return a number from 0 to 1 as it was written; None for whatever else, and where it has too many digits."""
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        return None
    written = orjson.dumps(value).decode()
    return written if len(written) <= _MOST_DIGITS else None
