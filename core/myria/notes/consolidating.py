"""Consolidation: maintain due notes, in the ten stages of Memento's contract (8).

Each run takes a bounded number of notes from the queue `note_looks`, computes their present state, and appends
withdrawals of those that have expired or repeat another note. Tiers, faded importance and utility are computed at read,
so their stages only count. After a run that is killed anywhere, the next one goes on: its effects are events, which a
second run does not append again, and a note leaves the queue's head only after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any, Literal, NamedTuple

import asyncpg
import orjson

from myria.db.clock import to_datetime, to_microseconds
from myria.db.queries import sql
from myria.errors import AlreadySuperseded, EventNotFound
from myria.log.canonical import digest
from myria.log.event_log import EventLog
from myria.log.limits import MAX_WITHDRAWN
from myria.log.masks import Masks
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.expiry import DAY_US, Lasting
from myria.notes.feedback import has_feedback
from myria.notes.finding import anybody
from myria.notes.kinds import FACT_KINDS, importance_now, policies
from myria.notes.likeness import essence
from myria.notes.links import MAX_LINKS, Relation, link_event
from myria.notes.scopes import scopes_with_notes

Json = dict[str, Any]
Phase = Literal["session", "hot", "warm", "cold", "stale", "permanent"]

STAGES = (
    "hot_to_warm",
    "warm_to_cold",
    "expiry",
    "importance_decay",
    "deduplication",
    "contradictions",
    "pruning",
    "utility",
    "embeddings",
    "statistics",
)
"""The stages, in their order."""

_NEVER = 253_370_764_800 * 10**6
"""The year 9999: when a note is due again whose state will not change by itself."""

_WARM_AFTER_DAYS = 1
_COLD_AFTER_DAYS = 30
_COLD_IMPORTANCE = 0.3
_SHOWN_STALE = 20
_SHOWN = 100


@dataclass(slots=True, kw_only=True)
class Consolidated:
    """The report of a run: how many notes each stage concerned, and whether `more` notes are due.

    `stale` and `contradictions` have the first notes that a person may want to check; the run does not change them.
    """

    looked_at: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    stale: list[Json] = field(default_factory=list)
    contradictions: list[Json] = field(default_factory=list)
    more: bool = False
    has_vectors: bool = False
    has_feedback: bool = False
    """Whether `myria feedback` has something to report of what the caller sees."""

    def to_json(self) -> Json:
        """Return the report under the contract's names."""
        counts: dict[str, int | str] = {**self.counts}
        if not self.has_vectors:
            counts["embeddings"] = "off"
        return {
            "ttlTransitions": self.counts["hot_to_warm"] + self.counts["warm_to_cold"],
            "importanceDecay": counts["importance_decay"],
            "expiredDeleted": counts["expiry"],
            "duplicatesMerged": counts["deduplication"],
            "embeddingsAdded": counts["embeddings"],
            "utilityUpdated": counts["utility"],
            "contradictionsFound": counts["contradictions"],
            "feedbackReportGenerated": self.has_feedback,
            "indexesPruned": counts["pruning"],
            "stale_fragments": self.stale,
            "contradictions": self.contradictions,
            "stages": [{"stage": number, "name": name, "count": counts[name]} for number, name in enumerate(STAGES, 1)],
            "remaining": self.more,
        }


class _DueNote(NamedTuple):
    """A due note: its row in the queue with its current version, and what decides when it expires."""

    row: asyncpg.Record
    lasting: Lasting


