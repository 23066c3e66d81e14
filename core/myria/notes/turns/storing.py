"""Storing a turn: its items, the facts found in them and its mark, by one append, once."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import orjson

from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.errors import AlreadySuperseded, NoteExists, PayloadTooLarge, SessionMoved, TurnBusy
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.redaction.redactor import PayloadRedactor
from myria.notes.turns.facts import Fact
from myria.notes.turns.items import Json, is_spoken_by_user, says_something, text_of, unpacked, without_echo
from myria.notes.turns.keeping import as_they_stand, ended, next_versions
from myria.notes.turns.model import Session, item_events, mark_event
from myria.notes.turns.stating import StatedFacts, statements_in
from myria.settings import TurnsSettings
from myria.settings.redaction_kinds import Kind

Append = Callable[[str, Sequence[NewEvent]], Awaitable[list[AppendResult]]]
"""Appends events of a tenant as one atomic group, as `Ingest.append_events` does."""

RedactorOf = Callable[[str], Awaitable[PayloadRedactor]]
"""Returns what takes out of a tenant's texts what must not be kept."""

_BIG_BYTES = 16 * 1024
"""JSON from which on redacting and searching for facts is done in a thread: it may take milliseconds."""

_PAUSE_S = 0.02
_KNOWN_SESSIONS = 16_384
"""Sessions of which a process remembers what it stored last, a kilobyte each at most."""

_KNOWN_TURNS = 64
"""Turns of a session that a process remembers to have stored."""

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

    `found` are all facts that it says, also those that were known, and `given` the items that went in, as kept.
    """

    is_new: bool
    facts: Mapping[str, int]
    found: Sequence[Fact] = field(default=(), compare=False)
    given: Sequence[Json] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """What a session is when a turn comes."""

    is_stored: bool
    newest: str | None
    recent: tuple[Json, ...]


@dataclass(slots=True)
class _StoredLately:
    """What this process stored of a session: its newest mark, and the turns. A guess: others may have stored since."""

    newest: str | None = None
    turns: OrderedDict[str, None] = field(default_factory=OrderedDict)


class TurnStore:
    """Stores the turns of one process.

    Turns of one session wait for each other here; between processes the append refuses the later one, which looks
    again. So no lock outlives a transaction, and a process that is killed holds up nobody.

    Args:
        database: where the state of sessions is looked up.
        append: how turns reach the log.
        payload_bytes: the largest payload of an event.
        on_redacted: called with each kind that was taken out of a stored turn, and how often.
    """

    def __init__(
        self,
        database: Database,
        append: Append,
        redactor_of: RedactorOf,
        settings: TurnsSettings,
        *,
        payload_bytes: int,
        on_redacted: Callable[[str, int], None] = lambda _kind, _count: None,
    ) -> None:
        self._database = database
        self._append = append
        self._redactor_of = redactor_of
        self._settings = settings
        self._payload_bytes = payload_bytes
        self._on_redacted = on_redacted
        self._under_way: set[tuple[str, bytes, str, str]] = set()
        self._queues: dict[tuple[str, bytes, str], _Queue] = {}
        self._known: OrderedDict[tuple[str, bytes, str], _StoredLately] = OrderedDict()

    async def store(self, tenant: str, turn: FinishedTurn, *, now: int | None = None) -> StoredTurn:
        """Store a turn, once: a repeat, also with other items, changes nothing.

        Args:
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            TurnBusy: it is being stored, or too many turns of its session are; retry.
            PayloadTooLarge: the setting ingest.payload_bytes is smaller than one of its items.
            as `Ingest.append_events`.
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
        redactor = await self._redactor_of(tenant)
        is_awaited = False
        name = (tenant, turn.session.owner, turn.session.context_id)
        state = self._guess(name, turn)
        while True:
            state = state or await self._state(tenant, turn)
            if state.is_stored:
                return StoredTurn(is_new=False, facts={})
            given = list(turn.given) if turn.is_current else without_echo(turn.given, state.recent)
            clean, said, redacted = await _prepared(replace(turn, given=given, came_out=list(turn.came_out)), redactor)
            events, kept = await self._events(tenant, clean, said, previous=state.newest, now=now)
            asks = self._settings.heuristic_enabled and turn.facts is None and says_something(clean.given)
            if asks and not is_awaited:
                await self._await_facts(tenant, turn)
                is_awaited = True
            try:
                results = await self._append(tenant, events)
            except (SessionMoved, AlreadySuperseded, NoteExists) as error:
                self._known.pop(name, None)
                state = None
                pause = _PAUSE_S * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
                if time.monotonic() + pause >= deadline:
                    raise _busy() from error
                await asyncio.sleep(pause)
                continue
            if results[-1].deduplicated:
                return StoredTurn(is_new=False, facts={})
            self._remember(name, turn.turn_id, results[-1].event_id)
            for kind, count in redacted.items():
                self._on_redacted(kind, count)
            return StoredTurn(is_new=True, facts=kept, found=said.facts, given=clean.given)

    def _guess(self, name: tuple[str, bytes, str], turn: FinishedTurn) -> _State | None:
        """Return what the session probably is, where this process stored its last turn; None where it must look.

        The append refuses a turn that follows another than the newest, or that is stored: a wrong guess costs time.
        """
        known = self._known.get(name)
        if known is None or turn.turn_id in known.turns or self._needs_recent(turn):
            return None
        return _State(is_stored=False, newest=known.newest, recent=())

    def _remember(self, name: tuple[str, bytes, str], turn_id: str, mark: str) -> None:
        known = self._known.pop(name, None) or _StoredLately()
        known.newest = mark
        known.turns[turn_id] = None
        if len(known.turns) > _KNOWN_TURNS:
            known.turns.popitem(last=False)
        self._known[name] = known
        if len(self._known) > _KNOWN_SESSIONS:
            self._known.popitem(last=False)

    @staticmethod
    def _needs_recent(turn: FinishedTurn) -> bool:
        """Tell whether what was said before may lead a turn's items."""
        return not turn.is_current and len(turn.given) > 1

    async def _state(self, tenant: str, turn: FinishedTurn) -> _State:
        session = turn.session
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(
                sql("turns.standing"), tenant, [session.owner], [session.context_id], [turn.turn_id]
            )
            if row is None:
                raise AssertionError("each session that is asked for has a row")
            recent: tuple[Json, ...] = ()
            if self._needs_recent(turn) and row["newest_id"] is not None:
                scopes = await visible_scopes(connection, tenant, session)
                recent = await recent_items(connection, tenant, session, scopes, self._settings.recent_context_items)
        return _State(is_stored=row["stored_id"] is not None, newest=row["newest_id"], recent=recent)

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
        for event in items:
            if len(event.payload_json) > self._payload_bytes:
                raise PayloadTooLarge(
                    f"an item is {len(event.payload_json)} bytes of JSON; at most {self._payload_bytes} are stored",
                    limit=self._payload_bytes,
                )
        stated: Mapping[str, Fact] = {}
        versions: Sequence[NewEvent] = ()
        kept: dict[str, int] = {}
        if said.facts or said.denied:
            denying = {fact.identity: items[place].event_id for place, fact in said.denied}
            facts = [*said.facts, *(fact for _, fact in said.denied)]
            async with self._database.read(tenant) as connection:
                names, standing = await as_they_stand(connection, tenant, session, facts, now)
            stated = {note_id: fact for note_id, fact in names.items() if fact.identity not in denying}
            versions, kept = next_versions(session, stated, standing, self._settings, at=now, user_id=turn.user_id)
            denied = {note_id: fact for note_id, fact in names.items() if fact.identity in denying}
            versions = [*versions, *ended(session, denied, standing, denying)]
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
    async def _in_order(self, session: tuple[str, bytes, str], deadline: float) -> AsyncIterator[None]:
        """Wait for the turns of a session that this process stores, in the order in which they came."""
        queue = self._queues.setdefault(session, _Queue())
        queue.users += 1
        try:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await queue.lock.acquire()
            except TimeoutError as error:
                raise _busy() from error
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.users -= 1
            if not queue.users:
                self._queues.pop(session, None)


