"""A small client of the Kubernetes API for tests: plain dicts, one identity per client, nothing cached."""

from __future__ import annotations

import contextlib
import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx

logger = logging.getLogger(__name__)

Json = dict[str, Any]

GROUP, VERSION = "myria.dev", "v1alpha1"

RESOURCES: Mapping[str, tuple[str, str, bool]] = {
    "Namespace": ("/api/v1", "namespaces", False),
    "Node": ("/api/v1", "nodes", False),
    "Pod": ("/api/v1", "pods", True),
    "Secret": ("/api/v1", "secrets", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Event": ("/api/v1", "events", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "PodTemplate": ("/api/v1", "podtemplates", True),
    "Service": ("/api/v1", "services", True),
    "Endpoints": ("/api/v1", "endpoints", True),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "ReplicaSet": ("/apis/apps/v1", "replicasets", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "MyriaRebuild": (f"/apis/{GROUP}/{VERSION}", "myriarebuilds", True),
}
"""Kind -> path of its group, plural, whether it lives in a namespace."""

_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
_RETRY_S = 0.2


class ApiError(Exception):
    """The API server refused; `reason` is its word for it (NotFound, Conflict, Invalid, Forbidden, ...)."""

    def __init__(self, status: int, body: str) -> None:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {}
        self.status = status
        self.reason: str = answer.get("reason", "")
        self.message: str = answer.get("message", body[:500])
        super().__init__(f"{status} {self.reason}: {self.message}")


class Api:
    """One identity's access to one API server.

    A connection that fails raises httpx.TransportError: tests that take the API server away expect it.
    """

    def __init__(self, url: str, trust: ssl.SSLContext, token: str) -> None:
        self._client = httpx.Client(
            base_url=url,
            verify=trust,
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
            limits=httpx.Limits(max_connections=200),
            trust_env=False,
        )
        self._lock = threading.Lock()
        self._users = 1
        self._closed = False

    def close(self) -> None:
        """Close its connections, once nobody uses them any more; whoever comes later gets a RuntimeError.

        Closed under a thread that reads, a socket's number is soon another connection's, whose bytes it would take.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._leave()

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise RuntimeError("this access to the API server is closed")
            self._users += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Return the answer to any request.

        Raises:
            ApiError: the answer is a refusal.
        """
        content = None if body is None else json.dumps(body)
        asked = self._client.build_request(
            method, path, content=content, params=params, headers={"Content-Type": content_type}
        )
        with self._using():
            answer = self._client.send(asked)
        if answer.status_code >= 400:
            raise ApiError(answer.status_code, answer.text)
        parsed = answer.json() if answer.headers.get("content-type", "").startswith("application/json") else {}
        return parsed if isinstance(parsed, dict) else {}

    def get(self, kind: str, name: str, namespace: str | None = None) -> Json:
        """Return one object."""
        return self.request("GET", path(kind, name, namespace))

    def find(self, kind: str, name: str, namespace: str | None = None) -> Json | None:
        """Return one object, or None when there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def objects(self, kind: str, namespace: str | None = None, *, labels: str | None = None) -> list[Json]:
        """Return the objects of a kind, in every namespace when none is named."""
        params = {"labelSelector": labels} if labels else None
        items: list[Json] = self.request("GET", path(kind, None, namespace), params=params)["items"]
        return items

    def create(self, manifest: Mapping[str, Any], namespace: str | None = None, *, dry_run: bool = False) -> Json:
        """Create an object; with `dry_run` only ask whether it would be accepted."""
        params = {"dryRun": "All"} if dry_run else None
        return self.request("POST", path(manifest["kind"], None, namespace), manifest, params=params)

    def apply(
        self,
        manifest: Mapping[str, Any],
        namespace: str | None = None,
        *,
        manager: str = "tests",
        subresource: str | None = None,
    ) -> Json:
        """Create or change an object by server-side apply with force."""
        return self.request(
            "PATCH",
            path(manifest["kind"], manifest["metadata"]["name"], namespace, subresource),
            manifest,
            params={"fieldManager": manager, "force": "true"},
            content_type=_APPLY,
        )

    def patch(
        self,
        kind: str,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Change an object, or its subresource, by merge patch."""
        return self.request(
            "PATCH",
            path(kind, name, namespace, subresource),
            body,
            params={"dryRun": "All"} if dry_run else None,
            content_type=_MERGE,
        )

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object; one that is gone already, or is another one than `uid`, is fine."""
        options: Json = {"propagationPolicy": propagation}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            self.request("DELETE", path(kind, name, namespace), options)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    def watch(
        self, kind: str, namespace: str | None = None, *, since: str = "", timeout_s: int = 300
    ) -> Iterator[tuple[str, Json]]:
        """Yield ("ADDED" | "MODIFIED" | "DELETED" | "ERROR", object) until the server ends the watch."""
        params = {"watch": "1", "timeoutSeconds": str(timeout_s), "allowWatchBookmarks": "false"}
        if since:
            params["resourceVersion"] = since
        where = path(kind, None, namespace)
        with self._using(), self._client.stream("GET", where, params=params, timeout=timeout_s + 10) as answer:
            if answer.status_code >= 400:
                raise ApiError(answer.status_code, answer.read().decode("utf-8", "replace"))
            for line in answer.iter_lines():
                if line:
                    event = json.loads(line)
                    yield event["type"], event["object"]

    def resource_version(self, kind: str, namespace: str | None = None) -> tuple[list[Json], str]:
        """Return the objects of a kind, and the version from which to watch on."""
        answer = self.request("GET", path(kind, None, namespace))
        return answer["items"], answer["metadata"]["resourceVersion"]

    def follow(self, kind: str, namespace: str, stopping: threading.Event) -> Iterator[tuple[str, list[Json]]]:
        """Yield ("LISTED", all objects of a kind), then ("ADDED" | "MODIFIED" | "DELETED", one) until stopped.

        Whenever the API server ends the watch, or is away, the objects are listed anew.
        """
        while not stopping.is_set():
            try:
                objects, version = self.resource_version(kind, namespace)
                yield "LISTED", objects
                for event, found in self.watch(kind, namespace, since=version, timeout_s=20):
                    if stopping.is_set() or event == "ERROR":
                        break
                    yield event, [found]
            except (httpx.TransportError, ApiError, RuntimeError) as error:
                if not stopping.is_set():
                    logger.info("following %s of %s waits for the API server: %s", kind, namespace, error)
                    stopping.wait(_RETRY_S)

    def ready(self) -> bool:
        """Return whether the server answers, and says that it is ready."""
        with contextlib.suppress(httpx.TransportError), self._using():
            return self._client.get("/readyz", timeout=2).status_code == 200
        return False


def insist(call: Callable[[], object], stopping: threading.Event) -> None:
    """Call until the API server has heard it; a refusal (the object is gone, or another one) ends it as well."""
    while not stopping.is_set():
        try:
            call()
        except ApiError as error:
            if error.status < 500 and error.status != 429:
                return
        except (httpx.TransportError, RuntimeError):
            pass
        else:
            return
        stopping.wait(_RETRY_S)


def path(kind: str, name: str | None = None, namespace: str | None = None, subresource: str | None = None) -> str:
    """Return the path of an object, of its subresource, or of all objects of a kind."""
    group, plural, namespaced = RESOURCES[kind]
    parts = [group]
    if namespaced and namespace is not None:
        parts += ["namespaces", namespace]
    parts += [plural, *([name] if name else []), *([subresource] if subresource else [])]
    return "/".join(parts)


def condition(resource: Mapping[str, Any], kind: str) -> Json:
    """Return one of a resource's conditions, or an empty dict."""
    found: list[Json] = resource.get("status", {}).get("conditions") or []
    return next((one for one in found if one["type"] == kind), {})
