"""The Kubernetes API: plain dicts over the connections and credentials of `kubernetes.aio`.

The client's typed methods are not used: they do not know our resource, and their classes drop fields that only a newer
API server knows. This module retries, caches and decides nothing. Importing it loads the Kubernetes client, which is
large.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from myria.errors import ClusterRefused, ClusterUnavailable, ConfigurationError
from myria_rebuilds.resource import API_VERSION, KIND, REBUILDS, Json, ObjectKind

_METHODS: Final = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT_S: Final = 10.0
_LONGEST_RETRY_AFTER_S: Final = 30
_PAGE: Final = 500


async def configuration() -> tuple[Configuration, str]:
    """Return how to reach the API server, and the namespace of the pod or of the kubeconfig's context.

    Raises:
        ConfigurationError: neither a pod's service account nor a kubeconfig is there.
    """
    config = Configuration()
    kubeconfig = os.environ.get("KUBECONFIG") or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            kube_config.load_incluster_config(client_configuration=config)  # type: ignore[no-untyped-call]
            return config, _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
        await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, client_configuration=config
        )
        _, current_context = kube_config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            config_file=kubeconfig
        )
    except (kube_config.ConfigException, OSError) as error:
        raise ConfigurationError(
            f"no way to the Kubernetes API: {error}; run in a pod with a service account, or set KUBECONFIG"
        ) from error
    return config, (current_context.get("context") or {}).get("namespace") or "default"


class Connection:
    """Requests to the API server about the objects of one namespace.

    Args:
        configured: where the API server is, with credentials; see `configuration`.
        namespace: the objects' namespace.
        manager: the field manager under which fields are written.

    Every method raises:
        ClusterUnavailable: no answer, 429 or 5xx; whether a write happened is not known. `details` may hold
            `retry_after_s`, the wait that the API server asks for.
        ClusterRefused: any other refusal; `details` hold `status`, `reason`, `verb`, `resource`, and the `name` that it
            speaks of.
    """

    def __init__(self, configured: Configuration, namespace: str, manager: str) -> None:
        self.namespace = namespace
        self.answers: Counter[tuple[str, ...]] = Counter()
        """Requests by verb, resource, and how each ended: HTTP status or `error`."""
        self._client = ApiClient(configured)
        self._as_manager = {"fieldManager": manager}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: ObjectKind, name: str) -> Json | None:
        """Return an object, None when there is none."""
        try:
            return await self._ask("get", kind.plural, self._path(kind, name))
        except ClusterRefused as error:
            # A 404 without the object's name says that its kind, or its namespace, is not served.
            if error.details["status"] == 404 and error.details["name"] == name:
                return None
            raise

    async def objects(self, kind: ObjectKind, **selectors: str) -> list[Json]:
        """Return all objects that the selectors (`labelSelector`, `fieldSelector`) choose."""
        items: list[Json] = []
        query = {**selectors, "limit": str(_PAGE)}
        while True:
            answer = await self._ask("list", kind.plural, self._path(kind), query=query)
            items.extend(answer.get("items") or [])
            continue_token = answer["metadata"].get("continue")
            if not continue_token:
                return items
            query["continue"] = continue_token

    async def create(self, kind: ObjectKind, manifest: Json) -> Json:
        """Make an object."""
        return await self._ask("create", kind.plural, self._path(kind), body=manifest, query=self._as_manager)

    async def patch(self, kind: ObjectKind, name: str, patch: Json) -> Json:
        """Change an object by merge patch."""
        path = self._path(kind, name)
        return await self._ask(
            "patch", kind.plural, path, body=patch, query=self._as_manager, content_type=_MERGE_PATCH
        )

    async def delete(self, kind: ObjectKind, name: str, uid: str) -> None:
        """Delete an object and what it owns, provided that it is still the same one."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._ask("delete", kind.plural, self._path(kind, name), body=body)
        except ClusterRefused as error:
            if error.details["status"] not in {404, 409}:
                raise

    async def apply_status(
        self, name: str, uid: str, status: Mapping[str, Any], *, resource_version: str | None = None
    ) -> Json:
        """Apply this manager's fields of a MyriaRebuild's status.

        The uid keeps it off another resource of the same name. With `resource_version`, a resource that has changed
        since it was read as that version is a conflict.
        """
        metadata = {"name": name, "uid": uid}
        if resource_version is not None:
            metadata["resourceVersion"] = resource_version
        return await self._ask(
            "patch",
            f"{REBUILDS.plural}/status",
            f"{self._path(REBUILDS, name)}/status",
            body={"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": dict(status)},
            query={**self._as_manager, "force": "true"},
            content_type=_APPLY_PATCH,
        )

    async def may(self, verb: str, group: str, resource: str) -> bool:
        """Tell whether this identity may use a verb on a resource (`jobs`, `myriarebuilds/status`) in the namespace."""
        plural, _, subresource = resource.partition("/")
        attributes = {"namespace": self.namespace, "verb": verb, "group": group, "resource": plural}
        if subresource:
            attributes["subresource"] = subresource
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await self._ask("create", "selfsubjectaccessreviews", path, body=review)
        return bool(answer["status"].get("allowed"))

    def _path(self, kind: ObjectKind, name: str = "") -> str:
        path = f"{kind.path}/namespaces/{self.namespace}/{kind.plural}"
        return f"{path}/{name}" if name else path

    async def _ask(self, verb: str, resource: str, path: str, **request: Any) -> Json:
        with _answering(verb, resource):
            async with asyncio.timeout(_TIMEOUT_S):
                response = await self._send(verb, resource, path, **request)
                answer: Json = json.loads(await response.read())
                return answer

    async def _send(
        self,
        verb: str,
        resource: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> aiohttp.ClientResponse:
        """Send a request and count how it ended; return the answer with its body unread, or raise the refusal."""
        result = "error"
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                serialized = await self._client.param_serialize(
                    method=_METHODS[verb],
                    resource_path=path,
                    query_params=[*(query or {}).items()],
                    header_params={"Content-Type": content_type, "Accept": _JSON},
                    body=body,
                    auth_settings=["BearerToken"],
                )
                response: aiohttp.ClientResponse = (await self._client.call_api(*serialized)).response
                result = str(response.status)
                if response.status < 400:
                    return response
                refusal_body = await response.read()
        finally:
            self.answers[verb, resource, result] += 1
        raise _refusal(response.status, refusal_body, verb, resource, response.headers.get("Retry-After"))


@contextmanager
def _answering(verb: str, resource: str) -> Iterator[None]:
    """Turn failures on the way, and answers that no API server gives (a load balancer's page), into one error."""
    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
        raise ClusterUnavailable(
            f"the API server did not answer to {verb} {resource}: {error or type(error).__name__}"
        ) from error


def _refusal(
    status: int, content: bytes, verb: str, resource: str, retry_after: str | None
) -> ClusterUnavailable | ClusterRefused:
    """Return the error for an answer that refuses a request; see `Connection` for which one."""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        answer = {}
    message = str(answer.get("message") or content[:300].decode("utf-8", "replace"))
    # An answer that is no Status comes from a gateway, or from an API server that does not serve our kind yet: its 404
    # must never mean that a resource is gone.
    if status == 429 or status >= 500 or answer.get("kind") != "Status":
        error_details: dict[str, Any] = {"status": status}
        if retry_after is not None and retry_after.isdecimal():  # API servers do not send the other form, a date
            error_details["retry_after_s"] = min(int(retry_after), _LONGEST_RETRY_AFTER_S)
        return ClusterUnavailable(f"the API server answered {status} to {verb} {resource}: {message}", **error_details)
    details = answer.get("details") or {}
    return ClusterRefused(
        f"the API server refuses {verb} {resource}: {message}",
        status=status,
        reason=str(answer.get("reason", "")),
        verb=verb,
        resource=resource,
        name=str(details.get("name", "")),
        causes=[cause.get("reason", "") for cause in details.get("causes") or ()],
    )
