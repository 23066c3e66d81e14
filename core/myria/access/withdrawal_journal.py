"""Writes who forgot and who restored something into the journal of access, in the transaction that does it."""

from __future__ import annotations

from collections.abc import Sequence

from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.projections import Projection, Stored, payload_of
from myria.log.withdrawal.model import WITHDRAWAL_TYPE


class WithdrawalJournal(Projection):
    """Writes an act for what a commit withdraws and restores, if somebody asked for it.

    It comes after the projection of withdrawals, whose rows it reads.
    """

    types = frozenset({WITHDRAWAL_TYPE})
    folds_imports = False

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the acts; most withdrawals belong to an event that replaces another one, and need none."""
        numbers = [event.event_seq for event in events if "by" in payload_of(event.event)]
        if numbers:
            await connection.execute(sql("withdrawal.write_acts"), tenant, numbers)
