"""The lease of an erasure: one process at a time works on it, and another takes it over when that one was killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import orjson

from myria import errors
from myria.db.database import Database
from myria.db.queries import sql
from myria.erasure.model import Json
from myria.log.ids import new_id


class ErasureLease:
    """The lease of one erasure, for one process.

    Args:
        lease_s: seconds after which it ends, unless it is renewed.
    """

    def __init__(self, database: Database, tenant: str, erasure_id: str, lease_s: float) -> None:
        self._database = database
        self._tenant = tenant
        self._lease_s = lease_s
        self._ours = (tenant, erasure_id, new_id("wrk"))

    async def take(self) -> bool:
        """Take the lease; return False where another process holds it."""
        async with self._database.write(self._tenant) as connection:
            status = await connection.execute(sql("erasures.claim"), *self._ours, self._lease_s)
        return status.endswith(" 1")

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Renew the lease during the block; release it afterwards, and store why the block failed.

        Raises:
            LeaseLost: this process stood still for so long that another one took the lease.
        """
        block_task = asyncio.current_task()
        lease_errors: list[errors.MyriaError] = []

        async def renew() -> None:
            try:
                while True:
                    await asyncio.sleep(self._lease_s / 4)
                    async with self._database.write(self._tenant) as connection:
                        status = await connection.execute(sql("erasures.renew"), *self._ours, self._lease_s)
                    if not status.endswith(" 1"):
                        raise errors.LeaseLost("another process has taken this erasure over; ask again")
            except errors.MyriaError as error:
                lease_errors.append(error)
                if block_task is not None:
                    block_task.cancel()  # it must not write without the lease

        renewing = asyncio.create_task(renew())
        failure: Json | None = None
        try:
            yield
        except asyncio.CancelledError:
            if not lease_errors:
                raise
            # The cancellation was our own (`renew`): undo it, and raise the reason instead.
            if block_task is not None:
                block_task.uncancel()
            raise lease_errors[0] from None
        except errors.MyriaError as error:
            failure = {"code": error.code, "message": error.message}
            raise
        except Exception:
            failure = {"code": errors.InternalError.code, "message": "its log has the details"}
            raise
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(errors.MyriaError):
                async with self._database.write(self._tenant) as connection:
                    text = None if failure is None else orjson.dumps(failure).decode()
                    await connection.execute(sql("erasures.release"), *self._ours, text)
