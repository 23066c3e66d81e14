"""Appending notes and further versions of them, each by one append; what the policy of review holds back waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.queries import sql
from myria.errors import AlreadySuperseded, DuplicateMemory, NoteExists, Overloaded
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.ids import new_id
from myria.log.payloads import speaker_of
from myria.log.withdrawal.commands import MaySee, Withdrawals
from myria.notes.drafting import NoteText
from myria.notes.finding import NoteRows, anybody, note_absent, note_gone
from myria.notes.holding import Api, Holding, keep_held
from myria.notes.model import NOTE_CHANNEL, Amendment, note_event, note_of
from myria.notes.repeats import Arrange, KeptNote, Repeats, notes_alone
from myria.notes.replacing import replacing_events
from myria.text.dates import local_day

_ATTEMPTS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToKeep:
    """The notes of one call, by their places; `firsts` has of each the place of the first that says the same.

    `events` would keep them as new notes with these ids, and `rules` hold them back, where not None.
    """

    tenant: str
    repeats: Repeats
    firsts: Sequence[int]
    ids: Sequence[str]
    events: Sequence[NewEvent]
    rules: Sequence[str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """What one attempt appends: the ids of notes and, of new ones, their events, by the places of first notes."""

    ids: dict[int, str] = field(default_factory=dict)
    new_events: dict[int, NewEvent] = field(default_factory=dict)
    held_ids: set[str] = field(default_factory=set)
    events: list[NewEvent] = field(default_factory=list)


class Keeper:
    """Appends notes and versions of one process.

    Args:
        log: where notes are appended, and one that was kept before is looked up.
        session_idle_s: seconds after which a session that says nothing is over.
        holding: which notes wait for a reviewer.
    """

    def __init__(self, log: EventLog, *, session_idle_s: int, holding: Holding) -> None:
        self._database = log.database
        self._log = log
        self._withdrawals = Withdrawals(log)
        self._rows = NoteRows(log.database)
        self._session_idle_s = session_idle_s
        self._holding = holding

    async def keep(
        self,
        tenant: str,
        participants: tuple[str, ...],
        notes: Sequence[NoteText],
        repeats: Repeats,
        *,
        at: int,
        speaker: str | None = None,
        supersedes: Sequence[str] = (),
        may_see: MaySee = lambda _: False,
        dry_run: bool = False,
        arrange: Arrange = notes_alone,
        api: Api = "agent",
    ) -> tuple[list[KeptNote], Sequence[AppendResult]]:
        """Keep notes by one append, all or none; `repeats` decides which of them are kept already.

        Nearly always none is, so the append is tried first; only when it is refused, the kept notes are looked up.
        Where the policy of review holds a note back, they are looked up before: a held note that would replace others
        leaves them standing.

        Args:
            at: when the notes are kept, in microseconds since 1970 UTC.
            speaker: who keeps the notes; a memory of the REST API names its speaker itself.

        Returns:
            what became of each note, and the log's answers to the events that `arrange` returned.

        Raises:
            as `Notes.remember_all`; DuplicateMemory: as `repeats` says.
        """
        repeat_of = repeats.repeats_within(notes)
        keys = [repeats.source_key(place) for place in range(len(notes))]
        ids = [repeats.note_id(tenant, place) for place in range(len(notes))]
        events = [
            self._event(note, participants, note_id=note_id, version=1, at=at, speaker=speaker, key=key)
            for note, note_id, key in zip(notes, ids, keys, strict=True)
        ]
        call = _ToKeep(
            tenant=tenant,
            repeats=repeats,
            firsts=[repeat_of.get(place, place) for place in range(len(notes))],
            ids=ids,
            events=events,
            rules=[self.rule_for(*drafted, api=api) for drafted in zip(notes, events, strict=True)],
        )
        if dry_run:
            await self._log.check(tenant, events)
        kept_ids = await (repeats.kept_already(notes) if any(call.rules) else repeats.kept_before(notes))
        is_raced = False
        for _ in range(_ATTEMPTS):
            replaced: list[asyncpg.Record] = []
            stored_keys = await self._log.stored_keys(tenant, NOTE_CHANNEL, [key for key in keys if key is not None])
            if supersedes and keys[0] not in stored_keys:
                replaced = await self._to_replace(tenant, participants, notes[0], supersedes, may_see=may_see, now=at)
            if dry_run:
                kept_ids = await repeats.kept_already(notes)
                return [
                    KeptNote(
                        note_id=kept_ids.get(first, ""), held=first not in kept_ids and call.rules[first] is not None
                    )
                    for first in call.firsts
                ], ()
            try:
                attempt = await self._attempt(call, kept_ids, replaced, is_raced=is_raced)
                note_ids = [attempt.ids[first] for first in call.firsts]
                # A repeat of an earlier call may still be refused (`Repeats.check`), so nothing is added to its notes.
                new_places = [place for place in attempt.new_events if keys[place] not in stored_keys]
                batch = await arrange(note_ids, new_places, attempt.events)
                results = await self._log.append_events(tenant, batch) if batch else []
            except (NoteExists, DuplicateMemory):
                kept_ids = await repeats.kept_already(notes)
            except AlreadySuperseded:
                if not kept_ids:
                    raise  # without kept notes, only a note of `supersedes` can be meant, or what `arrange` added
                # Another call restated the kept note, or changed it, and a changed note is no duplicate any more.
                is_raced = True
                kept_ids = await repeats.kept_already(notes)
            else:
                # By identity, since two events of a call may be equal; `arrange` may leave notes out.
                result_of_event = {id(event): result for event, result in zip(batch, results, strict=True)}
                result_of = {
                    place: result_of_event[id(event)]
                    for place, event in attempt.new_events.items()
                    if id(event) in result_of_event
                }
                outcomes = await repeats.outcomes(
                    self._database, tenant, note_ids, events, result_of, held=attempt.held_ids
                )
                return outcomes, results
        raise Overloaded("the same is being kept and withdrawn again and again; retry")

    async def _attempt(
        self, call: _ToKeep, kept_ids: Mapping[int, str], replaced: Sequence[asyncpg.Record], *, is_raced: bool
    ) -> _Attempt:
        """Return what a call appends, where these of its notes are kept already.

        Args:
            kept_ids: the ids of the notes that are kept already, by their places.
            replaced: rows of other notes that a note of the call replaces.
            is_raced: whether another call has given a kept note a new version since this call began.

        Raises:
            AlreadySuperseded: another call replaced one of them meanwhile.
        """
        tenant, attempt = call.tenant, _Attempt()
        for place in dict.fromkeys(call.firsts):
            event, rule, kept_id = call.events[place], call.rules[place], kept_ids.get(place)
            note_id, is_held = call.ids[place] if kept_id is None else kept_id, False
            if kept_id is None:
                added = await replacing_events(self._withdrawals, tenant, event, replaced)
            else:
                added = list(await call.repeats.restating_events(kept_id, event, replaced, is_raced=is_raced))
            if rule is not None and added:
                replaced_ids = [row["note_id"] for row in replaced]
                note_id, added = await keep_held(
                    self._database,
                    tenant,
                    event,
                    note_id=call.repeats.held_id(tenant, place) if kept_id is None else new_id("note"),
                    rule=rule,
                    replaces=replaced_ids if kept_id is None else [kept_id, *replaced_ids],
                )
                is_held = True
                attempt.held_ids.add(note_id)
            if added and (kept_id is None or is_held):
                attempt.new_events[place] = added[0]
            attempt.ids[place] = note_id
            attempt.events.extend(added)
        return attempt

    async def _to_replace(
        self,
        tenant: str,
        participants: tuple[str, ...],
        note: NoteText,
        supersedes: Sequence[str],
        *,
        may_see: MaySee,
        now: int,
    ) -> list[asyncpg.Record]:
        """Return the current rows of the notes of `supersedes` that a note replaces.

        Leave out its live duplicate itself, and notes that the duplicate has replaced already.

        Raises:
            NoteNotFound: one of `supersedes` is absent, of others, or withdrawn.
        """
        duplicate_id = await self._rows.duplicate(tenant, participants, note)
        rows = []
        for note_id in supersedes:
            row = await self._rows.current(tenant, note_id, may_see)
            if note_id == duplicate_id:
                continue
            if await self._rows.is_live(row, now):
                rows.append(row)
            elif (
                duplicate_id is None
                or row["reason"] != "superseded"
                or duplicate_id not in await self._rows.successors(tenant, note_id)
            ):
                raise note_gone(row)
        return rows

    async def restating_events(
        self, tenant: str, note_id: str, refused: NewEvent, replaced: Sequence[asyncpg.Record] = ()
    ) -> list[NewEvent]:
        """Return the events of a new version with equal text, which makes a kept note the newest statement again.

        Return no events for a mere retry: a call without a key on the same day, with no other note kept in between.

        Args:
            refused: the event that would have kept the note, had it not been kept before.
            replaced: current rows of other notes that the new version replaces.
        """
        row = await self._rows.current(tenant, note_id, anybody)
        key = refused.source_event_key
        if key is not None and await self._log.stored_keys(tenant, NOTE_CHANNEL, [key]):
            # Another attempt with this key has already restated the note. The current version may be that attempt's,
            # and superseding it under the same key would make it supersede itself. To see every such attempt, this is
            # read after the row.
            return []
        changed_at = to_microseconds(row["changed_at"])
        if not replaced and refused.timestamp <= changed_at:
            return []  # an import kept it with an earlier time, or another call kept it at the same moment
        if not replaced and key is None and local_day(refused.timestamp, 0) == local_day(changed_at, 0):
            async with self._database.read(tenant) as connection:
                if not await connection.fetchval(sql("notes.is_followed"), tenant, row["event_id"]):
                    return []
        version = self.version_event(
            row,
            note_of(orjson.loads(row["payload"]), context_id=row["context_id"]),
            at=max(refused.timestamp, changed_at),
            speaker=speaker_of(orjson.loads(refused.payload_json)),
            key=key,
        )._replace(event_id=new_id("evt"))
        replacing, withdrawals = await self._withdrawals.superseding(
            tenant, version, [row["event_id"]], may_see=anybody
        )
        return [*await replacing_events(self._withdrawals, tenant, replacing, replaced), *withdrawals]

    async def append_version(
        self,
        tenant: str,
        row: asyncpg.Record,
        note: NoteText,
        *,
        may_see: MaySee,
        at: int,
        speaker: str | None,
        key: str | None = None,
        api: Api = "agent",
        amendment: Amendment | None = None,
    ) -> tuple[AppendResult | None, str | None]:
        """Append a note's next version; of two calls that append one to the same version, one is refused.

        Where the policy of review holds it back, it becomes a held note of its own, which would replace the note.

        Args:
            row: the note's current version.
            key: the source key of the new version's event.
            api: by which the change comes.
            amendment: who makes it and why.

        Returns:
            the log's answer, None where the same waits already; and the id of the held note, None where it is none.

        Raises:
            EventNotFound: the note was erased, or is of others.
            AlreadySuperseded: another call amended the note meanwhile.
            NoteExists: the same people have another note with this kind and text.
        """
        event = self.version_event(row, note, at=at, speaker=speaker, key=key, amendment=amendment)
        rule = self.rule_for(note, event, api=api)
        if rule is None:
            supersedes = [row["event_id"]]
            return await self._withdrawals.append(tenant, event, supersedes=supersedes, may_see=may_see), None
        if not may_see(row["participants"]):
            raise note_absent(row["note_id"])
        if await self._rows.duplicate(tenant, event.participants, note) not in (None, row["note_id"]):
            raise NoteExists("a note with this text is kept already for the same people; nothing was stored")
        held_id, events = await keep_held(
            self._database, tenant, event, note_id=new_id("note"), rule=rule, replaces=[row["note_id"]]
        )
        results = await self._log.append_events(tenant, events) if events else []
        return (results[0] if results else None), held_id

    def rule_for(self, note: NoteText, event: NewEvent, *, api: Api = "agent") -> str | None:
        """Return the rule of review that holds the note of an event back; None if none does."""
        return self._holding.rule_for(note, event, api=api)

    def version_event(
        self,
        row: asyncpg.Record,
        note: NoteText,
        *,
        at: int,
        speaker: str | None,
        key: str | None = None,
        amendment: Amendment | None = None,
    ) -> NewEvent:
        """Return the event of a note's next version.

        Args:
            row: the note's current version: its note id, version, participants, and the event to be replaced.
        """
        return self._event(
            note,
            tuple(row["participants"]),
            note_id=row["note_id"],
            version=row["version"] + 1,
            at=at,
            speaker=speaker,
            previous=row["event_id"],
            key=key,
            amendment=amendment,
        )

    def _event(
        self,
        note: NoteText,
        participants: tuple[str, ...],
        *,
        note_id: str,
        version: int,
        at: int,
        speaker: str | None,
        previous: str | None = None,
        key: str | None = None,
        amendment: Amendment | None = None,
    ) -> NewEvent:
        return note_event(
            note,
            participants,
            note_id=note_id,
            version=version,
            timestamp=at,
            speaker=note.memory["agent_id"] if speaker is None and note.memory is not None else speaker,
            previous=previous,
            key=key,
            idle_s=self._session_idle_s,
            amendment=amendment,
        )
