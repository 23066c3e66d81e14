"""The project's manifests as values, as the tests need them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"

Json = dict[str, Any]


@cache
def _read(path: Path) -> tuple[Json, ...]:
    return tuple(one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None)


def read(path: Path) -> list[Json]:
    """Return the objects of a YAML file, to keep and to change."""
    return copy.deepcopy(list(_read(path)))


def definition() -> Json:
    """Return the CustomResourceDefinition as it is shipped."""
    (only,) = read(ROOT / "crds" / "myriarebuild.yaml")
    return only


def without_cel(shipped: Mapping[str, Any]) -> Json:
    """Return a definition without its rules in CEL, which API servers before 1.25 do not know."""
    rendered: Json = _strip(shipped, "x-kubernetes-validations")
    return rendered


def without_status_field(shipped: Json, name: str) -> Json:
    """Return a definition as an older release might have had it: without one of the status fields."""
    rendered = copy.deepcopy(shipped)
    del schema(rendered)["properties"]["status"]["properties"][name]
    return rendered


def schema(shipped: Json) -> Json:
    """Return the schema of the only version."""
    (version,) = shipped["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]
    return found


def rbac(*, builder_may_report: bool = True) -> list[Json]:
    """Return the ServiceAccounts, Roles and RoleBindings of an installation, to be made in its namespace."""
    objects = read(EXAMPLES / "rbac" / "operator.yaml") + read(EXAMPLES / "rbac" / "builder.yaml")
    if builder_may_report:
        return objects
    return [one for one in objects if (one["kind"], one["metadata"]["name"]) != ("RoleBinding", "myria-builder")]


def people_roles() -> list[Json]:
    """Return the ClusterRoles that extend the cluster's own view and edit."""
    return read(EXAMPLES / "rbac" / "people.yaml")


def bound(binding: Json, namespace: str) -> Json:
    """Return a RoleBinding whose ServiceAccounts live in the namespace."""
    filled = copy.deepcopy(binding)
    for subject in filled.get("subjects", []):
        if subject["kind"] == "ServiceAccount":
            subject["namespace"] = namespace
    return filled


def _strip(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _strip(one, name) for key, one in value.items() if key != name}
    if isinstance(value, list):
        return [_strip(one, name) for one in value]
    return value
