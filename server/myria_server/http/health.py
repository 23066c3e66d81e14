"""What says how this process does: probes, figures, and the health that clients of other memories ask for.

/health and /ready answer one body with the keys that those look for. Those of Memtrace read `status`, `service`,
`uptime` and `arc`; those of Memento `database.status` and its like, and the status code. `/livez` and `/readyz` stay
what probes should ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from myria_server.metrics import ServerMetrics
from myria_server.readiness import Readiness

METRICS_PATH = "/metrics"

CHECK_AGE_S = 1.0
"""Seconds for which an answer of the database counts: nobody proves anything here, so asking must cost nothing."""

Json = dict[str, Any]


class Health:
    """The health of one process.

    Args:
        tenant: the tenant named under `arc`; callers without credentials learn of no other.
        sessions: how many sessions of the legacy transport are open.
    """

    def __init__(
        self,
        readiness: Readiness,
        metrics: ServerMetrics,
        *,
        service: str,
        tenant: str,
        sessions: Callable[[], int],
    ) -> None:
        self._readiness = readiness
        self._metrics = metrics
        self._service = service
        self._tenant = tenant
        self._sessions = sessions
        self._started_at = time.monotonic()

    def routes(self) -> list[Route]:
        """Return the routes, which are open to everybody."""
        return [
            Route("/livez", self._answer_live),
            Route("/healthz", self._answer_live),
            Route("/readyz", self._answer_readyz),
            Route(METRICS_PATH, self._show_metrics),
            *self.routes_of_clients(""),
        ]

    def routes_of_clients(self, prefix: str) -> list[Route]:
        """Return the routes that clients of other memories ask, below a prefix."""
        return [Route(prefix + "/health", self._answer_health), Route(prefix + "/ready", self._answer_ready)]

    async def _answer_live(self, _request: Request) -> Response:
        return _json({"status": "ok"}, 200)

    async def _answer_readyz(self, _request: Request) -> Response:
        if self._readiness.draining:
            return _json({"status": "draining"}, 503)
        await self._readiness.check()
        if (refusal := self._readiness.refusal) is not None:
            return _json({"status": "unready", "error": refusal.to_json()}, 503)
        return _json({"status": "ready"}, 200)

    async def _show_metrics(self, _request: Request) -> Response:
        return Response(await self._metrics.text(self._readiness), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _answer_health(self, _request: Request) -> Response:
        """Answer 503 exactly while the database is away."""
        await self._readiness.check(max_age_s=CHECK_AGE_S)
        up = self._readiness.database_up
        return _json(self._health_body("ok" if up else "unhealthy"), 200 if up else 503)

    async def _answer_ready(self, _request: Request) -> Response:
        """Answer 503 while requests should go elsewhere."""
        await self._readiness.check(max_age_s=CHECK_AGE_S)
        body = self._health_body("ready" if self._readiness.ready else "not ready")
        if self._readiness.draining:
            body["reason"] = "draining"
        elif (refusal := self._readiness.refusal) is not None:
            body |= {"reason": refusal.code, "hint": refusal.message}
        return _json(body, 200 if self._readiness.ready else 503)

    def _health_body(self, status: str) -> Json:
        up = self._readiness.database_up
        database = {"status": "up" if up else "down"}
        legacy = self._sessions()
        sessions = {"streamable": 0, "legacy": legacy, "total": legacy}
        redis = {"status": "disabled"}
        return {
            "status": status,
            "service": self._service,
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "uptime": round(time.monotonic() - self._started_at),
            "arc": {self._tenant: up},
            "database": database,
            "redis": redis,
            "sessions": sessions,
            "checks": {"database": database, "redis": redis, "sessions": sessions},
        }


def _json(body: Json, status: int) -> Response:
    return Response(orjson.dumps(body, default=str), status_code=status, media_type="application/json")
