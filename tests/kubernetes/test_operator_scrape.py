"""A real Prometheus scrapes the operator: what rules, dashboards and runbooks ask of it is there."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.operating import Installation
from tests.monitoring.conftest import prometheus
from tests.monitoring.scraping import Scraper, Target
from tests.monitoring.wanted import OPERATOR, missing
from tests.support.processes import Spawner, free_port

__all__ = ["prometheus"]


def test_the_operator_tells_its_own(
    installation: Installation, spawn: Spawner, prometheus: Path, tmp_path: Path
) -> None:
    """After a rebuild on a real API server every metric and label of the operator is there, and memory's too."""
    port = free_port()
    installation.append(12)
    installation.start(operator_metrics_port=str(port), metrics_tenant_label="true")
    scraper = Scraper(
        prometheus, tmp_path / "prometheus", spawn, [Target(port=port, job="myria-operator", pod="operator")]
    )
    installation.place.rebuild("scraped")
    scraper.wait_for('myria_operator_rebuilds{reason="BuildPublished"} > 0', 60.0)
    assert list(missing(scraper, lambda name: bool(OPERATOR.match(name)))) == []
    scraper.wait_for("myria_database_up", 60)
    scraper.wait_for('myria_builds_finished_total{outcome="succeeded"}', 60)
