"""A real Prometheus scrapes `myria up`: what rules, dashboards and runbooks ask for is there."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.monitoring.promql import filled
from tests.monitoring.scraping import Scraper, Target
from tests.monitoring.test_dashboards import NAMES, load, queries
from tests.monitoring.wanted import OPERATOR, missing
from tests.soak.wire import Client
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawner


async def call(port: int, *calls: tuple[str, dict[str, object]]) -> None:
    client = Client(port)
    for tool, arguments in calls:
        await client.call(tool, arguments)
    client.hang_up()


def event(number: int) -> dict[str, object]:
    return {
        "timestamp": f"2026-03-01T10:{number:02}:00Z",
        "channel": "scrape",
        "participants": ["ana"],
        "payload": {"text": "sourdough bread and a film"},
    }


async def test_one_machine_tells_all_but_the_operators_metrics(
    spawn: Spawner, database: Database, prometheus: Path, tmp_path: Path
) -> None:
    """`myria up`, after appends, refusals and a build: every metric and label of serving and memory is there."""
    up = spawn.myria(
        *("up", "--port", "0", "--json", "--dsn", database.superuser_dsn),
        env={"MYRIA_METRICS_TENANT_LABEL": "true", "MYRIA_BUILDER_INACTIVITY_TIMEOUT_S": "0.5"},
    )
    port = httpx.URL(json.loads(up.wait_for(r'^\{"url".*\}$', 60.0)[0])["url"]).port
    assert port is not None
    scraper = Scraper(prometheus, tmp_path / "prometheus", spawn, [Target(port=port, job="myria", pod="up")])
    await call(
        port,
        *(("append_event", event(number)) for number in range(12)),
        ("append_event", {}),
        ("query_event_nodes", {"participants": ["ana"], "query": "bread"}),
    )
    async with httpx.AsyncClient(timeout=PATIENCE_S, verify=False) as client:
        await client.post(f"http://127.0.0.1:{port}/mcp", content=b"{", headers={"content-type": "application/json"})
    scraper.wait_for('myria_builds_finished_total{outcome="succeeded"} > 0')
    scraper.wait_for("myria_tail_events_max == 0")
    scraper.wait_for("myria_http_refusals_total")
    assert list(missing(scraper, lambda name: not OPERATOR.match(name))) == []
    assert {one["health"] for group in scraper.get("rules")["groups"] for one in group["rules"]} == {"ok"}
    assert [
        alert["labels"]["alertname"] for alert in scraper.get("alerts")["alerts"] if alert["state"] == "firing"
    ] == []


def test_variables_are_all_filled() -> None:
    """No query of a dashboard keeps a variable that nobody fills."""
    assert not [query for name in NAMES for query in queries(load(name)) if "$" in filled(query)]
