"""Which notes of a call repeat a note that is kept already, and what becomes of each.

The same people never have two live notes with equal text (`SameText`). Over REST, a memory repeats another if that one
was kept with its deduplication key within a window of time (`SameKey`). A fact of a turn is the next version of what
its session knew of the same thing (`SameIdentity` in `myria.notes.turns.facts`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
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
from myria.log.ids import new_id
from myria.log.withdrawal.model import WITHHELD
from myria.notes.drafting import NoteText

Arrange = Callable[[Sequence[str], Sequence[int], Sequence[NewEvent]], Awaitable[Sequence[NewEvent]]]
"""Returns what a call appends: the events that keep its notes, with further ones before or behind them.

It gets the ids of all notes, the places of the new ones, and the events that keep notes.
"""


async def notes_alone(_ids: Sequence[str], _new: Sequence[int], events: Sequence[NewEvent]) -> Sequence[NewEvent]:
    """Return the events that keep notes, and no others."""
    return events


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptNote:
    """What became of a note that was to be kept: its id, and the log's answer where this call appended it.

    `first` is the row of the note's event that an earlier call with the same key had appended. A `held` note waits for
    a review, or was refused in one.
    """

    note_id: str
    appended: AppendResult | None = None
    first: asyncpg.Record | None = None
    held: bool = False


class Repeats(ABC):
    """The rule by which a call's notes count as kept already."""

    def note_id(self, tenant: str, place: int) -> str:
        """Return the id that a new note gets.

        A repeat of a call with a key computes the same id. Ids depend on the tenant, too: ids that are equal in two
        tenants would tell one what the other keeps. The source key's prefix, such as "note:", does not count.
        """
        source_key = self.source_key(place)
        if source_key is None:
            return new_id("note")
        return f"note_{digest([tenant, source_key.partition(':')[2]]).hex()[:32]}"

    def held_id(self, tenant: str, place: int) -> str:
        """Return the id that a new note gets which the policy of review holds back."""
        return self.note_id(tenant, place)

    def source_key(self, place: int) -> str | None:
        """Return the source key of the note at a place; None where the caller gave the call no key."""
        return None

    def repeats_within(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        """Return by their places the notes that repeat an earlier note of the call, with that note's place."""
        return {}

    async def kept_before(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return what `kept_already` does, before the append is tried: only where a note is seldom new."""
        return {}

    @abstractmethod
    async def kept_already(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return by their places the notes that are kept already, with the kept notes' ids.

        Looked up only once an append was refused.
        """

    @abstractmethod
    async def restating_events(
        self, note_id: str, event: NewEvent, replaced: Sequence[asyncpg.Record], *, is_raced: bool
    ) -> Sequence[NewEvent]:
        """Return the events to append for a note that is kept already.

        Args:
            event: the event that would have kept the note.
            replaced: rows of other notes that the note replaces.
            is_raced: whether another call has given a kept note a new version since this call began.
        """

    def check(self, first: asyncpg.Record | None, event: NewEvent) -> None:
        """Accept a repeat that says what an earlier call with its key had kept; else raise.

        Args:
            first: the row of the earlier call's event; None where it is gone.
            event: what this call would keep.

        Raises:
            IdempotencyKeyReused: the event says something else.
            NoteNotFound: the earlier call's note is gone.
        """
        raise AssertionError("without a key no call is a repeat of an earlier one")

    async def outcomes(
        self,
        database: Database,
        tenant: str,
        note_ids: Sequence[str],
        events: Sequence[NewEvent],
        result_of: Mapping[int, AppendResult],
        *,
        held: Collection[str],
    ) -> list[KeptNote]:
        """Return what became of each note; of those that an earlier call with the key kept, `check` decides.

        Args:
            result_of: the log's answers to the events of new notes, by their places.
            held: the ids of the notes that wait for a review.
        """
        repeated = {place: result.event_id for place, result in result_of.items() if result.deduplicated}
        row_of_event: dict[str, asyncpg.Record] = {}
        if repeated:
            async with database.read(tenant) as connection:
                rows = await connection.fetch(sql("notes.of_first_events"), tenant, list(repeated.values()))
            row_of_event = {row["first_event_id"]: row for row in rows}
        outcomes = []
        for place, note_id in enumerate(note_ids):
            if place not in repeated:
                outcomes.append(KeptNote(note_id=note_id, appended=result_of.get(place), held=note_id in held))
                continue
            first = row_of_event.get(repeated[place])
            self.check(first, events[place])
            if first is None:
                outcomes.append(KeptNote(note_id=note_id))
            else:
                is_held = first["reason"] in WITHHELD
                outcomes.append(KeptNote(note_id=first["note_id"], first=first, held=is_held))
        return outcomes


class SameText(Repeats):
    """The rule of `Notes.remember`: of notes with equal participants, kind, session and text, one is kept.

    Args:
        find_duplicate: `NoteRows.duplicate`.
        expire: `Notes.expire`, which withdraws a duplicate that has expired; None in a dry run.
        restate: `Keeper.restating_events`.
    """

    def __init__(
        self,
        find_duplicate: Callable[[str, tuple[str, ...], NoteText], Awaitable[str | None]],
        expire: Callable[[str, str, int | None], Awaitable[bool]] | None,
        restate: Callable[[str, str, NewEvent, Sequence[asyncpg.Record]], Awaitable[Sequence[NewEvent]]],
        tenant: str,
        participants: tuple[str, ...],
        *,
        key: str | None,
        now: int | None,
    ) -> None:
        self._find_duplicate = find_duplicate
        self._expire = expire
        self._restate = restate
        self._tenant = tenant
        self._participants = participants
        self._key = key
        self._now = now

    def source_key(self, place: int) -> str | None:
        """Return the key of one note: that of the call, and behind the first note its place there."""
        if self._key is None:
            return None
        return f"note:{digest([*self._participants, self._key, *([place] if place else [])]).hex()}"

    def repeats_within(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        """Return by their places the notes that have kind and text of an earlier one, with that one's place."""
        first_places: dict[tuple[str, str], int] = {}
        places = [first_places.setdefault((note.kind, note.content), place) for place, note in enumerate(notes)]
        return {place: first for place, first in enumerate(places) if first != place}

    async def kept_already(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return by their places the notes that have a live duplicate, with its id; withdraw expired duplicates."""
        repeat_of, kept_ids = self.repeats_within(notes), {}
        for place, note in enumerate(notes):
            if place not in repeat_of:
                duplicate_id = await self._find_duplicate(self._tenant, self._participants, note)
                has_expired = (
                    duplicate_id and self._expire and await self._expire(self._tenant, duplicate_id, self._now)
                )
                if duplicate_id is not None and not has_expired:
                    kept_ids[place] = duplicate_id
        return kept_ids

    async def restating_events(
        self, note_id: str, event: NewEvent, replaced: Sequence[asyncpg.Record], *, is_raced: bool
    ) -> Sequence[NewEvent]:
        """Return the events of a new version with equal text; see `Keeper.restating_events`.

        None where another call has restated the note meanwhile: it is the newest statement already.
        """
        if is_raced and not replaced and self._key is None:
            return ()
        return await self._restate(self._tenant, note_id, event, replaced)

    def check(self, first: asyncpg.Record | None, event: NewEvent) -> None:
        """Accept a repeat with the same text whose note is neither forgotten nor expired; else raise."""
        note_id = "" if first is None else first["note_id"]
        text = orjson.loads(event.payload_json)["text"]
        if first is None or orjson.loads(first["first_payload"])["text"] != text:
            raise IdempotencyKeyReused(
                f"this key was used before, for another text: note {note_id}; nothing was kept. Use a new key, or "
                "amend that note",
                note_id=note_id,
            )
        if first["reason"] in ("forgotten", "expired"):
            raise NoteNotFound(
                f"note {note_id}, which was kept with this key, is withdrawn; restore it, or use a new key",
                note_id=note_id,
            )


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

    def repeats_within(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        """Return the memories with the key of an earlier one; none with `whole`, where a repeat refuses all."""
        return {} if self._whole else self._repeated(notes)

    def _repeated(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        first_places: dict[str, int] = {}
        places = [
            first_places.setdefault((note.memory or {})["dedup_key"], place) if _window_of(note) else place
            for place, note in enumerate(notes)
        ]
        return {place: first for place, first in enumerate(places) if first != place}

    async def kept_already(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return by their places the memories whose key was kept within its window, with the kept memory's id.

        Raises:
            DuplicateMemory: with `whole`, for the first repeat: its place, and the id of the memory kept before.
        """
        candidates = [(place, note.memory or {}) for place, note in enumerate(notes) if _window_of(note)]
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(
                sql("memories.standing"),
                self._tenant,
                [memory["dedup_key"] for _, memory in candidates],
                [self._at - memory["dedup_within_s"] * 1_000_000 for _, memory in candidates],
                [memory["shared_with"] for _, memory in candidates],
            )
        kept_ids: dict[int, str] = {}
        for (place, _), row in zip(candidates, rows, strict=True):
            is_retried = row["source_event_key"] is not None and row["source_event_key"] == self.source_key(place)
            if row["event_id"] is not None and not is_retried:
                kept_ids[place] = row["note_id"]
        # None may be left: the memory that refused the append is not committed yet, or was withdrawn meanwhile.
        if self._whole and (repeats := {**self._repeated(notes), **kept_ids}):
            place = min(repeats)
            known = {"id": kept_ids[place]} if place in kept_ids else {}
            raise DuplicateMemory("duplicate memory", **known, **({"index": place} if len(notes) > 1 else {}))
        return kept_ids

    async def restating_events(
        self, note_id: str, event: NewEvent, replaced: Sequence[asyncpg.Record], *, is_raced: bool
    ) -> Sequence[NewEvent]:
        """Return nothing: the memory stands as it was kept."""
        return ()

    def check(self, first: asyncpg.Record | None, event: NewEvent) -> None:
        """Accept a repeat of the same memory that is still live; else raise."""
        if first is None or not (first["live"] or first["reason"] in WITHHELD):
            raise NoteNotFound("the memory that was kept with this key was withdrawn; use a new key")
        if _identifying_content(orjson.loads(first["first_payload"])) != _identifying_content(
            orjson.loads(event.payload_json)
        ):
            raise IdempotencyKeyReused(
                "this Idempotency-Key was used before, for another memory; nothing was kept: use a new one"
            )


def _window_of(note: NoteText) -> int:
    """Return for how many seconds a memory refuses repeats; 0 for not at all."""
    within: int = (note.memory or {}).get("dedup_within_s", 0)
    return within


def _identifying_content(payload: Mapping[str, Any]) -> object:
    note = payload["note"]
    return payload["text"], note["kind"], note["memory"]