class _Queue:
    """The turns of a session that wait in this process."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


async def visible_scopes(connection: Connection, tenant: str, session: Session) -> list[int]:
    """Return the scopes of a session that its participants see, ascending."""
    rows = await connection.fetch(sql("turns.sessions"), tenant, session.owner, session.context_id)
    asking = set(session.participants)
    return [row["scope_id"] for row in rows if asking.issubset(row["participants"])]


async def recent_items(
    connection: Connection, tenant: str, session: Session, scopes: Sequence[int], limit: int
) -> tuple[Json, ...]:
    """Return the last items of a session in some of its scopes, oldest first."""
    if not scopes or not limit:
        return ()
    rows = await connection.fetch(sql("turns.recent"), tenant, session.owner, session.context_id, scopes, limit)
    return tuple(unpacked(orjson.loads(row["payload"])) for row in rows)


async def _prepared(
    turn: FinishedTurn, redactor: PayloadRedactor
) -> tuple[FinishedTurn, StatedFacts, Mapping[Kind, int]]:
    """Return a turn without what must not be kept, what the user stated in it, and what was taken out.

    What is denied has the place of the item that denies it.
    """
    values = [fact.value for fact in turn.facts or ()]
    written = orjson.dumps(
        {"given": turn.given, "came_out": turn.came_out, "values": values}, option=orjson.OPT_SORT_KEYS
    )

    def work() -> tuple[FinishedTurn, StatedFacts, Mapping[Kind, int]]:
        redacted = redactor.payload(written)
        clean, kept_values = turn, values
        if redacted.counts:  # else nothing is decoded once more: a turn may be as long as a request
            kept = orjson.loads(redacted.payload_json)
            clean, kept_values = replace(turn, given=kept["given"], came_out=kept["came_out"]), kept["values"]
        if turn.facts is None:
            said = statements_in(text_of(item) if is_spoken_by_user(item) else "" for item in clean.given)
        else:
            facts = (replace(fact, value=value) for fact, value in zip(turn.facts, kept_values, strict=True))
            said = StatedFacts(facts=tuple(facts))
        return clean, said, redacted.counts

    return work() if len(written) < _BIG_BYTES else await asyncio.to_thread(work)


def _busy() -> TurnBusy:
    return TurnBusy("too many turns of this session are being stored; retry")
