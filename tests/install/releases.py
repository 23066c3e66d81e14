"""Releases of the chart on the tests' API server, through Helm's own library.

Kubernetes 1.20 knows neither rules in CEL nor policy/v1 nor ValidatingAdmissionPolicy: the chart is installed from a
copy whose definition lacks the rules, with the other two switched off by values (`OLD_CLUSTER`). What is left out here
is checked against newer schemas in tests/chart.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

from scripts.generate_chart import CHART, CRD_HEAD, CRD_METADATA
from tests.kubernetes import manifests
from tests.kubernetes.api import Json
from tests.kubernetes.place import Place

OLD_CLUSTER: Mapping[str, Any] = {
    "admissionPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "settings": {
        "operator": {"sweep_s": 2, "poll_s": 0.3},
        "builder": {"inactivity_timeout_s": 0, "max_unindexed_events": 0},
        "mcp": {"drain_s": 1},
    },
}
"""What 1.20 does not know switched off; and an operator with little patience that builds when it is asked to."""

UNAUTHENTICATED: Mapping[str, Any] = {"auth": {"mode": "none"}, "server": {"allowUnauthenticated": True}}
"""For tests of something else than who calls."""


def chart_at(folder: Path, change: Callable[[Json], None] = lambda _definition: None) -> Path:
    """Return a copy of the chart in the folder, with its definition as 1.20 takes it, changed."""
    target = folder / "myria"
    shutil.copytree(CHART, target)
    definition = manifests.without_cel(manifests.definition())
    change(definition)
    body = {key: value for key, value in definition.items() if key not in {"metadata", "spec", "status"}}
    text = CRD_HEAD + yaml.safe_dump(body) + CRD_METADATA + yaml.safe_dump({"spec": definition["spec"]})
    (target / "templates/crds/myriarebuilds.yaml").write_text(text + "{{- end }}\n", encoding="utf-8")
    return target


def merged(*values: Mapping[str, Any]) -> Json:
    """Return values laid over each other, the later winning."""
    found: Json = {}
    for one in values:
        for key, value in one.items():
            if isinstance(value, Mapping) and isinstance(found.get(key), dict):
                found[key] = merged(found[key], value)
            else:
                found[key] = copy.deepcopy(value)
    return found


class Release:
    """One release: its chart, its name, its namespace."""

    def __init__(self, place: Place, chart: Path, name: str = "memory") -> None:
        self.place = place
        self.chart = chart
        self.name = name
        self._helm = helm.Config(kubeconfig_path=place.kubeconfig(), namespace=place.name, qps=200.0, burst_limit=400)

    @property
    def fullname(self) -> str:
        """How the chart calls its objects."""
        return f"{self.name}-myria"

    def install(self, *values: Mapping[str, Any], wait_s: int | None = None) -> Json:
        """Install it; with `wait_s`, return when everything is ready, as `helm install --wait` does."""
        return self._helm.install(
            self.chart,
            self.name,
            merged(OLD_CLUSTER, *values),
            namespace=self.place.name,
            timeout=wait_s or 60,
            wait="watcher" if wait_s else "hookOnly",
        )

    def upgrade(self, *values: Mapping[str, Any], chart: Path | None = None, wait_s: int | None = None) -> Json:
        """Upgrade it to these values, and to another chart."""
        return self._helm.upgrade(
            chart or self.chart,
            self.name,
            merged(OLD_CLUSTER, *values),
            namespace=self.place.name,
            timeout=wait_s or 60,
            wait="watcher" if wait_s else "hookOnly",
        )

    def test(self, timeout_s: int = 120) -> Json:
        """Run `helm test`."""
        return self._helm.test(self.name, timeout=timeout_s)

    def uninstall(self, timeout_s: int = 60) -> None:
        """Uninstall it; its pre-delete hook has run when this returns."""
        self._helm.uninstall(self.name, timeout=timeout_s)

    def close(self) -> None:
        """Close the library's handle."""
        self._helm.close()
