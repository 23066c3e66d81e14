"""Those who are refused: from where they come, how often they failed, and what is noted of them.

Asked only once a credential was found to be bad, so a good one is never refused for the failures of others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from starlette.types import Scope

from myria.access.addresses import Proxies
from myria.access.journal import NO_TENANT, NOBODY, Act, Journal
from myria.access.limits import CredentialUsage, Failures, network_of
from myria.access.principal import ApiName, Principal
from myria.errors import AccessError, CredentialInvalid, MyriaError, RateLimited
from myria.log.quotas import TokenBucket
from myria_server.http.authentication import Headers, claimed_id
from myria_server.paths import PATH_OF

PROMPT_PER_S = 50.0
"""Refusals for too many requests that are answered at once, per second of one process."""

DELAY_S = (0.5, 1.5)
"""Every further refusal waits a random number of seconds in this range: that slows down those who keep sending, and
leaves the processor to others. It is random, since those refused together would otherwise come again together."""

CROWD = 50
"""From so many waiting refusals on, waits grow with their number, so that the rate of answers stays about the same."""

MOST_CROWDED = 4.0
"""The longest wait, as a multiple of `DELAY_S`: clients would give up on longer ones."""

MAX_DELAYED = 1_000
"""Refusals that may wait at the same time; further ones are answered at once."""


class FailureLimiter:
    """Counts failures by address and by the id of the key that was claimed, and notes refused attempts.

    Args:
        ticks: a steady clock, in seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        failures: Failures,
        proxies: Proxies,
        journal: Journal,
        *,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._journal = journal
        self._failures = failures
        self._proxies = proxies
        self._ticks = ticks
        self._sleep = sleep
        self._prompt_answers = TokenBucket(PROMPT_PER_S, PROMPT_PER_S, ticks())
        self._delayed = 0

    async def delay(self, error: MyriaError, usage: CredentialUsage | None = None) -> None:
        """Delay the answer of a RateLimited refusal once too many of those were answered at once.

        Args:
            usage: of the credential that sends too much, if any. Its refusals wait once they are frequent: they must
                not use up the prompt answers of others.
        """
        if not isinstance(error, RateLimited):
            return
        is_crowd = usage is not None and usage.refused_often()
        # `take` returns the seconds until there is a token again, 0 if it took one: then this is answered promptly.
        if not is_crowd and not self._prompt_answers.take(1, self._ticks()):
            return
        if self._delayed >= MAX_DELAYED:
            return
        self._delayed += 1
        crowd_factor = min(max(1.0, self._delayed / CROWD), MOST_CROWDED)
        try:
            await self._sleep(crowd_factor * random.uniform(*DELAY_S))  # noqa: S311 - jitter
        finally:
            self._delayed -= 1

    def count_failure(self, scope: Scope, headers: Headers, error: MyriaError) -> MyriaError:
        """Count a bad credential; return the refusal to send: `error`, or RateLimited after too many failures."""
        if not isinstance(error, CredentialInvalid):
            return error
        names = ["address " + network_of(self.address(scope))]
        if (key_id := claimed_id(headers)) is not None:
            names.append("key " + key_id)
        try:
            self._failures.note(names)
        except RateLimited as limited:
            return limited
        return error

    def note(
        self,
        scope: Scope,
        headers: Headers,
        api: ApiName,
        principal: Principal | None,
        error: MyriaError,
        *,
        action: str | None = None,
        tool: str | None = None,
    ) -> None:
        """Note a refused attempt.

        Args:
            principal: who was refused; None for somebody who proved nothing.
            action: what was asked for; None for the endpoint of the API.
            tool: the known tool that was called, where one was.
        """
        if not isinstance(error, AccessError):
            return
        is_known = principal is not None
        self._journal.refused(
            Act(
                tenant=principal.tenant if principal is not None else NO_TENANT,
                actor=principal.actor if principal is not None else NOBODY,
                action=action or PATH_OF[api],
                outcome=error.code,
                target=tool if is_known else claimed_id(headers),
                face=api,
                address=self.address(scope),
            )
        )

    def address(self, scope: Scope) -> str:
        """Return the address from which a request comes."""
        client = scope.get("client")
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return self._proxies.client(None if client is None else client[0], forwarded)
