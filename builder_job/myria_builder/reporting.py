"""Reports a build from its pods on the status of its MyriaRebuild, by server-side apply.

The reports only save time: the operator derives the same status from the database, so a failure here is logged and
ignored. Only the operator writes conditions. Without a resource in the environment nothing is reported, and the
Kubernetes client is not loaded.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from myria.db.database import Database, PoolOptions
from myria.errors import MyriaError
from myria.settings import REBUILD_VARIABLES
from myria_rebuilds.report import BuildFacts, pod_fields
from myria_rebuilds.statements import sql

logger = logging.getLogger(__name__)

MANAGER: Final = "myria-builder"
_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.3


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportTarget:
    """The resource on whose status a build is reported."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ReportTarget | None:
        """Return the resource that the operator named in the environment, None where there is none."""
        namespace, name, uid = (environ.get(variable, "") for variable in REBUILD_VARIABLES)
        return cls(namespace=namespace, name=name, uid=uid) if namespace and name and uid else None


@asynccontextmanager
async def reported(dsn: str, options: PoolOptions, tenant: str, build_id: str) -> AsyncIterator[None]:
    """Report a build once it has begun, and again after the block, which must work on it until it has ended."""
    resource = ReportTarget.from_environment(os.environ)
    if resource is None:
        yield
        return
    async with Database(dsn, options) as database:
        first_report = asyncio.create_task(_report_beginning(database, resource, tenant, build_id))
        try:
            yield
        finally:
            first_report.cancel()
            await asyncio.gather(first_report, return_exceptions=True)
        facts = await _facts(database, tenant, build_id)
        if facts is not None and facts.outcome is not None:
            await report(resource, facts)


async def _report_beginning(database: Database, resource: ReportTarget, tenant: str, build_id: str) -> None:
    """Report a build once it has captured what it compiles, unless it has ended by then."""
    while True:
        facts = await _facts(database, tenant, build_id)
        if facts is not None and facts.row.snapshot_id is not None:
            if facts.outcome is None:
                await report(resource, facts)
            return
        await asyncio.sleep(_POLL_S)


async def _facts(database: Database, tenant: str, build_id: str) -> BuildFacts | None:
    """Read what is known of a build; None where there is no such build or the database cannot be read."""
    try:
        async with database.read(tenant) as connection:
            row = await connection.fetchrow(sql("rebuilds.facts"), tenant, build_id)
    except MyriaError as error:
        logger.info("nothing to report: %s", error.message, extra={"action": "report_waits", "build_id": build_id})
        return None
    return BuildFacts.from_row(row) if row is not None else None


async def report(resource: ReportTarget, facts: BuildFacts) -> None:
    """Write what is known of a build to the status of its resource; log and ignore a failure.

    The uid keeps the report off another resource of the same name. The report holds only fields that will not change
    again: a slow pod may report after the build's end, and must not undo what was reported then.
    """
    try:
        # The import loads hundreds of modules, slowly on a slow node; the API server's timeout must not include it.
        connection_module = await asyncio.to_thread(importlib.import_module, "myria_rebuilds.connection")
        async with asyncio.timeout(_TIMEOUT_S):
            configured, _ = await connection_module.configuration()
            async with connection_module.Connection(configured, resource.namespace, MANAGER) as connection:
                await connection.apply_status(resource.name, resource.uid, pod_fields(facts))
    except Exception as error:  # noqa: BLE001 - the cluster's client may raise anything; a report is worth no build
        logger.warning(
            "not reported: %s",
            error or type(error).__name__,
            extra={"action": "not_reported", "build_id": facts.row.build_id},
        )
