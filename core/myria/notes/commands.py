"""Keeping, amending and withdrawing notes of any API, each by one append, which shares its commit with others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import (
    AlreadySuperseded,
    DuplicateMemory,
    EventNotFound,
    InvalidArgument,
    NoteExists,
    NoteHeld,
    NoteNotFound,
    Overloaded,
)
from myria.log.acknowledgement import AppendResult
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.event_log import Counts, EventLog
from myria.log.ids import new_id
from myria.log.payloads import speaker_of
from myria.log.scopes import scope_key
from myria.log.withdrawal.commands import MaySee, Withdrawals
from myria.log.withdrawal.model import WITHHELD, Reason
from myria.log.withdrawal.projection import withheld
from myria.notes.details import NO_DETAILS
from myria.notes.drafting import Draft, NoteText, completed
from myria.notes.expiry import SESSION_IDLE_S, Lasting
from myria.notes.holding import HOLDS_NOTHING, Api, Holding, keep_held
from myria.notes.kinds import Contract, tier
from myria.notes.model import (
    NOTE_CHANNEL,
    Amended,
    Changes,
    Forgotten,
    Remembered,
    note_event,
    note_of,
)
from myria.notes.repeats import Arrange, KeptNote, Repeats, SameText, notes_alone
from myria.notes.replacing import replacing_events
from myria.settings.database import Kind
from myria.text.dates import local_day

T = TypeVar("T")
Given = TypeVar("Given", Draft, Changes)

_ATTEMPTS = 50


class Notes:
    """The commands of one process.

    Args:
        log: where notes are appended, and one that was kept before is looked up.
        content_characters: the longest text of a note; a longer one is refused.
        redaction_kinds: what is taken out of a note beside the kinds of its tenant.
        session_idle_s: seconds after which a session that says nothing is over.
        holding: which notes wait for a reviewer.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        content_characters: int,
        redaction_kinds: Collection[Kind] = (),
        session_idle_s: int = SESSION_IDLE_S,
        holding: Holding = HOLDS_NOTHING,
    ) -> None:
        self._database = log.database
        self._log = log
        self._withdrawals = Withdrawals(log)
        self._content_characters = content_characters
        self._redaction_kinds = redaction_kinds
        self._session_idle_s = session_idle_s
        self._holding = holding

    async def remember(self, tenant: str, participants: tuple[str, ...], draft: Draft, **more: Any) -> Remembered:
        """Keep one note; see `remember_all`."""
        (kept,) = await self.remember_all(tenant, participants, [draft], **more)
        return kept

    async def remember_all(
        self,
        tenant: str,
        participants: tuple[str, ...],
        drafts: Sequence[Draft],
        *,
        contract: Contract,
        speaker: str | None = None,
        now: int | None = None,
        key: str | None = None,
        supersedes: Sequence[str] = (),
        may_see: MaySee = lambda _: False,
        dry_run: bool = False,
        arrange: Arrange = notes_alone,
        api: Api = "agent",
    ) -> list[Remembered]:
        """Keep notes by one append, all or none: of notes with equal participants, kind, session and text, one is kept.

        Where other notes were kept since an equal note, that note gets a new version, so that it counts as newest.

        Args:
            participants: who may see the notes, in canonical form.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            key: the caller's own name for this call: a repeat of the call for the same people returns the first call's
                notes.
            supersedes: ids of notes that the first draft replaces: at once, or on the day from which its text says that
                it holds.
            may_see: tells whether the caller may see what given participants see; checked for each of `supersedes`.
            dry_run: append nothing, and return what would be kept.
            arrange: adds further events to the same append.
            api: by which the notes come; the policy of review may name it.

        Raises:
            InvalidArgument: no content, too long, or a kind that the contract does not know.
            NoteNotFound: one of `supersedes` is absent, of others, or withdrawn.
            AlreadySuperseded: another call replaced one of `supersedes` meanwhile.
            IdempotencyKeyReused: an earlier call kept another text with this key.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than a note.
            as `EventLog.append_events`.
        """
        cleaned = [await self._cleaned(tenant, draft) for draft in drafts]
        notes = [completed(draft, contract) for draft, _ in cleaned]
        repeats = SameText(
            self.find_duplicate,
            None if dry_run else self.expire,
            self.restating_events,
            tenant,
            participants,
            key=key,
            now=now,
        )
        outcomes, _ = await self.keep(
            tenant,
            participants,
            notes,
            repeats,
            at=time.time_ns() // 1000 if now is None else now,
            speaker=speaker,
            supersedes=supersedes,
            may_see=may_see,
            dry_run=dry_run,
            arrange=arrange,
            api=api,
        )
        return [
            Remembered(
                note_id=outcome.note_id,
                created=outcome.appended is not None,
                note=note,
                event_id=None if outcome.appended is None else outcome.appended.event_id,
                redacted=redacted,
                held=outcome.held,
            )
            for outcome, note, (_, redacted) in zip(outcomes, notes, cleaned, strict=True)
        ]

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
            as `remember_all`; DuplicateMemory: as `repeats` says.
        """
        repeat_of = repeats.repeats_within(notes)
        first_places = [repeat_of.get(place, place) for place in range(len(notes))]
        keys = [repeats.source_key(place) for place in range(len(notes))]
        ids = [repeats.note_id(tenant, place) for place in range(len(notes))]
        events = [
            self._event(note, participants, note_id=note_id, version=1, at=at, speaker=speaker, key=key)
            for note, note_id, key in zip(notes, ids, keys, strict=True)
        ]
        rules = [self._holding.rule_for(*drafted, api=api) for drafted in zip(notes, events, strict=True)]
        if dry_run:
            await self._log.check(tenant, events)
        kept_ids = await (repeats.kept_already(notes) if any(rules) else repeats.kept_before(notes))
        is_raced = False
        for _ in range(_ATTEMPTS):
            replaced: list[asyncpg.Record] = []
            stored_keys = await self._log.stored_keys(tenant, NOTE_CHANNEL, [key for key in keys if key is not None])
            if supersedes and keys[0] not in stored_keys:
                replaced = await self._to_replace(tenant, participants, notes[0], supersedes, may_see=may_see, now=at)
            if dry_run:
                kept_ids = await repeats.kept_already(notes)
                return [
                    KeptNote(note_id=kept_ids.get(first, ""), held=first not in kept_ids and rules[first] is not None)
                    for first in first_places
                ], ()
            chosen_ids = {place: kept_ids.get(place, ids[place]) for place in first_places}
            held_places: set[int] = set()
            keeping: list[NewEvent] = []
            new_events: dict[int, NewEvent] = {}  # by the places of their notes
            try:
                for place in dict.fromkeys(first_places):
                    event, rule = events[place], rules[place]
                    if place in kept_ids:
                        added = await repeats.restating_events(kept_ids[place], event, replaced, is_raced=is_raced)
                    else:
                        added = await replacing_events(self._withdrawals, tenant, event, replaced)
                    if rule is not None and added:
                        kept_id, replaced_ids = kept_ids.get(place), [row["note_id"] for row in replaced]
                        chosen_ids[place], added = await keep_held(
                            self._database,
                            tenant,
                            event,
                            note_id=repeats.held_id(tenant, place) if kept_id is None else new_id("note"),
                            rule=rule,
                            replaces=replaced_ids if kept_id is None else [kept_id, *replaced_ids],
                        )
                        held_places.add(place)
                    if added and (place not in kept_ids or place in held_places):
                        new_events[place] = added[0]
                    keeping += added
                note_ids = [chosen_ids[first] for first in first_places]
                # A repeat of an earlier call may still be refused (`Repeats.check`), so nothing is added to its notes.
                batch = await arrange(
                    note_ids, [place for place in new_events if keys[place] not in stored_keys], keeping
                )
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
                    for place, event in new_events.items()
                    if id(event) in result_of_event
                }
                outcomes = await repeats.outcomes(
                    self._database,
                    tenant,
                    note_ids,
                    events,
                    result_of,
                    held={chosen_ids[place] for place in held_places},
                )
                return outcomes, results
        raise Overloaded("the same is being kept and withdrawn again and again; retry")

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
        )

    def _version(
        self, row: asyncpg.Record, note: NoteText, *, at: int, speaker: str | None, key: str | None = None
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
        )

    async def restating_events(
        self, tenant: str, note_id: str, refused: NewEvent, replaced: Sequence[asyncpg.Record] = ()
    ) -> list[NewEvent]:
        """Return the events of a new version with equal text, which makes a kept note the newest statement again.

        Return no events for a mere retry: a call without a key on the same day, with no other note kept in between.

        Args:
            refused: the event that would have kept the note, had it not been kept before.
            replaced: current rows of other notes that the new version replaces.
        """
        row = await self._current(tenant, note_id, _anybody)
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
        version = self._version(
            row,
            note_of(orjson.loads(row["payload"]), context_id=row["context_id"]),
            at=max(refused.timestamp, changed_at),
            speaker=speaker_of(orjson.loads(refused.payload_json)),
            key=key,
        )._replace(event_id=new_id("evt"))
        replacing, withdrawals = await self._withdrawals.superseding(
            tenant, version, [row["event_id"]], may_see=_anybody
        )
        return [*await replacing_events(self._withdrawals, tenant, replacing, replaced), *withdrawals]

    async def clean(self, tenant: str, value: T) -> tuple[T, Counts]:
        """Redact a text, or any other JSON value, and return it with how much was redacted; see `EventLog.clean`."""
        return await self._log.clean(tenant, value, also=self._redaction_kinds)

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
        duplicate_id = await self.find_duplicate(tenant, participants, note)
        rows = []
        for note_id in supersedes:
            row = await self._current(tenant, note_id, may_see)
            if note_id == duplicate_id:
                continue
            if await self._is_live(row, now):
                rows.append(row)
            elif (
                duplicate_id is None
                or row["reason"] != "superseded"
                or duplicate_id not in await self._successors(tenant, note_id)
            ):
                raise note_gone(row)
        return rows

    async def _successors(self, tenant: str, note_id: str) -> list[str]:
        async with self._database.read(tenant) as connection:
            return [row["note_id"] for row in await connection.fetch(sql("notes.successors"), tenant, note_id)]

    async def _cleaned(self, tenant: str, given: Given) -> tuple[Given, Counts]:
        """Redact all texts of a draft or of changes; return it with how much of each kind was redacted."""
        texts: dict[str, Any] = {
            "content": None if given.content is None else self._checked(given.content),
            "keywords": None if given.keywords is None else list(given.keywords),
            "topic": given.topic,
            "source": given.source,
            "details": given.details.to_json(),
        }
        kept, redacted = await self.clean(tenant, texts)
        keywords = None if kept["keywords"] is None else tuple(kept["keywords"])
        details = given.details if given.details == NO_DETAILS else given.details.with_texts(kept["details"])
        return replace(given, **{**kept, "keywords": keywords, "details": details}), redacted

    async def find_duplicate(self, tenant: str, participants: tuple[str, ...], note: NoteText) -> str | None:
        """Return the id of a live note with the same participants, kind, session and content, or None."""
        # A lasting note repeats an equal one of any session, so only session notes are compared by their session.
        session = (note.session_id or "") if note.lifetime == "session" else ""
        async with self._database.read(tenant) as connection:
            note_id: str | None = await connection.fetchval(
                sql("notes.live_by_digest"), tenant, scope_key(participants), note.kind, session, note.content
            )
        return note_id

    async def amend(
        self,
        tenant: str,
        note_id: str,
        changes: Changes,
        *,
        may_see: MaySee,
        contract: Contract,
        speaker: str | None = None,
        now: int | None = None,
        dry_run: bool = False,
    ) -> Amended:
        """Append a new version of a note, which replaces the version before; the note keeps its id.

        What the policy of review holds back becomes a held note of its own (`Amended.held_for`).

        Of two calls that amend the same version, one is refused, so that neither overwrites the other unseen.

        Args:
            may_see: tells whether the caller may see what given participants see.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            dry_run: append nothing, and return what the amendment would give.

        Raises:
            NoteNotFound: absent, of others, or withdrawn.
            AlreadySuperseded: another call amended the note meanwhile; read it again.
            InvalidArgument: no content, too long, or a kind that the contract does not know.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this note.
        """
        row = await self._live(tenant, note_id, may_see, now)
        before = note_of(orjson.loads(row["payload"]), context_id=row["context_id"])
        changes, redacted = await self._cleaned(tenant, changes)
        note = changes.of(before, contract)
        if note == before._replace(inferred=()):
            return Amended(note_id=note_id, version=row["version"], note=note, changed=False, redacted=redacted)
        participants = tuple(row["participants"])
        at = time.time_ns() // 1000 if now is None else now
        if dry_run:
            await self._log.check(tenant, [self._version(row, note, at=at, speaker=speaker)])
            version = row["version"] + 1
            return Amended(note_id=note_id, version=version, note=note, changed=False, redacted=redacted)
        try:
            _, held_id = await self.append_version(tenant, row, note, may_see=may_see, at=at, speaker=speaker)
        except EventNotFound as error:
            raise note_absent(note_id) from error
        except AlreadySuperseded as error:
            raise AlreadySuperseded(
                f"note {note_id} was changed meanwhile; read it again, and amend what it says now", note_id=note_id
            ) from error
        except NoteExists:
            duplicate_id = await self.find_duplicate(tenant, participants, note)
            if duplicate_id is None:
                raise
            return Amended(
                note_id=note_id,
                version=row["version"],
                note=before,
                changed=False,
                same_as=duplicate_id,
                redacted=redacted,
            )
        if held_id is not None:
            return Amended(note_id=held_id, version=1, note=note, changed=False, redacted=redacted, held_for=note_id)
        return Amended(note_id=note_id, version=row["version"] + 1, note=note, changed=True, redacted=redacted)

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
    ) -> tuple[AppendResult | None, str | None]:
        """Append a note's next version; of two calls that append one to the same version, one is refused.

        Where the policy of review holds it back, it becomes a held note of its own, which would replace the note.

        Args:
            row: the note's current version.
            key: the source key of the new version's event.
            api: by which the change comes.

        Returns:
            the log's answer, None where the same waits already; and the id of the held note, None where it is none.

        Raises:
            EventNotFound: the note was erased, or is of others.
            AlreadySuperseded: another call amended the note meanwhile.
            NoteExists: the same people have another note with this kind and text.
        """
        event = self._version(row, note, at=at, speaker=speaker, key=key)
        rule = self._holding.rule_for(note, event, api=api)
        if rule is None:
            supersedes = [row["event_id"]]
            return await self._withdrawals.append(tenant, event, supersedes=supersedes, may_see=may_see), None
        if not may_see(row["participants"]):
            raise note_absent(row["note_id"])
        if await self.find_duplicate(tenant, event.participants, note) not in (None, row["note_id"]):
            raise NoteExists("a note with this text is kept already for the same people; nothing was stored")
        held_id, events = await keep_held(
            self._database, tenant, event, note_id=new_id("note"), rule=rule, replaces=[row["note_id"]]
        )
        results = await self._log.append_events(tenant, events) if events else []
        return (results[0] if results else None), held_id

    async def forget(
        self,
        tenant: str,
        note_id: str,
        *,
        may_see: MaySee,
        force: bool = False,
        dry_run: bool = False,
        now: int | None = None,
    ) -> Forgotten:
        """Withdraw a note with all its versions, so that no answer has it until `restore`.

        Args:
            may_see: tells whether the caller may see what given participants see.
            force: withdraw also a permanent note (an anchor, a permanent kind, or important), which is else protected.
            dry_run: withdraw nothing, and return what would happen.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            NoteNotFound: absent, of others, withdrawn, or expired.
            Overloaded: it is being amended again and again; retry.
        """
        row = await self._live(tenant, note_id, may_see, now)
        is_protected = not force and _is_permanent(row)
        if not is_protected and not dry_run:
            # Asked anew in each attempt: the note may be made permanent meanwhile.
            spares = None if force else _is_permanent
            is_protected = not await self.withdraw(tenant, note_id, may_see=may_see, now=now, spares=spares)
        text = orjson.loads(row["payload"])["text"]
        return Forgotten(note_id=note_id, text=text, forgotten=not is_protected and not dry_run, protected=is_protected)

    async def withdraw(
        self,
        tenant: str,
        note_id: str,
        *,
        may_see: MaySee,
        key: str | None = None,
        now: int | None = None,
        spares: Callable[[asyncpg.Record], bool] | None = None,
    ) -> bool:
        """Withdraw a note with all its versions, so that no answer has it; return whether it is withdrawn.

        Args:
            key: the caller's own name for this call: a repeat changes nothing.
            spares: tells of the note's current row whether the note stays.

        Raises:
            NoteNotFound: absent, of others, withdrawn by another call, or expired.
            Overloaded: it is being amended again and again; retry.
        """
        source_key = None if key is None else f"withdraw:{digest([note_id, key]).hex()}"
        if source_key is not None and await self._withdrawals.was_made(tenant, source_key):
            return True
        for attempt in range(_ATTEMPTS):
            row = await self._current(tenant, note_id, may_see)
            if not await self._is_live(row, now):
                if source_key is not None and await self._withdrawals.was_made(tenant, source_key):
                    return True  # a repeat of this call withdrew it at the same time
                raise note_gone(row)
            if spares is not None and spares(row):
                return False
            # Only the first attempt carries the key: with it, a further one would count as the call's own repeat.
            await self._withdraw(tenant, note_id, "forgotten", may_see, key=None if attempt else source_key)
            if not (await self._current(tenant, note_id, may_see))["live"]:
                return True
        raise Overloaded("it is being amended again and again; retry")

    async def restore(self, tenant: str, note_id: str, *, may_see: MaySee, now: int | None = None) -> None:
        """Bring a withdrawn or expired note back in its last version; a live note stays as it is.

        The restored note does not expire again by itself until somebody changes it.

        Args:
            may_see: tells whether the caller may see what given participants see.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            NoteNotFound: absent, or of others.
            NoteExists: a note with the same text was kept meanwhile.
        """
        row = await self._current(tenant, note_id, may_see)
        if row["reason"] in WITHHELD:
            raise note_gone(row)
        # Only what was withdrawn can be restored, and maintenance may not have withdrawn an expired note yet.
        if row["live"] and not await self._is_live(row, now):
            await self.expire(tenant, note_id, now)
        await self._withdrawals.restore(tenant, [row["event_id"]], may_see=may_see)

    async def expire(self, tenant: str, note_id: str, now: int | None) -> bool:
        """Withdraw a note if it has expired, before maintenance does; return whether it was withdrawn."""
        row = await self._current(tenant, note_id, _anybody)
        if not row["live"] or await self._is_live(row, now):
            return False
        await self._withdraw(tenant, note_id, "expired", _anybody)
        return True

    async def _withdraw(
        self, tenant: str, note_id: str, reason: Reason, may_see: MaySee, key: str | None = None
    ) -> None:
        """Withdraw all versions of a note."""
        async with self._database.read(tenant) as connection:
            versions = [row["event_id"] for row in await connection.fetch(sql("notes.versions"), tenant, note_id)]
        await self._withdrawals.withdraw_versions(tenant, versions, reason, may_see=may_see, key=key)

    async def _current(self, tenant: str, note_id: str, may_see: MaySee) -> asyncpg.Record:
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("notes.current"), tenant, [note_id])
        if row is None or not may_see(row["participants"]):
            raise note_absent(note_id)
        return row

    async def _live(self, tenant: str, note_id: str, may_see: MaySee, now: int | None) -> asyncpg.Record:
        row = await self._current(tenant, note_id, may_see)
        if not await self._is_live(row, now):
            raise note_gone(row)
        return row

    async def _is_live(self, row: asyncpg.Record, now: int | None) -> bool:
        """Tell whether a note is neither withdrawn nor expired."""
        return row["live"] and not Lasting.of(row).has_expired(await self._database.now() if now is None else now)

    def _checked(self, content: str) -> str:
        content = content.strip()
        if not content:
            raise InvalidArgument("content is empty; say what is to be remembered", field="content")
        if len(content) > self._content_characters:
            raise InvalidArgument(
                f"content has {len(content)} characters; at most {self._content_characters} are kept: "
                "say it in several notes",
                field="content",
                limit=self._content_characters,
            )
        return content


def _anybody(_: Sequence[str]) -> bool:
    return True


def _is_permanent(row: asyncpg.Record) -> bool:
    return tier(row["kind"], row["importance"], anchor=row["anchor"], age_days=0, idle_days=0) == "permanent"


def note_absent(note_id: str) -> NoteNotFound:
    """Return the error for a note that is absent, of others, or withdrawn: the same for all three."""
    return NoteNotFound(f"no note {note_id} is visible to you", note_id=note_id)


def note_gone(row: asyncpg.Record) -> NoteNotFound | NoteHeld:
    """Return the error for a note that its caller may see and that is not live, by its row of `notes.current`."""
    return withheld(row["note_id"], row["reason"]) if row["reason"] in WITHHELD else note_absent(row["note_id"])


async def why_gone(database: Database, tenant: str, note_id: str, may_see: MaySee) -> NoteNotFound | NoteHeld:
    """Return the error for a note that was not found among live ones."""
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("notes.current"), tenant, [note_id])
    return note_absent(note_id) if row is None or not may_see(row["participants"]) else note_gone(row)
