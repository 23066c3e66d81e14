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
        late = [withdrawal for _, withdrawal in withdrawals if _may_be_late(withdrawal, importing=importing)]
        named = sorted({event_id for withdrawal in late for event_id in withdrawal.events})
        if not named:
            return
        state_of = {
            row["event_id"]: dict(row) for row in await connection.fetch(sql("withdrawal.resolve"), tenant, named)
        }
        for appended, withdrawal in withdrawals:
            for event_id in withdrawal.events:
                state = state_of.get(event_id)
                if state is None:
                    continue
                if withdrawal.reason == "restored" and state["is_erased"]:
                    raise _erased(event_id, importing=importing)
                refusal = None if importing else _refusal(state, withdrawal)
                if refusal is None:
                    # The next withdrawal of a shared commit finds what this one makes of the event.
                    state |= _state_after(withdrawal)
                elif not await is_stored(connection, tenant, appended):
                    raise refusal

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of withdrawals that were stored; see `Projection.fold`."""
        numbers = [event.event_seq for event in events if event.event.channel == WITHDRAWAL_CHANNEL]
        await connection.execute(sql("withdrawal.fold"), tenant, numbers)


def _may_be_late(withdrawal: Withdrawal, *, importing: bool) -> bool:
    """Tell whether what became of its events before may refuse a withdrawal."""
    if importing:
        return withdrawal.reason == "restored"
    return withdrawal.decision is not None or withdrawal.reason in ("restored", "superseded")


def _refusal(state: dict[str, Any], withdrawal: Withdrawal) -> errors.MyriaError | None:
    """Return why a withdrawal comes too late for an event, by its state (`withdrawal.resolve`); None if it does not."""
    if withdrawal.decision is not None:
        if not withdrawal.decision.agrees_with(state["reason"]):
            return errors.NoteDecided("somebody decided about it meanwhile, or it was changed; look again")
    elif withdrawal.reason == "restored":
        if state["decided"] in WITHHELD:
            return withheld(state["event_id"], state["decided"])
    elif withdrawal.reason == "superseded" and refuses(state, withdrawal):
        return already_superseded(state["event_id"])
    return None


def _state_after(withdrawal: Withdrawal) -> dict[str, Any]:
    """Return what a withdrawal changes of the state of an event that it names."""
    state: dict[str, Any] = {
        "reason": withdrawal.reason,
        "successor_id": withdrawal.superseded_by,
        "successor_key": withdrawal.superseded_by_key,
    }
    if withdrawal.reason in (*WITHHELD, "restored"):
        state["decided"] = withdrawal.reason
    return state


def _erased(event_id: str, *, importing: bool) -> errors.MyriaError:
    if importing:
        return errors.EventErased(f"event {event_id} was erased and is not restored", event_id=event_id)
    return errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)


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
