"""Watch a kind of objects: report each that there is, then each that changes.

A watch only saves time, because the sweep compares everything. So nothing is done about one that breaks but to list
again and begin the next one, and an object may be reported although nothing has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from myria.errors import ClusterRefused, ClusterUnavailable
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import Json, ObjectKind

logger = logging.getLogger(__name__)

_SHORTEST_WAIT_S: Final = 0.2
"""Seconds between two watches."""
_LONGEST_WAIT_S: Final = 2.0
"""The same after several in a row that reported nothing."""


async def watch(api: Connection, kind: ObjectKind, heard: Callable[[Json], None], **selectors: str) -> None:
    """Call `heard` with each object that the selectors choose, and again when it changes, until cancelled."""
    since, wait = "", _SHORTEST_WAIT_S
    while True:
        try:
            if not since:
                there, since = await api.objects(kind, **selectors)
                for each in there:
                    heard(each)
            async for changed in api.watch(kind, since, **selectors):
                since, wait = changed["metadata"]["resourceVersion"], _SHORTEST_WAIT_S
                if "name" in changed["metadata"]:  # a bookmark has none
                    heard(changed)
        except (ClusterUnavailable, ClusterRefused) as error:
            # The version may be too old by now, or of another API server's history.
            since, wait = "", min(wait * 2, _LONGEST_WAIT_S)
            logger.warning("a watch begins anew: %s", error.message, extra={"action": "watch_ended"})
        await asyncio.sleep(wait)
