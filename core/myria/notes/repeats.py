"""When what is to be kept is kept already: the rules of it, and what becomes of each note of a call.

No people have two live notes that say the same (`SameText` in `myria.notes.commands`). Over REST a memory may be kept
twice, unless another was kept with its deduplication key within a time (`SameKey`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import orjson

from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import DuplicateMemory, IdempotencyKeyReused, NoteNotFound
from myria.log.acknowledgement import AppendResult
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.notes.drafting import NoteText

Beside = Callable[[Sequence[str], Sequence[int]], Awaitable[Sequence[NewEvent]]]
"""Makes the events that are appended with notes, given the ids of all of a call, and the places of the new ones."""


async def nothing_beside(_ids: Sequence[str], _new: Sequence[int]) -> Sequence[NewEvent]:
    """Make none."""
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptNote:
    """What became of a note that was to be kept: the id under which it stands, and the log's answer where it is new.

    `first` is the row of what an earlier call with its key had kept.
    """

    note_id: str
    appended: AppendResult | None = None
    first: asyncpg.Record | None = None


class Repeats(ABC):
    """The rule of one call by which what it keeps is kept already: the same text, or the same key within a time."""

    @abstractmethod
    def source_key(self, place: int) -> str | None:
        """Return the source key of one of the notes; None where the caller named the call by none."""

    @abstractmethod
    def among(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        """Return which notes repeat an earlier one of these, each with the place of that one."""

    @abstractmethod
    async def standing(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return which notes are kept already, by their places, with the ids of what is; asked once one was refused."""

    @abstractmethod
    async def again(self, note_id: str, event: NewEvent, replaced: Sequence[asyncpg.Record]) -> Sequence[NewEvent]:
        """Return what is appended for a note that is kept already.

        Args:
            event: what would have kept it.
            replaced: other notes, which it replaces.
        """

    @abstractmethod
    def check(self, first: asyncpg.Record | None, event: NewEvent) -> None:
        """Return where an event says what an earlier call with its key had kept.

        Raises:
            IdempotencyKeyReused: it says something else.
            NoteNotFound: that is gone.
        """


class SameKey(Repeats):
    """Of memories with one deduplication key, shared with the same people, one is kept within its window.

    Args:
        database: where memories that were kept before are looked up.
        participants: canonical; who may see them.
        key: the caller's own name for this call, None without.
        whole: whether one repeat refuses all; else repeats are left out.
        at: when they are kept, in microseconds since 1970 UTC.
    """

    def __init__(
        self,
        database: Database,
        tenant: str,
        participants: tuple[str, ...],
        *,
        key: str | None,
        whole: bool,
        at: int,
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._participants = participants
        self._key = key
        self._whole = whole
        self._at = at

    def source_key(self, place: int) -> str | None:
        """Return the key of one memory: that of the call, and its place there."""
        return None if self._key is None else f"memory:{digest([*self._participants, self._key, place]).hex()}"

    def among(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        """Return those with the key of another, where that does not refuse all of them."""
        return {} if self._whole else self._repeated(notes)

    def _repeated(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        first: dict[str, int] = {}
        places = [
            first.setdefault((note.memory or {})["dedup_key"], place) if _window_of(note) else place
            for place, note in enumerate(notes)
        ]
        return {place: earlier for place, earlier in enumerate(places) if earlier != place}

    async def standing(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return those that were kept within the window.

        Raises:
            DuplicateMemory: one refuses all; it names the memory that stands, and the place of the repeat.
        """
        asked = [(place, note.memory or {}) for place, note in enumerate(notes) if _window_of(note)]
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(
                sql("memories.standing"),
                self._tenant,
                [about["dedup_key"] for _, about in asked],
                [self._at - about["dedup_within_s"] * 1_000_000 for _, about in asked],
                [about["shared_with"] for _, about in asked],
            )
        standing: dict[int, str] = {}
        for (place, _), row in zip(asked, rows, strict=True):
            is_retried = row["source_event_key"] is not None and row["source_event_key"] == self.source_key(place)
            if row["event_id"] is not None and not is_retried:
                standing[place] = row["note_id"]
        # Where there is none, what stood in the way is in a commit under way, or was withdrawn.
        if self._whole and (repeats := {**self._repeated(notes), **standing}):
            place = min(repeats)
            known = {"id": standing[place]} if place in standing else {}
            raise DuplicateMemory("duplicate memory", **known, **({"index": place} if len(notes) > 1 else {}))
        return standing

    async def again(self, note_id: str, event: NewEvent, replaced: Sequence[asyncpg.Record]) -> Sequence[NewEvent]:
        """Return nothing: the memory stands as it was kept."""
        return ()

    def check(self, first: asyncpg.Record | None, event: NewEvent) -> None:
        """Return where the memory is the same, and still stands."""
        if first is None or not first["live"]:
            raise NoteNotFound("the memory that was kept with this key was withdrawn; use a new key")
        if _said(orjson.loads(first["first_payload"])) != _said(orjson.loads(event.payload_json)):
            raise IdempotencyKeyReused(
                "this Idempotency-Key was used before, for another memory; nothing was kept: use a new one"
            )


def _window_of(note: NoteText) -> int:
    """Return for how many seconds a memory refuses repeats; 0 for not at all."""
    within: int = (note.memory or {}).get("dedup_within_s", 0)
    return within


def _said(payload: Mapping[str, Any]) -> object:
    note = payload["note"]
    return payload["text"], note["kind"], note["memory"]
