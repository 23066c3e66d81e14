"""What /health and /ready answer: one body with the keys that clients of other memories look for.

Those of Memtrace read `status`, `service`, `uptime` and `arc`; those of Memento `database.status` and its like, and the
status code. `/livez` and `/readyz` stay what probes should ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from myria_server.readiness import Readiness

LOOKED_AT_WITHIN_S = 1.0
"""Seconds for which an answer of the database counts: nobody proves anything here, so asking must cost nothing."""

Json = dict[str, Any]


class Health:
    """The health of one process.

    Args:
        tenant: whose store `arc` names; no other tenant is named to those who prove nothing.
        sessions: how many sessions of the legacy transport are open.
    """

    def __init__(self, readiness: Readiness, *, service: str, tenant: str, sessions: Callable[[], int]) -> None:
        self._readiness = readiness
        self._service = service
        self._tenant = tenant
        self._sessions = sessions
        self._began = time.monotonic()

    async def health(self) -> tuple[Json, int]:
        """Return body and status of /health: 503 exactly while the database is away."""
        await self._readiness.look(max_age_s=LOOKED_AT_WITHIN_S)
        up = self._readiness.database_up
        return self._body("ok" if up else "unhealthy"), 200 if up else 503

    async def ready(self) -> tuple[Json, int]:
        """Return body and status of /ready: 503 while requests should go elsewhere."""
        await self._readiness.look(max_age_s=LOOKED_AT_WITHIN_S)
        body = self._body("ready" if self._readiness.ready else "not ready")
        if self._readiness.draining:
            body["reason"] = "draining"
        elif (refusal := self._readiness.refusal) is not None:
            body |= {"reason": refusal.code, "hint": refusal.message}
        return body, 200 if self._readiness.ready else 503

    def _body(self, status: str) -> Json:
        up = self._readiness.database_up
        database = {"status": "up" if up else "down"}
        legacy = self._sessions()
        sessions = {"streamable": 0, "legacy": legacy, "total": legacy}
        redis = {"status": "disabled"}
        return {
            "status": status,
            "service": self._service,
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "uptime": round(time.monotonic() - self._began),
            "arc": {self._tenant: up},
            "database": database,
            "redis": redis,
            "sessions": sessions,
            "checks": {"database": database, "redis": redis, "sessions": sessions},
        }
