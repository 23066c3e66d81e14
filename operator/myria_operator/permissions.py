"""What the operator may not do although it must: asked at its start, verb by verb, before anything fails over it."""

from __future__ import annotations

import logging
from typing import Final

from myria.errors import ClusterRefused, ClusterUnavailable
from myria_operator.api import Api
from myria_operator.facts import GROUP

logger = logging.getLogger(__name__)

NEEDED: Final = (
    *((GROUP, "myriarebuilds", verb) for verb in ("get", "list", "watch", "create", "delete")),
    (GROUP, "myriarebuilds/status", "patch"),
    *(("batch", "jobs", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "pods", "list"),
    ("", "events", "create"),
)
"""(API group, resource, verb) of everything the operator does; its Role grants these and little else."""


async def review(api: Api) -> list[str]:
    """Return what is missing, as `verb resource`, and log each; [] also when the API server cannot be asked."""
    missing = []
    for group, resource, verb in NEEDED:
        try:
            if not await api.may(verb, group, resource):
                missing.append(f"{verb} {resource}")
        except (ClusterRefused, ClusterUnavailable) as error:
            logger.warning("permissions not reviewed: %s", error.message, extra={"action": "permissions_unknown"})
            return missing
    for one in missing:
        logger.error(
            "missing permission: %s in namespace %s; see examples/kubernetes/rbac/operator.yaml",
            one,
            api.namespace,
            extra={"action": "permission_missing", "permission": one},
        )
    return missing
