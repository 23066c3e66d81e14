"""What the reports compute."""

from __future__ import annotations

import random
from pathlib import Path

import orjson

from benchmarks.against import _Builds, _publish
from benchmarks.figures import interval, median, quantile, ratios
from benchmarks.older import Code
from benchmarks.report import Report


def test_quantiles_are_nearest_rank() -> None:
    """Of 100 values the 95th percentile is the 95th, and one value is every quantile of itself."""
    values = [float(i) for i in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.95), quantile(values, 1.0)) == (50.0, 95.0, 100.0)
    assert quantile([7.0], 0.95) == 7.0


def test_ratios_pair_rounds() -> None:
    """Each round is compared with the one beside it."""
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_builds_too_short_for_the_clock_are_reported(tmp_path: Path) -> None:
    """Where the older code's build and its start took as long by the clock, the report has no ratio, and is written."""
    report = Report("against")
    log = "one scope, 200 events"
    old, new = (
        _Builds(Code(name=name, env={}), {log: [built_s]}, {log: [1.5]})
        for name, built_s in (("old", 1.5), ("new", 2.5))
    )
    _publish(report, {log: 200}, old, new)
    assert report.finish(tmp_path) == 1
    assert orjson.loads((tmp_path / "against.json").read_bytes())[log]["ratios"] == [None]


def test_a_start_that_took_long_once_changes_no_round() -> None:
    """The start is the median of all rounds."""
    builds = _Builds(Code(name="new", env={}), {"log": [2.0, 3.0, 4.0]}, {"log": [1.0, 1.0, 9.0]})
    assert builds.us_per_event("log", 1_000_020) == [1.0, 2.0, 3.0]


def test_an_interval_holds_the_median() -> None:
    """It is narrow where values agree, whatever a few of them say, and as wide as values that differ."""
    agreeing = [1.0] * 97 + [50.0] * 3
    assert interval(agreeing, random.Random(1)) == (1.0, 1.0)
    low, high = interval([float(i) for i in range(101)], random.Random(1))
    assert 30 < low < 50 < high < 70
