"""A container's environment as a kubelet makes it: values, Secrets, ConfigMaps, the downward API, $(NAME)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.api import Api, Json

NODE = "test-node"


class CannotStart(Exception):
    """The container's configuration asks for something that is not there."""


class Sources:
    """Where the values of a namespace's containers come from."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def resolve(self, pod: Json, container: Json, given: Mapping[str, str], *, address: str) -> dict[str, str]:
        """Return a container's variables on top of those that are given.

        Raises:
            CannotStart: a Secret, a ConfigMap or a key is missing, or a field is unknown.
        """
        environment = dict(given)
        for source in container.get("envFrom", []):
            environment.update(self._every_key(source))
        for variable in container.get("env", []):
            value = self._value(pod, variable, address)
            if value is not None:
                environment[variable["name"]] = expand(value, environment)
        return environment

    def data(self, kind: str, name: str) -> dict[str, str] | None:
        """Return what a Secret or a ConfigMap holds, None when there is none."""
        found = self._api.find(kind, name, self._namespace)
        if found is None:
            return None
        data: dict[str, str] = found.get("data") or {}
        if kind == "Secret":
            return {key: base64.b64decode(value).decode() for key, value in data.items()}
        return data

    def _value(self, pod: Json, variable: Json, address: str) -> str | None:
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return _field(pod, source["fieldRef"]["fieldPath"], address)
        for kind, reference in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
            if reference in source:
                wanted = source[reference]
                data = self.data(kind, wanted["name"]) or {}
                if wanted["key"] in data:
                    return data[wanted["key"]]
                if wanted.get("optional"):
                    return None
                raise CannotStart(f"couldn't find key {wanted['key']} in {kind} {self._namespace}/{wanted['name']}")
        raise CannotStart(f"unknown source of {variable['name']}")

    def _every_key(self, source: Json) -> dict[str, str]:
        prefix = source.get("prefix", "")
        for kind, reference in (("Secret", "secretRef"), ("ConfigMap", "configMapRef")):
            if reference in source:
                data = self.data(kind, source[reference]["name"])
                if data is None and not source[reference].get("optional"):
                    raise CannotStart(f'{kind.lower()} "{source[reference]["name"]}" not found')
                return {prefix + key: value for key, value in (data or {}).items()}
        return {}


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Return text with $(NAME) replaced as a kubelet does: unknown names stay, $$ is one $."""

    def replaced(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else environment.get(name, match.group(0))

    return re.sub(r"\$(?:\$|\(([^)]*)\))", lambda match: "$" if match.group(0) == "$$" else replaced(match), text)


def _field(pod: Json, where: str, address: str) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", where):
        return str(metadata.get(match.group(1), {}).get(match.group(2), ""))
    known: Mapping[str, Any] = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": NODE,
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.hostIP": "127.0.0.1",
    }
    if where not in known:
        raise CannotStart(f"unknown field {where}")
    return str(known[where])
