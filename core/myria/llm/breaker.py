"""A provider that fails again and again is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from myria.errors import ModelFailed
from myria.llm.failures import Kind, failed


class Breaker:
    """Closed after a success; open for `pause_s` seconds after `failures` in a row; then one request may try."""

    def __init__(self, failures: int, pause_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = failures
        self._pause_s = pause_s
        self._clock = clock
        self._failures = 0
        self._rests_until = 0.0
        self._trying = False
        self._last = ""

    @property
    def resting(self) -> bool:
        """Whether requests are refused now."""
        return self._failures >= self._most and (self._clock() < self._rests_until or self._trying)

    def admit(self) -> None:
        """Let a request through.

        Raises:
            ModelFailed: provider_resting.
        """
        if self._failures < self._most:
            return
        if self.resting:
            raise self.refusal()
        self._trying = True

    def refusal(self) -> ModelFailed:
        """Return why a request is refused now, with what the last one failed of."""
        return failed(
            Kind.RESTING, f"the provider failed {self._failures} times in a row and is left alone; last: {self._last}"
        )

    def succeeded(self) -> None:
        """Note a request that the provider answered soundly."""
        self._failures, self._trying = 0, False

    def failed(self, why: str) -> None:
        """Note a request that failed by the provider's fault; `why` shows no secret."""
        self._last = why
        self._failures += 1
        self._trying = False
        if self._failures >= self._most:
            self._rests_until = self._clock() + self._pause_s

    def abandoned(self) -> None:
        """Note a request that nobody waits for any more: it says nothing."""
        self._trying = False
