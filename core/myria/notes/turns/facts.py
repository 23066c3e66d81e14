"""Facts of a session: their form, their state, and the rule by which a newer one replaces an older one (memory-tools).

A fact is a note of a kind of its own. Its note's id is computed from its owner and identity, so a newer value of
the same identity is the next version of the same note, whoever finds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Connection, Database
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
from myria.notes.model import next_version
from myria.notes.repeats import Repeats
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
    rows = await connection.fetch(sql("notes.current"), tenant, list(note_ids))
    return {row["note_id"]: _known(row, now) for row in rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class FactContext:
    """Where facts are kept: the context and its owner, and who may see them (`participants`, in canonical form)."""

    tenant: str
    owner: bytes
    participants: tuple[str, ...]
    context_id: str

    def note_id(self, fact: Fact) -> str:
        """Return the id of a fact's note."""
        return note_id_of(self.tenant, self.owner, self.participants, self.context_id, fact.identity)

    async def known(self, connection: Connection, facts: Iterable[Fact], *, now: int) -> dict[str, KnownFact]:
        """Return by their identities what is known of facts, withdrawn and expired ones too.

        A live fact of the same identity may have another id, where the log was imported from another tenant, or a
        reviewer let it in: then its id is used on.

        Args:
            now: in microseconds since 1970 UTC.
        """
        identities = {self.note_id(fact): fact.identity for fact in facts}
        found = await facts_named(connection, self.tenant, identities, now=now)
        known = {identities[note_id]: fact for note_id, fact in found.items()}
        missing = {identity for identity in identities.values() if identity not in known or not known[identity].is_live}
        if missing:
            rows = await connection.fetch(sql("notes.scopes_exactly"), self.tenant, [scope_key(self.participants)])
            scopes = [row["scope_id"] for row in rows]
            live_facts = await facts_in(connection, self.tenant, self.context_id, scopes, now=now)
            known |= {other.fact.identity: other for other in live_facts if other.fact.identity in missing}
        return known

    def note_of(self, fact: Fact, settings: TurnsSettings) -> NoteText:
        """Return the note that keeps a fact."""
        kind = KIND_OF_TIER[fact.tier]
        further: dict[str, Any] = {
            "fact": {name: getattr(fact, name) for name in ("fact_id", "key", "value", "confidence")}
        }
        days = {"L1": settings.l1_retention_days, "L2": settings.l2_retention_days}.get(fact.tier)
        if days is not None and days != policies()[kind].lifetime:
            further["lasts_days"] = days
        return NoteText(
            content=f"{fact.key}: {fact.value}",
            kind=kind,
            topic=fact.key,
            keywords=(fact.fact_id,),
            importance=fact.confidence,
            source=None,
            lifetime="permanent",
            anchor=False,
            session_id=self.context_id,
            further=further,
        )


class SameIdentity(Repeats):
    """The rule of facts: another value of a known identity is the next version of its note; the same value is none.

    Args:
        facts: those to keep, no two of one identity.
        denied: facts whose values hold no longer.
        now: in microseconds since 1970 UTC; left out, the database's clock.
        may_replace: tells whether a fact may replace the known one.
    """

    def __init__(
        self,
        database: Database,
        context: FactContext,
        facts: Sequence[Fact],
        *,
        denied: Sequence[Fact] = (),
        now: int | None = None,
        may_replace: Callable[[KnownFact, Fact], bool] = lambda _known, _fact: True,
    ) -> None:
        self._database = database
        self._context = context
        self._facts = facts
        self._denied = denied
        self._now = now
        self._may_replace = may_replace
        self._known: dict[str, KnownFact] = {}
        self.kept: Counter[str] = Counter()
        """How many facts of each tier the last attempt keeps anew or changes."""

    def note_id(self, tenant: str, place: int) -> str:
        """Return the id that follows from the fact's identity."""
        return self._context.note_id(self._facts[place])

    def held_id(self, tenant: str, place: int) -> str:
        """Return an id of its own: the one that follows from the identity stays free for a fact that is not held."""
        return new_id("note")

    async def kept_before(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Return by their places the facts whose identity is known, be it withdrawn, with the ids of their notes."""
        if not self._facts and not self._denied:
            return {}
        now = await self._database.now() if self._now is None else self._now
        async with self._database.read(self._context.tenant) as connection:
            self._known = await self._context.known(connection, [*self._facts, *self._denied], now=now)
        known_places = [place for place, fact in enumerate(self._facts) if fact.identity in self._known]
        self.kept = Counter(fact.tier for fact in self._facts if fact.identity not in self._known)
        return {place: self._known[self._facts[place].identity].note_id for place in known_places}

    async def kept_already(self, notes: Sequence[NoteText]) -> Mapping[int, str]:
        """Look the known facts up again: a turn changed one of them meanwhile."""
        return await self.kept_before(notes)

    async def restating_events(
        self, note_id: str, event: NewEvent, replaced: Sequence[asyncpg.Record], *, is_raced: bool
    ) -> Sequence[NewEvent]:
        """Return the next version of a fact, and the withdrawal of the version before where that is live."""
        fact, before = next(
            (fact, known)
            for fact in self._facts
            if (known := self._known.get(fact.identity)) is not None and known.note_id == note_id
        )
        if (before.stands and before.fact.says_the_same(fact)) or not self._may_replace(before, fact):
            return ()
        self.kept[fact.tier] += 1
        version = next_version(event, note_id=note_id, version=before.version + 1, previous=before.event_id)
        version = version._replace(event_id=new_id("evt"))
        return [version, self._superseded(before, by=version.event_id)] if before.is_live else [version]

    def denials(self, denying: Mapping[str, str | None]) -> list[NewEvent]:
        """Return the withdrawals of denied facts; a known fact with another value than the denied one stays.

        Args:
            denying: the ids of the events that deny them, by the facts' identities; each succeeds its fact.
        """
        return [
            self._superseded(before, by=denying[fact.identity])
            for fact in self._denied
            if (before := self._known.get(fact.identity)) is not None
            and before.stands
            and before.fact.is_denied_by(fact)
        ]

    def _superseded(self, before: KnownFact, *, by: str | None) -> NewEvent:
        withdrawal = Withdrawal(reason="superseded", events=(before.event_id,), superseded_by=by)
        return withdrawal_event(withdrawal, self._context.participants, timestamp=before.at)


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
