"""Facts as they stand, and what becomes of them when a session learns more: one version at a time, by identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.event import NewEvent
from myria.log.scopes import scope_key
from myria.log.withdrawal.model import Withdrawal, withdrawal_event
from myria.notes.expiry import Lasting
from myria.notes.kinds import policies
from myria.notes.turns.facts import Fact, KnownFact, Tier, note_id_of
from myria.notes.turns.model import KIND_OF_TIER, fact_events, fact_of
from myria.settings import TurnsSettings

MOST_FACTS = 1_000
"""Facts of a session that are looked at: those that changed last."""


class Whose(Protocol):
    """Whose facts they are: those of a context of an owner, seen by some participants, as `Session` says."""

    @property
    def owner(self) -> bytes: ...

    @property
    def participants(self) -> tuple[str, ...]: ...

    @property
    def context_id(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The newest version of a fact.

    `event_seq` is its event; `withdrawn_by` that of the last withdrawal, or of the last that brought it back.
    """

    known: KnownFact
    event_seq: int
    withdrawn_by: int | None
    is_live: bool
    has_expired: bool

    @property
    def stands(self) -> bool:
        """Whether it is recalled."""
        return self.is_live and not self.has_expired

    @property
    def changed_by(self) -> int:
        """The event that changed it last."""
        return max(self.event_seq, self.withdrawn_by or 0)


async def as_they_stand(
    connection: Connection, tenant: str, whose: Whose, facts: Iterable[Fact], now: int
) -> tuple[dict[str, Fact], dict[str, Standing]]:
    """Return facts by the ids of their notes, of one identity the last one, and those notes as they stand.

    A fact that stands under another id goes on under it: the log was moved from another tenant, or comes from a release
    whose ids did not say the tenant.

    Args:
        now: in microseconds since 1970 UTC.
    """
    own = {note_id_of(tenant, whose.owner, whose.participants, whose.context_id, fact.identity): fact for fact in facts}
    standing = await standing_facts(connection, tenant, own, now)
    if not own.keys() - standing.keys():
        return own, standing
    scopes = await connection.fetch(sql("notes.scopes_exactly"), tenant, [scope_key(whose.participants)])
    rows = await connection.fetch(
        sql("turns.facts"), tenant, whose.context_id, [row["scope_id"] for row in scopes], MOST_FACTS
    )
    others = {known.fact.identity: known.note_id for known in map(known_fact, rows)}
    names = {
        note_id if note_id in standing else others.get(fact.identity, note_id): fact for note_id, fact in own.items()
    }
    return names, standing | await standing_facts(connection, tenant, names.keys() - standing.keys(), now)


async def standing_facts(connection: Connection, tenant: str, note_ids: Iterable[str], now: int) -> dict[str, Standing]:
    """Return the facts of some notes as they stand, those withdrawn too.

    Args:
        now: in microseconds since 1970 UTC.
    """
    rows = await connection.fetch(sql("turns.facts_named"), tenant, list(note_ids))
    return {
        row["note_id"]: Standing(
            known=known_fact(row),
            event_seq=row["event_seq"],
            withdrawn_by=row["withdrawn_by"],
            is_live=row["live"],
            has_expired=Lasting.of(row).has_expired(now),
        )
        for row in rows
    }


def next_versions(
    whose: Whose,
    facts: Mapping[str, Fact],
    standing: Mapping[str, Standing],
    settings: TurnsSettings,
    *,
    at: int,
    user_id: str | None,
) -> tuple[Sequence[NewEvent], dict[str, int]]:
    """Return the events that make facts stand, and how many of each tier are new. What stands so already needs none.

    Args:
        facts: by the ids of their notes.
        at: when they were said, in microseconds since 1970 UTC.
        user_id: who said them, where that is known.
    """
    kept: dict[str, int] = {}
    events: list[NewEvent] = []
    for note_id, fact in facts.items():
        before = standing.get(note_id)
        if before is not None and before.stands and before.known.fact.says_the_same(fact):
            continue
        kept[fact.tier] = kept.get(fact.tier, 0) + 1
        events += fact_events(
            whose.participants,
            whose.context_id,
            fact,
            note_id=note_id,
            before=None if before is None else before.known,
            is_live=before is not None and before.is_live,
            at=at,
            user_id=user_id,
            lasts_days=_lasts_days(fact.tier, settings),
        )
    return events, kept


def ended(
    whose: Whose, denied: Mapping[str, Fact], standing: Mapping[str, Standing], denying: Mapping[str, str | None]
) -> list[NewEvent]:
    """Return the withdrawals of facts that are denied; of another value nothing was said.

    Args:
        denied: by the ids of their notes.
        denying: by their identities the events that deny them, which are told in their place.
    """
    return [
        withdrawal_event(
            Withdrawal(reason="superseded", events=(before.known.event_id,), superseded_by=denying[fact.identity]),
            whose.participants,
            timestamp=before.known.at,
        )
        for note_id, fact in denied.items()
        if (before := standing.get(note_id)) is not None and before.stands and before.known.fact.is_denied_by(fact)
    ]


def _lasts_days(tier: Tier, settings: TurnsSettings) -> int | None:
    """Return for how many days a fact holds where that is not what its kind says anyway."""
    days = {"L1": settings.l1_retention_days, "L2": settings.l2_retention_days}.get(tier)
    return None if days == policies()[KIND_OF_TIER[tier]].lifetime else days


def known_fact(row: asyncpg.Record) -> KnownFact:
    """Return the fact of a row of `turns.facts` or `turns.facts_named`."""
    return KnownFact(
        note_id=row["note_id"],
        event_id=row["event_id"],
        version=row["version"],
        fact=fact_of(row["kind"], orjson.loads(row["payload"])),
        at=to_microseconds(row["changed_at"]),
    )
