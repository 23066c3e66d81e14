"""Folds withdrawals into the table `withdrawn`, in the append transaction, and refuses contradicting ones.

Withdrawals of one scope take the scope's lock before they get their numbers. So for each event the order of numbers is
the order of commits, and `prepare` sees all withdrawals with lower numbers.
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
from myria.log.withdrawal.model import WITHDRAWAL_CHANNEL, WITHDRAWAL_TYPE, WITHHELD, Reason, Withdrawal


class WithdrawalProjection(Projection):
    """Folds withdrawals into `withdrawn`."""

    types = frozenset({WITHDRAWAL_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock the scopes of withdrawals and refuse what comes too late; see `Projection.prepare`.

        An import repeats what happened elsewhere, where the later supersession counts; only the restoring of an erased
        event is refused.

        Raises:
            NoteDecided: another reviewer decided first.
            NoteHeld: a restoration that is no decision of a review names an event that waits for one, or was refused.
            AlreadySuperseded: another event has already replaced one that a withdrawal names.
            EventErased: an import would restore an erased event.
            EventNotFound: any other append would; the error does not reveal that it was erased.
        """
        keys = sorted({lock_key("withdraw", tenant, event.scope_id) for event in events})
        await connection.execute(sql("withdrawal.lock_scopes"), keys)
        withdrawals = [
            (event.event, withdrawal)
            for event in events
            if (withdrawal := Withdrawal.of(orjson.loads(event.event.payload_json))) is not None
        ]
        await _refuse_erased(connection, tenant, [withdrawal for _, withdrawal in withdrawals], importing=importing)
        if not importing:
            await _refuse_undecided(connection, tenant, withdrawals)
        superseding = [(event, withdrawal) for event, withdrawal in withdrawals if withdrawal.reason == "superseded"]
        if importing or not superseding:
            return
        superseded_ids = sorted({event_id for _, withdrawal in superseding for event_id in withdrawal.events})
        rows = {
            row["event_id"]: row for row in await connection.fetch(sql("withdrawal.resolve"), tenant, superseded_ids)
        }
        withdrawal_by_id: dict[str, Withdrawal] = {}
        for appended, withdrawal in superseding:
            for event_id in withdrawal.events:
                row, earlier = rows.get(event_id), withdrawal_by_id.get(event_id)
                contradicts = earlier is not None and successor_of(earlier) != successor_of(withdrawal)
                is_late = contradicts or (row is not None and refuses(row, withdrawal))
                if is_late and not await is_stored(connection, tenant, appended):
                    raise already_superseded(event_id)
                withdrawal_by_id[event_id] = withdrawal

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of withdrawals that were stored; see `Projection.fold`."""
        numbers = [event.event_seq for event in events if event.event.channel == WITHDRAWAL_CHANNEL]
        await connection.execute(sql("withdrawal.fold"), tenant, numbers)


async def _refuse_erased(
    connection: Connection, tenant: str, withdrawals: Sequence[Withdrawal], *, importing: bool
) -> None:
    """Refuse withdrawals that would restore an erased event; see `WithdrawalProjection.prepare`."""
    restored_ids = sorted(
        {event_id for withdrawal in withdrawals if withdrawal.reason == "restored" for event_id in withdrawal.events}
    )
    if not restored_ids:
        return
    for row in await connection.fetch(sql("withdrawal.resolve"), tenant, restored_ids):
        if row["is_erased"]:
            event_id = row["event_id"]
            if importing:
                raise errors.EventErased(f"event {event_id} was erased and is not restored", event_id=event_id)
            raise errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)


async def _refuse_undecided(
    connection: Connection, tenant: str, withdrawals: Sequence[tuple[NewEvent, Withdrawal]]
) -> None:
    """Refuse what only a review may decide, and a decision that another one has forestalled."""
    deciding = [
        (appended, withdrawal)
        for appended, withdrawal in withdrawals
        if withdrawal.decision is not None or withdrawal.reason == "restored"
    ]
    if not deciding:
        return
    named = sorted({event_id for _, withdrawal in deciding for event_id in withdrawal.events})
    rows = {row["event_id"]: row for row in await connection.fetch(sql("withdrawal.resolve"), tenant, named)}
    for appended, withdrawal in deciding:
        for row in (rows[event_id] for event_id in withdrawal.events if event_id in rows):
            if withdrawal.decision is None:
                if row["decided"] in WITHHELD:
                    raise withheld(row["event_id"], row["decided"])
            elif not withdrawal.decision.agrees_with(row["reason"]) and not await is_stored(
                connection, tenant, appended
            ):
                raise errors.NoteDecided("somebody decided about it meanwhile, or it was changed; look again")


def withheld(what: str, reason: str) -> errors.NoteHeld:
    """Return the refusal of a change that only a reviewer may make.

    Args:
        what: the id of the note, or of its event.
        reason: `held` or `refused`.
    """
    state = "waits for a review" if reason == "held" else "was refused in a review"
    return errors.NoteHeld(f"{what} {state}; only a reviewer can change that", id=what)


def refuses(row: Any, withdrawal: Withdrawal) -> bool:
    """Tell whether a row of `withdrawal.resolve` forbids a supersession: the event is withdrawn already.

    A supersession by the same successor does not forbid it: then this one is its repeat.
    """
    reason: Reason | None = row["reason"]
    if reason in (None, "restored"):
        return False
    successor = (row["successor_id"], None) if withdrawal.superseded_by_key is None else (None, row["successor_key"])
    return reason != "superseded" or successor != successor_of(withdrawal)


def successor_of(withdrawal: Withdrawal) -> tuple[str | None, str | None]:
    """Return the successor that a supersession names: (id, None) or (None, dedupe key)."""
    return withdrawal.superseded_by, withdrawal.superseded_by_key


async def is_stored(connection: Connection, tenant: str, withdrawal: NewEvent) -> bool:
    """Tell whether a withdrawal with a source key is in the log already, so that this one is its repeat."""
    if withdrawal.source_event_key is None:
        return False
    key = dedupe_key(withdrawal.channel, withdrawal.source_event_key)
    return bool(await connection.fetch(sql("events.stored_keys"), tenant, [key]))


def already_superseded(event_id: str, successor_id: str | None = None) -> errors.AlreadySuperseded:
    """Return the refusal of a supersession that comes too late.

    Args:
        successor_id: the event that replaced it, where the caller may see that.
    """
    instead = f"supersede {successor_id} instead" if successor_id else "read it again, and supersede what replaced it"
    known = {"event_id": event_id} | ({"superseded_by": successor_id} if successor_id else {})
    return errors.AlreadySuperseded(f"event {event_id} was replaced or withdrawn meanwhile; {instead}", **known)