class Consolidation:
    """Consolidates from one process.

    Args:
        log: where notes are, and withdrawals are appended.
        most: how many notes one run handles at most.
        evaluates: whether to queue notes without a rating for the model that rates them.
        vectors: the name of the embedding model whose vectors are kept; None where none are.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        most: int = 500,
        evaluates: bool = False,
        vectors: str | None = None,
    ) -> None:
        self._vectors = vectors
        self._evaluates = evaluates
        self._database = log.database
        self._log = log
        self._withdrawals = Withdrawals(log)
        self._most = most

    async def run(
        self,
        tenant: str,
        *,
        masks: Masks | None = None,
        scopes: Sequence[int] | None = None,
        context_id: str | None = None,
        now: int | None = None,
    ) -> Consolidated:
        """Handle a bounded number of a tenant's due notes; the report's `more` says whether others are left.

        Args:
            masks: handle the notes that these see; None for all of the tenant's.
            scopes: instead of masks, the numbers of the scopes whose notes are handled.
            context_id: handle only notes of this context.
            now: in microseconds since 1970 UTC; left out, the database's clock.

        Raises:
            DatabaseUnavailable, Overloaded: notes handled so far stay so; run it again.
        """
        report = Consolidated(has_vectors=self._vectors is not None)
        async with self._database.read(tenant) as connection:
            if masks is not None:
                scopes = await scopes_with_notes(connection, tenant, masks)
            at = to_microseconds(await connection.fetchval(sql("consolidation.now"))) if now is None else now
            rows = await connection.fetch(
                sql("consolidation.due"), tenant, scopes, to_datetime(at), self._most + 1, context_id
            )
        report.more = len(rows) > self._most
        due_rows = rows[: self._most]
        report.looked_at = len(due_rows)
        gone_ids = [row["note_id"] for row in due_rows if not row["live"]]
        due_notes = [_DueNote(row, Lasting.of(row)) for row in due_rows if row["live"]]
        expired = [note for note in due_notes if note.lasting.has_expired(at)]
        await self._expire(tenant, [note.row for note in expired])
        report.counts["expiry"] = len(expired)
        live = [note for note in due_notes if not note.lasting.has_expired(at)]
        merged_ids = await self._merge(tenant, [note.row for note in live if note.row["phase"] is None])
        report.counts["deduplication"] = len(merged_ids)
        standing = [note for note in live if note.row["note_id"] not in merged_ids]
        for note in standing:
            _count(note, at, report.counts)
        await self._requeue(tenant, standing, at)
        gone_ids += [note.row["note_id"] for note in expired] + sorted(merged_ids)
        report.counts["pruning"] = await self._prune(tenant, gone_ids)
        async with self._database.read(tenant) as connection:
            stale = await connection.fetch(sql("consolidation.stale"), tenant, scopes, _SHOWN_STALE)
            pairs = await connection.fetch(sql("consolidation.contradictions"), tenant, scopes, _SHOWN_STALE)
            report.has_feedback = masks is not None and await has_feedback(connection, tenant, masks)
            if self._vectors is not None:
                event_seqs = [note.row["event_seq"] for note in live]
                report.counts["embeddings"] = await connection.fetchval(
                    sql("vectors.count"), tenant, self._vectors, event_seqs
                )
        report.stale = [_stale_json(row, at) for row in stale if Lasting.of(row).is_stale(at)]
        report.contradictions = [_pair_json(row) for row in pairs if _both_stand(row, at)]
        report.counts["contradictions"] = len(report.contradictions)
        report.counts["statistics"] = report.looked_at
        return report

    async def _expire(self, tenant: str, notes: Sequence[asyncpg.Record]) -> None:
        """Withdraw all versions of expired notes; supersede those that another note replaces from this day on."""
        events: list[str] = []
        async with self._database.read(tenant) as connection:
            versions = {
                note["note_id"]: [
                    row["event_id"] for row in await connection.fetch(sql("notes.versions"), tenant, note["note_id"])
                ]
                for note in notes
            }
        for note in notes:
            successor = orjson.loads(note["payload"])["note"].get("replaced_by")
            if successor is None or not await self._supersede(tenant, versions[note["note_id"]][0], successor):
                events += versions[note["note_id"]]
        await self._withdrawals.withdraw_versions(tenant, events, "expired", may_see=anybody)

    async def _supersede(self, tenant: str, event_id: str, by: str) -> bool:
        """Supersede an event by another; return False where it was changed or erased meanwhile."""
        try:
            await self._withdrawals.replace(tenant, [event_id], by, may_see=anybody)
        except (AlreadySuperseded, EventNotFound):
            return False
        return True

    async def _merge(self, tenant: str, due_notes: Sequence[asyncpg.Record]) -> set[str]:
        """Supersede notes by the newest note with the same text; return the ids of the superseded ones.

        Texts are compared by their `essence`, within one kind, scope and session. An anchor stays, before any newer
        note; neither an anchor nor a note that somebody restored is superseded.
        """
        if not due_notes:
            return set()
        async with self._database.write(tenant) as connection:
            await connection.execute(
                sql("consolidation.mark_likeness"),
                tenant,
                [note["note_id"] for note in due_notes],
                [_likeness(note) for note in due_notes],
            )
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("consolidation.alike"), tenant, [note["note_id"] for note in due_notes])
        groups: dict[tuple[int, bytes], list[asyncpg.Record]] = {}
        for row in rows:
            groups.setdefault((row["scope_id"], row["likeness"]), []).append(row)
        merged_ids: set[str] = set()
        for group in groups.values():
            kept = max(group, key=lambda row: (row["anchor"], row["event_seq"]))
            repeats = [row for row in group if row is not kept and not row["anchor"] and row["reason"] != "restored"]
            for start in range(0, len(repeats), MAX_WITHDRAWN):
                batch = repeats[start : start + MAX_WITHDRAWN]
                await self._move_links(tenant, kept, [row["note_id"] for row in batch])
                try:
                    await self._withdrawals.replace(
                        tenant, [row["event_id"] for row in batch], kept["event_id"], may_see=anybody
                    )
                except (AlreadySuperseded, EventNotFound):
                    continue  # one of them was changed meanwhile; they stay in the queue for a later run
                merged_ids |= {row["note_id"] for row in batch}
        return merged_ids

    async def _move_links(self, tenant: str, kept: asyncpg.Record, note_ids: Sequence[str]) -> None:
        """Link a note as the notes that it replaces are linked, where it has not these links already."""
        replaced_ids = set(note_ids)
        before: int | None = None
        while True:
            async with self._database.read(tenant) as connection:
                rows = await connection.fetch(sql("links.of_notes"), tenant, list(note_ids), MAX_LINKS, before)
                links: set[tuple[str, str, Relation]] = set()
                for row in rows:
                    source, target = (_or_kept(row[end], replaced_ids, kept["note_id"]) for end in ("from_id", "to_id"))
                    if source != target:
                        links.add((source, target, row["relation"]))
                sources, targets = [source for source, *_ in links], [target for _, target, _ in links]
                rows_there = await connection.fetch(sql("links.there"), tenant, sources, targets)
                existing = {(row["from_id"], row["to_id"], row["relation"]) for row in rows_there}
            participants = tuple(kept["participants"])
            events = [link_event(participants, *link) for link in sorted(links - existing)]
            if events:
                await self._log.append_events(tenant, events)
            if len(rows) < MAX_LINKS:
                return
            before = rows[-1]["event_seq"]

    async def _requeue(self, tenant: str, due_notes: Sequence[_DueNote], now: int) -> None:
        """Put notes back into the queue for when they change next, except those that changed since they were read."""
        if not due_notes:
            return
        note_ids = [row["note_id"] for row, _ in due_notes]
        ends = [lasting.expires_at for _, lasting in due_notes]
        async with self._database.write(tenant) as connection:
            if self._evaluates:
                await connection.execute(sql("evaluations.enqueue"), tenant, note_ids)
            await connection.execute(
                sql("consolidation.look_again"),
                tenant,
                note_ids,
                [row["look_at"] for row, _ in due_notes],
                [phase_of(lasting, now) for _, lasting in due_notes],
                [to_datetime(next_look(lasting, now)) for _, lasting in due_notes],
                [None if expires_at is None else to_datetime(expires_at) for expires_at in ends],
            )

    async def _prune(self, tenant: str, note_ids: Sequence[str]) -> int:
        """Remove withdrawn notes from the queue; return how many were in it."""
        if not note_ids:
            return 0
        async with self._database.write(tenant) as connection:
            return len(await connection.fetch(sql("consolidation.prune"), tenant, list(note_ids)))


def phase_of(lasting: Lasting, now: int) -> Phase:
    """Return a note's phase at a moment: `session` where it ends with its session, `stale`, or its tier."""
    if lasting.anchor:
        return "permanent"
    if lasting.session_ends_at is not None and not lasting.restored:
        return "session"
    return "stale" if lasting.is_stale(now) else lasting.tier(now)


