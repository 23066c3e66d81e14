"""What appends are compared with: a bare Starlette endpoint, one asyncpg INSERT and one commit per request, of one
event or, by unnest, of many.

No validation, no idempotency, no tenants, no shared commits: the least a service must do to keep an event.

    BARE_DSN=postgresql://... python -m benchmarks.bare --port 9000
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import asyncpg
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.statements import statement
from myria.log.ids import new_id, new_ids
from myria_cli.children import stop_with_parent

_INSERT = statement("bare_insert")
_INSERT_MANY = statement("bare_insert_many")


def build_app(dsn: str, pool_size: int) -> Starlette:
    """Return the endpoint over one database: POST /append with the arguments of append_event."""
    pools: list[asyncpg.Pool[asyncpg.Record]] = []

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with asyncpg.create_pool(dsn, min_size=pool_size, max_size=pool_size) as pool:
            pools.append(pool)
            yield

    async def append(request: Request) -> Response:
        event = orjson.loads(await request.body())
        event_id = new_id("evt")
        participants = event["participants"]
        key = event["source_event_key"]
        event_seq = await pools[0].fetchval(
            _INSERT,
            event_id,
            _scope_id(participants),
            datetime.fromisoformat(event["timestamp"]),
            event["channel"],
            event.get("type"),
            event.get("context_id"),
            key,
            hashlib.sha256(f"{event['channel']}\0{key}".encode()).digest(),
            orjson.dumps(event["payload"]).decode(),
            orjson.dumps(event.get("topic_hints", [])).decode(),
        )
        return Response(orjson.dumps({"event_id": event_id, "event_seq": event_seq}), media_type="application/json")

    async def append_many(request: Request) -> Response:
        events = orjson.loads(await request.body())["events"]
        event_ids = new_ids("evt", len(events))
        rows = await pools[0].fetch(
            _INSERT_MANY,
            event_ids,
            [_scope_id(event["participants"]) for event in events],
            [datetime.fromisoformat(event["timestamp"]) for event in events],
            [event["channel"] for event in events],
            [orjson.dumps(event["payload"]).decode() for event in events],
        )
        results = [
            {"event_id": event_id, "event_seq": row["event_seq"]} for event_id, row in zip(event_ids, rows, strict=True)
        ]
        return Response(orjson.dumps({"results": results}), media_type="application/json")

    async def ready(_request: Request) -> Response:
        return Response(b"ready")

    return Starlette(
        routes=[
            Route("/append", append, methods=["POST"]),
            Route("/append_many", append_many, methods=["POST"]),
            Route("/ready", ready),
        ],
        lifespan=lifespan,
    )


def _scope_id(participants: list[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(sorted(participants)).encode(), digest_size=7).digest())


def main() -> None:
    """Serve with one worker until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pool", type=int, default=32, help="database connections")
    options = parser.parse_args()
    stop_with_parent()
    app = build_app(os.environ["BARE_DSN"], options.pool)
    uvicorn.run(app, port=options.port, loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
