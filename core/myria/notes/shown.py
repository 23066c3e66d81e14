"""Remember which notes `context` has shown a session, so that recall need not show them again (Memento's contract).

A table beside the log keeps this for a day, so that every process knows it. It may be lost: then notes are shown again.
An erasure clears all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import MyriaError
from myria.log.canonical import digest

logger = logging.getLogger(__name__)

MOST = 1_000
"""Notes that are remembered of one session: those shown last."""


class ShownNotes:
    """What sessions were shown, in one process.

    Args:
        database: where it is kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, tenant: str, participants: Sequence[str], session_id: str, note_ids: Sequence[str]) -> None:
        """Remember that a session of these participants was shown some notes.

        A failure is only logged, and not retried: the notes are shown again then.
        """
        if not note_ids:
            return
        try:
            async with self._database.write(tenant) as connection:
                await connection.execute(
                    sql("sessions.show"), tenant, _key(participants, session_id), list(note_ids), MOST
                )
        except MyriaError as error:
            logger.info("shown notes of a session not kept: %s", error, extra={"action": "shown_dropped"})

    async def of(self, tenant: str, participants: Sequence[str], session_id: str) -> frozenset[str]:
        """Return the notes that a session of these participants was shown."""
        async with self._database.read(tenant) as connection:
            shown = await connection.fetchval(sql("sessions.shown"), tenant, _key(participants, session_id))
        return frozenset(shown or ())

    async def forget(self, tenant: str, participants: Sequence[str], session_id: str) -> None:
        """Forget what a session was shown: it has ended."""
        async with self._database.write(tenant) as connection:
            await connection.execute(sql("sessions.show_again"), tenant, _key(participants, session_id))


def _key(participants: Sequence[str], session_id: str) -> bytes:
    return digest([*participants, session_id])
