"""Ending all builds when the operator was uninstalled, so that none publishes afterwards.

An operator that is stopped looks for its own Deployment. If it exists, this is a restart or an upgrade, and builds go
on without an operator. If it is gone, no operator will come back: this one ends the unfinished builds in the database,
which fences off their pods, writes that on their resources, and deletes their Jobs. `helm uninstall` waits for no pod,
so what this takes outlives it: the chart keeps the operator's account and rights, which it removes when it is done, and
the trial's PostgreSQL stays until no build is left. No hook, pod or image is needed.
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
"""Seconds between two looks for the Deployment until it has been seen."""
_ATTEMPTS: Final = 5
"""Looks for the Deployment at the end, one a second, while the API server does not answer."""


class OwnDeployment:
    """The Deployment that the operator's pod belongs to; without a name it is never looked for."""

    def __init__(self, api: Connection, name: str) -> None:
        self._api = api
        self._name = name
        self._uid: str | None = None

    async def find(self) -> None:
        """Return once it has been seen: only then does its absence mean that it was deleted."""
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
        """Tell whether it was deleted: absent, going, or another one of its name.

        A refusal says nothing of the Deployment: rights may be taken away from an operator whose builds must go on.
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
        """Remove the operator's account and rights, unless another installation of this name uses them by now."""
        with _logged("my rights stay"):
            if await self._api.get(DEPLOYMENTS, self._name) is None:
                await _remove_rights(self._api, self._name)
                logger.info("my account and rights are gone", extra={"action": "rights_removed"})


async def end_builds(api: Connection, ledger: Ledger, reconciler: Reconciler) -> int:
    """End every unfinished build of a resource, delete their Jobs where that is still allowed, return how many.

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


async def _remove_rights(api: Connection, name: str) -> None:
    """Delete the Role of a name, and through the garbage collector its RoleBinding and the account that this names.

    Whoever deletes its own Role or RoleBinding may delete nothing more, so the others are made to go with the Role.
    """
    role, binding = await api.get(ROLES, name), await api.get(ROLE_BINDINGS, name)
    if role is None or binding is None:
        return
    uid = role["metadata"]["uid"]
    owner = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "name": name, "uid": uid}
    owned = {"metadata": {"ownerReferences": [owner]}}
    (account,) = binding["subjects"]
    for kind, child in ((SERVICE_ACCOUNTS, account["name"]), (ROLE_BINDINGS, name)):
        try:
            await api.patch(kind, child, owned)
        except ClusterRefused as error:
            if error.details["status"] not in {403, 404}:  # an account that the chart did not make is not ours
                raise
    await api.delete(ROLES, name, uid)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log what could not be done in the block, and go on."""
    try:
        yield
    except MyriaError as error:
        logger.warning("%s: %s", what, error.message, extra={"action": "not_tidied"})
