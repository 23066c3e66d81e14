"""`myria operate`: kopf's watches, the queue, the poll and the sweep, wired together.

kopf only reports that a MyriaRebuild or a Job has changed: no handler keeps state on a resource, so there are no
finalizers and no annotations. The operator survives any outage of the API server or the database, and the end of kopf;
it counts as dead only when its queue no longer ticks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web
from prometheus_client.core import Metric

from myria import errors
from myria.db.database import Database
from myria.db.options import pool_options
from myria.db.schema import until_current
from myria.settings import Settings
from myria_monitoring.figures import FigureReader
from myria_monitoring.port import scraped
from myria_operator.jobs import read_pod_template
from myria_operator.ledger import Ledger
from myria_operator.metrics import OperatorMetrics
from myria_operator.observed import MANAGER
from myria_operator.queue import Queue
from myria_operator.reconcile import Reconciler
from myria_operator.requests import ClusterLoop
from myria_operator.sweep import sweep
from myria_operator.uninstall import OwnDeployment, end_builds
from myria_operator.watches import Watches
from myria_rebuilds.connection import Connection, configuration
from myria_rebuilds.resource import GROUP

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 5.0
"""Seconds between two attempts of the poll or the sweep while the database or the API server is away."""


DEAD_S: Final = 60.0
"""Seconds without a tick of the queue after which Kubernetes should restart the process."""

NEEDED: Final = (
    *((GROUP, "myriarebuilds", verb) for verb in ("get", "list", "watch", "create", "delete")),
    (GROUP, "myriarebuilds/status", "patch"),
    *(("batch", "jobs", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "pods", "list"),
    *(("", "events", verb) for verb in ("list", "create")),
)
"""(API group, resource, verb) of everything the operator does; its Role grants these and little else."""

_REVIEW_AGAIN_S: Final = 10.0
"""Seconds between two attempts while the API server is away or refuses the review itself."""


class Operator:
    """The parts of a running operator, without kopf: tests drive them directly."""

    def __init__(
        self, api: Connection, database: Database, settings: Settings, template_path: Path | None = None
    ) -> None:
        section = settings.operator
        self.api = api
        self.settings = settings
        self.ledger = Ledger(database, settings)
        template = read_pod_template(template_path or Path(section.pod_template))
        self.reconciler = Reconciler(api, self.ledger, template, section)
        self.metrics = OperatorMetrics(FigureReader(database), api.answers, tenant_label=settings.metrics.tenant_label)
        self.queue = Queue(self.metrics.timed(self.reconciler.reconcile), workers=section.workers)
        self.loop = ClusterLoop(database, settings, self.ledger, api, self.queue.add)

    async def run(self) -> None:
        """Work until cancelled."""
        section = self.settings.operator
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(), name="queue")
            group.create_task(self.loop.run(), name="triggers")
            group.create_task(_repeat("poll", self._poll, section.poll_s), name="poll")
            group.create_task(_repeat("sweep", self._sweep, section.sweep_s), name="sweep")

    def idle_s(self) -> float:
        """Return how long ago the queue ticked, in seconds."""
        return time.monotonic() - self.queue.ticked_at

    async def families(self) -> list[Metric]:
        """Return the metrics for a scrape."""
        return await self.metrics.families(queue_length=len(self.queue), idle_s=self.idle_s())

    def heard(self, name: str) -> None:
        """Queue a resource that a watch reports as changed, and note the time."""
        self.metrics.heard(name)
        self.queue.add(name)

    async def _poll(self) -> None:
        for name in sorted(await self.ledger.changed()):
            self.queue.add(name)

    async def _sweep(self) -> None:
        self.metrics.swept(await sweep(self.api, self.ledger, self.queue.add, self.settings.operator))


async def _repeat(what: str, work: Callable[[], Awaitable[None]], every_s: float) -> None:
    """Call `work` every `every_s` seconds until cancelled; a failure is logged, and only delays the next call."""
    wait = every_s
    while True:
        started = time.monotonic()
        try:
            await work()
            wait = every_s
        except errors.MyriaError as error:
            wait = min(max(wait * 2, 0.5), _LONGEST_WAIT_S)
            logger.warning("the %s waits: %s", what, error.message, extra={"action": f"{what}_waits"})
        except Exception:
            wait = max(_LONGEST_WAIT_S, every_s)
            logger.exception("the %s failed", what, extra={"action": f"{what}_failed"})
        await asyncio.sleep(max(0.02, wait - (time.monotonic() - started)))


async def operate(settings: Settings, dsn: str) -> None:
    """Run the operator until it is cancelled.

    Raises:
        ConfigurationError: the pod template is unusable, or there is no way to the API server.
        SchemaTooNew, SchemaOutdated: the database is not this program's, nor has become so in `migrate.wait_s`.
    """
    configured, namespace = await configuration()
    namespace = settings.operator.namespace or namespace
    section = settings.operator
    operator: Operator | None = None
    async with AsyncExitStack() as stack:
        # The probe must answer while the schema is still awaited, so it starts first.
        probe = liveness(
            section.probe_port,
            lambda: operator.idle_s() if operator is not None else 0.0,
            lambda: len(operator.queue) if operator is not None else 0,
        )
        await stack.enter_async_context(probe)
        api = await stack.enter_async_context(Connection(configured, namespace, MANAGER))
        pool = pool_options(settings, size=max(4, section.workers))
        database = await stack.enter_async_context(Database(dsn, pool))
        await _await_schema(database, settings)
        operator = Operator(api, database, settings)
        stack.push_async_callback(operator.metrics.close)
        deployment = OwnDeployment(api, section.deployment)
        stack.push_async_callback(_end_if_uninstalled, operator, deployment)
        if section.metrics_port:
            metrics = scraped("0.0.0.0", section.metrics_port, operator.families, process=True)  # noqa: S104 - scrapes come from other nodes
            stack.enter_context(metrics)
        logger.info("watching namespace %s", namespace, extra={"action": "operator_started", "namespace": namespace})
        async with asyncio.TaskGroup() as group:
            group.create_task(operator.run(), name="work")
            group.create_task(Watches(namespace, operator.heard).run(), name="watches")
            group.create_task(review(api), name="review")
            group.create_task(deployment.find(), name="deployment")


async def _end_if_uninstalled(operator: Operator, deployment: OwnDeployment) -> None:
    """End running builds if the operator was uninstalled; if the database is gone too, only remove the rights."""
    if await deployment.is_gone():
        try:
            async with operator.ledger.ending():
                await end_builds(operator.api, operator.ledger, operator.reconciler)
        except errors.UnavailableError as error:
            logger.warning("builds were not ended: %s", error.message, extra={"action": "builds_not_ended"})
        await deployment.remove_rights()


async def _await_schema(database: Database, settings: Settings) -> None:
    """Wait until the schema is this program's; an unreachable database is an error only if `migrate.wait_s` is set."""
    try:
        await until_current(database, settings.migrate.wait_s)
    except errors.UnavailableError as error:
        if settings.migrate.wait_s:
            raise
        logger.warning("the schema is not checked: %s", error.message, extra={"action": "schema_unchecked"})


