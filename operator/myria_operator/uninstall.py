"""Ending all builds when the operator was uninstalled, so that none publishes afterwards.

An operator that is stopped looks for its own Deployment. If it exists, this is a restart or an upgrade, and builds go
on without an operator. If it is gone, no operator will come back: this one ends the unfinished builds in the database,
which fences off their pods, writes that into their resources' status, and deletes their Jobs. `helm uninstall` waits
for no pod, so everything needed for this must outlive it: the chart keeps the operator's account and rights, which the
operator removes at its end, and the trial's PostgreSQL stays until no build is left. No hook, pod or image is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from myria.errors import ClusterRefused, ClusterUnavailable, MyriaError
from myria_operator import reasons
from myria_operator.jobs import SELECTOR
from myria_operator.ledger import Ledger
from myria_operator.reconcile import AT_ONCE, Reconciler
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import DEPLOYMENTS, JOBS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 10.0
"""Seconds between two requests for the Deployment, until it was found once."""
_ATTEMPTS: Final = 5
"""Requests for the Deployment when the operator stops, one a second, while the API server does not answer."""


class OwnDeployment:
    """The Deployment that the operator's pod belongs to; with an empty name it counts as present for ever."""

    def __init__(self, api: Connection, name: str) -> None:
        self._api = api
        self._name = name
        self._uid: str | None = None

    async def find(self) -> None:
        """Return once the Deployment was found: only then does its later absence mean that it was deleted."""
        while self._name:
            try:
                deployment = await self._api.get(DEPLOYMENTS, self._name)
            except (ClusterRefused, ClusterUnavailable) as error:
                logger.warning("builds will not end with me: %s", error.message, extra={"action": "not_its_own"})
            else:
                if deployment is not None:
                    self._uid = deployment["metadata"]["uid"]
                    logger.info("belongs to the Deployment %s", self._name, extra={"action": "deployment_seen"})
                    return
            await asyncio.sleep(_AGAIN_S)

    async def is_gone(self) -> bool:
        """Tell whether the Deployment was deleted: it is absent, being deleted, or another one of its name.

        If the API server refuses to say, it counts as present: an operator may lose rights while its builds must go on.
        """
        for _ in range(_ATTEMPTS if self._uid is not None else 0):
            try:
                deployment = await self._api.get(DEPLOYMENTS, self._name)
            except ClusterRefused as error:
                logger.warning("builds go on: %s", error.message, extra={"action": "not_its_own"})
                return False
            except ClusterUnavailable:
                await asyncio.sleep(1.0)
                continue
            if deployment is None:
                return True
            return deployment["metadata"]["uid"] != self._uid or "deletionTimestamp" in deployment["metadata"]
        return False

    async def remove_rights(self) -> None:
        """Delete the operator's Role with its RoleBinding and account, unless a new installation of its name uses them.

        After deleting its own Role or RoleBinding the operator may delete nothing more. So it first makes the Role the
        owner of the other two; the garbage collector then deletes them.
        """
        api, name = self._api, self._name
        with _logged("my rights stay"):
            role, binding = await api.get(ROLES, name), await api.get(ROLE_BINDINGS, name)
            if await api.get(DEPLOYMENTS, name) is not None or role is None or binding is None:
                return
            uid = role["metadata"]["uid"]
            owner = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "name": name, "uid": uid}
            owner_patch = {"metadata": {"ownerReferences": [owner]}}
            (account,) = binding["subjects"]
            for kind, child in ((SERVICE_ACCOUNTS, account["name"]), (ROLE_BINDINGS, name)):
                try:
                    await api.patch(kind, child, owner_patch)
                except ClusterRefused as error:
                    if error.details["status"] not in {403, 404}:  # an account that the chart did not make is not ours
                        raise
            await api.delete(ROLES, name, uid)
            logger.info("my account and rights are gone", extra={"action": "rights_removed"})


async def end_builds(api: Connection, ledger: Ledger, reconciler: Reconciler) -> int:
    """End every unfinished build that a resource owns, delete all Jobs, and return how many builds were ended.

    What Kubernetes no longer allows is logged and left.

    Raises:
        UnavailableError: the database is away; it may have been uninstalled as well.
    """
    message = "the installation was removed while it was built"
    unfinished = [build for build in await ledger.unfinished() if build.uid is not None]
    for build in unfinished:
        await ledger.end_build(build.tenant, build.build_id, reasons.UNINSTALLED, message)
    logger.warning("uninstalled", extra={"action": "uninstalled", "ended": len(unfinished)})
    # Where this fails, the pods notice by themselves that their build has ended; the next must still be tried.
    for build in unfinished:
        if build.name is not None:
            with _logged(f"the end of {build.name} is not written"):
                while await reconciler.reconcile(build.name) == AT_ONCE:
                    pass
    with _logged("Jobs stay"):
        for job in await api.objects(JOBS, labelSelector=SELECTOR):
            await api.delete(JOBS, job["metadata"]["name"], job["metadata"]["uid"])
    return len(unfinished)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log what could not be done in the block, and go on."""
    try:
        yield
    except MyriaError as error:
        logger.warning("%s: %s", what, error.message, extra={"action": "not_tidied"})
