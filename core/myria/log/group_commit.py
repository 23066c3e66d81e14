"""Group commit: concurrent appends of a tenant share commits, and nothing is acknowledged before its commit.

The events of one caller are a group: they commit or fail together. If a shared commit is refused, its groups are tried
separately, so that no caller fails another. Events get their event_id before the first attempt, so an attempt whose
outcome is unknown is safe to repeat.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncpg

from myria import errors
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.ids import new_ids
from myria.log.transaction import AppendTransaction, ScopesGone

_log = logging.getLogger(__name__)

MAX_WAITING_EVENTS = 20_000
"""Events that may wait for a commit, over all tenants, before appends are refused as overloaded."""

_JOIN_TURNS = 4
"""The most turns of the event loop that a commit waits for further callers; it stops after a turn without any."""

_TRANSIENT = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    errors.DatabaseUnavailable,
    errors.DeadlineExceeded,
)


@dataclass(slots=True, kw_only=True)
class _Group:
    """One caller's events, each with its event_id."""

    events: list[tuple[NewEvent, str]]
    importing: bool
    deadline: float
    outcome: asyncio.Future[list[AppendResult]]


@dataclass(slots=True)
class _Lane:
    """One tenant's waiting groups, and the number of its commits under way."""

    waiting: deque[_Group] = field(default_factory=deque)
    writers: int = 0


class GroupCommit:
    """Appends the events of the callers of one process.

    Args:
        transaction: appends the events of one commit.
        events_per_commit: the most events that groups share one commit with; a larger group commits alone.
        writers: the most commits of one tenant under way at once.
        deadline: seconds after which an append fails (its caller may retry it).
    """

    def __init__(
        self,
        transaction: AppendTransaction,
        *,
        events_per_commit: int = 256,
        writers: int = 2,
        deadline: float = 10.0,
    ) -> None:
        self._transaction = transaction
        self._events_per_commit = events_per_commit
        self._writers = writers
        self._deadline_s = deadline
        self._lanes: dict[str, _Lane] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._waiting_events = 0

    async def append(
        self,
        tenant: str,
        events: Sequence[NewEvent],
        *,
        importing: bool = False,
    ) -> list[AppendResult]:
        """Append events as one atomic group; return their results in input order, after the commit.

        Args:
            importing: whether events may have an event_id already.

        Raises:
            Overloaded, DatabaseUnavailable, DeadlineExceeded, DiskFull: retry; keyed events deduplicate, and
                events without a key may have been stored when the deadline passed during the commit.
            EventErased: an event with this channel and source key was erased; nothing was stored.
            SourceEventKeyTaken: an event that the new one's participants may not see has its source key already (the
                detail `index` names the first of several new ones); nothing was stored.
            EventIdConflict: an event_id of an import, or its source key, exists already with other content.
        """
        if not events:
            return []
        if self._waiting_events + len(events) > MAX_WAITING_EVENTS:
            raise errors.Overloaded("too many appends wait for the database; slow down and retry")
        ids = new_ids("evt", len(events))
        group = _Group(
            events=[(event, event.event_id or new_id) for event, new_id in zip(events, ids, strict=True)],
            importing=importing,
            deadline=time.monotonic() + self._deadline_s,
            outcome=asyncio.get_running_loop().create_future(),
        )
        group.outcome.add_done_callback(_retrieve_error)
        lane = self._lanes.setdefault(tenant, _Lane())
        lane.waiting.append(group)
        self._waiting_events += len(events)
        if lane.writers < self._writers:
            lane.writers += 1
            writing = asyncio.create_task(self._write(tenant, lane))
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await group.outcome
        except TimeoutError as error:
            raise errors.DeadlineExceeded(
                "the append was not confirmed within its deadline; retry (with a source_event_key it cannot duplicate)"
            ) from error
        finally:
            self._waiting_events -= len(events)

    async def close(self) -> None:
        """Wait for the commits under way."""
        while self._writing:
            await asyncio.gather(*self._writing, return_exceptions=True)

    async def _write(self, tenant: str, lane: _Lane) -> None:
        """Commit a tenant's waiting groups until none waits; groups that come during a commit share the next one."""
        try:
            while lane.waiting:
                await _let_others_join(lane)
                if not lane.waiting:
                    break  # the other writer took them
                groups = [lane.waiting.popleft()]
                size = len(groups[0].events)
                while (
                    lane.waiting
                    and lane.waiting[0].importing == groups[0].importing
                    and size + len(lane.waiting[0].events) <= self._events_per_commit
                ):
                    groups.append(lane.waiting.popleft())
                    size += len(groups[-1].events)
                await self._commit(tenant, groups)
        finally:
            lane.writers -= 1
            if not lane.writers and not lane.waiting:
                self._lanes.pop(tenant, None)

    async def _commit(self, tenant: str, groups: list[_Group]) -> None:
        """Commit groups together; if they are refused, try each half, down to the single groups at fault."""
        try:
            results = iter(await self._attempt(tenant, groups))
        except asyncio.CancelledError:
            _fail(groups, errors.DatabaseUnavailable("the server is stopping; retry"))
            raise
        except (asyncpg.PostgresError, errors.ConflictError) as error:
            if len(groups) == 1:
                _fail(groups, _refusal(error))
                return
            middle = len(groups) // 2
            await self._commit(tenant, groups[:middle])
            await self._commit(tenant, groups[middle:])
        except Exception as error:  # noqa: BLE001 - every waiting caller must get an answer
            _fail(groups, _refusal(error))
        else:
            for group in groups:
                group_results = [next(results) for _ in group.events]
                if not group.outcome.done():
                    group.outcome.set_result(group_results)

    async def _attempt(self, tenant: str, groups: Sequence[_Group]) -> list[AppendResult]:
        """Append the events of groups in one transaction; repeat after transient errors until the latest deadline."""
        events = [event for group in groups for event in group.events]
        deadline = max(group.deadline for group in groups)
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(max(0.05, deadline - time.monotonic())):
                    return await self._transaction.append(tenant, events, importing=groups[0].importing)
            except ScopesGone:
                self._transaction.forget_scopes(tenant)
            except TimeoutError as error:
                raise errors.DeadlineExceeded("the database did not confirm the append in time; retry") from error
            except _TRANSIENT as error:
                attempt += 1
                delay = min(0.02 * 2**attempt, 0.5) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
                if time.monotonic() + delay >= deadline:
                    raise _refusal(error) from error
                await asyncio.sleep(delay)


