"""`myria operate`: kopf's watches, the queue, the poll and the sweep, wired together.

kopf only tells that something happened, to one MyriaRebuild or one Job: no handler keeps state on a resource, so there
are no finalizers and no annotations. Everything else here goes on through any outage of the API server or the
database; only a queue that no longer ticks counts as death.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import kopf

from myria import errors
from myria.settings import Settings
from myria.store.database import Database, PoolOptions
from myria_operator.api import Api, configuration
from myria_operator.facts import GROUP, PLURAL, VERSION
from myria_operator.jobs import COMPONENT_LABELS, SELECTOR, read_pod_template
from myria_operator.ledger import Ledger
from myria_operator.permissions import review
from myria_operator.queue import Queue
from myria_operator.reconcile import Reconciler
from myria_operator.requests import ClusterLoop
from myria_operator.sweep import sweep

logger = logging.getLogger(__name__)

_DEAD_S: Final = 60.0
"""Seconds without a tick of the queue after which the process is better started anew."""
_LONGEST_WAIT_S: Final = 10.0


class _Backoffs:
    """Waits of kopf's own requests: growing to ten seconds, and without end, so that an outage never ends kopf."""

    def __iter__(self) -> Iterator[float]:
        wait = 0.2
        while True:
            yield wait
            wait = min(wait * 1.6, _LONGEST_WAIT_S)


class Operator:
    """The parts of a running operator, without kopf: tests drive them directly."""

    def __init__(self, api: Api, database: Database, settings: Settings, template_path: Path | None = None) -> None:
        section = settings.operator
        self.api = api
        self.settings = settings
        self.ledger = Ledger(database, settings)
        template = read_pod_template(template_path or Path(section.pod_template))
        self.reconciler = Reconciler(api, self.ledger, template, section)
        self.queue: Queue[str] = Queue(self.reconciler.reconcile, workers=section.workers)
        self.loop = ClusterLoop(database, settings, self.ledger, api, self.queue)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(), name="queue")
            group.create_task(self.loop.run(), name="triggers")
            group.create_task(self._often("poll", self._poll, self.settings.operator.poll_s), name="poll")
            group.create_task(self._often("sweep", self._sweep, self.settings.operator.sweep_s), name="sweep")

    async def _poll(self) -> None:
        """Queue the resources whose builds or requests changed; when a build ended, those that wait as well."""
        changes = await self.ledger.changes()
        names = {change.name for change in changes if change.name is not None}
        if any(change.ended for change in changes):
            names.update(await self.ledger.waiting())
        for name in sorted(names):
            self.queue.add(name)

    async def _sweep(self) -> None:
        await sweep(self.api, self.ledger, self.queue, self.settings.operator)

    async def _often(self, what: str, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        wait = every_s
        while True:
            started = time.monotonic()
            try:
                await work()
                wait = every_s
            except errors.MyriaError as error:
                wait = min(max(wait * 2, 0.5), max(_LONGEST_WAIT_S, every_s))
                logger.warning("the %s waits: %s", what, error.message, extra={"action": f"{what}_waits"})
            except Exception:
                wait = _LONGEST_WAIT_S
                logger.exception("the %s failed", what, extra={"action": f"{what}_failed"})
            await asyncio.sleep(max(0.02, wait - (time.monotonic() - started)))


async def operate(settings: Settings, dsn: str) -> None:
    """Run the operator until it is cancelled.

    Raises:
        ConfigurationError: the pod template is unusable, or there is no way to the API server.
    """
    configured, namespace = await configuration()
    namespace = settings.operator.namespace or namespace
    pool = PoolOptions(
        size=max(4, settings.operator.workers),
        connect_timeout=settings.postgres.connect_timeout_s,
        pgbouncer=settings.postgres.pgbouncer,
    )
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(configured, namespace))
        database = await stack.enter_async_context(Database(dsn, pool))
        operator = Operator(api, database, settings)
        await review(api)
        logger.info("watching namespace %s", namespace, extra={"action": "operator_started", "namespace": namespace})
        port = settings.operator.probe_port
        stop = asyncio.Event()
        watching = asyncio.create_task(
            kopf.operator(
                registry=_registry(operator),
                settings=_kopf_settings(),
                standalone=True,
                namespaces=[namespace],
                liveness_endpoint=f"http://0.0.0.0:{port}/healthz" if port else None,
                stop_flag=stop,
            ),
            name="watches",
        )
        working = asyncio.create_task(operator.run(), name="work")
        try:
            done, _ = await asyncio.wait({watching, working}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            stop.set()
            working.cancel()
            await asyncio.wait({watching, working}, timeout=5.0)
            watching.cancel()
            await asyncio.gather(watching, working, return_exceptions=True)


def _registry(operator: Operator) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def started(**_: Any) -> None:
        logger.info("ready", extra={"action": "operator_ready"})

    @kopf.on.cleanup(registry=registry)
    async def stopped(**_: Any) -> None:
        logger.info("stopping", extra={"action": "operator_stopping"})

    @kopf.on.login(registry=registry)
    def login(**options: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**options) or kopf.login_with_service_account(**options)

    @kopf.on.probe(registry=registry, id="queue")
    async def ticks(**_: Any) -> dict[str, float]:
        idle_s = time.monotonic() - operator.queue.ticked_at
        if idle_s > _DEAD_S:
            raise kopf.PermanentError(f"the queue has not ticked for {idle_s:.0f} s")
        return {"idle_s": round(idle_s, 1), "keys": len(operator.queue)}

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def rebuild_changed(name: str | None, **_: Any) -> None:
        if name is not None:
            operator.queue.add(name)

    @kopf.on.event("batch", "v1", "jobs", registry=registry, labels=COMPONENT_LABELS)
    async def job_changed(meta: kopf.Meta, **_: Any) -> None:
        for owner in meta.get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == "MyriaRebuild":
                operator.queue.add(owner["name"])

    return registry


def _kopf_settings() -> kopf.OperatorSettings:
    for name in ("kopf.objects", "kopf.activities", "kopf._core.engines.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)  # a line per event would bury what the operator does
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Backoffs()
    settings.networking.request_timeout = 20.0
    settings.networking.connect_timeout = 5.0
    # A watch that says nothing is renewed: one that died silently would otherwise never be noticed.
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 260
    settings.watching.inactivity_timeout = 90.0
    settings.watching.connect_timeout = 5.0
    settings.watching.label_selectors["jobs.batch"] = SELECTOR
    settings.queueing.error_delays = (1, 1, 2, 3, 5, 8)
    return settings
