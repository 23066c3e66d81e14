"""Storing a turn: its items, the facts found in them and its mark, by one append, once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from myria.db.queries import sql
from myria.errors import AlreadySuperseded, NoteExists, SessionMoved, TurnBusy
from myria.log.event import NewEvent
from myria.log.event_log import Counts, EventLog
from myria.notes.turns.facts import Fact
from myria.notes.turns.items import Json, is_spoken_by_user, says_something, text_of, without_echo
from myria.notes.turns.model import Session, item_events, mark_event, recent_items, visible_scopes
from myria.notes.turns.stating import StatedFacts, statements_in
from myria.settings import TurnsSettings

_SessionName = tuple[str, bytes, str]
"""Tenant, owner and context of a session."""

_BIG = 16 * 1024
"""Characters from which on facts are looked for in a thread: it may take milliseconds."""

_PAUSE_S = 0.02
_FIRST_LOOK_S = 2.0
"""Seconds after which a model may be shown a turn: by then it is stored, as a rule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTurn:
    """A turn that is over. `is_current` says that `given` is what went in, without the context that led it.

    `facts` are kept in place of those that rules find, where somebody else found them.
    """

    session: Session
    turn_id: str
    given: Sequence[Json]
    came_out: Sequence[Json]
    user_id: str | None = None
    is_current: bool = False
    facts: tuple[Fact, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTurn:
    """What became of a turn: whether this call stored it, and how many facts of each tier it brought.

    `found` are all facts that it says, also those that were known, and `given` the items that went in, as kept;
    `redacted` is what was taken out of it.
    """

    is_new: bool
    facts: Mapping[str, int]
    found: Sequence[Fact] = field(default=(), compare=False)
    given: Sequence[Json] = field(default=(), compare=False)
    redacted: Counts = field(default_factory=dict, compare=False)


class TurnStore:
    """Stores the turns of one process.

    Turns of one session wait for each other here; between processes the append refuses the later one, which looks
    again. So no lock outlives a transaction, and a process that is killed holds up nobody.

    Args:
        log: where turns are appended, and the state of sessions is looked up.
    """

    def __init__(self, log: EventLog, settings: TurnsSettings) -> None:
        self._database = log.database
        self._log = log
        self._settings = settings
        self._under_way: set[tuple[*_SessionName, str]] = set()
        # A lock lasts while somebody holds it or waits for it.
        self._locks: WeakValueDictionary[_SessionName, asyncio.Lock] = WeakValueDictionary()

    async def store(self, tenant: str, turn: FinishedTurn, *, now: int | None = None) -> StoredTurn:
        """Store a turn, once: a repeat, also with other items, changes nothing.

        Args:
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            TurnBusy: it is being stored, or too many turns of its session are; retry.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than one of its items.
            as `EventLog.append_events`.
        """
        session = turn.session
        name = (tenant, session.owner, session.context_id, turn.turn_id)
        if name in self._under_way:
            raise TurnBusy("this turn is being stored by another request; retry", under_way=True)
        self._under_way.add(name)
        try:
            deadline = time.monotonic() + self._settings.session_lock_timeout_ms / 1000
            async with self._in_order(name[:3], deadline):
                return await self._store(tenant, turn, time.time_ns() // 1000 if now is None else now, deadline)
        finally:
            self._under_way.discard(name)

    @asynccontextmanager
    async def alone(self, tenant: str, session: Session) -> AsyncIterator[None]:
        """Let no turn of a session be stored by this process meanwhile.

        Raises:
            TurnBusy: too many turns of it wait; retry.
        """
        deadline = time.monotonic() + self._settings.session_lock_timeout_ms / 1000
        async with self._in_order((tenant, session.owner, session.context_id), deadline):
            yield

    async def _store(self, tenant: str, turn: FinishedTurn, now: int, deadline: float) -> StoredTurn:
        is_awaited = False
        while True:
            newest, recent, is_stored = await self._before(tenant, turn)
            if is_stored:
                return StoredTurn(is_new=False, facts={})
            given = list(turn.given) if turn.is_current else without_echo(turn.given, recent)
            clean, said, taken = await self._cleaned(tenant, replace(turn, given=given, came_out=list(turn.came_out)))
            events, kept = await self._events(tenant, clean, said, previous=newest, now=now)
            asks = self._settings.heuristic_enabled and turn.facts is None and says_something(clean.given)
            if asks and not is_awaited:
                await self._await_facts(tenant, turn)
                is_awaited = True
            try:
                results = await self._log.append_events(tenant, events)
            except (SessionMoved, AlreadySuperseded, NoteExists) as error:
                # Another process stored a turn of this session meanwhile: look again, and come behind it.
                pause = _PAUSE_S * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
                if time.monotonic() + pause >= deadline:
                    raise _busy() from error
                await asyncio.sleep(pause)
                continue
            if results[-1].deduplicated:
                return StoredTurn(is_new=False, facts={})
            return StoredTurn(is_new=True, facts=kept, found=said.facts, given=clean.given, redacted=taken)

    async def _cleaned(self, tenant: str, turn: FinishedTurn) -> tuple[FinishedTurn, StatedFacts, Counts]:
        """Return a turn without what must not be kept, what the user stated in it, and how much was taken out.

        What is denied has the place of the item that denies it.
        """
        values = [fact.value for fact in turn.facts or ()]
        said: Json = {"given": turn.given, "came_out": turn.came_out, "values": values}
        kept, taken = await self._log.clean(tenant, said)
        clean = replace(turn, given=kept["given"], came_out=kept["came_out"])
        if turn.facts is not None:
            facts = (replace(fact, value=value) for fact, value in zip(turn.facts, kept["values"], strict=True))
            return clean, StatedFacts(facts=tuple(facts)), taken
        spoken = [text_of(item) if is_spoken_by_user(item) else "" for item in clean.given]
        if sum(map(len, spoken)) < _BIG:
            return clean, statements_in(spoken), taken
        return clean, await asyncio.to_thread(statements_in, spoken), taken

    async def _before(self, tenant: str, turn: FinishedTurn) -> tuple[str | None, tuple[Json, ...], bool]:
        """Return the newest mark of a turn's session, what was said last where that may lead the turn's items, and
        whether the turn is stored already."""
        session = turn.session
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(
                sql("turns.standing"), tenant, session.owner, session.context_id, turn.turn_id
            )
            if row is None:
                raise AssertionError("a statement without FROM gives one row")
            newest: str | None = row["newest_id"]
            recent: tuple[Json, ...] = ()
            if newest is not None and not turn.is_current and len(turn.given) > 1:
                scopes = await visible_scopes(connection, tenant, session)
                recent = await recent_items(connection, tenant, session, scopes, self._settings.recent_context_items)
        return newest, recent, row["is_stored"]

    async def _await_facts(self, tenant: str, turn: FinishedTurn) -> None:
        """Let a turn wait for a model that looks for facts, before it is stored: so none is forgotten."""
        session = turn.session
        async with self._database.write(tenant) as connection:
            await connection.execute(
                sql("turns.await_facts"), tenant, session.owner, session.context_id, turn.turn_id, _FIRST_LOOK_S
            )

    async def _events(
        self,
        tenant: str,
        turn: FinishedTurn,
        said: StatedFacts,
        *,
        previous: str | None,
        now: int,
    ) -> tuple[list[NewEvent], dict[str, int]]:
        """Return the events of a turn, its mark last, and how many facts of each tier are among them."""
        session = turn.session
        items = item_events(session, turn.turn_id, turn.given, turn.came_out, at=now, user_id=turn.user_id)
        stated: dict[str, Fact] = {}
        versions: list[NewEvent] = []
        kept: dict[str, int] = {}
        if said.facts or said.denied:
            context = session.facts_of(tenant)
            denying = {fact.identity: items[place].event_id for place, fact in said.denied}
            facts = [*said.facts, *(fact for _, fact in said.denied)]
            async with self._database.read(tenant) as connection:
                named, known = await context.known(connection, facts, now=now)
            stated = {note_id: fact for note_id, fact in named.items() if fact.identity not in denying}
            versions, kept = context.versions(stated, known, self._settings, at=now, user_id=turn.user_id)
            denied = {note_id: fact for note_id, fact in named.items() if fact.identity in denying}
            versions += context.denials(denied, known, denying)
        mark = mark_event(
            session,
            turn.turn_id,
            [event.event_id or "" for event in items],
            list(stated),
            previous=previous,
            at=now,
        )
        return [*items, *versions, mark], kept

    @asynccontextmanager
    async def _in_order(self, session: _SessionName, deadline: float) -> AsyncIterator[None]:
        """Wait for the turns of a session that this process stores, in the order in which they came."""
        lock = self._locks.setdefault(session, asyncio.Lock())
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await lock.acquire()
        except TimeoutError as error:
            raise _busy() from error
        try:
            yield
        finally:
            lock.release()


def _busy() -> TurnBusy:
    return TurnBusy("too many turns of this session are being stored; retry")
