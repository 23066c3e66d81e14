"""What appends are compared with: a bare Starlette endpoint, one asyncpg INSERT and one commit per request, of one
event or, by unnest, of many.

No validation, no idempotency, no tenants, no shared commits: the least a service must do to keep an event.

    BARE_DSN=postgresql://... python -m benchmarks.bare 9000
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.cluster import statement
from myria.log.ids import new_id, new_ids
from myria_cli.children import stop_with_parent

_CONNECTIONS = 32
_INSERT, _INSERT_MANY = statement("bare_insert"), statement("bare_insert_many")


class Bare:
    """The endpoint over one database: /append takes the arguments of append_event, /append_many a list of them."""

    _pool: asyncpg.Pool[asyncpg.Record]

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        dsn = os.environ["BARE_DSN"]
        async with asyncpg.create_pool(dsn, min_size=_CONNECTIONS, max_size=_CONNECTIONS) as self._pool:
            yield

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/append", self._append, methods=["POST"]),
            Route("/append_many", self._append_many, methods=["POST"]),
            Route("/readyz", lambda _request: Response(b"ready")),
        ]
        return Starlette(routes=routes, lifespan=self._lifespan)

    async def _append(self, request: Request) -> Response:
        event = orjson.loads(await request.body())
        event_id, key = new_id("evt"), event["source_event_key"]
        values = (
            event_id,
            *_columns(event),
            event.get("type"),
            event.get("context_id"),
            key,
            hashlib.sha256(f"{event['channel']}\0{key}".encode()).digest(),
            orjson.dumps(event.get("topic_hints", [])).decode(),
        )
        event_seq = await self._pool.fetchval(_INSERT, *values)
        return _json({"event_id": event_id, "event_seq": event_seq})

    async def _append_many(self, request: Request) -> Response:
        events = orjson.loads(await request.body())["events"]
        event_ids = new_ids("evt", len(events))
        columns = [list(column) for column in zip(*map(_columns, events), strict=True)]
        rows = await self._pool.fetch(_INSERT_MANY, event_ids, *columns)
        kept = [{"event_id": event_id, "event_seq": row[0]} for event_id, row in zip(event_ids, rows, strict=True)]
        return _json({"results": kept})


def _columns(event: dict[str, Any]) -> tuple[int, datetime, str, str]:
    """Return scope, time, channel and payload."""
    participants = "\0".join(sorted(event["participants"]))
    scope_id = int.from_bytes(hashlib.blake2b(participants.encode(), digest_size=7).digest())
    payload = orjson.dumps(event["payload"]).decode()
    return scope_id, datetime.fromisoformat(event["timestamp"]), event["channel"], payload


def _json(answer: dict[str, Any]) -> Response:
    return Response(orjson.dumps(answer), media_type="application/json")


def main() -> None:
    """Serve with one worker until a signal."""
    stop_with_parent()
    app = Bare().app()
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