def next_look(lasting: Lasting, now: int) -> int:
    """Return when a note's phase changes or the note expires next, if nobody uses or changes it."""
    expires_at = lasting.expires_at
    moments = [] if expires_at is None else [expires_at]
    policy = policies().get(lasting.kind)
    if policy is not None and lasting.session_ends_at is None and lasting.tier(now) != "permanent":
        days: list[float] = [_WARM_AFTER_DAYS, _COLD_AFTER_DAYS, policy.stale_days]
        if policy.decay_days and lasting.importance > _COLD_IMPORTANCE:
            days.append(policy.decay_days * log2(lasting.importance / _COLD_IMPORTANCE))
        moments += [lasting.idle_since + int(day * DAY_US) + 1 for day in days]
    return min((moment for moment in moments if moment > now), default=_NEVER)


def _count(note: _DueNote, now: int, counts: dict[str, int]) -> None:
    """Add to the counts of stages how a note has changed since a run handled it last."""
    lasting, phase_before = note.lasting, note.row["phase"]
    phase = phase_of(lasting, now)
    if phase_before == "hot" and phase != "hot":
        counts["hot_to_warm"] += 1
    if phase_before in ("hot", "warm") and phase in ("cold", "stale"):
        counts["warm_to_cold"] += 1
    idle_days = max(0, now - lasting.idle_since) / DAY_US
    faded = importance_now(lasting.kind, lasting.importance, anchor=lasting.anchor, idle_days=idle_days)
    counts["importance_decay"] += round(faded, 3) < round(lasting.importance, 3)
    counts["utility"] += 1


