"""Keeping, amending and forgetting notes: each is one append, which shares its commit with those of others."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.queries import sql
from myria.errors import (
    AlreadySuperseded,
    EventNotFound,
    IdempotencyKeyReused,
    InvalidArgument,
    NoteExists,
    NoteNotFound,
    Overloaded,
)
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
from myria.notes.model import NOTE_CHANNEL, NOTE_TYPE, Changes, hints_of, names_of, note_event, note_of
from myria.settings.redaction_kinds import Kind
from myria.text.announcing import holds_later
from myria.text.dates import local_day

Beside = Callable[[Sequence[str], bool], Awaitable[Sequence[NewEvent]]]
"""Makes the events that are appended with notes."""

T = TypeVar("T")
Given = TypeVar("Given", Draft, Changes)

_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """A note that was kept, or was there. `event_id` is that of its first version, None where it was there before.

    `note_id` is empty where a dry run would keep a new one. `alike`: the events of notes that are like it, by their
    numbers, each with its similarity, most alike first; None where it was not compared.
    """

    note_id: str
    created: bool
    note: NoteText
    event_id: str | None
    redacted: Counts
    alike: tuple[tuple[int, float], ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Amended:
    """A note after an amendment.

    `changed` is false where it said so already, and where `same_as` names another note of the same people that does.
    """

    note_id: str
    version: int
    note: NoteText
    changed: bool
    redacted: Counts
    same_as: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """What became of a note that was to be forgotten; `protected` where that needs force. `text` is what it says."""

    note_id: str
    text: str
    forgotten: bool
    protected: bool


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

    async def remember(
        self,
        tenant: str,
        participants: tuple[str, ...],
        draft: Draft,
        *,
        contract: Contract,
        speaker: str | None = None,
        now: int | None = None,
        key: str | None = None,
        supersedes: Sequence[str] = (),
        may_see: MaySee = lambda _: False,
        dry_run: bool = False,
        beside: Callable[[str], Sequence[NewEvent]] = lambda _: (),
        compare: bool = False,
        beside_in: Sequence[tuple[str, ...]] = (),
    ) -> Remembered:
        """Keep a note, once: of equal ones of the same people, kind and session, the first stays and is named.

        What is said again after something else gets a version of its own, so that it counts as of now.

        Args:
            participants: canonical; who may see it.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            key: the caller's own name for this note: a repeat for the same people answers the first.
            supersedes: ids of notes that this one replaces: at once, or on the day from which it says that it holds.
            may_see: whether the caller may see what these participants may; asked of `supersedes`.
            dry_run: only say what would be kept.
            beside: what is appended with a new note, given its id.
            compare: say which notes a new one is like; one that replaces others is not compared.
            beside_in: canonical participants of further scopes, all of whose notes the caller may see: compared, too.

        Raises:
            InvalidArgument: no content, too long, or a kind that the contract does not know.
            NoteNotFound: one of `supersedes` is absent, of others, or withdrawn.
            AlreadySuperseded: one of them was replaced meanwhile.
            IdempotencyKeyReused: another text was kept with this key before.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this note.
            as `EventLog.append_events`.
        """
        draft, redacted = await self._cleaned(tenant, draft)
        note = completed(draft, contract)
        key = None if key is None else digest([*participants, key]).hex()
        said_by_another = False
        for _ in range(_ATTEMPTS):
            # By the tenant too: ids that are equal in two would tell the one what the other keeps.
            note_id = new_id("note") if key is None else f"note_{digest([tenant, key]).hex()[:32]}"
            event = note_event(
                note,
                participants,
                note_id=note_id,
                version=1,
                timestamp=time.time_ns() // 1000 if now is None else now,
                speaker=speaker,
                key=None if key is None else f"note:{key}",
                idle_s=self._session_idle_s,
            )
            if dry_run:
                await self._log.check(tenant, [event])
            replaced: list[asyncpg.Record] = []
            if key is None or not supersedes or not await self._was_kept(tenant, key):
                replaced = await self._to_replace(tenant, participants, note, supersedes, may_see=may_see, now=now)
            if dry_run:
                earlier = await self._same(tenant, participants, note)
                return Remembered(note_id=earlier or "", created=False, note=note, event_id=None, redacted=redacted)
            try:
                if replaced:
                    event = event._replace(event_id=new_id("evt"))
                    group = await self._replacing(tenant, event, replaced)
                    results = await self._log.append_events(tenant, [*group, *beside(note_id)])
                else:
                    scopes = tuple(map(scope_key, beside_in)) if compare else None
                    results = await self._log.append_events(tenant, (event, *beside(note_id)), compare=scopes)
            except NoteExists:
                earlier = await self._same(tenant, participants, note)
                if earlier is None or await self._expire(tenant, earlier, now):
                    continue  # it was withdrawn meanwhile, or had expired
                try:
                    is_due = bool(replaced) or key is not None or not said_by_another
                    if is_due and (again := await self._said_again(tenant, earlier, event, replaced)):
                        await self._log.append_events(tenant, again)
                except AlreadySuperseded:
                    said_by_another = True  # or changed: then it is no longer the same
                    continue
                return Remembered(note_id=earlier, created=False, note=note, event_id=None, redacted=redacted)
            if results[0].deduplicated:
                note_id = await self._check_repeat(tenant, results[0].event_id, note)
                return Remembered(note_id=note_id, created=False, note=note, event_id=None, redacted=redacted)
            return Remembered(
                note_id=note_id,
                created=True,
                note=note,
                event_id=results[0].event_id,
                redacted=redacted,
                alike=results[0].alike,
            )
        raise Overloaded("the same note is being kept and withdrawn again and again; retry")

    async def remember_all(
        self,
        tenant: str,
        participants: tuple[str, ...],
        drafts: Sequence[Draft],
        *,
        contract: Contract,
        beside: Beside,
        speaker: str | None = None,
        now: int | None = None,
    ) -> list[Remembered]:
        """Keep several notes for the same people by one append, all or none; those that are there already are named.

        Args:
            beside: what is appended after them, given the ids of the notes in the order of drafts, and whether any is
                new.

        Raises:
            as `remember`.
        """
        prepared = [await self._cleaned(tenant, draft) for draft in drafts]
        notes = [completed(draft, contract) for draft, _ in prepared]
        said_by_another = False
        for _ in range(_ATTEMPTS):
            ids: dict[tuple[str, str], str] = {}
            events: dict[str, NewEvent] = {}
            again: list[NewEvent] = []
            for note in notes:
                if (note.kind, note.content) in ids:
                    continue
                earlier = await self._same(tenant, participants, note)
                if earlier is not None and await self._expire(tenant, earlier, now):
                    earlier = None
                note_id = earlier or new_id("note")
                ids[note.kind, note.content] = note_id
                event = note_event(
                    note,
                    participants,
                    note_id=note_id,
                    version=1,
                    timestamp=time.time_ns() // 1000 if now is None else now,
                    speaker=speaker,
                    idle_s=self._session_idle_s,
                )
                if earlier is None:
                    events[note_id] = event
                elif not said_by_another:
                    again += await self._said_again(tenant, earlier, event)
            further = await beside([ids[note.kind, note.content] for note in notes], bool(events))
            appended = [*events.values(), *further, *again]
            try:
                results = await self._log.append_events(tenant, appended) if appended else []
            except NoteExists:
                continue
            except AlreadySuperseded:
                said_by_another = True
                continue
            event_ids = dict(zip(events, (result.event_id for result in results), strict=False))
            return [
                _remembered(ids[note.kind, note.content], note, redacted, event_ids)
                for note, (_, redacted) in zip(notes, prepared, strict=True)
            ]
        raise Overloaded("the same notes are being kept and withdrawn again and again; retry")

    async def _said_again(
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
        version = note_event(
            note_of(orjson.loads(row["payload"]), context_id=row["context_id"]),
            tuple(row["participants"]),
            note_id=note_id,
            version=row["version"] + 1,
            timestamp=max(said.timestamp, before),
            speaker=speaker_of(orjson.loads(said.payload_json)),
            previous=row["event_id"],
            key=said.source_event_key,
            idle_s=self._session_idle_s,
        )._replace(event_id=new_id("evt"))
        again, withdrawals = await self._withdrawals.superseding(tenant, version, [row["event_id"]], may_see=_anybody)
        return [*(await self._replacing(tenant, again, replaced) if replaced else [again]), *withdrawals]

    async def clean(self, tenant: str, value: T) -> tuple[T, Counts]:
        """Return a text, or any other JSON value, without what no note may keep; see `EventLog.clean`."""
        return await self._log.clean(tenant, value, also=self._redaction_kinds)

    async def _was_kept(self, tenant: str, key: str) -> bool:
        """Tell whether a note was kept with a key."""
        named = dedupe_key(NOTE_CHANNEL, f"note:{key}")
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
        now: int | None,
    ) -> list[asyncpg.Record]:
        """Return the notes that this one replaces, without those that its equal has replaced already.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
        """
        if not supersedes:
            return []
        same = await self._same(tenant, participants, note)
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
                version = _ending(row, day - local_day(lasting.changed_at, 0), by=event)
                held, withdrawals = await self._withdrawals.superseding(
                    tenant, version, [row["event_id"]], may_see=_anybody
                )
                events += [held, *withdrawals]
        return events

    async def _successors(self, tenant: str, note_id: str) -> list[str]:
        async with self._database.read(tenant) as connection:
            return [row["note_id"] for row in await connection.fetch(sql("notes.successors"), tenant, note_id)]

    async def _check_repeat(self, tenant: str, event_id: str, note: NoteText) -> str:
        """Return the note that was kept with a key; refuse one under which something else was, or whose note is gone.

        Raises:
            IdempotencyKeyReused: the first note of this key says something else.
            NoteNotFound: it was forgotten, or it expired.
        """
        async with self._database.read(tenant) as connection:
            first = await connection.fetchrow(sql("notes.first_of_key"), tenant, event_id)
        note_id: str = "" if first is None else first["note_id"]
        if first is None or first["text"] != note.content:
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
        return note_id

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

    async def _same(self, tenant: str, participants: tuple[str, ...], note: NoteText) -> str | None:
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
        event = note_event(
            note,
            participants,
            note_id=note_id,
            version=row["version"] + 1,
            timestamp=time.time_ns() // 1000 if now is None else now,
            speaker=speaker,
            previous=row["event_id"],
            idle_s=self._session_idle_s,
        )
        if dry_run:
            await self._log.check(tenant, [event])
            version = row["version"] + 1
            return Amended(note_id=note_id, version=version, note=note, changed=False, redacted=redacted)
        try:
            await self._withdrawals.append(tenant, event, supersedes=[row["event_id"]], may_see=may_see)
        except EventNotFound as error:
            raise note_absent(note_id) from error
        except AlreadySuperseded as error:
            raise AlreadySuperseded(
                f"note {note_id} was changed meanwhile; read it again, and amend what it says now", note_id=note_id
            ) from error
        except NoteExists:
            same = await self._same(tenant, participants, note)
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
        for _ in range(_ATTEMPTS):
            row = await self._current(tenant, note_id, may_see)
            if not await self._is_live(row, now):
                raise note_absent(note_id)
            text = orjson.loads(row["payload"])["text"]
            kept = tier(row["kind"], row["importance"], anchor=row["anchor"], age_days=0, idle_days=0)
            if kept == "permanent" and not force:
                return Forgotten(note_id=note_id, text=text, forgotten=False, protected=True)
            if dry_run:
                return Forgotten(note_id=note_id, text=text, forgotten=False, protected=False)
            await self._withdraw(tenant, note_id, "forgotten", may_see)
            if not (await self._current(tenant, note_id, may_see))["live"]:
                return Forgotten(note_id=note_id, text=text, forgotten=True, protected=False)
        raise Overloaded("the note is being amended again and again; retry")

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
            await self._expire(tenant, note_id, now)
        await self._withdrawals.restore(tenant, [row["event_id"]], may_see=may_see)

    async def _expire(self, tenant: str, note_id: str, now: int | None) -> bool:
        """Withdraw a note that has expired, as maintenance would; return whether it has."""
        row = await self._current(tenant, note_id, _anybody)
        if not row["live"] or await self._is_live(row, now):
            return False
        await self._withdraw(tenant, note_id, "expired", _anybody)
        return True

    async def _withdraw(self, tenant: str, note_id: str, reason: Reason, may_see: MaySee) -> None:
        """Withdraw all versions of a note."""
        async with self._database.read(tenant) as connection:
            versions = [row["event_id"] for row in await connection.fetch(sql("notes.versions"), tenant, note_id)]
        await self._withdrawals.withdraw_versions(tenant, versions, reason, may_see=may_see)

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


def _remembered(note_id: str, note: NoteText, redacted: Counts, event_ids: dict[str, str]) -> Remembered:
    event_id = event_ids.pop(note_id, None)
    return Remembered(note_id=note_id, created=event_id is not None, note=note, event_id=event_id, redacted=redacted)


def _ending(row: asyncpg.Record, days: int, *, by: NewEvent) -> NewEvent:
    """Return the version of a note that says the same for so many days of UTC since it was said.

    Args:
        by: the event that replaces it then.
    """
    payload = orjson.loads(row["payload"])
    payload["note"] |= {
        "version": row["version"] + 1,
        "previous": row["event_id"],
        "lasts_days": days,
        "replaced_by": by.event_id,
    }
    payload["note"].pop("anchor", None)  # an anchor never ends
    return NewEvent(
        timestamp=to_microseconds(row["changed_at"]),
        channel=NOTE_CHANNEL,
        participants=tuple(row["participants"]),
        payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
        source_event_key=None if by.source_event_key is None else f"{by.source_event_key}:{row['note_id']}",
        context_id=row["context_id"],
        type=NOTE_TYPE,
        topic_hints=hints_of(names_of(note_of(payload, context_id=row["context_id"]))),
    )


def _anybody(_: Sequence[str]) -> bool:
    return True


def note_absent(note_id: str) -> NoteNotFound:
    """Return the refusal of a note that is absent, of others, or withdrawn."""
    return NoteNotFound(f"no note {note_id} is visible to you", note_id=note_id)
