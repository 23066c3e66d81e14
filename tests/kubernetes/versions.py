"""Every version of every MyriaRebuild in a namespace as a watcher saw it, and what contradicts itself in them."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterator

import httpx

from tests.kubernetes.api import ApiError, Json, condition
from tests.kubernetes.control_plane import ADMIN_TOKEN, ControlPlane
from tests.support.processes import wait_until

ENDS = ("True", "False")
LASTING = (
    "installationID",
    "jobName",
    "buildID",
    "snapshotID",
    "previousSnapshotID",
    "cutoff",
    "eventRange",
    "startedAt",
    "completedAt",
    "durationSeconds",
)
"""Fields of a status that stay as they were written first."""


class Versions:
    """A watcher of a namespace's MyriaRebuilds, from `start()` to `stop()`; it misses no version."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._api = control_plane.api(ADMIN_TOKEN)
        self._namespace = namespace
        self._seen: dict[str, list[Json]] = defaultdict(list)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"versions {namespace}", daemon=True)

    def start(self) -> Versions:
        """Begin to watch."""
        _, self._since = self._api.resource_version("MyriaRebuild", self._namespace)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End; the watch itself ends when its time is over."""
        self._stopping.set()
        self._api.close()

    def seen(self) -> dict[str, list[Json]]:
        """Return the versions of each resource by uid, oldest first, once those that are there now were seen."""
        there = self._api.objects("MyriaRebuild", self._namespace)
        newest = {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in there}

        def caught_up() -> bool:
            with self._lock:
                known = {uid: {one["metadata"]["resourceVersion"] for one in self._seen[uid]} for uid in newest}
            return all(version in known[uid] for uid, version in newest.items())

        wait_until(caught_up, 60, "the watch of all versions")
        with self._lock:
            return {uid: list(versions) for uid, versions in self._seen.items()}

    def contradictions(self) -> list[str]:
        """Return what contradicts itself within a version, or between two that follow each other."""
        return [
            f"{version['metadata']['name']} at {version['metadata']['resourceVersion']}: {problem}"
            for versions in self.seen().values()
            for before, version in zip([None, *versions], versions, strict=False)
            for problem in (*contradictions(version), *(_changes(before, version) if before is not None else ()))
        ]

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                watch = self._api.watch("MyriaRebuild", self._namespace, since=self._since, timeout_s=20)
                for kind, found in watch:
                    if self._stopping.is_set():
                        return
                    if kind == "ERROR":
                        break
                    with self._lock:
                        if kind != "DELETED":
                            self._seen[found["metadata"]["uid"]].append(found)
                        self._since = found["metadata"]["resourceVersion"]
            except (httpx.TransportError, ApiError):
                self._stopping.wait(0.2)  # the API server is away: it goes on where it was
            except RuntimeError:
                return


def contradictions(resource: Json) -> Iterator[str]:
    """Yield what contradicts itself in one version of a MyriaRebuild."""
    status = resource.get("status") or {}
    if not status.get("conditions"):
        for name in sorted(set(status) - {"observedGeneration", "installationID"}):
            yield f"{name} without conditions"
        return
    succeeded, published, suspended = (condition(resource, kind) for kind in ("Succeeded", "Published", "Suspended"))
    if not (succeeded and published and suspended):
        yield "a condition is missing"
        return
    has_ended = succeeded["status"] in ENDS
    if ("completedAt" in status) != has_ended:
        yield f"completedAt is {status.get('completedAt')} while Succeeded is {succeeded['status']}"
    if ("durationSeconds" in status) != (has_ended and "startedAt" in status):
        yield f"durationSeconds is {status.get('durationSeconds')} while Succeeded is {succeeded['status']}"
    if status.get("startedAt", "") > status.get("completedAt", "9"):
        yield "it ended before it started"
    if (published["status"] in ENDS) != has_ended:
        yield f"Published is {published['status']} while Succeeded is {succeeded['status']}"
    if published["status"] == "True" and (succeeded["status"] != "True" or "snapshotID" not in status):
        yield "Published without success or snapshot"
    if succeeded["reason"] == "BuildPublished" and not {"buildID", "cutoff", "counts"} <= set(status):
        yield "a published build without buildID, cutoff or counts"
    if suspended["status"] == "True" and has_ended:
        yield "Suspended after the end"
    scopes = re.match(r"(\d+) of (\d+) scopes", succeeded["message"])
    if scopes and status.get("progress") != {
        **status.get("progress", {}),
        "done": int(scopes[1]),
        "tasks": int(scopes[2]),
    }:
        yield f"progress is {status.get('progress')} while the message says {scopes[0]}"
    for one in status["conditions"]:
        if one["observedGeneration"] != status["observedGeneration"]:
            yield f"{one['type']} answers to another generation than the status"
    if status["observedGeneration"] > resource["metadata"]["generation"]:
        yield "a generation was observed that is not there yet"


def _changes(before: Json, after: Json) -> Iterator[str]:
    """Yield what must not change between two versions, and did."""
    old, new = before.get("status") or {}, after.get("status") or {}
    for name in LASTING:
        if name in old and old[name] != new.get(name):
            yield f"{name} was {old[name]} and is {new.get(name)}"
    for kind in ("Succeeded", "Published", "Suspended"):
        was, now = condition(before, kind), condition(after, kind)
        if was and kind == "Succeeded" and was["status"] in ENDS and now.get("status") != was["status"]:
            yield f"{kind} was {was['status']} for good and is {now.get('status')}"
        if was and kind == "Published" and was["status"] == "True" and now.get("status") != "True":
            yield f"{kind} was True for good and is {now.get('status')}"
        stays = bool(was) and was["status"] == now.get("status")
        if stays and was["lastTransitionTime"] != now["lastTransitionTime"]:
            yield f"the time of {kind} changed without its status"
