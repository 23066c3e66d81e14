"""Consolidation: what maintenance does with notes that are due, in the ten stages of Memento's contract (8).

Each run takes a bounded number of notes from the queue `note_looks`, computes what has become of them, and appends
withdrawals for those that have expired or say the same as another. Tiers, faded importance and utility are computed at
read, so their stages count and store nothing. A run that is killed anywhere is taken up by the next: its effects are
events, which a repeat does not repeat, and a note leaves the queue's head only after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any, Literal

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
"""The year 9999: a note that nothing will become of is not looked at again."""

_WARM_AFTER_DAYS = 1
_COLD_AFTER_DAYS = 30
_COLD_IMPORTANCE = 0.3
_SHOWN_STALE = 20
_SHOWN = 100


@dataclass(slots=True, kw_only=True)
class Consolidated:
    """What a run came to: notes by stage, and whether more is due.

    `stale` and `contradictions` show the first of what a person may look at: nothing of it is decided here.
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
        """Return it under the contract's names."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Look:
    """A note that is due: its row in the queue, and as it stands (None: it is gone)."""

    note_id: str
    look_at: Any
    phase: Phase | None
    row: asyncpg.Record
    lasting: Lasting | None

    @classmethod
    def of(cls, row: asyncpg.Record) -> _Look:
        return cls(
            note_id=row["note_id"],
            look_at=row["look_at"],
            phase=row["phase"],
            row=row,
            lasting=Lasting.of(row) if row["live"] else None,
        )


class Consolidation:
    """Consolidates from one process.

    Args:
        log: where notes are, and withdrawals are appended.
        most: notes that one run looks at.
        evaluates: whether notes that have no rating yet are put into the outbox of those that a model rates.
        vectors: the model by which vectors are kept; None where none are.
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
        """Do what is due of a tenant, at most so much; `more` says whether to come again.

        Args:
            masks: whose notes; None for all of the tenant's.
            scopes: instead, those whose notes are looked at, by their numbers.
            context_id: the one context in them whose notes are looked at.
            now: in microseconds since 1970 UTC; left out, the database's clock.

        Raises:
            DatabaseUnavailable, Overloaded: what was done stays done; run it again.
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
        looks = [_Look.of(row) for row in rows[: self._most]]
        report.looked_at = len(looks)
        gone = [look.note_id for look in looks if look.lasting is None]
        expired = [look for look in looks if look.lasting is not None and look.lasting.has_expired(at)]
        await self._expire(tenant, expired)
        report.counts["expiry"] = len(expired)
        standing = [look for look in looks if look.lasting is not None and not look.lasting.has_expired(at)]
        merged = await self._merge(tenant, [look for look in standing if look.phase is None])
        report.counts["deduplication"] = len(merged)
        for look in standing:
            if look.note_id not in merged:
                _count(look, at, report.counts)
        await self._look_again(tenant, [look for look in standing if look.note_id not in merged], at)
        gone += [look.note_id for look in expired] + sorted(merged)
        report.counts["pruning"] = await self._prune(tenant, gone)
        async with self._database.read(tenant) as connection:
            stale = await connection.fetch(sql("consolidation.stale"), tenant, scopes, _SHOWN_STALE)
            pairs = await connection.fetch(sql("consolidation.contradictions"), tenant, scopes, _SHOWN_STALE)
            report.has_feedback = masks is not None and await has_feedback(connection, tenant, masks)
            if self._vectors is not None:
                seqs = [look.row["event_seq"] for look in standing]
                report.counts["embeddings"] = await connection.fetchval(
                    sql("vectors.count"), tenant, self._vectors, seqs
                )
        report.stale = [_stale_json(row, at) for row in stale if Lasting.of(row).is_stale(at)]
        report.contradictions = [_pair_json(row) for row in pairs if _both_stand(row, at)]
        report.counts["contradictions"] = len(report.contradictions)
        report.counts["statistics"] = report.looked_at
        return report

    async def _expire(self, tenant: str, looks: Sequence[_Look]) -> None:
        """Withdraw all versions of notes that have expired; what another note replaces from now on is superseded."""
        events: list[str] = []
        async with self._database.read(tenant) as connection:
            versions = {
                look.note_id: [
                    row["event_id"] for row in await connection.fetch(sql("notes.versions"), tenant, look.note_id)
                ]
                for look in looks
            }
        for look in looks:
            successor = orjson.loads(look.row["payload"])["note"].get("replaced_by")
            if successor is None or not await self._replaced(tenant, versions[look.note_id][0], successor):
                events += versions[look.note_id]
        await self._withdrawals.withdraw_versions(tenant, events, "expired", may_see=_anybody)

    async def _replaced(self, tenant: str, event_id: str, by: str) -> bool:
        """Let an event stand in the place of another; return whether it could."""
        try:
            await self._withdrawals.replace(tenant, [event_id], by, may_see=_anybody)
        except (AlreadySuperseded, EventNotFound):
            return False
        return True

    async def _merge(self, tenant: str, looks: Sequence[_Look]) -> set[str]:
        """Let the newest of notes that say the same stand for the others; return those.

        They say the same (`essence`) in one kind, scope and session. An anchor is never merged into another note, nor
        is one that somebody restored.
        """
        if not looks:
            return set()
        async with self._database.write(tenant) as connection:
            await connection.execute(
                sql("consolidation.mark_likeness"),
                tenant,
                [look.note_id for look in looks],
                [_likeness(look.row) for look in looks],
            )
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("consolidation.alike"), tenant, [look.note_id for look in looks])
        alike: dict[tuple[int, bytes], list[asyncpg.Record]] = {}
        for row in rows:
            alike.setdefault((row["scope_id"], row["likeness"]), []).append(row)
        merged: set[str] = set()
        for group in alike.values():
            stays = max(group, key=lambda row: (row["anchor"], row["event_seq"]))
            others = [row for row in group if row is not stays and not row["anchor"] and row["reason"] != "restored"]
            for start in range(0, len(others), MAX_WITHDRAWN):
                some = others[start : start + MAX_WITHDRAWN]
                await self._link_instead(tenant, stays, [row["note_id"] for row in some])
                try:
                    await self._withdrawals.replace(
                        tenant, [row["event_id"] for row in some], stays["event_id"], may_see=_anybody
                    )
                except (AlreadySuperseded, EventNotFound):
                    continue  # one of them was changed meanwhile: it is looked at again
                merged |= {row["note_id"] for row in some}
        return merged

    async def _link_instead(self, tenant: str, stays: asyncpg.Record, note_ids: Sequence[str]) -> None:
        """Give a note the links of those that it stands for, but for those that it has itself."""
        gone = set(note_ids)
        before: int | None = None
        while True:
            async with self._database.read(tenant) as connection:
                rows = await connection.fetch(sql("links.of_notes"), tenant, list(note_ids), MAX_LINKS, before)
                moved: set[tuple[str, str, Relation]] = set()
                for row in rows:
                    source, target = (_instead(row[end], gone, stays["note_id"]) for end in ("from_id", "to_id"))
                    if source != target:
                        moved.add((source, target, row["relation"]))
                sources, targets = [source for source, *_ in moved], [target for _, target, _ in moved]
                rows_there = await connection.fetch(sql("links.there"), tenant, sources, targets)
                known = {(row["from_id"], row["to_id"], row["relation"]) for row in rows_there}
            participants = tuple(stays["participants"])
            events = [link_event(participants, *link) for link in sorted(moved - known)]
            if events:
                await self._log.append_events(tenant, events)
            if len(rows) < MAX_LINKS:
                return
            before = rows[-1]["event_seq"]

    async def _look_again(self, tenant: str, looks: Sequence[_Look], now: int) -> None:
        """Put notes back into the queue, but those that were changed since they were read."""
        if not looks:
            return
        standing = [(look, look.lasting) for look in looks if look.lasting is not None]
        async with self._database.write(tenant) as connection:
            if self._evaluates:
                await connection.execute(sql("evaluations.enqueue"), tenant, [look.note_id for look, _ in standing])
            await connection.execute(
                sql("consolidation.look_again"),
                tenant,
                [look.note_id for look, _ in standing],
                [look.look_at for look, _ in standing],
                [phase_of(lasting, now) for _, lasting in standing],
                [to_datetime(next_look(lasting, now)) for _, lasting in standing],
                [None if lasting.expires_at is None else to_datetime(lasting.expires_at) for _, lasting in standing],
            )

    async def _prune(self, tenant: str, note_ids: Sequence[str]) -> int:
        """Take notes that are gone out of the queue; return how many."""
        if not note_ids:
            return 0
        async with self._database.write(tenant) as connection:
            return len(await connection.fetch(sql("consolidation.prune"), tenant, list(note_ids)))


def phase_of(lasting: Lasting, now: int) -> Phase:
    """Return what a note is at a moment: its tier, or that it ends with its session, or that it is stale."""
    if lasting.anchor:
        return "permanent"
    if lasting.session_ends_at is not None and not lasting.restored:
        return "session"
    return "stale" if lasting.is_stale(now) else lasting.tier(now)


def next_look(lasting: Lasting, now: int) -> int:
    """Return when something becomes of a note next, if nobody uses or changes it."""
    expires_at = lasting.expires_at
    moments = [] if expires_at is None else [expires_at]
    policy = policies().get(lasting.kind)
    if policy is not None and lasting.session_ends_at is None and lasting.tier(now) != "permanent":
        days: list[float] = [_WARM_AFTER_DAYS, _COLD_AFTER_DAYS, policy.stale_days]
        if policy.decay_days and lasting.importance > _COLD_IMPORTANCE:
            days.append(policy.decay_days * log2(lasting.importance / _COLD_IMPORTANCE))
        moments += [lasting.idle_since + int(day * DAY_US) + 1 for day in days]
    return min((moment for moment in moments if moment > now), default=_NEVER)


def _count(look: _Look, now: int, counts: dict[str, int]) -> None:
    """Count what became of a note since it was looked at last."""
    lasting = look.lasting
    if lasting is None:
        return
    phase = phase_of(lasting, now)
    if look.phase == "hot" and phase != "hot":
        counts["hot_to_warm"] += 1
    if look.phase in ("hot", "warm") and phase in ("cold", "stale"):
        counts["warm_to_cold"] += 1
    idle_days = max(0, now - lasting.idle_since) / DAY_US
    faded = importance_now(lasting.kind, lasting.importance, anchor=lasting.anchor, idle_days=idle_days)
    counts["importance_decay"] += round(faded, 3) < round(lasting.importance, 3)
    counts["utility"] += 1


def _likeness(row: asyncpg.Record) -> bytes:
    payload = orjson.loads(row["payload"])
    if row["kind"] in FACT_KINDS or "memory" in payload["note"]:
        return digest(["unlike", row["note_id"]])  # none is like another: what it is a repeat of, it says
    session = row["context_id"] or "" if row["session"] else ""
    # Never equal to one that is stored since case did not count.
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


def _instead(note_id: str, gone: set[str], stays: str) -> str:
    return stays if note_id in gone else note_id


def _anybody(_: Sequence[str]) -> bool:
    return True
