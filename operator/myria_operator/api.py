"""The Kubernetes API as the operator uses it: plain dicts over `kubernetes.aio`'s connections and credentials.

Nothing is retried, cached or decided in here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from myria.errors import ClusterRefused, ClusterUnavailable, ConfigurationError
from myria_operator.facts import GROUP, MANAGER, PLURAL, VERSION, Json
from myria_operator.failpoints import write

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT_S: Final = 10.0
_LONGEST_RETRY_AFTER_S: Final = 30
_PAGE: Final = 500
_AS_US: Final = {"fieldManager": MANAGER}

_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"


async def configuration() -> tuple[Configuration, str]:
    """Return how to reach the API server, and the namespace of the pod or of the kubeconfig's context.

    Raises:
        ConfigurationError: neither a pod's service account nor a kubeconfig is there.
    """
    found = Configuration()
    kubeconfig = os.environ.get("KUBECONFIG") or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            kube_config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
            return found, _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
        await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, client_configuration=found
        )
        _, current = kube_config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            config_file=kubeconfig
        )
    except (kube_config.ConfigException, OSError) as error:
        raise ConfigurationError(
            f"no way to the Kubernetes API: {error}; run in a pod with a service account, or set KUBECONFIG"
        ) from error
    return found, (current.get("context") or {}).get("namespace") or "default"


class Api:
    """The objects of one namespace.

    Every method raises:
        ClusterUnavailable: no answer, 429 or 5xx; whether a write happened is not known. `details` may hold
            `retry_after_s`, the wait that the API server asks for.
        ClusterRefused: any other refusal; `details` hold `status`, `reason`, `verb` and `resource`.
    """

    def __init__(self, configured: Configuration, namespace: str) -> None:
        self.namespace = namespace
        self.requests: Counter[str] = Counter()
        """Requests made so far, by verb and resource."""
        self.answers: Counter[tuple[str, ...]] = Counter()
        """The same with how each ended: verb, resource, and HTTP status or `error`."""
        self._client = ApiClient(configured)
        self._rebuilds = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._core = f"/api/v1/namespaces/{namespace}"

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def rebuild(self, name: str) -> Json | None:
        """Return a MyriaRebuild, None when there is none."""
        return await self._found("get", PLURAL, f"{self._rebuilds}/{name}")

    async def rebuilds(self) -> list[Json]:
        """Return every MyriaRebuild."""
        return await self._all(PLURAL, self._rebuilds, {})

    async def make_rebuild(self, manifest: Json) -> Json:
        """Make a MyriaRebuild."""
        async with write("make_rebuild"):
            return await self._ask("create", PLURAL, "POST", self._rebuilds, body=manifest, query=_AS_US)

    async def delete_rebuild(self, name: str, uid: str) -> None:
        """Delete a MyriaRebuild, provided that it is still the same one."""
        async with write("delete_rebuild"):
            await self._delete(PLURAL, f"{self._rebuilds}/{name}", uid)

    async def apply_status(self, name: str, uid: str, resource_version: str, status: Mapping[str, Any]) -> Json:
        """Write the whole of our status over what was read as `resource_version`; a conflict means: read it anew."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "MyriaRebuild",
            "metadata": {"name": name, "uid": uid, "resourceVersion": resource_version},
            "status": dict(status),
        }
        async with write("status"):
            return await self._ask(
                "patch",
                f"{PLURAL}/status",
                "PATCH",
                f"{self._rebuilds}/{name}/status",
                body=body,
                query={**_AS_US, "force": "true"},
                content_type=_APPLY,
            )

    async def job(self, name: str) -> Json | None:
        """Return a Job, None when there is none."""
        return await self._found("get", "jobs", f"{self._jobs}/{name}")

    async def jobs(self, selector: str) -> list[Json]:
        """Return the Jobs with certain labels."""
        return await self._all("jobs", self._jobs, {"labelSelector": selector})

    async def make_job(self, manifest: Json) -> Json:
        """Make a Job."""
        async with write("make_job"):
            return await self._ask("create", "jobs", "POST", self._jobs, body=manifest, query=_AS_US)

    async def stop_job(self, name: str, deadline_s: int) -> Json:
        """Give a Job a deadline that is over."""
        async with write("stop_job"):
            return await self._patch_job(name, {"spec": {"activeDeadlineSeconds": deadline_s}})

    async def change_job(self, name: str, patch: Json) -> Json:
        """Change a Job by merge patch."""
        async with write("change_job"):
            return await self._patch_job(name, patch)

    async def delete_job(self, name: str, uid: str) -> None:
        """Delete a Job and its pods, provided that it is still the same one."""
        async with write("delete_job"):
            await self._delete("jobs", f"{self._jobs}/{name}", uid)

    async def pods(self, job: str) -> list[Json]:
        """Return the pods of a Job."""
        return await self._all("pods", f"{self._core}/pods", {"labelSelector": f"job-name={job}"})

    async def refused_pods(self, job: str, uid: str) -> list[Json]:
        """Return the Events by which the Job controller tells that pods of a Job were refused."""
        about = {"kind": "Job", "name": job, "uid": uid}
        selector = ",".join(f"involvedObject.{field}={value}" for field, value in about.items())
        return await self._all(
            "events", f"{self._core}/events", {"fieldSelector": f"{selector},reason=FailedCreate,type=Warning"}
        )

    async def make_event(self, manifest: Json) -> None:
        """Make a Kubernetes Event; one of its name that is there already will do."""
        try:
            async with write("event"):
                await self._ask("create", "events", "POST", f"{self._core}/events", body=manifest)
        except ClusterRefused as error:
            if error.details["status"] != 409:
                raise

    async def may(self, verb: str, group: str, resource: str) -> bool:
        """Tell whether this identity may use a verb on a resource (`jobs`, `myriarebuilds/status`) here."""
        plural, _, subresource = resource.partition("/")
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": plural}
        if subresource:
            asked["subresource"] = subresource
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await self._ask("create", "selfsubjectaccessreviews", "POST", path, body=body)
        return bool(answer["status"].get("allowed"))

    async def _patch_job(self, name: str, patch: Json) -> Json:
        return await self._ask(
            "patch", "jobs", "PATCH", f"{self._jobs}/{name}", body=patch, query=_AS_US, content_type=_MERGE
        )

    async def _found(self, verb: str, resource: str, path: str) -> Json | None:
        try:
            return await self._ask(verb, resource, "GET", path)
        except ClusterRefused as error:
            if error.details["status"] == 404:
                return None
            raise

    async def _all(self, resource: str, path: str, query: Mapping[str, str]) -> list[Json]:
        items: list[Json] = []
        page: dict[str, str] = {**query, "limit": str(_PAGE)}
        while True:
            answer = await self._ask("list", resource, "GET", path, query=page)
            items.extend(answer.get("items") or [])
            following = answer["metadata"].get("continue")
            if not following:
                return items
            page["continue"] = following

    async def _delete(self, resource: str, path: str, uid: str) -> None:
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._ask("delete", resource, "DELETE", path, body=body)
        except ClusterRefused as error:
            if error.details["status"] not in {404, 409}:
                raise

    async def _ask(
        self,
        verb: str,
        resource: str,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> Json:
        self.requests[f"{verb} {resource}"] += 1
        where = f"{path}?{urlencode(query)}" if query else path
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                serialized = await self._client.param_serialize(
                    method=method,
                    resource_path=where,
                    header_params={"Content-Type": content_type, "Accept": _JSON},
                    body=body,
                    auth_settings=["BearerToken"],
                )
                response = await self._client.call_api(*serialized)
                content: bytes = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.answers[verb, resource, "error"] += 1
            raise ClusterUnavailable(
                f"the API server did not answer to {verb} {resource}: {error or type(error).__name__}"
            ) from error
        self.answers[verb, resource, str(response.status)] += 1
        if response.status < 400:
            try:
                answer: Json = json.loads(content)
            except ValueError as error:  # a load balancer's page, say
                raise ClusterUnavailable(f"what answered to {verb} {resource} was no API server: {error}") from error
            return answer
        raise _refusal(response.status, content, verb, resource, response.headers.get("Retry-After"))


def _refusal(
    status: int, content: bytes, verb: str, resource: str, retry_after: str | None
) -> ClusterUnavailable | ClusterRefused:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    message = str(answer.get("message") or content[:300].decode("utf-8", "replace"))
    # What is no Status is a gateway's word, or that of an API server which does not serve our kind yet: a 404 of theirs
    # must never mean that a resource is gone.
    if status == 429 or status >= 500 or answer.get("kind") != "Status":
        details: dict[str, Any] = {"status": status}
        if retry_after is not None and retry_after.isdecimal():  # the other form, a date, is not of API servers
            details["retry_after_s"] = min(int(retry_after), _LONGEST_RETRY_AFTER_S)
        return ClusterUnavailable(f"the API server answered {status} to {verb} {resource}: {message}", **details)
    causes = [one.get("reason", "") for one in (answer.get("details") or {}).get("causes") or ()]
    return ClusterRefused(
        f"the API server refuses {verb} {resource}: {message}",
        status=status,
        reason=str(answer.get("reason", "")),
        verb=verb,
        resource=resource,
        causes=causes,
    )
