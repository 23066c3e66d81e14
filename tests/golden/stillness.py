"""Time and chance that a test decides: with them equal calls give equal answers, to the byte.

The clock stands still during a call and is moved between calls. PostgreSQL's follows: in the test's database every
function and default that asks for the time reads it from a table, and so do statements, because the schema `golden`
comes first in the search path. Identifiers are numbered anew in each call, each prefix for itself, so that one more
identifier of one kind changes no other.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.golden.schema_dump import schema_dump
from tests.support.postgres import Database

BEGIN = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)
"""Noon of a Friday, in spring."""

_ASKS_TIME = re.compile(
    r"(?<![\w.])(?:pg_catalog\.)?(?:clock_timestamp|statement_timestamp|transaction_timestamp|now)\(\)", re.IGNORECASE
)
_CLOCK = "golden.clock_timestamp()"
_MAKE = """
CREATE SCHEMA golden;
CREATE TABLE golden.clock (at timestamptz NOT NULL);
INSERT INTO golden.clock VALUES ('epoch');
CREATE FUNCTION golden.clock_timestamp() RETURNS timestamptz STABLE LANGUAGE sql SECURITY DEFINER
    AS 'SELECT at FROM golden.clock';
CREATE FUNCTION golden.now() RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT golden.clock_timestamp()';
GRANT USAGE ON SCHEMA golden TO public;
UPDATE myria.installation SET cursor_secret = sha256('golden'), created_at = '2026-01-01T00:00:00Z';
"""
_FUNCTIONS = """
SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'myria' AND p.prokind <> 'a'
"""
_DEFAULTS = """
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT ', d.adrelid::regclass, a.attname) AS change,
    pg_get_expr(d.adbin, d.adrelid) AS expression
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
JOIN pg_class c ON c.oid = d.adrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'myria' AND a.attgenerated = ''
"""


class Stillness:
    """The clock and the identifiers of one replay; `moment` is what both clocks say."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection
        self._calls = 0
        self._counts: dict[str, Iterator[int]] = {}
        self.moment = BEGIN

    async def next_call(self, after: timedelta = timedelta(seconds=61)) -> None:
        """Move the clock for the next call, and number its identifiers from the beginning."""
        self._calls += 1
        self._counts = defaultdict(itertools.count)
        await self.move_to(self.moment + after)

    async def move_to(self, moment: datetime) -> None:
        """Let both clocks say this."""
        self.moment = moment
        await self._connection.execute("UPDATE golden.clock SET at = $1", moment)

    async def close(self) -> None:
        """Let go of the database."""
        await self._connection.close()

    def nanoseconds(self) -> int:
        return (self.moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{self.nanoseconds() // 10**6:012x}{self._calls:010x}{next(self._counts[prefix]):010x}"

    def new_ids(self, prefix: str, count: int) -> list[str]:
        return [self.new_id(prefix) for _ in range(count)]

    def random_bytes(self, size: int) -> bytes:
        """Return bytes that no other call has; of one size none twice, as long as it has three bytes or more."""
        number = next(self._counts[f"{size} bytes"])
        return ((self._calls << 12) + number).to_bytes(max(size, 8), "big")[-size:]


async def still(database: Database, patch: pytest.MonkeyPatch) -> Stillness:
    """Stop the clocks of a fresh database and of this process, and let chance decide nothing."""
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute(_MAKE)
    for row in await connection.fetch(_FUNCTIONS):
        if _ASKS_TIME.search(row[0]):
            await connection.execute(_ASKS_TIME.sub(_CLOCK, row[0]))
    for row in await connection.fetch(_DEFAULTS):
        if _ASKS_TIME.search(row["expression"]):
            await connection.execute(row["change"] + _ASKS_TIME.sub(_CLOCK, row["expression"]))
    left = [
        line
        for line in (await schema_dump(database.superuser_dsn, bodies=True)).splitlines()
        if _ASKS_TIME.search(line)
    ]
    assert not left, f"the schema asks for the time in ways that tests cannot change: {left}"
    await connection.execute(f"ALTER DATABASE {database.name} SET search_path = golden, pg_catalog, public")
    one = Stillness(connection)
    await one.move_to(BEGIN)
    patch.setattr(time, "time", lambda: one.nanoseconds() / 10**9)
    patch.setattr(time, "time_ns", one.nanoseconds)
    patch.setattr(time, "monotonic_ns", one.nanoseconds)
    patch.setattr(os, "urandom", one.random_bytes)

    class StillDatetime(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return one.moment.astimezone(tz)

    replaced = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0].startswith("myria"):
            for function in ("new_id", "new_ids"):
                if function in vars(module):
                    patch.setattr(module, function, getattr(one, function))
                    replaced.add(function)
            if getattr(module, "datetime", None) is datetime and "datetime.now(" in inspect.getsource(module):
                patch.setattr(module, "datetime", StillDatetime)
    assert replaced == {"new_id", "new_ids"}, "the functions that make identifiers have other names now"
    return one
