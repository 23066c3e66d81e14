"""Keeping, changing and withdrawing memories: each is one append, which shares its commit with those of others."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import asyncpg
import orjson

from myria.db.clock import to_datetime
from myria.db.queries import sql
from myria.errors import (
    AlreadySuperseded,
    DuplicateMemory,
    EventNotFound,
    IdempotencyKeyReused,
    InvalidArgument,
    NoteExists,
    NoteNotFound,
    Overloaded,
)
from myria.log.acknowledgement import AppendResult
from myria.log.canonical import digest
from myria.log.event import STEP_BYTES, NewEvent
from myria.log.event_log import EventLog
from myria.log.ids import new_ids
from myria.log.payloads import dedupe_key
from myria.log.withdrawal.commands import MaySee, Withdrawals
from myria.notes.expiry import SESSION_IDLE_S
from myria.notes.kinds import FACT_KINDS
from myria.notes.links import link_event
from myria.notes.memories.model import MemoryChanges, MemoryDraft, MemoryEvents, StoredMemory, memory_of, rekeyed
from myria.notes.model import NOTE_CHANNEL, note_event, note_of
from myria.search.steps import in_steps

_ATTEMPTS = 50
_SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """For whom memories are kept: `participants` may see them, `shared` among these; `own` tells callers apart."""

    own: tuple[str, ...]
    shared: str

    @property
    def participants(self) -> tuple[str, ...]:
        """Who may see them, canonical."""
        return tuple(sorted({*self.own, self.shared}))

    def sees(self, participants: Sequence[str]) -> bool:
        """Tell whether who keeps them sees what these participants may."""
        return self.shared in participants or set(self.own) <= set(participants)


class Kept(NamedTuple):
    """What became of a draft: the memory, or None where it is a duplicate. `is_new` is false for a retried one."""

    memory: StoredMemory | None
    is_new: bool


class Memories:
    """The commands of one process.

    Args:
        log: where memories are appended, and those that were kept before are looked up.
        window_s: seconds within which another memory with the same key is a repeat; 0: none is.
    """

    def __init__(self, log: EventLog, *, window_s: int) -> None:
        self._database = log.database
        self._log = log
        self._withdrawals = Withdrawals(log)
        self._window_s = window_s

    async def keep(
        self, tenant: str, keeping: Keeping, draft: MemoryDraft, *, key: str | None = None, now: int | None = None
    ) -> Kept:
        """Keep a memory, once within the window.

        Args:
            key: the caller's own name for this call: a repeat answers the first.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            DuplicateMemory: it was kept within the window.
            IdempotencyKeyReused: another memory was kept with this key before.
            NoteNotFound: the memory that was kept with this key was withdrawn.
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
        """Keep several memories by one append; duplicates are left out, or with `whole` refuse all.

        Raises:
            as `keep`; the detail `index` names the memory where there are several.
        """
        at = time.time_ns() // 1000 if now is None else now
        clean = await self._cleaned(tenant, drafts)
        keys = [draft.key for draft in clean]
        ids = new_ids("note", len(clean))
        events = await in_steps(self._events(keeping, clean, keys, ids, at=at, key=key))
        parts = await self._parts(tenant, keeping, clean, events, ids)
        # Nearly always nothing was kept before: the append itself tells, and only then it is asked what was.
        duplicates: Collection[int] = () if whole else self._repeated(keys)
        for _ in range(_ATTEMPTS):
            chosen = [index for index in range(len(events)) if index not in duplicates]
            if not chosen:
                return [Kept(memory=None, is_new=False) for _ in events]
            try:
                links = [parts[index] for index in chosen if index in parts]
                new = [events[index] for index in chosen]
                results = (await self._log.append_events(tenant, [*new, *links]))[: len(new)]
            except DuplicateMemory:
                found = await self._duplicates(tenant, keeping, keys, events, at)
                if whole and found:  # else what stood in the way is in a commit under way, or was withdrawn
                    raise _duplicate(found, several=len(events) > 1) from None
                duplicates = found.keys()
                continue
            made = [
                Kept(StoredMemory(ids[index], clean[index], keys[index], at, at, 1, result.event_seq), is_new=True)
                for index, result in zip(chosen, results, strict=True)
            ]
            if not duplicates and not any(result.deduplicated for result in results):
                return made
            answered = await self._answered(
                tenant, dict(zip(chosen, made, strict=True)), dict(zip(chosen, results, strict=True)), events
            )
            return [answered.get(index, Kept(memory=None, is_new=False)) for index in range(len(events))]
        raise Overloaded("the same memories are being kept and withdrawn again and again; retry")

    def _events(
        self,
        keeping: Keeping,
        drafts: Sequence[MemoryDraft],
        keys: Sequence[str],
        ids: Sequence[str],
        *,
        at: int,
        key: str | None,
    ) -> Generator[None, None, list[NewEvent]]:
        """Make the events that keep memories, so many bytes at each step, and return them."""
        made = MemoryEvents(keeping.participants, at=at, shared=keeping.shared, window_s=self._window_s)
        events, size = [], 0
        for index, draft in enumerate(drafts):
            source = None if key is None else _source_key(keeping, key, index)
            event = made.event(draft, ids[index], keys[index], key=source)
            events.append(event)
            size += len(event.payload_json)
            if size > STEP_BYTES:
                size = 0
                yield
        return events

    async def _parts(
        self,
        tenant: str,
        keeping: Keeping,
        drafts: Sequence[MemoryDraft],
        events: Sequence[NewEvent],
        ids: Sequence[str],
    ) -> dict[int, NewEvent]:
        """Return the links of memories to those that they go on from, by their places.

        What its writer does not see is no such thing, whether it is there or not; nor has a repeat anything to link.
        """
        parents = {index: draft.parent_id for index, draft in enumerate(drafts) if draft.parent_id is not None}
        if not parents:
            return {}
        keys = [
            dedupe_key(NOTE_CHANNEL, events[index].source_event_key or "")
            for index in parents
            if events[index].source_event_key is not None
        ]
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("memories.by_ids"), tenant, sorted(set(parents.values())))
            if keys and await connection.fetch(sql("withdrawal.stored_keys"), tenant, keys):
                return {}
        seen = {row["note_id"] for row in rows if not row["session"] and keeping.sees(row["participants"])}
        return {
            index: link_event(
                keeping.participants,
                ids[index],
                parent,
                "part_of",
                key=None if (key := events[index].source_event_key) is None else f"{key}:part_of",
            )
            for index, parent in parents.items()
            if parent in seen
        }

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
        """Make a version of a memory that takes the place of the one before; its id and its time stay.

        Args:
            may_see: whether the caller may see what these participants may.
            version: the version that the caller saw; None for whichever is the newest.
            key: the caller's own name for this call: a repeat answers the version that the first made.

        Raises:
            IdempotencyKeyReused: this memory was changed otherwise with this key.
            NoteNotFound: absent, of others, or withdrawn.
            AlreadySuperseded: another changed it meanwhile.
            DuplicateMemory: it was kept at another face, where no two notes say the same, and another says this.
            InvalidArgument: it was kept at another face, and has nothing of what is to change.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this memory.
        """
        row = await self._row(tenant, memory_id, may_see)
        memory = memory_of(row)
        source = None if key is None else f"amend:{digest([memory_id, key]).hex()}"
        if source is not None and (first := await self._amended(tenant, row, changes, source)) is not None:
            return first
        if version is not None and memory.version != version:
            raise AlreadySuperseded(
                f"this memory is at version {memory.version} by now; read it again", version=memory.version
            )
        (draft,) = await self._cleaned(tenant, [changes.of(memory.draft)])
        draft = rekeyed(draft, memory.draft)
        if draft == memory.draft and source is None:
            return memory
        if memory.kind is not None:
            _check_changes(memory, changes)
        at = time.time_ns() // 1000 if now is None else now
        event = self._version(row, memory, draft, at=at) if memory.kind is None else _note_version(row, draft, at=at)
        event = event._replace(source_event_key=source)
        try:
            appended, *_ = await self._withdrawals.append(tenant, event, supersedes=[row["event_id"]], may_see=may_see)
            is_repeat = appended.deduplicated
        except AlreadySuperseded:
            if source is None or (first := await self._amended(tenant, row, changes, source)) is None:
                raise
            return first
        except EventNotFound as error:
            raise _absent() from error
        except NoteExists as error:
            raise DuplicateMemory("another note of the same kind says this already") from error
        if (
            is_repeat
            and source is not None
            and (first := await self._amended(tenant, row, changes, source)) is not None
        ):
            return first
        dedup = None if memory.dedup_key is None else draft.key
        return memory._replace(draft=draft, dedup_key=dedup, updated_at=at, version=memory.version + 1)

    async def _amended(
        self, tenant: str, row: asyncpg.Record, changes: MemoryChanges, source: str
    ) -> StoredMemory | None:
        """Return the version that a call with this source key made before, or None."""
        async with self._database.read(tenant) as connection:
            found = await connection.fetchrow(sql("events.of_key"), tenant, dedupe_key(NOTE_CHANNEL, source))
        if found is None:
            return None
        number = orjson.loads(found["payload"])["note"]["version"]
        version = memory_of(
            dict(row) | {"payload": found["payload"], "changed_at": found["occurred_at"], "version": number}
        )
        (draft,) = await self._cleaned(tenant, [changes.of(version.draft)])
        if rekeyed(draft, version.draft) != version.draft:
            raise IdempotencyKeyReused(
                "this Idempotency-Key was used before, for another change of this memory; nothing was changed: "
                "use a new one"
            )
        return version

    def _version(self, row: asyncpg.Record, memory: StoredMemory, draft: MemoryDraft, *, at: int) -> NewEvent:
        about = orjson.loads(row["payload"])["note"]["memory"]
        before = MemoryEvents(
            tuple(row["participants"]),
            at=at,
            shared=about.get("shared_with", ""),
            window_s=about.get("dedup_within_s", 0),
        )
        return before.event(
            draft,
            memory.memory_id,
            None if memory.dedup_key is None else draft.key,
            version=memory.version + 1,
            previous=row["event_id"],
        )

    async def withdraw(self, tenant: str, memory_id: str, *, may_see: MaySee, key: str | None = None) -> None:
        """Take a memory with all its versions out of every answer.

        Args:
            key: the caller's own name for this call: a repeat changes nothing.

        Raises:
            NoteNotFound: absent, of others, or withdrawn by another call.
        """
        source = named = None if key is None else f"withdraw:{digest([memory_id, key]).hex()}"
        if named is not None and await self._withdrawals.was_made(tenant, named):
            return
        for _ in range(_ATTEMPTS):
            try:
                await self._row(tenant, memory_id, may_see)
            except NoteNotFound:
                if named is not None and await self._withdrawals.was_made(tenant, named):
                    return  # by a repeat at the same time
                raise
            async with self._database.read(tenant) as connection:
                rows = await connection.fetch(sql("notes.versions"), tenant, memory_id)
            ids = [row["event_id"] for row in rows]
            await self._withdrawals.withdraw_versions(tenant, ids, "forgotten", may_see=may_see, key=source)
            source = None
            async with self._database.read(tenant) as connection:
                if await connection.fetchrow(sql("memories.by_ids"), tenant, [memory_id]) is None:
                    return
        raise Overloaded("the memory is being changed again and again; retry")

    async def _row(self, tenant: str, memory_id: str, may_see: MaySee) -> asyncpg.Record:
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("memories.by_ids"), tenant, [memory_id])
        if row is None or not may_see(row["participants"]):
            raise _absent()
        return row

    async def _cleaned(self, tenant: str, drafts: Sequence[MemoryDraft]) -> list[MemoryDraft]:
        """Return drafts without what must not be kept.

        Every text of a draft is looked at. A key of repeats that held something is left out: the contract's stands for
        it, since of two that are redacted alike one would be lost as a repeat. A session's name stays for the append,
        which refuses it.
        """
        given = [{name: value for name, value in draft._asdict().items() if name != "session_id"} for draft in drafts]
        cleaned, taken = await self._log.clean(tenant, given)
        if not taken:
            return list(drafts)
        return [
            draft._replace(
                **kept
                | {"tags": tuple(kept["tags"])}
                | ({} if kept["dedup_key"] == draft.dedup_key else {"dedup_key": None})
            )
            for draft, kept in zip(drafts, cleaned, strict=True)
        ]

    def _repeated(self, keys: Sequence[str]) -> set[int]:
        """Return the places of keys that come earlier among these, where that makes a repeat."""
        if not self._window_s:
            return set()
        first = dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))
        return {index for index, key in enumerate(keys) if first[key] != index}

    async def _duplicates(
        self, tenant: str, keeping: Keeping, keys: Sequence[str], events: Sequence[NewEvent], at: int
    ) -> dict[int, str | None]:
        """Return which memories were kept within the window, with the ids of those, or come earlier among these."""
        if not self._window_s:
            return {}
        since = to_datetime(at - self._window_s * _SECOND)
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(
                sql("memories.standing"),
                tenant,
                list(keys),
                [since] * len(keys),
                [keeping.shared] * len(keys),
            )
        found: dict[int, str | None] = dict.fromkeys(self._repeated(keys))
        for index, (event, row) in enumerate(zip(events, rows, strict=True)):
            is_repeat = row["source_event_key"] is not None and row["source_event_key"] == event.source_event_key
            if row["event_id"] is not None and not is_repeat:
                found[index] = row["note_id"]
        return found

    async def _answered(
        self,
        tenant: str,
        made: Mapping[int, Kept],
        results: Mapping[int, AppendResult],
        events: Sequence[NewEvent],
    ) -> dict[int, Kept]:
        """Return what became of drafts that were appended; of one that was retried, what the first call kept."""
        repeats = {index: result.event_id for index, result in results.items() if result.deduplicated}
        earlier: dict[str, asyncpg.Record] = {}
        if repeats:
            async with self._database.read(tenant) as connection:
                rows = await connection.fetch(sql("memories.of_first_events"), tenant, list(repeats.values()))
            earlier = {row["first_event_id"]: row for row in rows}
        answered: dict[int, Kept] = {}
        for index in results:
            if index in repeats:
                row = earlier.get(repeats[index])
                if row is None:
                    raise NoteNotFound("the memory that was kept with this key was withdrawn; use a new key")
                if not _same(orjson.loads(row["first_payload"]), orjson.loads(events[index].payload_json)):
                    raise IdempotencyKeyReused(
                        "this Idempotency-Key was used before, for another memory; nothing was kept: use a new one"
                    )
                answered[index] = Kept(memory=memory_of(row), is_new=False)
                continue
            answered[index] = made[index]
        return answered


