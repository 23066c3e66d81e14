"""Keeping, changing and withdrawing memories: each is one append, which shares its commit with those of others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import asyncpg
import orjson

from myria.db.queries import sql
from myria.errors import (
    AlreadySuperseded,
    DuplicateMemory,
    EventNotFound,
    IdempotencyKeyReused,
    InvalidArgument,
    NoteExists,
    NoteHeld,
    NoteNotFound,
)
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.payloads import dedupe_key
from myria.log.withdrawal.commands import MaySee
from myria.notes.commands import Notes
from myria.notes.finding import why_gone
from myria.notes.kinds import FACT_KINDS
from myria.notes.links import link_event
from myria.notes.memories.model import MemoryChanges, MemoryDraft, StoredMemory, memory_of, note_of_memory, rekeyed
from myria.notes.memories.sharing import Keeping
from myria.notes.model import NOTE_CHANNEL, note_of
from myria.notes.repeats import SameKey


class Kept(NamedTuple):
    """What became of a draft: the memory, or None where it is a duplicate. `is_new` is false for a repeat of a call."""

    memory: StoredMemory | None
    is_new: bool


class Memories:
    """The commands of one process.

    Args:
        log: redacts memories, and is where they are looked up.
        notes: keeps them, since a memory is a note.
        window_s: seconds within which another memory with the same deduplication key is a repeat; 0: none is.
    """

    def __init__(self, log: EventLog, notes: Notes, *, window_s: int) -> None:
        self._database = log.database
        self._log = log
        self._notes = notes
        self._window_s = window_s

    async def keep(
        self, tenant: str, keeping: Keeping, draft: MemoryDraft, *, key: str | None = None, now: int | None = None
    ) -> Kept:
        """Keep a memory, unless one with its deduplication key was kept within the window.

        Args:
            key: the caller's own name for this call: a repeat of the call returns the first call's memory.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            DuplicateMemory: a memory with its deduplication key was kept within the window.
            IdempotencyKeyReused: an earlier call kept another memory with this key.
            NoteNotFound: the memory that an earlier call kept with this key was withdrawn.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this memory.
            as `EventLog.append_events`.
        """
        (kept,) = await self.keep_all(tenant, keeping, [draft], whole=True, key=key, now=now)
        return kept

    async def keep_all(
        self,
        tenant: str,
        keeping: Keeping,
        drafts: Sequence[MemoryDraft],
        *,
        whole: bool = False,
        key: str | None = None,
        now: int | None = None,
    ) -> list[Kept]:
        """Keep several memories by one append, without duplicates; with `whole` one duplicate refuses them all.

        Raises:
            as `keep`; the detail `index` names the memory where there are several.
        """
        at = time.time_ns() // 1000 if now is None else now
        redacted = await self._cleaned(tenant, drafts)
        repeats = SameKey(self._database, tenant, keeping.participants, key=key, whole=whole, at=at)
        parents = await self._parents(tenant, keeping, redacted)

        async def with_links(ids: Sequence[str], new: Sequence[int], events: Sequence[NewEvent]) -> Sequence[NewEvent]:
            links = [
                link_event(
                    keeping.participants,
                    ids[place],
                    parents[place],
                    "part_of",
                    key=None if (source := repeats.source_key(place)) is None else f"{source}:part_of",
                )
                for place in new
                if place in parents
            ]
            return [*events, *links]

        outcomes, _ = await self._notes.keeper.keep(
            tenant,
            keeping.participants,
            [
                note_of_memory(draft, dedup_key=draft.key, shared_with=keeping.shared, within_s=self._window_s)
                for draft in redacted
            ],
            repeats,
            at=at,
            arrange=with_links,
            api="rest",
        )
        kept = []
        for draft, outcome in zip(redacted, outcomes, strict=True):
            memory = None if outcome.first is None else memory_of(outcome.first)
            if outcome.appended is not None:
                memory = StoredMemory(outcome.note_id, draft, draft.key, at, at, 1, outcome.appended.event_seq)
            if memory is not None and outcome.held:
                memory = memory._replace(held=True)
            kept.append(Kept(memory=memory, is_new=outcome.appended is not None))
        return kept

    async def _parents(self, tenant: str, keeping: Keeping, drafts: Sequence[MemoryDraft]) -> dict[int, str]:
        """Return by the places of drafts the ids of their parents, of those that the writer may see.

        A parent that the writer may not see is treated as one that does not exist.
        """
        parents = {place: draft.parent_id for place, draft in enumerate(drafts) if draft.parent_id is not None}
        if not parents:
            return {}
        masks = keeping.masks
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("memories.by_ids"), tenant, sorted(set(parents.values())))
        visible_ids = {row["note_id"] for row in rows if not row["session"] and masks.sees(row["participants"])}
        return {place: parent for place, parent in parents.items() if parent in visible_ids}

    async def amend(
        self,
        tenant: str,
        memory_id: str,
        changes: MemoryChanges,
        *,
        may_see: MaySee,
        version: int | None = None,
        key: str | None = None,
        now: int | None = None,
    ) -> StoredMemory:
        """Append a new version of a memory, which replaces the version before; the memory keeps its id and its time.

        What the policy of review holds back becomes a held note of its own: then the memory is returned as it stays.

        Args:
            may_see: tells whether the caller may see what given participants see.
            version: the version that the caller read, refused if it is not the newest; None amends the newest.
            key: the caller's own name for this call: a repeat of the call returns the version that the first made.

        Raises:
            IdempotencyKeyReused: an earlier call with this key changed this memory in another way.
            NoteNotFound: absent, of others, or withdrawn.
            AlreadySuperseded: another call changed the memory meanwhile, or it is not at `version`.
            DuplicateMemory: it was kept over another API, where no two notes have equal text, and another has this one.
            InvalidArgument: it was kept over another API, and lacks the field to be changed.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this memory.
        """
        row = await self._row(tenant, memory_id, may_see)
        memory = memory_of(row)
        source_key = None if key is None else f"amend:{digest([memory_id, key]).hex()}"
        if source_key is not None and (first := await self._amended(tenant, row, changes, source_key)) is not None:
            return first
        if version is not None and memory.version != version:
            raise AlreadySuperseded(
                f"this memory is at version {memory.version} by now; read it again", version=memory.version
            )
        (draft,) = await self._cleaned(tenant, [changes.of(memory.draft)])
        draft = rekeyed(draft, memory.draft)
        if draft == memory.draft and source_key is None:
            return memory
        if memory.kind is not None:
            _check_changes(memory, changes)
        at = time.time_ns() // 1000 if now is None else now
        payload = orjson.loads(row["payload"])
        if memory.kind is None:
            stored = payload["note"]["memory"]
            note = note_of_memory(
                draft,
                dedup_key=None if memory.dedup_key is None else draft.key,
                shared_with=stored.get("shared_with", ""),
                within_s=stored.get("dedup_within_s", 0),
            )
        else:
            before = note_of(payload, context_id=row["context_id"])
            importance = before.importance if draft.importance is None else draft.importance
            note = before._replace(content=draft.content, keywords=draft.tags, importance=importance)
        try:
            appended, held_id = await self._notes.keeper.append_version(
                tenant, row, note, may_see=may_see, at=at, speaker=payload.get("speaker"), key=source_key, api="rest"
            )
            if held_id is not None:
                return memory._replace(held=True)
            is_repeat = appended is not None and appended.deduplicated
        except AlreadySuperseded:
            if source_key is None or (first := await self._amended(tenant, row, changes, source_key)) is None:
                raise
            return first
        except EventNotFound as error:
            raise _absent() from error
        except NoteExists as error:
            raise DuplicateMemory("another note of the same kind says this already") from error
        if (
            is_repeat
            and source_key is not None
            and (first := await self._amended(tenant, row, changes, source_key)) is not None
        ):
            return first
        new_dedup_key = None if memory.dedup_key is None else draft.key
        return memory._replace(draft=draft, dedup_key=new_dedup_key, updated_at=at, version=memory.version + 1)

    async def _amended(
        self, tenant: str, row: asyncpg.Record, changes: MemoryChanges, source_key: str
    ) -> StoredMemory | None:
        """Return the version that an earlier call with this source key made, or None where none did.

        Raises:
            IdempotencyKeyReused: that call made other changes.
        """
        async with self._database.read(tenant) as connection:
            event = await connection.fetchrow(sql("events.of_key"), tenant, dedupe_key(NOTE_CHANNEL, source_key))
        if event is None:
            return None
        if "held" in orjson.loads(event["payload"])["note"]:
            return memory_of(row)._replace(held=True)
        version_number = orjson.loads(event["payload"])["note"]["version"]
        version = memory_of(
            dict(row) | {"payload": event["payload"], "changed_at": event["occurred_at"], "version": version_number}
        )
        (draft,) = await self._cleaned(tenant, [changes.of(version.draft)])
        if rekeyed(draft, version.draft) != version.draft:
            raise IdempotencyKeyReused(
                "this Idempotency-Key was used before, for another change of this memory; nothing was changed: "
                "use a new one"
            )
        return version

    async def withdraw(
        self, tenant: str, memory_id: str, *, may_see: MaySee, key: str | None = None, by: str | None = None
    ) -> None:
        """Withdraw a memory with all its versions; see `Notes.withdraw`.

        Raises:
            NoteNotFound: absent, of others, or withdrawn by another call.
        """
        try:
            await self._notes.withdraw(tenant, memory_id, may_see=may_see, key=key, by=by)
        except NoteNotFound as error:
            raise _absent() from error

    async def _row(self, tenant: str, memory_id: str, may_see: MaySee) -> asyncpg.Record:
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("memories.by_ids"), tenant, [memory_id])
        if row is None or not may_see(row["participants"]):
            gone = await why_gone(self._database, tenant, memory_id, may_see)
            raise gone if isinstance(gone, NoteHeld) else _absent()
        return row

    async def _cleaned(self, tenant: str, drafts: Sequence[MemoryDraft]) -> list[MemoryDraft]:
        """Redact every text of drafts but the session's name, which the append refuses instead.

        A deduplication key that was redacted is dropped, so the contract's computed one is used: two different keys may
        be equal once redacted, and one of the memories would be lost as a repeat.
        """
        texts = [{name: value for name, value in draft._asdict().items() if name != "session_id"} for draft in drafts]
        redacted_texts, counts = await self._log.clean(tenant, texts)
        if not counts:
            return list(drafts)
        return [
            draft._replace(
                **redacted
                | {"tags": tuple(redacted["tags"])}
                | ({} if redacted["dedup_key"] == draft.dedup_key else {"dedup_key": None})
            )
            for draft, redacted in zip(drafts, redacted_texts, strict=True)
        ]


def _check_changes(memory: StoredMemory, changes: MemoryChanges) -> None:
    """Refuse changes that a note of another API cannot take."""
    if memory.kind in FACT_KINDS:
        raise InvalidArgument("this is a fact that was said in a turn: a later turn changes it", field="id")
    for name in ("event_type", "metadata"):
        if getattr(changes, name) is not None:
            raise InvalidArgument(
                f"this was kept over another API, and has no {name} of its own: change content, tags or importance",
                field=name,
            )


def _absent() -> NoteNotFound:
    return NoteNotFound("memory not found")
