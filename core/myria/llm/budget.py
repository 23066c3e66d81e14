"""What one workflow may use, and how much of it is gone: rounds, calls, tokens, bytes, seconds, money."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from myria.errors import ModelFailed
from myria.llm.failures import Kind, failed

CHARACTERS_PER_TOKEN = 4
"""For the estimate of tokens before a call; after it, the provider's own count is used if it gives one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The most that one workflow (a build task, a walk) may use; money in millionths of a US dollar.

    `rounds` is None where turns are bounded otherwise (a build task's: by its calls, and within each unit).
    """

    rounds: int | None
    calls: int
    tokens: int
    bytes: int
    seconds: float
    cost: int


class Meter:
    """Counts what a workflow uses, and raises before a limit is passed.

    `rounds` counts the model's turns, `calls` HTTP requests, `tokens` input and output together, `bytes` those of
    replies and of what tools showed to the model.
    """

    def __init__(self, limits: Budget, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._started = clock()
        self.rounds = 0
        self.calls = 0
        self.tokens = 0
        self.bytes = 0
        self.cost = 0
        self._token_limit_of_tenant: int | None = None

    def allow(self, tokens_left: int | None) -> None:
        """Set how many more tokens the tenant may use today; None for no limit."""
        self._token_limit_of_tenant = None if tokens_left is None else self.tokens + tokens_left

    @property
    def remaining_s(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self._started + self.limits.seconds - self._clock())

    def begin_round(self) -> None:
        """Count a turn.

        Raises:
            ModelFailed: budget_rounds.
        """
        if self.limits.rounds is not None and self.rounds >= self.limits.rounds:
            raise failed(Kind.BUDGET_ROUNDS, f"{self.limits.rounds} rounds are used up")
        self.rounds += 1

    def begin_call(self, estimated_tokens: int) -> None:
        """Count a request that is about to be sent.

        Raises:
            ModelFailed: budget_tenant, budget_time, budget_calls, budget_cost, budget_tokens or budget_bytes.
        """
        used_up = self.used_up()
        if used_up is not None:
            raise used_up
        if self._token_limit_of_tenant is not None and self.tokens + estimated_tokens > self._token_limit_of_tenant:
            raise failed(Kind.BUDGET_TENANT, f"a call of {estimated_tokens} tokens would exceed the tenant's of today")
        if self.tokens + estimated_tokens > self.limits.tokens:
            raise failed(Kind.BUDGET_TOKENS, f"a call of {estimated_tokens} tokens would exceed {self.limits.tokens}")
        self.calls += 1

    def used_up(self) -> ModelFailed | None:
        """Return the error of the limit that is used up, so that no request may be sent; None if none is."""
        limits = self.limits
        if self._token_limit_of_tenant is not None and self.tokens >= self._token_limit_of_tenant:
            return failed(Kind.BUDGET_TENANT, "the tenant's tokens of today are used up")
        if self.remaining_s <= 0:
            return failed(Kind.BUDGET_TIME, f"{limits.seconds:g} seconds are used up")
        if self.calls >= limits.calls:
            return failed(Kind.BUDGET_CALLS, f"{limits.calls} calls are used up")
        if self.cost >= limits.cost:
            return failed(Kind.BUDGET_COST, f"{limits.cost / 1e6:g} USD are used up")
        if self.bytes >= limits.bytes:
            return failed(Kind.BUDGET_BYTES, f"{limits.bytes} bytes are used up")
        if self.tokens >= limits.tokens:
            return failed(Kind.BUDGET_TOKENS, f"{limits.tokens} tokens are used up")
        return None

    def end_call(self, *, tokens: int, cost: int, size: int) -> None:
        """Count what a request has used."""
        self.tokens += tokens
        self.cost += cost
        self.bytes += size

    def show(self, size: int) -> None:
        """Count bytes that a tool shows to the model.

        Raises:
            ModelFailed: budget_bytes.
        """
        self.bytes += size
        if self.bytes > self.limits.bytes:
            raise failed(Kind.BUDGET_BYTES, f"{self.limits.bytes} bytes are used up")


def estimated_tokens(characters: int) -> int:
    """Return an estimate of a text's tokens, by its number of characters, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)
