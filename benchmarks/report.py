"""Reports: tables, a JSON file for each part, one table of the promises, and the few figures that they quote."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from statistics import median as _median
from typing import Any

import orjson

from myria_cli import console


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A promise of the cost model with its bound, and what was measured."""

    promise: str
    value: float
    limit: float
    at_least: bool
    unit: str

    @property
    def met(self) -> bool:
        """Tell whether the promise holds."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(slots=True)
class Report:
    """What one part measured: `figures` go into its JSON file, `checks` are the promises that it tests."""

    part: str
    figures: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; every column but the first holds numbers."""
        _print(title, columns, rows, right=columns[1:])

    def check(self, promise: str, value: float, limit: float, *, at_least: bool = False, unit: str = "") -> None:
        """Note what was measured of a promise."""
        self.checks.append(Check(promise=promise, value=round(value, 3), limit=limit, at_least=at_least, unit=unit))

    def write(self, folder: Path) -> None:
        """Write the JSON file, with the machine that the figures depend on."""
        document = {
            **self.figures,
            "checks": [{**asdict(check), "met": check.met} for check in self.checks],
            "machine": {
                "cores": len(os.sched_getaffinity(0)),
                "load_average": round(os.getloadavg()[0], 2),
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
        (folder / f"{self.part}.json").write_bytes(orjson.dumps(document, option=options))


def print_bounds(reports: Sequence[Report]) -> int:
    """Print all promises in one table; return the exit status: 1 when one of them is broken."""
    rows = [
        (
            report.part,
            check.promise,
            f"{check.value:,g} {check.unit}".strip(),
            f"{'>=' if check.at_least else '<='} {check.limit:,g}",
            "met" if check.met else "NOT MET",
        )
        for report in reports
        for check in report.checks
    ]
    _print("the cost model", ("part", "promise", "measured", "bound", ""), rows, right=("measured", "bound"))
    return 0 if all(check.met for report in reports for check in report.checks) else 1


def _print(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str]) -> None:
    sys.stdout.write(f"\n{title}\n")
    sys.stdout.flush()
    console.write(console.table({name: itemgetter(at) for at, name in enumerate(columns)}, rows, right=right))


def number(value: float, digits: int | None = None) -> str:
    """Return a number as tables show it, without decimals from a hundred on."""
    if digits is None:
        digits = 0 if value >= 100 else 2
    return f"{value:,.{digits}f}"


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the nearest-rank quantile of values in ascending order."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(_median(values))


def ratios(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """Return the ratio of each pair of rounds that ran side by side, under the same load of the machine."""
    return [a / b if b else math.inf for a, b in zip(these, those, strict=True)]
