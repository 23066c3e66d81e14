"""Facts of a session: their form, their state, and the events that keep, replace and end them (memory-tools).

A fact is a note of a kind of its own. Its note's id is computed from its owner and identity, so a newer value of
the same identity is the next version of the same note, whoever finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.ids import new_id
from myria.log.scopes import scope_key
from myria.log.withdrawal.model import Withdrawal, withdrawal_event
from myria.notes.drafting import NoteText
from myria.notes.expiry import Lasting
from myria.notes.kinds import policies
from myria.notes.likeness import essence
from myria.notes.model import note_event
from myria.settings import TurnsSettings

Tier = Literal["L0", "L1", "L2"]

KIND_OF_TIER: Mapping[Tier, str] = {"L0": "fact_l0", "L1": "fact_l1", "L2": "fact_l2"}
_TIERS: Mapping[str, Tier] = {kind: tier for tier, kind in KIND_OF_TIER.items()}

MOST_FACTS = 1_000
"""Facts of a session that are read at most: those that changed last."""

VALUE_BYTES = 128
"""The longest value that the rules find, in bytes of UTF-8: where a longer one ends cannot be told by its form."""

_HOME = "home"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a session knows under one identity, for instance its user's home. `confidence` is in 0..1."""

    fact_id: str
    key: str
    value: str
    tier: Tier
    confidence: float

    @property
    def identity(self) -> str:
        """The name of what the fact is about: a newer value of the same identity replaces the fact."""
        return identity_of(self.fact_id, self.key)

    def says_the_same(self, other: Fact) -> bool:
        """Tell whether another fact has the same value in the same tier."""
        return self.tier == other.tier and essence(self.value) == essence(other.value)

    def is_denied_by(self, denied: Fact) -> bool:
        """Tell whether a denied fact of the same identity has this fact's value; homes are compared by their town.

        So "I no longer live in Porto" denies the home "Porto, Brazil".
        """
        value, denied_value = essence(self.value).casefold(), essence(denied.value).casefold()
        return value == denied_value or (self.key == _HOME and _town(value) == _town(denied_value))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFact:
    """The newest version of a fact; `at` is when it was made, in microseconds since 1970 UTC.

    It is recalled while it `stands`: neither withdrawn (`is_live`) nor expired. `changed_by` is the number of the event
    that changed it last: that of this version, of a withdrawal or of a restoration.
    """

    note_id: str
    event_id: str
    version: int
    fact: Fact
    at: int
    is_live: bool = True
    stands: bool = True
    changed_by: int = 0


def identity_of(fact_id: str, key: str) -> str:
    """Return the identity of a fact."""
    return f"{fact_id.lower()}::{key.lower()}"


def note_id_of(tenant: str, owner: bytes, participants: Iterable[str], context_id: str, identity: str) -> str:
    """Compute the id of a fact's note: the same for all of its versions, and different for another tenant.

    Args:
        owner: that of the session; see `myria.notes.turns.model.Session`.
    """
    return f"note_{digest([tenant, owner.hex(), list(participants), context_id, identity]).hex()[:32]}"


async def facts_in(
    connection: Connection, tenant: str, context_id: str, scopes: Sequence[int], *, now: int, most: int = MOST_FACTS
) -> list[KnownFact]:
    """Return the facts of a context in some scopes that are live and not expired, the last changed first.

    Args:
        now: in microseconds since 1970 UTC.
    """
    rows = await connection.fetch(sql("turns.facts"), tenant, context_id, scopes, most)
    ids = [row["note_id"] for row in rows]
    known = await facts_named(connection, tenant, ids, now=now) if ids else {}
    return [known[note_id] for note_id in ids if known[note_id].stands]


