"""Tests that are skipped: each is told aloud at the end, and in CI nothing is skipped that CI can provide for.

A test skips with `not_here()` for what this machine or checkout does not allow (no root, no mounts, no history), and
with `missing()` for what could be fetched or installed: that fails in CI. A bare `pytest.skip` counts as missing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import NoReturn

import pytest

MACHINE = "THIS MACHINE: "
"""Begins the reasons of skips that CI accepts."""


def not_here(reason: str) -> NoReturn:
    """Skip a test for a reason that lies in the machine or the checkout."""
    pytest.skip(MACHINE + reason)


def missing(what: str) -> NoReturn:
    """Skip a test because something is not installed; in CI, fail it."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must provide it: {what}", pytrace=False)
    pytest.skip(what)


def refuse(report: pytest.TestReport) -> None:
    """Turn the report of a skipped test into a failure, in CI, unless the reason lies in the machine."""
    if not (os.environ.get("CI") and report.skipped) or hasattr(report, "wasxfail"):
        return
    if not reason_of(report).startswith(MACHINE):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {reason_of(report)}"


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    where = report.longrepr
    return (where[2] if isinstance(where, tuple) else str(where)).removeprefix("Skipped: ")


def tell(reporter: pytest.TerminalReporter) -> None:
    """Print every reason for which tests were skipped, with the tests: they have shown nothing."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for report in reporter.getreports("skipped"):
        reasons[reason_of(report)].append(report.nodeid)
    if not reasons:
        return
    reporter.section(f"NOT TESTED: {sum(map(len, reasons.values()))} skipped", red=True)
    for reason, tests in sorted(reasons.items()):
        reporter.write_line(f"{reason}", red=True)
        for test in sorted(tests):
            reporter.write_line(f"    {test}")
