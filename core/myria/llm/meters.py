"""Counters of one process that exporters read: calls, tokens, cost, latency, failures, degradations, repairs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

BUCKETS_MS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000)
"""Upper bounds of the latency histogram, in milliseconds."""


@dataclass(slots=True)
class Meters:
    """Everything is a sum since the process started, by workflow (`build`, `walk`)."""

    calls: Counter[str] = field(default_factory=Counter)
    input_tokens: Counter[str] = field(default_factory=Counter)
    output_tokens: Counter[str] = field(default_factory=Counter)
    cost_microusd: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (workflow, kind of failure); each attempt counts."""
    degraded: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (workflow, kind of failure): units planned, and walks answered, without the model."""
    repairs: Counter[str] = field(default_factory=Counter)
    """Turns that told the model what was wrong with its answer."""
    used: Counter[str] = field(default_factory=Counter)
    """Units planned, and walks answered, with the model."""
    latency_ms: Counter[str] = field(default_factory=Counter)
    """Sum of the latencies of all calls."""
    latency_buckets: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Calls by (workflow, upper bound in ms), not cumulated; -1 is beyond the last bound."""

    def call(self, workflow: str, *, input_tokens: int, output_tokens: int, cost: int, latency_ms: int) -> None:
        """Count one HTTP request."""
        self.calls[workflow] += 1
        self.input_tokens[workflow] += input_tokens
        self.output_tokens[workflow] += output_tokens
        self.cost_microusd[workflow] += cost
        self.latency_ms[workflow] += latency_ms
        bound = next((bound for bound in BUCKETS_MS if latency_ms <= bound), -1)
        self.latency_buckets[workflow, bound] += 1