@asynccontextmanager
async def liveness(port: int, idle_s: Callable[[], float], keys: Callable[[], int]) -> AsyncIterator[None]:
    """Answer GET /healthz for the block: 200, or 503 once the queue has not ticked for `DEAD_S`. Port 0 opens none.

    An outage of the database or the API server never fails it.

    Raises:
        PortInUse: another program listens there.
    """

    async def healthz(_request: web.Request) -> web.Response:
        idle = idle_s()
        body = {"idle_s": round(idle, 1), "keys": keys()}
        return web.json_response(body, status=200 if idle < DEAD_S else 503)

    if not port:
        yield
        return
    application = web.Application()
    application.router.add_get("/healthz", healthz)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - the kubelet asks from the node
        except OSError as error:
            raise errors.PortInUse(f"port {port} is in use; set operator.probe_port", port=port) from error
        yield
    finally:
        await runner.cleanup()


async def review(api: Connection) -> None:
    """Log each permission that is missing, before a request fails; try again until the API server has answered."""
    while True:
        try:
            missing = [
                f"{verb} {resource}" for group, resource, verb in NEEDED if not await api.may(verb, group, resource)
            ]
            break
        except (errors.ClusterRefused, errors.ClusterUnavailable) as error:
            logger.warning("permissions not reviewed yet: %s", error.message, extra={"action": "permissions_unknown"})
            await asyncio.sleep(_REVIEW_AGAIN_S)
    for permission in missing:
        logger.error(
            "missing permission: %s in namespace %s; see examples/kubernetes/rbac/operator.yaml",
            permission,
            api.namespace,
            extra={"action": "permission_missing", "permission": permission},
        )
