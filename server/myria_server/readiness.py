"""Whether this process may be sent requests: it is not stopping, and the database answers with our schema."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from myria.errors import DatabaseUnavailable, InternalError, MyriaError, UnavailableError

CHECK_TIMEOUT_S = 2.0
"""How long an answer about readiness waits for the database."""


class Readiness:
    """The state behind /readyz.

    A database that goes away leaves the process ready for `grace_s` seconds: during a failover every process would
    otherwise be taken out of service at once, and callers get refused connections where they could get a coded error
    that says "retry". Before the database has answered for the first time, and with a schema that is not this
    program's, there is no such grace.

    Args:
        ask: returns when the database answers and has this program's schema; raises a MyriaError.
        grace_s: seconds.
    """

    def __init__(self, ask: Callable[[], Awaitable[None]], *, grace_s: float) -> None:
        self.draining = False
        """Set once the process is stopping; nothing unsets it."""
        self._ask = ask
        self._grace_s = grace_s
        self._check_task: asyncio.Task[MyriaError | None] | None = None
        self._checked_at = float("-inf")
        self._ready_at = float("-inf")
        self._error: MyriaError | None = DatabaseUnavailable("the database has not been asked yet")

    @property
    def database_up(self) -> bool:
        """Whether the database answered the last check, even with an error such as a wrong schema."""
        return not isinstance(self._error, UnavailableError)

    @property
    def ready(self) -> bool:
        """Whether requests should be sent here."""
        return not self.draining and self.refusal is None

    @property
    def refusal(self) -> MyriaError | None:
        """Why requests should not be sent here; None while the database is fine, or away for less than `grace_s`."""
        if self._error is not None and not self.database_up and time.monotonic() - self._ready_at < self._grace_s:
            return None
        return self._error

    async def check(self, *, max_age_s: float = 0.0) -> None:
        """Check the database unless the last check is younger than `max_age_s`; wait at most `CHECK_TIMEOUT_S`.

        Callers at the same time share one check; one that takes longer goes on, and the next caller waits for it.
        """
        if self._check_task is None:
            if time.monotonic() - self._checked_at < max_age_s:
                return
            self._check_task = asyncio.create_task(self._ask_coded(), name="readiness")
        check_task = self._check_task
        done, _ = await asyncio.wait({check_task}, timeout=CHECK_TIMEOUT_S)
        if not done:
            self._error = DatabaseUnavailable(f"the database did not answer within {CHECK_TIMEOUT_S:g} s")
            return
        if self._check_task is check_task:
            self._check_task = None
            self._checked_at = time.monotonic()
            self._error = check_task.result()
            if self._error is None:
                self._ready_at = self._checked_at

    async def close(self) -> None:
        """Cancel a check that is under way."""
        if self._check_task is not None:
            self._check_task.cancel()
            await asyncio.gather(self._check_task, return_exceptions=True)

    async def _ask_coded(self) -> MyriaError | None:
        """Run `ask`; return its error as a MyriaError, None where it succeeds."""
        try:
            await self._ask()
        except MyriaError as error:
            return error
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the process is not ready
            return InternalError(f"the database could not be asked: {error or type(error).__name__}")
        return None