def _duplicate(found: Mapping[int, str | None], *, several: bool) -> DuplicateMemory:
    """Return the refusal of the first of these, which names the memory that stands."""
    index = min(found)
    standing = {} if (memory_id := found[index]) is None else {"id": memory_id}
    return DuplicateMemory("duplicate memory", **standing, **({"index": index} if several else {}))


def _check_changes(memory: StoredMemory, changes: MemoryChanges) -> None:
    """Return when a note of another face can be changed so."""
    if memory.kind in FACT_KINDS:
        raise InvalidArgument("this is a fact that was said in a turn: a later turn changes it", field="id")
    for name in ("event_type", "metadata"):
        if getattr(changes, name) is not None:
            raise InvalidArgument(
                f"this was kept at another face, and has no {name} of its own: change content, tags or importance",
                field=name,
            )


def _note_version(row: asyncpg.Record, draft: MemoryDraft, *, at: int) -> NewEvent:
    """Return the event of the next version of a note that another face keeps."""
    payload = orjson.loads(row["payload"])
    about = payload["note"]
    before = note_of(payload, context_id=row["context_id"])
    importance = before.importance if draft.importance is None else draft.importance
    return note_event(
        before._replace(content=draft.content, keywords=draft.tags, importance=importance),
        tuple(row["participants"]),
        note_id=row["note_id"],
        version=row["version"] + 1,
        timestamp=at,
        speaker=payload.get("speaker"),
        previous=row["event_id"],
        idle_s=about.get("idle_s", SESSION_IDLE_S),
    )


def _same(first: Mapping[str, object], again: Mapping[str, object]) -> bool:
    """Tell whether two events keep the same memory, their ids aside."""

    def said(payload: Mapping[str, object]) -> object:
        note = payload["note"]
        return payload["text"], note["kind"], note["memory"]  # type: ignore[index]

    return said(first) == said(again)


def _source_key(keeping: Keeping, key: str, index: int) -> str:
    return f"memory:{digest([*keeping.participants, key, index]).hex()}"


def _absent() -> NoteNotFound:
    return NoteNotFound("memory not found")
