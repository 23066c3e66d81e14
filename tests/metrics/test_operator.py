"""What the operator tells of itself, and the port on which it is scraped."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest
from prometheus_client.core import Metric

from myria import errors
from myria.db.database import Database as Pool
from myria_monitoring.catalogue import METRICS
from myria_monitoring.exposition import gauge, text_of
from myria_monitoring.figures import FigureReader
from myria_monitoring.port import scraped
from myria_operator.metrics import OperatorMetrics
from myria_operator.observed import Rebuild
from tests.metrics.scraping import Samples, samples
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a scrape wait for the database however slow this machine is."""
    monkeypatch.setattr("myria_monitoring.figures.PATIENCE_S", 60.0)


def rebuild(reason: str | None) -> Rebuild:
    """Return a resource with a reason."""
    conditions = [] if reason is None else [{"type": "Succeeded", "status": "True", "reason": reason}]
    metadata = {"namespace": "n", "name": "r", "uid": "u", "resourceVersion": "1"}
    return Rebuild.from_object({"metadata": metadata, "status": {"conditions": conditions}})


async def told(metrics: OperatorMetrics) -> Samples:
    """Return what a scrape would show."""
    return samples(text_of(await metrics.families(queue_length=2, idle_s=0.5)).decode())


async def test_the_operator_tells_all_of_its_plane(database: Database) -> None:
    """Itself, memory and builds, and whether the database is there."""
    async with Pool(database.operator_dsn) as pool:
        requests: Counter[tuple[str, ...]] = Counter({("get", "jobs", "200"): 3, ("get", "jobs", "error"): 1})
        metrics = OperatorMetrics(FigureReader(pool), requests, tenant_label=False)
        before = time.time()
        seen = await told(metrics)
        after = time.time()
    planes = {"process", "memory", "operator"}
    assert {key[0] for key in seen} == {name for one in METRICS if one.plane in planes for name in one.series}
    assert seen["myria_database_up"] == 1
    assert seen["myria_operator_queue_length"] == 2
    assert seen["myria_operator_api_requests_total", "code=200", "resource=jobs", "verb=get"] == 3
    assert before - 0.5 <= seen["myria_operator_last_progress_timestamp_seconds"] <= after - 0.5
    assert seen["myria_operator_last_sweep_timestamp_seconds"] == 0
    assert seen["myria_operator_rebuilds", "reason=Building"] == 0


async def test_passes_are_measured() -> None:
    """A pass that fails is a retry, and what a watch told waits for the one that succeeds."""
    async with Pool(NOWHERE) as pool:
        metrics = OperatorMetrics(FigureReader(pool), Counter(), tenant_label=False)
        results: list[Exception | None] = [errors.ClusterUnavailable("away"), None, None]

        async def work(_name: str) -> float | None:
            await asyncio.sleep(0.02)
            if (error := results.pop(0)) is not None:
                raise error
            return 1.5

        measured = metrics.timed(work)
        metrics.heard("a")
        with pytest.raises(errors.ClusterUnavailable):
            await measured("a")
        metrics.heard("a")
        assert await measured("a") == 1.5
        await measured("b")
        before = time.time()
        metrics.swept([rebuild("BuildPublished"), rebuild("BuildPublished"), rebuild(None), rebuild("FromTheFuture")])
        after = time.time()
        seen = await told(metrics)
        await metrics.close()
    assert seen["myria_operator_reconcile_duration_seconds_count", "outcome=retry"] == 1
    assert seen["myria_operator_reconcile_duration_seconds_count", "outcome=ok"] == 2
    assert seen["myria_operator_event_latency_seconds_count"] == 1
    assert seen["myria_operator_event_latency_seconds_sum"] >= 0.04
    assert seen["myria_operator_rebuilds", "reason=BuildPublished"] == 2
    assert seen["myria_operator_rebuilds", "reason=Pending"] == 1
    assert seen["myria_operator_rebuilds", "reason=other"] == 1
    assert before <= seen["myria_operator_last_sweep_timestamp_seconds"] <= after


async def test_an_outage_of_the_database() -> None:
    """The operator tells of itself and that the database is away; what is read from it is absent, not stale."""
    async with Pool(NOWHERE) as pool:
        metrics = OperatorMetrics(FigureReader(pool), Counter(), tenant_label=False)
        seen = await told(metrics)
        await metrics.close()
    assert seen["myria_database_up"] == 0
    assert not [
        key for key in seen if key[0] in {name for one in METRICS if one.plane == "memory" for name in one.series}
    ]


async def test_a_port_of_its_own(database: Database) -> None:
    """/metrics answers Prometheus, with what the system knows of the process; the port is free again afterwards."""
    async with Pool(database.operator_dsn) as pool, httpx.AsyncClient(timeout=PATIENCE_S, verify=False) as client:
        metrics = OperatorMetrics(FigureReader(pool), Counter(), tenant_label=False)

        async def families() -> list[Metric]:
            return await metrics.families(queue_length=0, idle_s=0.0)

        with scraped("127.0.0.1", 0, families, process=True) as port:
            answer = await client.get(f"http://127.0.0.1:{port}/metrics")
            assert answer.headers["content-type"].startswith("text/plain")
            seen = samples(answer.text)
            with (
                pytest.raises(errors.PortInUse, match=r"operator\.metrics_port"),
                scraped(
                    "127.0.0.1",
                    port,
                    families,
                    process=True,
                ),
            ):
                pass
        assert seen["process_resident_memory_bytes"] > 0
        assert seen["myria_tenants"] == 0
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/metrics")


async def test_a_loop_that_stands_still_fails_the_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape ends within seconds even then, with an error that Prometheus shows as down."""
    monkeypatch.setattr("myria_monitoring.port._SCRAPE_S", 0.2)

    async def families() -> list[Metric]:
        await asyncio.sleep(3600)
        return [gauge("myria_tenants", 1)]

    with scraped("127.0.0.1", 0, families, process=False) as port:
        async with httpx.AsyncClient(timeout=PATIENCE_S, verify=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/metrics")).status_code == 500
