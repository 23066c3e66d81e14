"""Compare all resources, Jobs and unfinished builds with each other, and repair what no watch reported.

Watches die silently, a crash leaves work half done, people delete objects by hand. Where the reconciler can repair a
resource, the sweep only queues it; itself it ends builds that no resource owns, and prunes.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from myria.settings import OperatorSettings
from myria_operator import reasons
from myria_operator.decide import TRUE
from myria_operator.jobs import SELECTOR
from myria_operator.ledger import Ledger
from myria_operator.observed import Job, Rebuild
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import JOBS, REBUILDS

logger = logging.getLogger(__name__)

ABANDONED_S: Final = 20.0
"""Seconds without any sign of life after which a build that no resource owns is failed."""


async def sweep(
    api: Connection, ledger: Ledger, enqueue: Callable[[str], None], settings: OperatorSettings
) -> list[Rebuild]:
    """Compare everything once; call `enqueue` with each resource that needs work; return all resources.

    Builds, requests and Jobs are read before the resources: if a resource is missing then, it was deleted. In the other
    order it could merely be newer than the list of resources.
    """
    unfinished = await ledger.unfinished()
    waiting_resources = await ledger.waiting()
    jobs = [Job.from_object(body) for body in await api.objects(JOBS, labelSelector=SELECTOR)]
    rebuilds = [Rebuild.from_object(body) for body in await api.objects(REBUILDS)]
    uids = {rebuild.uid for rebuild in rebuilds if not rebuild.deleting}
    settled_uids = {rebuild.uid for rebuild in rebuilds if rebuild.settled}
    uids_with_jobs = {job.owner_uid for job in jobs if not job.finished}
    for rebuild in rebuilds:
        if not rebuild.settled or rebuild.uid in uids_with_jobs:
            enqueue(rebuild.name)
    for build in unfinished:
        if build.uid is not None and build.uid not in uids and build.name is not None:
            enqueue(build.name)
        elif build.uid in settled_uids:
            # A slow operator took the build up after another had written the final status, which the reconciler skips.
            logger.info("ending a build of what has ended", extra={"action": "late_build", "build_id": build.build_id})
            await ledger.abort(build.tenant, build.build_id, name=str(build.name), reason="it has ended")
        elif build.uid is None and not build.alive and build.idle_s > ABANDONED_S:
            message = "nobody works on the build, and no resource owns it"
            await ledger.end_build(build.tenant, build.build_id, reasons.WORKER_LOST, message)
    for name, uid in waiting_resources:
        if uid not in uids:
            enqueue(name)
        elif uid in settled_uids:
            await ledger.close_request(uid)
    for job in jobs:
        if job.owner_uid is not None and job.owner_uid not in uids and not job.deleting:
            logger.info("deleting the Job of a resource that is gone", extra={"action": "job_deleted", "job": job.name})
            await api.delete(JOBS, job.name, job.uid)
    await prune(api, ledger, rebuilds, settings)
    return rebuilds


async def prune(api: Connection, ledger: Ledger, rebuilds: list[Rebuild], settings: OperatorSettings) -> None:
    """Delete settled resources that the operator made, beyond the history limits, per tenant, oldest first."""
    ended = [rebuild for rebuild in rebuilds if rebuild.settled and not rebuild.deleting]
    made = await ledger.made(rebuild.uid for rebuild in ended)
    groups: dict[tuple[str, bool], list[Rebuild]] = defaultdict(list)
    for rebuild in sorted(ended, key=age):
        if rebuild.uid in made:
            groups[rebuild.tenant, rebuild.condition(reasons.SUCCEEDED).get("status") == TRUE].append(rebuild)
    for (_, has_succeeded), group in groups.items():
        keep = settings.keep_succeeded if has_succeeded else settings.keep_failed
        for rebuild in group[: max(0, len(group) - keep)]:
            logger.info("pruning a resource", extra={"action": "resource_pruned", "resource": rebuild.name})
            await api.delete(REBUILDS, rebuild.name, rebuild.uid)


def age(rebuild: Rebuild) -> tuple[str, str, str]:
    """Return a sort key for age: the creation time is in seconds, and builds' ids order by milliseconds."""
    return rebuild.created_at, rebuild.status.get("buildID", ""), rebuild.name
