"""The Kubernetes API: plain dicts over `kubernetes.aio`'s connections and credentials.

Nothing is retried, cached or decided in here. Importing this module loads the Kubernetes client, which is large.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from myria.errors import ClusterRefused, ClusterUnavailable, ConfigurationError
from myria_rebuilds.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION, Json

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

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
        _, current = kube_config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            config_file=kubeconfig
        )
    except (kube_config.ConfigException, OSError) as error:
        raise ConfigurationError(
            f"no way to the Kubernetes API: {error}; run in a pod with a service account, or set KUBECONFIG"
        ) from error
    return config, (current.get("context") or {}).get("namespace") or "default"


class Connection:
    """Requests to the API server about one namespace, and the status of its MyriaRebuilds.

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
        self.requests: Counter[str] = Counter()
        """Requests made so far, by verb and resource."""
        self.answers: Counter[tuple[str, ...]] = Counter()
        """The same with how each ended: verb, resource, and HTTP status or `error`."""
        self._client = ApiClient(configured)
        self._rebuilds = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"
        self._as_manager = {"fieldManager": manager}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def apply_rebuild_status(
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
            f"{PLURAL}/status",
            "PATCH",
            f"{self._rebuilds}/{name}/status",
            body={"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": dict(status)},
            query={**self._as_manager, "force": "true"},
            content_type=APPLY_PATCH,
        )

    async def _found(self, verb: str, resource: str, path: str) -> Json | None:
        try:
            return await self._ask(verb, resource, "GET", path)
        except ClusterRefused as error:
            # A 404 without the object's name says that its kind, or its namespace, is not served.
            if error.details["status"] == 404 and error.details["name"] == path.rpartition("/")[2]:
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
        content_type: str = JSON,
    ) -> Json:
        self.requests[f"{verb} {resource}"] += 1
        where = f"{path}?{urlencode(query)}" if query else path
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                serialized = await self._client.param_serialize(
                    method=method,
                    resource_path=where,
                    header_params={"Content-Type": content_type, "Accept": JSON},
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
    # An answer that is no Status comes from a gateway, or from an API server that does not serve our kind yet: its 404
    # must never mean that a resource is gone.
    if status == 429 or status >= 500 or answer.get("kind") != "Status":
        told: dict[str, Any] = {"status": status}
        if retry_after is not None and retry_after.isdecimal():  # API servers do not send the other form, a date
            told["retry_after_s"] = min(int(retry_after), _LONGEST_RETRY_AFTER_S)
        return ClusterUnavailable(f"the API server answered {status} to {verb} {resource}: {message}", **told)
    details = answer.get("details") or {}
    causes = [cause.get("reason", "") for cause in details.get("causes") or ()]
    return ClusterRefused(
        f"the API server refuses {verb} {resource}: {message}",
        status=status,
        reason=str(answer.get("reason", "")),
        verb=verb,
        resource=resource,
        name=str(details.get("name", "")),
        causes=causes,
    )
