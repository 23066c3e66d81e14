"""The fold of withdrawals, in the append transaction: rows of `withdrawn`, and who loses when two contradict.

Withdrawals of one scope take the scope's lock before they get their numbers, so for each event the order of numbers is
the order of commits, and what `prepare` sees is what stands below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from myria import errors
from myria.db.database import Connection
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.log.event import NewEvent
from myria.log.payloads import dedupe_key
from myria.log.projections import Incoming, Projection, Stored
from myria.log.withdrawal.model import WITHDRAWAL_CHANNEL, WITHDRAWAL_TYPE, Reason, Withdrawal


class WithdrawalProjection(Projection):
    """Folds withdrawals into `withdrawn`."""

    types = frozenset({WITHDRAWAL_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock the scopes of withdrawals and refuse a supersession that comes too late; see `Projection.prepare`.

        An import repeats what happened elsewhere, where the later one counts: only what would bring an erased event
        back is refused of it.

        Raises:
            AlreadySuperseded: another event has replaced one of those named.
            EventErased, EventNotFound: one that would be restored was erased; an import is told so.
        """
        keys = sorted({lock_key("withdraw", tenant, event.scope_id) for event in events})
        await connection.execute(sql("withdrawal.lock_scopes"), keys)
        withdrawals = [
            (event.event, withdrawal)
            for event in events
            if (withdrawal := Withdrawal.of(orjson.loads(event.event.payload_json))) is not None
        ]
        await _refuse_erased(connection, tenant, [named for _, named in withdrawals], importing=importing)
        superseding = [(event, withdrawal) for event, withdrawal in withdrawals if withdrawal.reason == "superseded"]
        if importing or not superseding:
            return
        named = sorted({event_id for _, withdrawal in superseding for event_id in withdrawal.events})
        rows = {row["event_id"]: row for row in await connection.fetch(sql("withdrawal.resolve"), tenant, named)}
        taken: dict[str, Withdrawal] = {}
        for appended, withdrawal in superseding:
            for event_id in withdrawal.events:
                row, earlier = rows.get(event_id), taken.get(event_id)
                contradicts = earlier is not None and successor_of(earlier) != successor_of(withdrawal)
                is_late = contradicts or (row is not None and refuses(row, withdrawal))
                if is_late and not await is_stored(connection, tenant, appended):
                    raise already_superseded(event_id)
                taken[event_id] = withdrawal

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of withdrawals that were stored; see `Projection.fold`."""
        numbers = [event.event_seq for event in events if event.event.channel == WITHDRAWAL_CHANNEL]
        await connection.execute(sql("withdrawal.fold"), tenant, numbers)


async def _refuse_erased(
    connection: Connection, tenant: str, withdrawals: Sequence[Withdrawal], *, importing: bool
) -> None:
    restored = sorted({event_id for named in withdrawals if named.reason == "restored" for event_id in named.events})
    if not restored:
        return
    for row in await connection.fetch(sql("withdrawal.resolve"), tenant, restored):
        if row["is_erased"]:
            event_id = row["event_id"]
            if importing:
                raise errors.EventErased(f"event {event_id} was erased and is not restored", event_id=event_id)
            raise errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)


def refuses(row: Any, withdrawal: Withdrawal) -> bool:
    """Tell whether a row of `withdrawal.resolve` forbids a supersession: the event is withdrawn, not by its repeat."""
    reason: Reason | None = row["reason"]
    if reason in (None, "restored"):
        return False
    successor = (row["successor_id"], None) if withdrawal.superseded_by_key is None else (None, row["successor_key"])
    return reason != "superseded" or successor != successor_of(withdrawal)


def successor_of(withdrawal: Withdrawal) -> tuple[str | None, str | None]:
    """Return what a supersession names as the successor: an id, or a dedupe key."""
    return withdrawal.superseded_by, withdrawal.superseded_by_key


async def is_stored(connection: Connection, tenant: str, withdrawal: NewEvent) -> bool:
    """Tell whether a withdrawal with a source key is in the log already, so that this one is its repeat."""
    if withdrawal.source_event_key is None:
        return False
    key = dedupe_key(withdrawal.channel, withdrawal.source_event_key)
    return bool(await connection.fetch(sql("withdrawal.stored_keys"), tenant, [key]))


def already_superseded(event_id: str, successor_id: str | None = None) -> errors.AlreadySuperseded:
    """Return the refusal of a supersession that comes too late.

    Args:
        successor_id: the event that replaced it, where the caller may see that.
    """
    instead = f"supersede {successor_id} instead" if successor_id else "read it again, and supersede what replaced it"
    known = {"event_id": event_id} | ({"superseded_by": successor_id} if successor_id else {})
    return errors.AlreadySuperseded(f"event {event_id} was replaced or withdrawn meanwhile; {instead}", **known)
