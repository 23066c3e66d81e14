"""What the resource is called in the API server, and the other kinds of objects that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

GROUP: Final = "myria.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
PLURAL: Final = "myriarebuilds"
KIND: Final = "MyriaRebuild"


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of objects in a namespace: the path of its API version, and its name there."""

    path: str
    plural: str


REBUILDS: Final = ObjectKind(f"/apis/{API_VERSION}", PLURAL)
JOBS: Final = ObjectKind("/apis/batch/v1", "jobs")
PODS: Final = ObjectKind("/api/v1", "pods")
EVENTS: Final = ObjectKind("/api/v1", "events")
SECRETS: Final = ObjectKind("/api/v1", "secrets")
SERVICE_ACCOUNTS: Final = ObjectKind("/api/v1", "serviceaccounts")
DEPLOYMENTS: Final = ObjectKind("/apis/apps/v1", "deployments")
ROLES: Final = ObjectKind("/apis/rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS: Final = ObjectKind("/apis/rbac.authorization.k8s.io/v1", "rolebindings")
