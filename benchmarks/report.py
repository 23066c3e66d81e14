"""Reports: tables for people on standard output, one JSON file per part under the output folder."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from myria_cli import console


def machine() -> dict[str, Any]:
    """Return what the figures depend on, in neutral words."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages * page / 2**30),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 2),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@dataclass(slots=True)
class Report:
    """What one part measured. `figures` is written as JSON when the part ends; `checks` are the promises it tests."""

    part: str
    figures: dict[str, Any] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.figures["machine"] = machine()

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; every column but the first holds numbers."""
        sys.stdout.write(f"\n{title}\n")
        sys.stdout.flush()
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        console.write(console.table({name: name for name in columns}, records, right=columns[1:]))

    def check(self, promise: str, value: float, limit: float, *, at_least: bool = False, unit: str = "") -> None:
        """Note whether a promise holds."""
        met = value >= limit if at_least else value <= limit
        self.checks.append({"promise": promise, "value": value, "limit": limit, "unit": unit, "met": met})

    def finish(self, folder: Path) -> int:
        """Print the promises, write the JSON file, and return the exit status: 1 when a promise is broken."""
        self.figures["checks"] = self.checks
        self.figures["took_s"] = round(time.monotonic() - self.began, 1)
        self.figures["machine"]["load_average_at_end"] = round(os.getloadavg()[0], 2)
        rows = [
            (
                check["promise"],
                f"{check['value']:,.3f} {check['unit']}".strip(),
                f"{check['limit']:,g}",
                "met" if check["met"] else "NOT MET",
            )
            for check in self.checks
        ]
        if rows:
            self.table(f"{self.part}: promises", ("promise", "measured", "limit", ""), rows)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.part}.json"
        path.write_bytes(orjson.dumps(self.figures, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
        console.say(f"written to {path}", "dim")
        return 0 if all(check["met"] for check in self.checks) else 1


def number(value: float, digits: int = 2) -> str:
    """Return a number as tables show it."""
    return f"{value:,.{digits}f}"
