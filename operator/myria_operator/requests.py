"""From `rebuild_requests` rows to MyriaRebuilds: the one path by which triggers and tools make resources.

The name is a hash of the cause, and is written to the row before the resource is made: an operator that is interrupted
in between makes the same resource again, and two operators at once make one. A row that a build took up is never read
again, so a pruned resource is never made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from myria.control import ControlLoop
from myria.db.database import Database
from myria.errors import ClusterRefused
from myria.settings import Settings
from myria_operator.ledger import Ledger, ToMake
from myria_operator.naming import rebuild_name
from myria_operator.observed import REQUEST_LABEL, TRIGGERS
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import API_VERSION, KIND, REBUILDS, Json
from myria_rebuilds.statements import sql

logger = logging.getLogger(__name__)

_NAMES: Final = {trigger: name for name, trigger in TRIGGERS.items()}


def manifest(to_make: ToMake, name: str, namespace: str) -> Json:
    """Return the resource of a request."""
    spec: Json = {"tenant": to_make.tenant, "trigger": _NAMES[to_make.trigger]}
    if to_make.reason:
        spec["reason"] = to_make.reason[:1000]
    build: Json = {}
    if to_make.is_full:
        build["full"] = True
    if to_make.is_forced:
        build["force"] = True
    if to_make.hold:
        build["publish"] = "Hold"
    if build:
        spec["build"] = build
    labels = {
        "app.kubernetes.io/name": "myria",
        "app.kubernetes.io/managed-by": "myria-operator",
        REQUEST_LABEL: to_make.request_id,
    }
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


class ClusterLoop(ControlLoop):
    """The core's control loop, but one that makes resources instead of starting builders.

    The reconciler does everything that follows for a resource, its build and its Job.

    Args:
        enqueue: called with the name of each resource that was made.
    """

    def __init__(
        self, database: Database, settings: Settings, ledger: Ledger, api: Connection, enqueue: Callable[[str], None]
    ) -> None:
        super().__init__(database, settings, self._start_no_builder)
        self._pool = database
        self._ledger = ledger
        self._api = api
        self._enqueue = enqueue

    async def look(self, tenant: str) -> None:
        """Make the tenant's next resource if a request waits or a trigger is due, and no build is unfinished."""
        async with self._pool.read(tenant) as connection:
            if await connection.fetchrow(sql("builds.unfinished"), tenant) is not None:
                return
        to_make = await self._ledger.next_to_make(tenant)
        if to_make is None and not await self._ledger.has_waiting(tenant) and await self.ask_when_due(tenant):
            to_make = await self._ledger.next_to_make(tenant)
        if to_make is not None:
            await self._make_resource(to_make)

    async def _make_resource(self, to_make: ToMake) -> None:
        """Make the resource of a request, or find the one that an interrupted operator made, and tie them."""
        name = to_make.name or rebuild_name(to_make.tenant, to_make.trigger.replace("_", "-"), to_make.cause_key)
        if to_make.name is None and not await self._ledger.name_resource(to_make, name):
            return
        try:
            resource = await self._api.create(REBUILDS, manifest(to_make, name, self._api.namespace))
        except ClusterRefused as error:
            if error.details["status"] != 409:
                raise
            existing = await self._api.get(REBUILDS, name)
            if existing is None:
                return  # it was refused for another reason, or deleted at once: the next look makes it again
            resource = existing
        metadata = resource["metadata"]
        if (metadata.get("labels") or {}).get(REQUEST_LABEL) == to_make.request_id:
            await self._ledger.adopt(to_make.tenant, to_make.request_id, name, metadata["uid"])
        logger.info(
            "made a resource: %s",
            to_make.trigger,
            extra={
                "action": "resource_made",
                "tenant": to_make.tenant,
                "resource": name,
                "request_id": to_make.request_id,
            },
        )
        self._enqueue(name)

    @staticmethod
    async def _start_no_builder(tenant: str, build_id: str) -> int:
        raise AssertionError(f"builders are Jobs here: {tenant} {build_id}")
