"""A build's pods tell of it on the status of the MyriaRebuild it belongs to, by server-side apply.

A courtesy: the operator derives the same from the database, so whatever goes wrong here is logged and left. Conditions
are the operator's alone. Only where the environment names a resource is anything told, or the Kubernetes client loaded.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from myria.building.report import BuildFacts, pod_fields
from myria.errors import MyriaError
from myria.settings import REBUILD_VARIABLES
from myria.store.database import Database, PoolOptions
from myria.store.queries import sql

logger = logging.getLogger(__name__)

MANAGER: Final = "myria-builder"
_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The resource on which a build is told of."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Told | None:
        """Return the resource that the operator named, None where there is none."""
        namespace, name, uid = (environ.get(variable, "") for variable in REBUILD_VARIABLES)
        return cls(namespace=namespace, name=name, uid=uid) if namespace and name and uid else None


@asynccontextmanager
async def told(dsn: str, options: PoolOptions, tenant: str, build_id: str) -> AsyncIterator[None]:
    """Tell of a build once when it has begun and once when the block, which works on it, is over."""
    resource = Told.from_environment(os.environ)
    if resource is None:
        yield
        return
    async with Database(dsn, options) as database:
        beginning = asyncio.create_task(_tell_the_beginning(database, resource, tenant, build_id))
        try:
            yield
        finally:
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
        facts = await _facts(database, tenant, build_id)
        if facts is not None and facts.outcome is not None:
            await tell(resource, facts)


async def _tell_the_beginning(database: Database, resource: Told, tenant: str, build_id: str) -> None:
    while True:
        facts = await _facts(database, tenant, build_id)
        if facts is not None and facts.row.snapshot_id is not None:
            if facts.outcome is None:
                await tell(resource, facts)
            return
        await asyncio.sleep(_POLL_S)


async def _facts(database: Database, tenant: str, build_id: str) -> BuildFacts | None:
    try:
        async with database.read(tenant) as connection:
            row = await connection.fetchrow(sql("builds.facts"), tenant, build_id)
    except MyriaError as error:
        logger.info("nothing to report: %s", error.message, extra={"action": "report_waits", "build_id": build_id})
        return None
    return BuildFacts.from_row(row) if row is not None else None


async def tell(resource: Told, facts: BuildFacts) -> None:
    """Apply what is known of a build to the status of its resource; a failure is logged and left.

    The uid keeps it off another resource of the same name. Only what will not change is told: a pod that was slow may
    be heard after the build's end, which must stay as it was told.
    """
    body = {
        "apiVersion": "myria.dev/v1alpha1",
        "kind": "MyriaRebuild",
        "metadata": {"name": resource.name, "uid": resource.uid},
        "status": pod_fields(facts),
    }
    try:
        # Hundreds of modules, which a slow node needs its time for: that is not the API server's.
        await asyncio.to_thread(importlib.import_module, "kubernetes.aio.client")
        async with asyncio.timeout(_TIMEOUT_S):
            status, answer = await _apply(resource, body)
    except Exception as error:  # noqa: BLE001 - the cluster's client may raise anything; a report is worth no build
        logger.warning(
            "not reported: %s",
            error or type(error).__name__,
            extra={"action": "not_reported", "build_id": facts.row.build_id},
        )
        return
    if status >= 400:
        logger.warning(
            "not reported: the API server answered %d: %s",
            status,
            answer,
            extra={"action": "not_reported", "build_id": facts.row.build_id},
        )


async def _apply(resource: Told, body: dict[str, Any]) -> tuple[int, str]:
    from kubernetes.aio import config  # noqa: PLC0415 - large, and needed in a cluster alone
    from kubernetes.aio.client import ApiClient, Configuration  # noqa: PLC0415

    configured = Configuration()
    if "KUBECONFIG" in os.environ:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=os.environ["KUBECONFIG"], client_configuration=configured
        )
    else:
        config.load_incluster_config(client_configuration=configured)  # type: ignore[no-untyped-call]
    where = f"/apis/myria.dev/v1alpha1/namespaces/{resource.namespace}/myriarebuilds/{resource.name}/status"
    client = ApiClient(configured)
    try:
        request = await client.param_serialize(
            method="PATCH",
            resource_path=f"{where}?{urlencode({'fieldManager': MANAGER, 'force': 'true'})}",
            header_params={"Content-Type": "application/apply-patch+yaml", "Accept": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await client.call_api(*request)
        content: bytes = await response.read()  # type: ignore[no-untyped-call]
    finally:
        await client.close()  # type: ignore[no-untyped-call]
    if response.status < 400:
        return response.status, ""
    try:
        return response.status, str(json.loads(content).get("message"))
    except (ValueError, AttributeError):
        return response.status, content[:200].decode("utf-8", "replace")