async def _let_others_join(lane: _Lane) -> None:
    """Wait until a turn of the event loop brings no further groups.

    Callers that were answered together come back one after the other; without this wait, the first of them would get a
    commit of its own.
    """
    for _ in range(_JOIN_TURNS):
        waiting = len(lane.waiting)
        await asyncio.sleep(0)
        if len(lane.waiting) <= waiting:
            return


def _refusal(error: Exception) -> errors.MyriaError:
    """Return the error that a caller gets for a failed commit."""
    if isinstance(error, errors.MyriaError):
        return error
    if isinstance(
        error, asyncpg.DataError | asyncpg.IntegrityConstraintViolationError | asyncpg.ProgramLimitExceededError
    ):
        return errors.InvalidPayload(f"the database refuses this event: {error}")
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError):
        return errors.DatabaseUnavailable(f"the database refused the append: {error}; retry")
    _log.error("an append failed unexpectedly", exc_info=error, extra={"action": "append_failed"})
    return errors.InternalError("the append failed unexpectedly; the log holds the trace")


def _retrieve_error(outcome: asyncio.Future[list[AppendResult]]) -> None:
    """Retrieve an outcome's error, so that asyncio does not warn if its caller gave up at the deadline."""
    if not outcome.cancelled():
        outcome.exception()


def _fail(groups: Sequence[_Group], error: errors.MyriaError) -> None:
    for group in groups:
        if not group.outcome.done():
            group.outcome.set_exception(error)
