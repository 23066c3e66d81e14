"""The Grafana dashboards: they count what the rules count, fit Grafana's types, and show what one on call wants."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients import toolchain
from tests.monitoring.promql import filled
from tests.monitoring.rules import ROOT, rules
from tests.support.skips import missing

FOLDER = ROOT / "charts/myria/files/dashboards"
NAMES = ("builds", "serving")
GRAFANA = Path(__file__).parent / "grafana"

Json = dict[str, Any]


def load(name: str) -> Json:
    dashboard: Json = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return dashboard


def panels(dashboard: Json) -> list[Json]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: Json) -> Iterator[str]:
    """Yield every query: of panels, of annotations, of variables."""
    for panel in panels(dashboard):
        yield from (target["expr"] for target in panel["targets"])
    yield from (one["target"]["expr"] for one in dashboard["annotations"]["list"])


def test_failed_calls_are_those_of_the_alert_rules() -> None:
    """Both panels of failures count the outcomes that the rules count, and the refused calls are the others."""
    (failures,) = {found for rule in rules() for found in re.findall(r'outcome=~"([^"]*)"', str(rule["expr"]))}
    shown = list(queries(load("serving")))
    assert len([query for query in shown if f'outcome=~"{failures}"' in query]) == 2
    assert len([query for query in shown if f'outcome!~"ok|{failures}"' in query]) == 1


def test_they_fit_grafanas_types(tmp_path: Path) -> None:
    """TypeScript finds each field, option and value of both files in @grafana/schema."""
    try:
        packages, node = toolchain.node_folder(GRAFANA), toolchain.node()
    except RuntimeError as absent:  # neither npm's registry nor a cache of it
        missing(f"no types of Grafana: {absent}")
    for name in ("shape.ts", "tsconfig.json"):
        (tmp_path / name).write_text((GRAFANA / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")
    for name in NAMES:
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        (tmp_path / f"{name}.ts").write_text(
            f'import type {{ Shape }} from "./shape";\nexport const dashboard: Shape = {text};\n', encoding="utf-8"
        )
    compiler = packages / "node_modules/typescript/lib/tsc.js"
    done = subprocess.run([node, compiler, "-p", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_prometheus_can_read_every_query(prometheus: Path, tmp_path: Path) -> None:
    """With its variables filled in each query is PromQL."""
    every = sorted({filled(query) for name in NAMES for query in queries(load(name))})
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(every)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(
        [prometheus / "promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_first_row_tells_whether_all_is_well(name: str) -> None:
    """It is numbers with colours, each with a word on what it means; no number stands elsewhere."""
    shown = panels(load(name))
    first = [panel for panel in shown if panel["gridPos"]["y"] == 0]
    assert len(first) == 8
    assert {panel["type"] for panel in first} == {"stat"}
    assert {panel["type"] for panel in shown[len(first) :]} == {"timeseries"}
    for panel in shown:
        assert panel["description"]
        assert len(panel["title"]) <= 36
    for panel in first:
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert len(panel["title"]) <= 18


@pytest.mark.parametrize("name", NAMES)
def test_panels_stand_side_by_side(name: str) -> None:
    """They fill the width, none covers another, and no id is used twice."""
    dashboard = load(name)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len(taken) == 24 * (1 + max(y for _, y in taken))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_templated(name: str) -> None:
    """Data source, installation and tenant can be chosen; each query keeps to the installation, some to the tenant."""
    dashboard = load(name)
    assert [one["name"] for one in dashboard["templating"]["list"]] == ["datasource", "namespace", "tenant"]
    every = list(queries(dashboard))
    assert all('namespace=~"$namespace"' in query for query in every)
    assert any('tenant=~"$tenant"' in query for query in every)
    for panel in panels(dashboard):
        assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("name", NAMES)
def test_publishes_and_rollbacks_are_marked(name: str) -> None:
    """Annotations on every graph show where the pointer moved."""
    marks = {one["name"]: one["target"]["expr"] for one in load(name)["annotations"]["list"]}
    assert set(marks) == {"Published", "Rolled back"}
    assert 'kind="publish"' in marks["Published"]
    assert 'kind="rollback"' in marks["Rolled back"]
