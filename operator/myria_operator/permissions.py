"""A review of the operator's permissions at its start, so that a missing one is logged before a request fails."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from myria.errors import ClusterRefused, ClusterUnavailable
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import GROUP

logger = logging.getLogger(__name__)

NEEDED: Final = (
    *((GROUP, "myriarebuilds", verb) for verb in ("get", "list", "watch", "create", "delete")),
    (GROUP, "myriarebuilds/status", "patch"),
    *(("batch", "jobs", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "pods", "list"),
    *(("", "events", verb) for verb in ("list", "create")),
)
"""(API group, resource, verb) of everything the operator does; its Role grants these and little else."""

_AGAIN_S: Final = 10.0
"""Seconds between two attempts while the API server is away or refuses the review itself."""


async def review(api: Connection) -> None:
    """Log each missing permission; try again until the API server has answered."""
    while True:
        try:
            missing = [
                f"{verb} {resource}" for group, resource, verb in NEEDED if not await api.may(verb, group, resource)
            ]
            break
        except (ClusterRefused, ClusterUnavailable) as error:
            logger.warning("permissions not reviewed yet: %s", error.message, extra={"action": "permissions_unknown"})
            await asyncio.sleep(_AGAIN_S)
    for permission in missing:
        logger.error(
            "missing permission: %s in namespace %s; see examples/kubernetes/rbac/operator.yaml",
            permission,
            api.namespace,
            extra={"action": "permission_missing", "permission": permission},
        )
