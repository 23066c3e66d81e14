"""The alert rules, as the tests read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "charts/myria/files/alerts").glob("*.yaml"))
CASES = sorted((ROOT / "tests/monitoring/cases").glob("*.yaml"))
RUNBOOKS = ROOT / "docs/runbooks"

Rule = dict[str, Any]


def rules() -> Iterator[Rule]:
    """Yield every rule of every group."""
    for file in FILES:
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


def alerts() -> list[Rule]:
    """Return the rules that alert."""
    return [rule for rule in rules() if "alert" in rule]
