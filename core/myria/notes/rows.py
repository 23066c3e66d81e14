"""The row of a note's first version, made from its event here: PostgreSQL would read its JSON a dozen times for it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from myria.db.arrays import plain, texts
from myria.db.clock import to_rfc3339
from myria.log.event import NewEvent
from myria.log.projections import Stored, payload_of
from myria.notes.kinds import FACT_KINDS
from myria.notes.model import NOTE_CHANNEL

_MOST_DIGITS = 15
"""Up to so many a number means the same here, where it is binary, and in PostgreSQL, where it is decimal."""


class NewNote(NamedTuple):
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
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else ((),) * len(_WRITTEN)
    return [written(column) for written, column in zip(_WRITTEN, columns, strict=True)]


_PLAIN = frozenset({"event_seq", "scope_id", "anchor", "session"})
_WRITTEN: tuple[Callable[[Sequence[Any]], str], ...] = tuple(
    plain if name in _PLAIN else texts for name in NewNote._fields
)


def payloads_of(events: Iterable[Stored]) -> dict[int, Mapping[str, Any]]:
    """Return what events say, by their numbers; nothing for what only PostgreSQL can read."""
    return {event.event_seq: payload_of(event.event) for event in events}


def new_notes(events: Sequence[Stored], payloads: Mapping[int, Mapping[str, Any]]) -> list[NewNote]:
    """Return the rows that the view `note_versions` makes of events that are first versions of the usual form.

    They come in the order in which rows are written: of scopes and digests. A note of which the commit brings several
    versions is not among them.
    """
    rows = [row for event in events if (row := _new_note(event, payloads[event.event_seq])) is not None]
    if len(rows) > 1:
        ids = [_note_id(payload) for payload in payloads.values()]
        if len(set(ids)) < len(ids):
            named = Counter(ids)
            rows = [row for row in rows if named[row.note_id] == 1]
        rows.sort(key=lambda row: (row.scope_id, row.digest))
    return rows


def _note_id(payload: Mapping[str, Any]) -> str | None:
    note = payload.get("note")
    note_id = note.get("id") if isinstance(note, dict) else None
    return note_id if isinstance(note_id, str) else None


def _new_note(stored: Stored, payload: Mapping[str, Any]) -> NewNote | None:
    event = stored.event
    # `note_event` gives what it makes here its form; what is imported may have any.
    if event.said is None and not _has_form(event, payload):
        return None
    note = payload["note"]
    note_id, kind, importance = note["id"], note["kind"], written_share(note.get("importance"))
    if note["version"] != 1 or "previous" in note or "lasts_days" in note or importance is None or kind in FACT_KINDS:
        return None
    session = note.get("lifetime") == "session"
    told_apart_by = (event.context_id or "") if session else ""
    return NewNote(
        stored.event_seq,
        note_id,
        stored.scope_id,
        kind,
        note["topic"],
        importance,
        note.get("anchor") is True,
        event.context_id,
        session,
        note_digest(kind, told_apart_by, payload["text"]),
        to_rfc3339(event.timestamp),
    )


def note_digest(kind: str, told_apart_by: str, text: str) -> str:
    """Return what tells a note from the others of its scope, in hexadecimal digits.

    Args:
        told_apart_by: the session of a note of one, the id of a memory; else nothing.
    """
    return hashlib.sha256(f"{kind}\n{told_apart_by}\n{text}".encode()).hexdigest()


def _has_form(event: NewEvent, payload: Mapping[str, Any]) -> bool:
    """Tell whether the fields that rows are made of are there, each of its type."""
    note = payload.get("note")
    return (
        type(note) is dict
        and type(payload.get("text")) is str
        and not event.internal
        and event.channel == NOTE_CHANNEL
        and all(type(note.get(name)) is str for name in ("id", "kind", "topic"))
        and type(note.get("version")) is int
    )


def written_share(value: object) -> str | None:
    """Return a number from 0 to 1 as it was written; None for whatever else, and where it has too many digits."""
    return _written(value) if type(value) in (int, float) else None


@lru_cache(maxsize=1024, typed=True)
def _written(value: float) -> str | None:
    if not 0 <= value <= 1:
        return None
    written = orjson.dumps(value).decode()
    return written if len(written) <= _MOST_DIGITS else None
