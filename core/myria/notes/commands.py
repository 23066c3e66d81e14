"""Keeping, amending and withdrawing notes of any API, each by one append, which shares its commit with others."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import asyncpg
import orjson

from myria.db.clock import to_microseconds
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
from myria.log.event import NewEvent
from myria.log.event_log import Counts, EventLog
from myria.log.ids import new_id
from myria.log.payloads import dedupe_key, speaker_of
from myria.log.scopes import scope_key
from myria.log.withdrawal.commands import MaySee, Withdrawals
from myria.log.withdrawal.model import Reason
from myria.notes.details import NO_DETAILS
from myria.notes.drafting import Draft, NoteText, completed
from myria.notes.expiry import SESSION_IDLE_S, Lasting
from myria.notes.kinds import FACT_KINDS, Contract, tier
from myria.notes.model import (
    NOTE_CHANNEL,
    Amended,
    Changes,
    Forgotten,
    Remembered,
    ending_version,
    note_event,
    note_of,
)
from myria.notes.repeats import Beside, KeptNote, Repeats, nothing_beside
from myria.settings.redaction_kinds import Kind
from myria.text.announcing import holds_later
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
    """

    def __init__(
        self,
        log: EventLog,
        *,
        content_characters: int,
        redaction_kinds: Collection[Kind] = (),
        session_idle_s: int = SESSION_IDLE_S,
    ) -> None:
        self._database = log.database
        self._log = log
        self._withdrawals = Withdrawals(log)
        self._content_characters = content_characters
        self._redaction_kinds = redaction_kinds
        self._session_idle_s = session_idle_s

    async def remember(self, tenant: str, participants: tuple[str, ...], draft: Draft, **more: Any) -> Remembered:
        """Keep one note, as `remember_all` does."""
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
        beside: Beside = nothing_beside,
    ) -> list[Remembered]:
        """Keep notes by one append, all or none: of equal ones of the same people, kind and session, the first stays.

        What is said again after something else gets a version of its own, so that it counts as of now.

        Args:
            participants: canonical; who may see them.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            key: the caller's own name for this note, where it is one: a repeat for the same people answers the first.
            supersedes: ids of notes that the first one replaces: at once, or on the day from which it says that it
                holds.
            may_see: whether the caller may see what these participants may; asked of `supersedes`.
            dry_run: only say what would be kept.
            beside: what is appended with them.

        Raises:
            InvalidArgument: no content, too long, or a kind that the contract does not know.
            NoteNotFound: one of `supersedes` is absent, of others, or withdrawn.
            AlreadySuperseded: one of them was replaced meanwhile.
            IdempotencyKeyReused: another text was kept with this key before.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than a note.
            as `EventLog.append_events`.
        """
        cleaned = [await self._cleaned(tenant, draft) for draft in drafts]
        notes = [completed(draft, contract) for draft, _ in cleaned]
        repeats = _SameText(self, tenant, participants, key=key, now=now, expires=not dry_run)
        outcomes = await self.keep(
            tenant,
            participants,
            notes,
            repeats,
            at=time.time_ns() // 1000 if now is None else now,
            speaker=speaker,
            supersedes=supersedes,
            may_see=may_see,
            dry_run=dry_run,
            beside=beside,
        )
        return [
            Remembered(
                note_id=outcome.note_id,
                created=outcome.appended is not None,
                note=note,
                event_id=None if outcome.appended is None else outcome.appended.event_id,
                redacted=redacted,
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
        beside: Beside = nothing_beside,
    ) -> list[KeptNote]:
        """Keep what notes say by one append, all or none, each once by the rule of `repeats`.

        Nearly always nothing was kept before: the append itself tells, and only then it is asked what was.

        Args:
            at: in microseconds since 1970 UTC.
            speaker: who keeps them; a memory of REST names its own.

        Raises:
            as `remember_all`; DuplicateMemory: as `repeats` says.
        """
        among = repeats.among(notes)
        firsts = [among.get(place, place) for place in range(len(notes))]
        keys = [repeats.source_key(place) for place in range(len(notes))]
        # By the tenant too: ids that are equal in two would tell the one what the other keeps.
        ids = [new_id("note") if key is None else _id_of(tenant, key) for key in keys]
        events = [
            self._event(note, participants, note_id=note_id, version=1, at=at, speaker=speaker, key=key)
            for note, note_id, key in zip(notes, ids, keys, strict=True)
        ]
        if dry_run:
            await self._log.check(tenant, events)
        standing: Mapping[int, str] = {}
        is_said_by_another = False
        for _ in range(_ATTEMPTS):
            replaced: list[asyncpg.Record] = []
            if supersedes and not await self._was_kept(tenant, keys[0]):
                replaced = await self._to_replace(tenant, participants, notes[0], supersedes, may_see=may_see, now=at)
            if dry_run:
                standing = await repeats.standing(notes)
                return [KeptNote(note_id=standing.get(first, "")) for first in firsts]
            named = [standing.get(first, ids[first]) for first in firsts]
            new = [place for place in range(len(notes)) if place not in among and place not in standing]
            again: list[NewEvent] = []
            try:
                group: list[NewEvent] = []
                places: dict[int, int] = {}
                for place in new:
                    places[place] = len(group)
                    group += await self._replacing(tenant, events[place], replaced)
                for place, note_id in standing.items():
                    if place not in among and (replaced or keys[place] is not None or not is_said_by_another):
                        again += await repeats.again(note_id, events[place], replaced)
                group += [*await beside(named, new), *again]
                results = await self._log.append_events(tenant, group) if group else []
            except (NoteExists, DuplicateMemory):
                standing = await repeats.standing(notes)
            except AlreadySuperseded:
                if not standing:
                    raise
                is_said_by_another = True  # or changed: then it is no longer the same
                standing = await repeats.standing(notes)
            else:
                kept = {place: results[number] for place, number in places.items()}
                earlier = await self._earlier(tenant, [one.event_id for one in kept.values() if one.deduplicated])
                outcomes = []
                for place, note_id in enumerate(named):
                    result = kept.get(place)
                    if result is None or not result.deduplicated:
                        outcomes.append(KeptNote(note_id=note_id, appended=result))
                        continue
                    first = earlier.get(result.event_id)
                    repeats.check(first, events[place])
                    outcomes.append(KeptNote(note_id=note_id if first is None else first["note_id"], first=first))
                return outcomes
        raise Overloaded("the same is being kept and withdrawn again and again; retry")

    async def _earlier(self, tenant: str, event_ids: Sequence[str]) -> Mapping[str, asyncpg.Record]:
        """Return by some events, which calls with a key had kept, what these said and how their notes stand."""
        if not event_ids:
            return {}
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("notes.of_first_events"), tenant, event_ids)
        return {row["first_event_id"]: row for row in rows}

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
        """Return the event by which a note says something else.

        Args:
            row: of the note as it stands: its id, version and participants, and the event that it takes the place of.
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

    async def said_again(
        self, tenant: str, note_id: str, said: NewEvent, replaced: Sequence[asyncpg.Record] = ()
    ) -> list[NewEvent]:
        """Return the version that makes a note the newest statement, with what else it replaces; none for a mere retry.

        It is one where nothing was said in between, on the same day, without a key that must be known again.

        Args:
            said: the event that would have kept it.
            replaced: other notes.
        """
        row = await self._current(tenant, note_id, _anybody)
        before = to_microseconds(row["changed_at"])
        if not replaced and said.timestamp <= before:
            return []  # it was kept before, as imports say, or at once by another
        if not replaced and said.source_event_key is None and local_day(said.timestamp, 0) == local_day(before, 0):
            async with self._database.read(tenant) as connection:
                if not await connection.fetchval(sql("notes.is_followed"), tenant, row["event_id"]):
                    return []
        version = self._version(
            row,
            note_of(orjson.loads(row["payload"]), context_id=row["context_id"]),
            at=max(said.timestamp, before),
            speaker=speaker_of(orjson.loads(said.payload_json)),
            key=said.source_event_key,
        )._replace(event_id=new_id("evt"))
        again, withdrawals = await self._withdrawals.superseding(tenant, version, [row["event_id"]], may_see=_anybody)
        return [*await self._replacing(tenant, again, replaced), *withdrawals]

    async def clean(self, tenant: str, value: T) -> tuple[T, Counts]:
        """Return a text, or any other JSON value, without what no note may keep; see `EventLog.clean`."""
        return await self._log.clean(tenant, value, also=self._redaction_kinds)

    async def _was_kept(self, tenant: str, source_key: str | None) -> bool:
        """Tell whether a note was kept with a key."""
        if source_key is None:
            return False
        named = dedupe_key(NOTE_CHANNEL, source_key)
        async with self._database.read(tenant) as connection:
            return await connection.fetchrow(sql("events.of_key"), tenant, named) is not None

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
        """Return the notes that this one replaces, without those that its equal has replaced already.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
        """
        same = await self.same(tenant, participants, note)
        rows = []
        for name in supersedes:
            row = await self._current(tenant, name, may_see)
            if name == same:
                continue
            if await self._is_live(row, now):
                rows.append(row)
            elif same is None or row["reason"] != "superseded" or same not in await self._successors(tenant, name):
                raise note_absent(name)
        return rows

    async def _replacing(self, tenant: str, event: NewEvent, replaced: Sequence[asyncpg.Record]) -> list[NewEvent]:
        """Return the event of a note with what lets it take the place of others, in the order of the append.

        Where it says that it holds from a later day on, the others get versions that end on that day; maintenance then
        lets it stand in their place. What ends by itself stays as it is.

        Raises:
            AlreadySuperseded: one of them was replaced meanwhile.
        """
        if not replaced:
            return [event]
        if event.event_id is None:
            event = event._replace(event_id=new_id("evt"))
        text = orjson.loads(event.payload_json)["text"]
        day = holds_later(text, at=event.timestamp, utc_offset=event.utc_offset or 0, now=event.timestamp)
        if day is None:
            at_once, withdrawals = await self._withdrawals.superseding(
                tenant, event, [row["event_id"] for row in replaced], may_see=_anybody
            )
            return [at_once, *withdrawals]
        events = [event]
        for row in replaced:
            lasting = Lasting.of(row)
            if lasting.session_ends_at is None and row["kind"] not in FACT_KINDS:
                version = ending_version(row, day - local_day(lasting.changed_at, 0), by=event)
                held, withdrawals = await self._withdrawals.superseding(
                    tenant, version, [row["event_id"]], may_see=_anybody
                )
                events += [held, *withdrawals]
        return events

    async def _successors(self, tenant: str, note_id: str) -> list[str]:
        async with self._database.read(tenant) as connection:
            return [row["note_id"] for row in await connection.fetch(sql("notes.successors"), tenant, note_id)]

    async def _cleaned(self, tenant: str, given: Given) -> tuple[Given, Counts]:
        """Return a draft, or changes, without what must not be kept, and how much of each kind was taken out."""
        words: dict[str, Any] = {
            "content": None if given.content is None else self._checked(given.content),
            "keywords": None if given.keywords is None else list(given.keywords),
            "topic": given.topic,
            "source": given.source,
            "details": given.details.to_json(),
        }
        kept, taken = await self.clean(tenant, words)
        keywords = None if kept["keywords"] is None else tuple(kept["keywords"])
        details = given.details if given.details == NO_DETAILS else given.details.with_texts(kept["details"])
        return replace(given, **{**kept, "keywords": keywords, "details": details}), taken

    async def same(self, tenant: str, participants: tuple[str, ...], note: NoteText) -> str | None:
        """Return the live note of these people that says the same, or None."""
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
        """Make a version of a note that takes the place of the one before; its id stays.

        Of two that amend one version, one is refused: nobody's change is lost unseen.

        Args:
            may_see: whether the caller may see what these participants may.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            dry_run: only say what would become of it.

        Raises:
            NoteNotFound: absent, of others, or withdrawn.
            AlreadySuperseded: another amended it meanwhile; read it again.
            InvalidArgument: no content, too long, or a kind that the contract does not know.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this note.
        """
        row = await self._current(tenant, note_id, may_see)
        if not await self._is_live(row, now):
            raise note_absent(note_id)
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
            await self.append_version(tenant, row, note, may_see=may_see, at=at, speaker=speaker)
        except EventNotFound as error:
            raise note_absent(note_id) from error
        except AlreadySuperseded as error:
            raise AlreadySuperseded(
                f"note {note_id} was changed meanwhile; read it again, and amend what it says now", note_id=note_id
            ) from error
        except NoteExists:
            same = await self.same(tenant, participants, note)
            if same is None:
                raise
            return Amended(
                note_id=note_id,
                version=row["version"],
                note=before,
                changed=False,
                same_as=same,
                redacted=redacted,
            )
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
    ) -> AppendResult:
        """Append the version by which a note says something else; of two that amend one version, one is refused.

        Args:
            row: of the note as it stands.
            key: its source key.

        Raises:
            EventNotFound: it was erased, or is of others.
            AlreadySuperseded: another amended it meanwhile.
            NoteExists: a note of the same people says the same.
        """
        event = self._version(row, note, at=at, speaker=speaker, key=key)
        appended, *_ = await self._withdrawals.append(tenant, event, supersedes=[row["event_id"]], may_see=may_see)
        return appended

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
        """Take a note with all its versions out of every answer, until `restore`.

        Args:
            may_see: whether the caller may see what these participants may.
            force: also where the note is permanent (an anchor, a permanent kind, or important): else it is protected.
            dry_run: only say what would happen.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            NoteNotFound: absent, of others, withdrawn, or expired.
            Overloaded: it is being amended again and again; retry.
        """
        row = await self._current(tenant, note_id, may_see)
        if not await self._is_live(row, now):
            raise note_absent(note_id)
        text = orjson.loads(row["payload"])["text"]
        kept = tier(row["kind"], row["importance"], anchor=row["anchor"], age_days=0, idle_days=0)
        is_protected = kept == "permanent" and not force
        if not is_protected and not dry_run:
            await self.withdraw(tenant, note_id, may_see=may_see, now=now)
        return Forgotten(note_id=note_id, text=text, forgotten=not is_protected and not dry_run, protected=is_protected)

    async def withdraw(
        self, tenant: str, note_id: str, *, may_see: MaySee, key: str | None = None, now: int | None = None
    ) -> None:
        """Take a note with all its versions out of every answer.

        Args:
            key: the caller's own name for this call: a repeat changes nothing.

        Raises:
            NoteNotFound: absent, of others, withdrawn by another call, or expired.
            Overloaded: it is being amended again and again; retry.
        """
        source = None if key is None else f"withdraw:{digest([note_id, key]).hex()}"
        if source is not None and await self._withdrawals.was_made(tenant, source):
            return
        for attempt in range(_ATTEMPTS):
            row = await self._current(tenant, note_id, may_see)
            if not await self._is_live(row, now):
                if source is not None and await self._withdrawals.was_made(tenant, source):
                    return  # by a repeat at the same time
                raise note_absent(note_id)
            await self._withdraw(tenant, note_id, "forgotten", may_see, key=None if attempt else source)
            if not (await self._current(tenant, note_id, may_see))["live"]:
                return
        raise Overloaded("it is being amended again and again; retry")

    async def restore(self, tenant: str, note_id: str, *, may_see: MaySee, now: int | None = None) -> None:
        """Bring a withdrawn or expired note back, in its last version; another stays as it is.

        It does not expire again by itself until somebody changes it.

        Args:
            may_see: whether the caller may see what these participants may.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            NoteNotFound: absent, or of others.
            NoteExists: a note that says the same was kept meanwhile.
        """
        row = await self._current(tenant, note_id, may_see)
        if row["live"] and not await self._is_live(row, now):
            await self.expire(tenant, note_id, now)
        await self._withdrawals.restore(tenant, [row["event_id"]], may_see=may_see)

    async def expire(self, tenant: str, note_id: str, now: int | None) -> bool:
        """Withdraw a note that has expired, as maintenance would; return whether it has."""
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
            row = await connection.fetchrow(sql("notes.current"), tenant, note_id)
        if row is None or not may_see(row["participants"]):
            raise note_absent(note_id)
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


class _SameText(Repeats):
    """Of notes that say the same to the same people, of one kind and one session, one is kept."""

    def __init__(
        self,
        notes: Notes,
        tenant: str,
        participants: tuple[str, ...],
        *,
        key: str | None,
        now: int | None,
        expires: bool,
    ) -> None:
        self._notes = notes
        self._tenant = tenant
        self._participants = participants
        self._key = key
        self._now = now
        self._expires = expires

    def source_key(self, place: int) -> str | None:
        """Return the key, which names the one note of a call."""
        return None if self._key is None else f"note:{digest([*self._participants, self._key]).hex()}"

    def among(self, notes: Sequence[NoteText]) -> Mapping[int, int]:
        """Return those whose kind and text another has."""
        first: dict[tuple[str, str], int] = {}
        places = [first.setdefault((note.kind, note.content), place) for place, note in enumerate(notes)]
        return {place: earlier for place, earlier in enumerate(places) if earlier != place}

    async def standing(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return those whose words a live note has; one that has expired is withdrawn, as maintenance would."""
        among, standing = self.among(notes), {}
        for place, note in enumerate(notes):
            if place not in among:
                same = await self._notes.same(self._tenant, self._participants, note)
                has_expired = same and self._expires and await self._notes.expire(self._tenant, same, self._now)
                if same is not None and not has_expired:
                    standing[place] = same
        return standing

    async def again(self, note_id: str, event: NewEvent, replaced: Sequence[asyncpg.Record]) -> Sequence[NewEvent]:
        """Return the version that makes it the newest statement, where something was said in between."""
        return await self._notes.said_again(self._tenant, note_id, event, replaced)

    def check(self, first: asyncpg.Record | None, event: NewEvent) -> None:
        """Return where the text is the same, and the note neither forgotten nor expired."""
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


def _id_of(tenant: str, source_key: str) -> str:
    """Return the id of the note that a call with a key keeps: a repeat finds it, and links it once."""
    return f"note_{digest([tenant, source_key.partition(':')[2]]).hex()[:32]}"


def _anybody(_: Sequence[str]) -> bool:
    return True


def note_absent(note_id: str) -> NoteNotFound:
    """Return the refusal of a note that is absent, of others, or withdrawn."""
    return NoteNotFound(f"no note {note_id} is visible to you", note_id=note_id)
