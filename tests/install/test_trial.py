"""The first ten minutes: `helm install` with the trial's PostgreSQL, with every pod really running."""

from __future__ import annotations

from pathlib import Path

import helm_python as helm
import yaml

from tests.install.isolation import IsolatedNode
from tests.install.releases import OLD_CLUSTER, Release, merged
from tests.install.scraping import InCluster
from tests.kubernetes.place import Place, rebuild
from tests.monitoring.promql import selectors
from tests.monitoring.rules import rules
from tests.monitoring.wanted import asked
from tests.support.processes import Spawner, wait_until

TRIAL = {
    "crds": {"enabled": False},
    "postgres": {"mode": "trial"},
    "settings": {"metrics": {"tenant_label": True}},
}
MONITORS = ("serviceMonitor", "podMonitor")


def test_the_trial_goes_the_whole_way(  # noqa: PLR0917 - fixtures
    release: Release, node: IsolatedNode, place: Place, prometheus: Path, spawn: Spawner, tmp_path: Path
) -> None:
    """Install, `helm test`, a rebuild and a rollback with kubectl, scrapes by both kinds of monitors, uninstall.

    `helm install --wait` ends with everything ready; `helm test` appends, rebuilds and queries through the Service,
    with the first key. The volume, the passwords and the key stay when the release goes, and nothing else does.
    """
    release.install(TRIAL, wait_s=120)
    components = {"server", "operator", "trial-db"}
    wait_until(lambda: {one.component for one in node.running()} == components, 60, "the end of the Jobs")
    scraper = InCluster(prometheus, tmp_path / "prometheus", spawn, node, monitors(release))

    release.test()
    smoke = node.log(f"{release.fullname}-test")
    assert smoke.endswith("passed\n")
    first = smoke.partition("found it in ")[2].split()[0]
    place.kubectl("create", "-f", "-", stdin=yaml.safe_dump(rebuild("again", {"build": {"full": True, "force": True}})))
    place.wait_terminal("again")
    place.kubectl("create", "-f", "-", stdin=yaml.safe_dump(rebuild("back", {"rollback": {"to": first}})))
    place.kubectl("wait", "mrb/again", "mrb/back", "--for=condition=Published", "--timeout=180s")

    scraper.wait_for('myria_operator_rebuilds{reason="RolledBack"} > 0')
    scraper.wait_for('myria_requests_total{tool="append_event"} > 0')

    def all_healthy() -> bool:
        pools = scraper.healthy()
        servers = {name.split("/")[0]: count for name, count in pools.items() if "server" in name}
        operators = {count for name, count in pools.items() if "operator" in name}
        return (servers, operators) == ({"ServiceMonitor": 2, "PodMonitor": 2}, {1})

    wait_until(all_healthy, 60, "all targets, scraped")
    there = scraper.series().keys() | scraper.exposed() | {rule["record"] for rule in rules() if "record" in rule}
    assert not {name for query in asked() for name, _ in selectors(query)} - there

    release.uninstall()
    kept = {
        f"persistentvolumeclaim/data-{release.fullname}-trial-db-0",
        f"secret/{release.fullname}-admin-key",
        *(f"secret/{release.fullname}-login-{plane}" for plane in ("builder", "migrate", "operator", "server")),
    }

    def left() -> set[str]:
        found = place.kubectl("get", "all,cm,secret,sa,role,rolebinding,pvc", "-o", "name").stdout.split()
        return {one for one in found if release.name in one and not one.startswith("pod/")}

    # ReplicaSets go with the garbage collector, a moment later.
    wait_until(lambda: left() <= kept, 60, "the end of all that the release made")
    assert left() == kept
    assert {one["metadata"]["name"] for one in place.rebuilds()} >= {"again", "back"}


def monitors(release: Release) -> list[dict[str, object]]:
    """Return the release's monitors of both kinds, as rendered: the API server here knows neither."""
    with helm.Chart.load(release.chart) as chart:
        return [
            one
            for kind in MONITORS
            for name, text in chart.render(
                merged(OLD_CLUSTER, TRIAL, {"monitoring": {kind: {"enabled": True}}}),
                name=release.name,
                namespace=release.place.name,
            ).items()
            if name.endswith("monitors.yaml")
            for one in yaml.safe_load_all(text)
            if one
        ]