async def facts_named(
    connection: Connection, tenant: str, note_ids: Iterable[str], *, now: int
) -> dict[str, KnownFact]:
    """Return the facts of some notes by the notes' ids, withdrawn and expired ones too.

    Args:
        now: in microseconds since 1970 UTC.
    """
    rows = await connection.fetch(sql("turns.facts_named"), tenant, list(note_ids))
    return {row["note_id"]: _known(row, now) for row in rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class FactContext:
    """Where facts are kept: the context and its owner, and who may see them (`participants`, in canonical form)."""

    tenant: str
    owner: bytes
    participants: tuple[str, ...]
    context_id: str

    async def known(
        self, connection: Connection, facts: Iterable[Fact], *, now: int
    ) -> tuple[dict[str, Fact], dict[str, KnownFact]]:
        """Return facts by the ids of their notes, of equal identity the last one, and the notes' current versions.

        A live fact of the same identity may have another id, where the log was imported from another tenant: then its
        id is used on.

        Args:
            now: in microseconds since 1970 UTC.
        """
        computed = {
            note_id_of(self.tenant, self.owner, self.participants, self.context_id, fact.identity): fact
            for fact in facts
        }
        known = await facts_named(connection, self.tenant, computed, now=now)
        if not computed.keys() - known.keys():
            return computed, known
        rows = await connection.fetch(sql("notes.scopes_exactly"), self.tenant, [scope_key(self.participants)])
        scopes = [row["scope_id"] for row in rows]
        live_facts = await facts_in(connection, self.tenant, self.context_id, scopes, now=now)
        known |= {other.note_id: other for other in live_facts}
        id_of_identity = {other.fact.identity: other.note_id for other in live_facts}
        fact_of_note = {
            note_id if note_id in known else id_of_identity.get(fact.identity, note_id): fact
            for note_id, fact in computed.items()
        }
        return fact_of_note, known

    def versions(
        self,
        facts: Mapping[str, Fact],
        known: Mapping[str, KnownFact],
        settings: TurnsSettings,
        *,
        at: int,
        user_id: str | None,
    ) -> tuple[list[NewEvent], dict[str, int]]:
        """Return the events that keep facts, and how many of each tier; a fact that is known with its value needs none.

        Args:
            facts: by the ids of their notes.
            known: the notes' current versions, by their ids.
            at: when the facts were stated, in microseconds since 1970 UTC.
            user_id: who stated them, where that is known.
        """
        events: list[NewEvent] = []
        kept: dict[str, int] = {}
        for note_id, fact in facts.items():
            before = known.get(note_id)
            if before is not None and before.stands and before.fact.says_the_same(fact):
                continue
            kept[fact.tier] = kept.get(fact.tier, 0) + 1
            version = self._version(note_id, fact, before, settings, at=at, user_id=user_id)
            events.append(version)
            if before is not None and before.is_live:
                events.append(self._superseding_withdrawal(before, by=version.event_id))
        return events, kept

    def denials(
        self, denied: Mapping[str, Fact], known: Mapping[str, KnownFact], denying: Mapping[str, str | None]
    ) -> list[NewEvent]:
        """Return the withdrawals of denied facts; a known fact with another value than the denied one stays.

        Args:
            denied: by the ids of their notes.
            denying: the ids of the events that deny them, by the facts' identities; each succeeds its fact.
        """
        return [
            self._superseding_withdrawal(before, by=denying[fact.identity])
            for note_id, fact in denied.items()
            if (before := known.get(note_id)) is not None and before.stands and before.fact.is_denied_by(fact)
        ]

    def _version(
        self,
        note_id: str,
        fact: Fact,
        before: KnownFact | None,
        settings: TurnsSettings,
        *,
        at: int,
        user_id: str | None,
    ) -> NewEvent:
        note = NoteText(
            content=f"{fact.key}: {fact.value}",
            kind=KIND_OF_TIER[fact.tier],
            topic=fact.key,
            keywords=(fact.fact_id,),
            importance=fact.confidence,
            source=None,
            lifetime="permanent",
            anchor=False,
            session_id=self.context_id,
        )
        further: dict[str, Any] = {
            "fact": {name: getattr(fact, name) for name in ("fact_id", "key", "value", "confidence")}
        }
        days = {"L1": settings.l1_retention_days, "L2": settings.l2_retention_days}.get(fact.tier)
        if days is not None and days != policies()[note.kind].lifetime:
            further["lasts_days"] = days
        return note_event(
            note,
            self.participants,
            note_id=note_id,
            version=1 if before is None else before.version + 1,
            timestamp=at,
            speaker=user_id,
            previous=None if before is None else before.event_id,
            further=further,
        )._replace(event_id=new_id("evt"))

    def _superseding_withdrawal(self, before: KnownFact, *, by: str | None) -> NewEvent:
        withdrawal = Withdrawal(reason="superseded", events=(before.event_id,), superseded_by=by)
        return withdrawal_event(withdrawal, self.participants, timestamp=before.at)


def _known(row: asyncpg.Record, now: int) -> KnownFact:
    return KnownFact(
        note_id=row["note_id"],
        event_id=row["event_id"],
        version=row["version"],
        fact=_fact(row["kind"], orjson.loads(row["payload"])),
        at=to_microseconds(row["changed_at"]),
        is_live=row["live"],
        stands=row["live"] and not Lasting.of(row).has_expired(now),
        changed_by=row["changed_by"],
    )


def _fact(kind: str, payload: Mapping[str, Any]) -> Fact:
    """Return the fact of a note's version; of a version amended over another API it is read from its text."""
    note = payload["note"]
    fact = note.get("fact")
    if not isinstance(fact, dict):
        keywords = note.get("keywords") or [note["topic"]]
        text = payload["text"].removeprefix(f"{note['topic']}: ")
        fact = {"fact_id": keywords[0], "key": note["topic"], "value": text, "confidence": note["importance"]}
    return Fact(tier=_TIERS[kind], **{name: fact[name] for name in ("fact_id", "key", "value", "confidence")})


def _town(place: str) -> str:
    """Return a place's name without the region behind its first comma."""
    return place.partition(",")[0].strip()
