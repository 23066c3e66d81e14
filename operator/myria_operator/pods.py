"""Why no pod of a Job works, in the words of the kubelet, the scheduler or the API server's admission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from myria.errors import ClusterRefused
from myria_operator import reasons
from myria_operator.observed import Job
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import EVENTS, PODS

_LIVING: Final = frozenset({"Pending", "Running", "Unknown"})
"""Phases of pods that may still work."""


async def pods_problem(api: Connection, job: Job) -> tuple[str, str] | None:
    """Return why no pod of a Job works: POD_NOT_STARTING or PODS_REFUSED, and a message; None if nothing is known."""
    try:
        pods = await api.objects(PODS, labelSelector=f"job-name={job.name}")
        for pod in pods:
            if problem := not_starting(pod):
                return reasons.POD_NOT_STARTING, f"pod {pod['metadata']['name']}: {problem}"
        if any((pod.get("status") or {}).get("phase") in _LIVING for pod in pods):
            return None
        of_job = f"involvedObject.kind=Job,involvedObject.name={job.name},involvedObject.uid={job.uid}"
        events = await api.objects(EVENTS, fieldSelector=f"{of_job},reason=FailedCreate,type=Warning")
    except ClusterRefused:
        return None  # only details are lost; the permission review at the start names the missing right
    refusal = newest_refusal(events, since=max((pod["metadata"]["creationTimestamp"] for pod in pods), default=""))
    return (reasons.PODS_REFUSED, refusal) if refusal is not None else None


def not_starting(pod: Mapping[str, Any]) -> str | None:
    """Return why a pod does not start, None when it does or has."""
    pod_status = pod.get("status") or {}
    for container in pod_status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    for condition in pod_status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}".rstrip(": ")
    return None


def newest_refusal(events: Sequence[Mapping[str, Any]], *, since: str) -> str | None:
    """Return the newest refusal of a Job's pods; None if pods were created after it (the last at `since`, RFC 3339)."""

    def last_seen(event: Mapping[str, Any]) -> str:
        series = (event.get("series") or {}).get("lastObservedTime")
        return str(series or event.get("lastTimestamp") or event.get("eventTime") or "")

    if not events:
        return None
    newest = max(events, key=last_seen)
    return str(newest.get("message") or "no reason given") if last_seen(newest) >= since else None
