"""The receipts of erasures follow from each other, and name what is kept for them."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from myria.db.database import Connection
from myria.db.queries import sql

_STREAM_ROWS = 1000


async def named(connection: Connection, tenant: str, erasure_id: str) -> dict[str, Any]:
    """Return hashes of what an erasure lists: events, renderings, digests of words. A receipt fixes them."""
    lists = {}
    for name, statement in (
        ("events", "erasure.numbers"),
        ("renderings", "erasure.renderings"),
        ("words", "erasure.word_digests"),
    ):
        whole, count = hashlib.sha256(), 0
        async for row in connection.cursor(sql(statement), tenant, erasure_id, prefetch=_STREAM_ROWS):
            whole.update(row[0].to_bytes(8, "big") if isinstance(row[0], int) else row[0])
            count += 1
        lists[name] = {"count": count, "sha256": whole.hexdigest()}
    return lists


async def chain_problems(connection: Connection, tenant: str) -> tuple[int, list[str]]:
    """Return how many receipts a tenant has, and what is wrong with their chain."""
    rows = await connection.fetch(sql("erasure.receipts"), tenant)
    problems: list[str] = []
    previous: bytes | None = None
    for position, row in enumerate(rows, 1):
        where = f"receipt {row['number']} of erasure {row['erasure_id']}"
        if row["number"] != position:
            problems.append(f"{where} stands in place {position}: one before it is missing")
        text = row["receipt"].encode()
        if not await connection.fetchval(sql("erasure.receipt_holds"), tenant, previous, text, row["mac"]):
            problems.append(f"{where} does not follow from the one before it: it was changed, moved or forged")
        content = orjson.loads(row["receipt"])
        lists = await named(connection, tenant, row["erasure_id"])
        problems += [
            f"{where} names other {name} than those kept for it"
            for name, given in lists.items()
            if content["lists"].get(name) != given
        ]
        previous = row["mac"]
    return len(rows), problems
