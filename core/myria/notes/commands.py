"""What may be done with notes: keeping, amending, forgetting and restoring them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import asyncpg
import orjson

from myria.db.queries import sql
from myria.errors import AlreadySuperseded, EventNotFound, InvalidArgument, NoteExists, NoteNotFound, Overloaded
from myria.log.canonical import digest
from myria.log.event_log import Counts, EventLog
from myria.log.withdrawal.commands import MaySee, WithdrawalAct, Withdrawals
from myria.log.withdrawal.model import WITHHELD, Reason
from myria.notes.details import NO_DETAILS
from myria.notes.drafting import Draft, completed
from myria.notes.expiry import SESSION_IDLE_S
from myria.notes.finding import NoteRows, anybody, note_absent, note_gone
from myria.notes.histories import MAX_VERSIONS, has_history
from myria.notes.holding import HOLDS_NOTHING, Api, Holding
from myria.notes.keeping import Keeper
from myria.notes.kinds import Contract, tier
from myria.notes.model import Amended, Amendment, Changes, Forgotten, Remembered, note_of
from myria.notes.repeats import Arrange, SameText, notes_alone
from myria.settings.database import Kind

T = TypeVar("T")
Given = TypeVar("Given", Draft, Changes)

_ATTEMPTS = 50


class Notes:
    """The commands of one process. Notes of the other APIs are checked by those, and appended by `keeper`.

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
        self._rows = NoteRows(log.database)
        self.keeper = Keeper(log, session_idle_s=session_idle_s, holding=holding)

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
            self._rows.duplicate,
            None if dry_run else self.expire,
            self.keeper.restating_events,
            tenant,
            participants,
            key=key,
            now=now,
        )
        outcomes, _ = await self.keeper.keep(
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

    async def clean(self, tenant: str, value: T) -> tuple[T, Counts]:
        """Redact a text, or any other JSON value, and return it with how much was redacted; see `EventLog.clean`."""
        return await self._log.clean(tenant, value, also=self._redaction_kinds)

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
        amendment: Amendment | None = None,
        version: int | None = None,
    ) -> Amended:
        """Append a new version of a note, which replaces the version before; the note keeps its id.

        What the policy of review holds back becomes a held note of its own (`Amended.held_for`).

        Of two calls that amend the same version, one is refused, so that neither overwrites the other unseen.

        Args:
            may_see: tells whether the caller may see what given participants see.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            dry_run: append nothing, and return what the amendment would give.
            amendment: who amends it and why, to be kept with the new version.
            version: the version that the caller has read; left out, whichever is current.

        Raises:
            NoteNotFound: absent, of others, or withdrawn.
            AlreadySuperseded: another call amended the note meanwhile, or since `version`; read it again.
            InvalidArgument: no content, too long, or a kind that the contract does not know.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than this note.
        """
        row = await self._rows.live(tenant, note_id, may_see, now)
        before = note_of(orjson.loads(row["payload"]), context_id=row["context_id"])
        changes, redacted = await self._cleaned(tenant, changes)
        if amendment is not None:
            amendment = replace(amendment, why=(await self.clean(tenant, amendment.why))[0])
        note = changes.of(before, contract)
        if note == before._replace(inferred=()):
            return Amended(note_id=note_id, version=row["version"], note=note, changed=False, redacted=redacted)
        if version not in (None, row["version"]):
            raise _amended_meanwhile(note_id)
        participants = tuple(row["participants"])
        at = time.time_ns() // 1000 if now is None else now
        if dry_run:
            event = self.keeper.version_event(row, note, at=at, speaker=speaker, amendment=amendment)
            await self._log.check(tenant, [event])
            return Amended(
                note_id=note_id,
                version=row["version"] + 1,
                note=note,
                changed=False,
                redacted=redacted,
                held_for=None if self.keeper.rule_for(note, event) is None else note_id,
            )
        try:
            _, held_id = await self.keeper.append_version(
                tenant, row, note, may_see=may_see, at=at, speaker=speaker, amendment=amendment
            )
        except EventNotFound as error:
            raise note_absent(note_id) from error
        except AlreadySuperseded as error:
            raise _amended_meanwhile(note_id) from error
        except NoteExists:
            duplicate_id = await self._rows.duplicate(tenant, participants, note)
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

    async def forget(
        self,
        tenant: str,
        note_id: str,
        *,
        may_see: MaySee,
        force: bool = False,
        dry_run: bool = False,
        now: int | None = None,
        by: str | None = None,
    ) -> Forgotten:
        """Withdraw a note with all its versions, so that no answer has it until `restore`.

        Args:
            may_see: tells whether the caller may see what given participants see.
            force: withdraw also a permanent note (an anchor, a permanent kind, or important), which is else protected.
            dry_run: withdraw nothing, and return what would happen.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            by: who asks for it, as `Withdrawals.withdraw`.

        Raises:
            NoteNotFound: absent, of others, withdrawn, or expired.
            Overloaded: it is being amended again and again; retry.
        """
        row = await self._rows.live(tenant, note_id, may_see, now)
        is_protected = not force and _is_permanent(row)
        if not is_protected and not dry_run:
            # Asked anew in each attempt: the note may be made permanent meanwhile.
            spares = None if force else _is_permanent
            is_protected = not await self.withdraw(tenant, note_id, may_see=may_see, now=now, spares=spares, by=by)
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
        by: str | None = None,
    ) -> bool:
        """Withdraw a note with all its versions, so that no answer has it; return whether it is withdrawn.

        Args:
            key: the caller's own name for this call: a repeat changes nothing.
            spares: tells of the note's current row whether the note stays.
            by: who asks for it, as `Withdrawals.withdraw`.

        Raises:
            NoteNotFound: absent, of others, withdrawn by another call, or expired.
            Overloaded: it is being amended again and again; retry.
        """
        source_key = None if key is None else f"withdraw:{digest([note_id, key]).hex()}"
        if source_key is not None and await self._withdrawals.was_made(tenant, source_key):
            return True
        for attempt in range(_ATTEMPTS):
            row = await self._rows.current(tenant, note_id, may_see)
            if not await self._rows.is_live(row, now):
                if source_key is not None and await self._withdrawals.was_made(tenant, source_key):
                    return True  # a repeat of this call withdrew it at the same time
                raise note_gone(row)
            if spares is not None and spares(row):
                return False
            # Only the first attempt carries the key: with it, a further one would count as the call's own repeat.
            await self._withdraw(tenant, note_id, "forgotten", may_see, key=None if attempt else source_key, by=by)
            if not (await self._rows.current(tenant, note_id, may_see))["live"]:
                return True
        raise Overloaded("it is being amended again and again; retry")

    async def restore(
        self, tenant: str, note_id: str, *, may_see: MaySee, now: int | None = None, by: str | None = None
    ) -> None:
        """Bring a withdrawn or expired note back in its last version; a live note stays as it is.

        The versions before that went with it stand in its history again. The restored note does not expire again by
        itself until somebody changes it.

        Args:
            may_see: tells whether the caller may see what given participants see.
            now: in microseconds since 1970 UTC; left out, this machine's clock.
            by: who asks for it, as `Withdrawals.withdraw`.

        Raises:
            NoteNotFound: absent, or of others.
            NoteExists: a note with the same text was kept meanwhile.
        """
        row = await self._rows.current(tenant, note_id, may_see)
        if row["reason"] in WITHHELD:
            raise note_gone(row)
        # Only what was withdrawn can be restored, and maintenance may not have withdrawn an expired note yet.
        if row["live"] and not await self._rows.is_live(row, now):
            await self.expire(tenant, note_id, now)
        async with self._database.read(tenant) as connection:
            earlier = await connection.fetch(sql("notes.gone_together"), tenant, note_id, MAX_VERSIONS)
        await self._withdrawals.restore_versions(
            tenant, row["event_id"], {one["event_id"]: one["successor_id"] for one in earlier}, may_see=may_see, by=by
        )

    async def acts(self, tenant: str, note_id: str, *, may_see: MaySee) -> list[WithdrawalAct]:
        """Return how a note was withdrawn and restored, newest first; nothing where it is absent, or of others.

        Args:
            may_see: tells whether the caller may see what given participants see.
        """
        try:
            row = await self._rows.current(tenant, note_id, may_see)
        except NoteNotFound:
            return []
        return await self._withdrawals.acts(tenant, row["event_id"], may_see=may_see)

    async def is_forgotten(self, tenant: str, note_id: str, *, may_see: MaySee) -> bool:
        """Tell whether a note was forgotten and not restored since; not where it is absent, or of others.

        Args:
            may_see: tells whether the caller may see what given participants see.
        """
        try:
            row = await self._rows.current(tenant, note_id, may_see)
        except NoteNotFound:
            return False
        return bool(row["reason"] == "forgotten")

    async def readable(self, tenant: str, note_ids: Collection[str], *, may_see: MaySee) -> frozenset[str]:
        """Return which of some notes have a history to read: those that stand, and those that another note replaced.

        Args:
            may_see: tells whether the caller may see what given participants see.
        """
        now = await self._database.now()
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("notes.current"), tenant, list(note_ids))
        return frozenset(row["note_id"] for row in rows if may_see(row["participants"]) and has_history(row, now))

    async def visible(self, tenant: str, note_ids: Collection[str], *, may_see: MaySee) -> frozenset[str]:
        """Return which of some notes the caller may see: also those that wait for a review, or are gone but not erased.

        Args:
            may_see: tells whether the caller may see what given participants see.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("notes.current"), tenant, list(note_ids))
        return frozenset(row["note_id"] for row in rows if may_see(row["participants"]))

    async def expire(self, tenant: str, note_id: str, now: int | None) -> bool:
        """Withdraw a note if it has expired, before maintenance does; return whether it was withdrawn."""
        row = await self._rows.current(tenant, note_id, anybody)
        if not row["live"] or await self._rows.is_live(row, now):
            return False
        await self._withdraw(tenant, note_id, "expired", anybody)
        return True

    async def _withdraw(
        self,
        tenant: str,
        note_id: str,
        reason: Reason,
        may_see: MaySee,
        *,
        key: str | None = None,
        by: str | None = None,
    ) -> None:
        """Withdraw all versions of a note."""
        async with self._database.read(tenant) as connection:
            versions = [row["event_id"] for row in await connection.fetch(sql("notes.versions"), tenant, note_id)]
        await self._withdrawals.withdraw_versions(tenant, versions, reason, may_see=may_see, key=key, by=by)

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


def _amended_meanwhile(note_id: str) -> AlreadySuperseded:
    return AlreadySuperseded(
        f"note {note_id} was changed meanwhile; read it again, and amend what it says now", note_id=note_id
    )


def _is_permanent(row: asyncpg.Record) -> bool:
    return tier(row["kind"], row["importance"], anchor=row["anchor"], age_days=0, idle_days=0) == "permanent"