def _likeness(row: asyncpg.Record) -> bytes:
    """Return a digest that is equal for notes of one kind and session with the same text; facts and memories differ."""
    payload = orjson.loads(row["payload"])
    if row["kind"] in FACT_KINDS or "memory" in payload["note"]:
        return digest(["unlike", row["note_id"]])  # these repeat each other by an id or key of their own
    session = row["context_id"] or "" if row["session"] else ""
    # "same" keeps these from equalling digests that were stored when case did not count.
    return digest(["same", row["kind"], session, essence(payload["text"])])


def _stale_json(row: asyncpg.Record, now: int) -> Json:
    lasting = Lasting.of(row)
    return {
        "id": row["note_id"],
        "content": orjson.loads(row["payload"])["text"][:_SHOWN],
        "type": row["kind"],
        "topic": row["topic"],
        "days_since_use": (now - lasting.idle_since) // DAY_US,
    }


def _pair_json(row: asyncpg.Record) -> Json:
    return {
        "from": row["from_id"],
        "to": row["to_id"],
        "from_content": orjson.loads(row["from_payload"])["text"][:_SHOWN],
        "to_content": orjson.loads(row["to_payload"])["text"][:_SHOWN],
    }


def _both_stand(row: asyncpg.Record, now: int) -> bool:
    """Tell whether neither note of a pair has expired."""
    names = ("kind", "importance", "anchor", "created_at", "changed_at", "session_ends_at", "reason", "used_at")
    other = {name: row[f"to_{name}"] for name in names}
    return not Lasting.of(row).has_expired(now) and not Lasting.of(other).has_expired(now)


def _or_kept(note_id: str, replaced_ids: set[str], kept_id: str) -> str:
    return kept_id if note_id in replaced_ids else note_id
