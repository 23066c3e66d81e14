"""What keeps late writers out: words that were read before an erasure are not written after it.

Whoever writes what was made of events takes a lock that it shares with other writers, in the transaction that writes,
and looks whether its work still counts. An abort, and an erasure, own the lock for a moment: what was written before is
seen by them, and what comes later is refused.
"""

from __future__ import annotations

from myria import errors
from myria.store.database import Connection
from myria.store.locks import lock_key
from myria.store.queries import sql


async def hold_build(connection: Connection, tenant: str, build_id: str) -> None:
    """Keep a build from ending until this transaction has.

    Raises:
        LeaseLost: it has ended already: its worker stood still meanwhile.
    """
    await connection.execute(sql("builds.share_build_lock"), lock_key("build", tenant))
    if not await connection.fetchval(sql("builds.is_running"), tenant, build_id):
        raise errors.LeaseLost(f"build {build_id} has ended; nothing more is written for it", build_id=build_id)
