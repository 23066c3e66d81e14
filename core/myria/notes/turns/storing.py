"""Store a turn exactly once, by one append: its items, the facts found in them, and its mark."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from myria.db.queries import sql
from myria.errors import AlreadySuperseded, NoteExists, SessionMoved, TurnBusy
from myria.log.event import NewEvent
from myria.log.event_log import Counts, EventLog
from myria.log.ids import new_id
from myria.notes.commands import Notes
from myria.notes.turns.facts import Fact, SameIdentity
from myria.notes.turns.items import Json, is_spoken_by_user, says_something, text_of, without_echo
from myria.notes.turns.model import Session, item_events, mark_event, recent_items, visible_scopes
from myria.notes.turns.stating import StatedFacts, statements_in
from myria.settings import TurnsSettings

_SessionName = tuple[str, bytes, str]
"""Tenant, owner and context of a session."""

_THREADED_CHARACTERS = 16 * 1024
"""Characters from which on facts are found in a thread of its own, since that may take milliseconds."""

_PAUSE_S = 0.02
_FIRST_LOOK_S = 2.0
"""Seconds until a queued turn may be shown to a model: by then it is stored, as a rule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTurn:
    """A turn that is over: the items that went into it (`given`) and those that came out.

    `is_current` says that `given` has no items of earlier turns in front; else such context is recognised and dropped.
    `facts`, where the caller found them, are kept instead of those that the rules find.
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
    """What became of a turn: whether this call stored it, and how many new facts of each tier it brought.

    `found` are all facts that it states, also known ones; `given` the items that went in, as kept; `redacted` counts
    what was redacted in it.
    """

    is_new: bool
    facts: Mapping[str, int]
    found: Sequence[Fact] = field(default=(), compare=False)
    given: Sequence[Json] = field(default=(), compare=False)
    redacted: Counts = field(default_factory=dict, compare=False)


class TurnStore:
    """Stores the turns of one process.

    Within this process, turns of one session wait for each other. Between processes, the append refuses the later of
    two turns, and its process reads the session again and retries. So no lock outlives a transaction, and a killed
    process blocks no other.

    Args:
        log: redacts turns, and is where the state of sessions is read.
        notes: appends them with their facts.
    """

    def __init__(self, log: EventLog, notes: Notes, settings: TurnsSettings) -> None:
        self._database = log.database
        self._log = log
        self._notes = notes
        self._settings = settings
        self._under_way: set[tuple[*_SessionName, str]] = set()
        # Weak, so that a session's lock is dropped once no turn holds it or waits for it.
        self._locks: WeakValueDictionary[_SessionName, asyncio.Lock] = WeakValueDictionary()

    async def store(self, tenant: str, turn: FinishedTurn, *, now: int | None = None) -> StoredTurn:
        """Store a turn once: a repeat with its id changes nothing, even with other items.

        Args:
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            TurnBusy: another request is storing this turn, or too many turns of its session wait; retry.
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
        """Hold off turns of a session: within this context, this process stores none.

        Raises:
            TurnBusy: too many turns of the session wait; retry.
        """
        deadline = time.monotonic() + self._settings.session_lock_timeout_ms / 1000
        async with self._in_order((tenant, session.owner, session.context_id), deadline):
            yield

    async def _store(self, tenant: str, turn: FinishedTurn, now: int, deadline: float) -> StoredTurn:
        """Append a turn behind its session's newest one; retry until the deadline where another turn came first."""
        is_queued = False
        while True:
            newest_mark, recent, is_stored = await self._session_state(tenant, turn)
            if is_stored:
                return StoredTurn(is_new=False, facts={})
            given = list(turn.given) if turn.is_current else without_echo(turn.given, recent)
            clean_turn, statements, redacted = await self._cleaned(
                tenant, replace(turn, given=given, came_out=list(turn.came_out))
            )
            asks_model = self._settings.heuristic_enabled and turn.facts is None and says_something(clean_turn.given)
            if asks_model and not is_queued:
                await self._queue_for_model(tenant, turn)
                is_queued = True
            try:
                is_new, kept = await self._append(tenant, clean_turn, statements, previous=newest_mark, now=now)
            except (SessionMoved, AlreadySuperseded, NoteExists) as error:
                # Another process stored a turn of this session meanwhile: read the session again, to append behind it.
                pause = _PAUSE_S * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
                if time.monotonic() + pause >= deadline:
                    raise _busy() from error
                await asyncio.sleep(pause)
                continue
            if not is_new:
                return StoredTurn(is_new=False, facts={})
            return StoredTurn(
                is_new=True, facts=kept, found=statements.facts, given=clean_turn.given, redacted=redacted
            )

    async def _cleaned(self, tenant: str, turn: FinishedTurn) -> tuple[FinishedTurn, StatedFacts, Counts]:
        """Redact a turn; return it, the facts that the user states and denies in it, and how much was redacted.

        A denied fact has the place of the item that denies it.
        """
        values = [fact.value for fact in turn.facts or ()]
        texts: Json = {"given": turn.given, "came_out": turn.came_out, "values": values}
        kept, redacted = await self._log.clean(tenant, texts)
        clean = replace(turn, given=kept["given"], came_out=kept["came_out"])
        if turn.facts is not None:
            facts = (replace(fact, value=value) for fact, value in zip(turn.facts, kept["values"], strict=True))
            return clean, StatedFacts(facts=tuple(facts)), redacted
        user_texts = [text_of(item) if is_spoken_by_user(item) else "" for item in clean.given]
        if sum(map(len, user_texts)) < _THREADED_CHARACTERS:
            return clean, statements_in(user_texts), redacted
        return clean, await asyncio.to_thread(statements_in, user_texts), redacted

    async def _session_state(self, tenant: str, turn: FinishedTurn) -> tuple[str | None, tuple[Json, ...], bool]:
        """Return the newest mark of a turn's session, its recent items, and whether the turn is stored already.

        The recent items are only read where the turn's items may begin with a repeat of them.
        """
        session = turn.session
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(
                sql("turns.standing"), tenant, session.owner, session.context_id, turn.turn_id
            )
            if row is None:
                raise AssertionError("a statement without FROM gives one row")
            newest_mark: str | None = row["newest_id"]
            recent: tuple[Json, ...] = ()
            if newest_mark is not None and not turn.is_current and len(turn.given) > 1:
                scopes = await visible_scopes(connection, tenant, session)
                recent = await recent_items(connection, tenant, session, scopes, self._settings.recent_context_items)
        return newest_mark, recent, row["is_stored"]

    async def _queue_for_model(self, tenant: str, turn: FinishedTurn) -> None:
        """Queue a turn for the model that finds facts.

        Queued before the turn is stored, so that a process killed in between loses no turn's facts.
        """
        session = turn.session
        async with self._database.write(tenant) as connection:
            await connection.execute(
                sql("turns.await_facts"), tenant, session.owner, session.context_id, turn.turn_id, _FIRST_LOOK_S
            )

    async def _append(
        self,
        tenant: str,
        turn: FinishedTurn,
        statements: StatedFacts,
        *,
        previous: str | None,
        now: int,
    ) -> tuple[bool, Mapping[str, int]]:
        """Append a turn: its items, the facts stated in them, the withdrawals of those denied, and its mark.

        Return whether it was not stored before, and how many facts of each tier are new or changed.

        Raises:
            SessionMoved: `previous` is not the newest mark of the session any more.
            AlreadySuperseded, NoteExists: another turn changed one of the facts meanwhile.
        """
        session, context = turn.session, turn.session.facts_of(tenant)
        items = item_events(session, turn.turn_id, turn.given, turn.came_out, at=now, user_id=turn.user_id)
        denied_by = {fact.identity: items[place].event_id for place, fact in statements.denied}
        # Of facts with one identity the last counts, and a denial before a statement.
        stated = {fact.identity: fact for fact in statements.facts if fact.identity not in denied_by}
        denied = {fact.identity: fact for _, fact in statements.denied}
        rule = SameIdentity(self._database, context, list(stated.values()), denied=list(denied.values()), now=now)

        async def with_items(ids: Sequence[str], _new: Sequence[int], facts: Sequence[NewEvent]) -> Sequence[NewEvent]:
            # The facts get their ids before the mark gets its own: ids ascend in the order of the log.
            facts = [
                fact if fact.internal else fact._replace(event_id=fact.event_id or new_id("evt")) for fact in facts
            ]
            item_ids = [event.event_id or "" for event in items]
            mark = mark_event(session, turn.turn_id, item_ids, ids, previous=previous, at=now)
            return [*items, *facts, *rule.denials(denied_by), mark]

        outcomes, results = await self._notes.keeper.keep(
            tenant,
            session.participants,
            [context.note_of(fact, self._settings) for fact in stated.values()],
            rule,
            at=now,
            speaker=turn.user_id,
            arrange=with_items,
            api="turns",
        )
        facts_held = zip(stated.values(), outcomes, strict=True)
        held: Counter[str] = Counter(fact.tier for fact, outcome in facts_held if outcome.held)
        return not results[-1].deduplicated, rule.kept - held

    @asynccontextmanager
    async def _in_order(self, session: _SessionName, deadline: float) -> AsyncIterator[None]:
        """Hold a session's lock within this process; turns get it in the order in which they came."""
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
