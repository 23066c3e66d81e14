"""What the reports compute."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks.report import Report, median, print_bounds, quantile, ratios
from benchmarks.synthetic import events


def test_quantiles_are_nearest_rank() -> None:
    """Of 100 values the 95th percentile is the 95th, and one value is every quantile of itself."""
    values = [float(i) for i in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.95), quantile(values, 1.0)) == (50.0, 95.0, 100.0)
    assert quantile([7.0], 0.95) == 7.0


def test_ratios_pair_rounds() -> None:
    """Each round is compared with the one beside it."""
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_a_broken_promise_is_printed_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All promises stand in one table with their bounds, whichever way they go."""
    good, bad = Report("good"), Report("bad")
    good.check("rate", 0.9, 0.7, at_least=True)
    bad.check("p95", 2.1, 2.0, unit="ms")
    assert print_bounds([good]) == 0
    assert print_bounds([good, bad]) == 1
    assert "NOT MET" in capsys.readouterr().out
    bad.write(tmp_path)
    assert orjson.loads((tmp_path / "bad.json").read_bytes())["checks"][0]["met"] is False


def test_generated_events_are_reproducible() -> None:
    """The same arguments give the same events; another seed gives others."""
    assert list(events(200)) == list(events(200))
    assert list(events(200)) != list(events(200, seed=2))
    assert {event["channel"] for event in events(200, sets=1)} == {"s00000"}
