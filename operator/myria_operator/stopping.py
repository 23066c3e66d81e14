"""Stopping all builds for good, before an installation is removed: no pod is left that could still publish.

The operator goes first, or it would start the next build; then the Jobs; then their pods are waited for. The database
is not asked: whatever is left there unfinished, the next operator ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from kubernetes.aio.client import Configuration

from myria.errors import ClusterRefused, ClusterUnavailable, DeadlineExceeded
from myria_operator.api import Api
from myria_operator.jobs import SELECTOR
from myria_rebuilds.connection import configuration
from myria_rebuilds.resource import Json

POLL_S: Final = 1.0
_MERGE: Final = "application/merge-patch+json"


class _Stopper(Api):
    """What the operator itself may not: change Deployments. Unanswered requests are made again until the deadline:
    `helm uninstall` runs this once, and each of them may be made twice.
    """

    def __init__(self, configured: Configuration, namespace: str, deadline: float) -> None:
        super().__init__(configured, namespace)
        self.deadline = deadline

    async def _ask(self, *arguments: Any, **options: Any) -> Json:
        while True:
            try:
                return await super()._ask(*arguments, **options)
            except ClusterUnavailable:
                if time.monotonic() > self.deadline:
                    raise
                await asyncio.sleep(POLL_S)

    async def scale_to_nothing(self, name: str) -> Mapping[str, str]:
        """Take the pods of a Deployment away; return the labels they have, none when there is no such Deployment."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"
        body: Json = {"spec": {"replicas": 0}}
        try:
            found = await self._ask("patch", "deployments", "PATCH", path, body=body, content_type=_MERGE)
        except ClusterRefused as error:
            if error.details["status"] != 404:
                raise
            return {}
        labels: Mapping[str, str] = found["spec"]["selector"]["matchLabels"]
        return labels

    async def living(self, selector: str) -> list[str]:
        """Return the names of pods with certain labels that have not ended."""
        pods = await self._all("pods", f"{self._core}/pods", {"labelSelector": selector})
        return [
            pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    async def wait_gone(self, selector: str, what: str) -> None:
        """Return when no pod with certain labels works any more."""
        while names := await self.living(selector):
            if time.monotonic() > self.deadline:
                raise DeadlineExceeded(f"{what} still works after the time given: {', '.join(sorted(names))}")
            await asyncio.sleep(POLL_S)


async def stop_builds(deployment: str, *, patience_s: float, namespace: str = "") -> list[str]:
    """Stop the operator's Deployment, delete every Job of a build, and return their names once their pods are gone.

    Raises:
        DeadlineExceeded: pods were still there after `patience_s` seconds.
        ClusterUnavailable: the API server did not answer, to the end of them.
        ClusterRefused: something is not allowed.
    """
    configured, found = await configuration()
    api = _Stopper(configured, namespace or found, time.monotonic() + patience_s)
    async with api:
        labels = await api.scale_to_nothing(deployment)
        if labels:
            await api.wait_gone(",".join(f"{key}={value}" for key, value in labels.items()), "the operator")
        jobs = await api.jobs(SELECTOR)
        for job in jobs:
            await api.delete_job(job["metadata"]["name"], job["metadata"]["uid"])
        await api.wait_gone(SELECTOR, "a build")
        return [job["metadata"]["name"] for job in jobs]
