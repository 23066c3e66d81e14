"""The schema as lines of text, so that two ways to make it can be compared.

    python -m tests.golden.schema_dump DSN            # bodies of functions as md5
    python -m tests.golden.schema_dump DSN --bodies   # and in full, to see what differs

Comments and white space in the bodies of functions are left out: they may change freely. Comments on objects are
documentation, so they are left out too.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from itertools import groupby
from pathlib import Path

import asyncpg

_QUERY = Path(__file__).with_name("schema_dump.sql").read_text(encoding="utf-8")

_PIECE = re.compile(
    r"(?P<quoted>'(?:[^']|'')*'|\"[^\"]*\")|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<space>\s+)|(?P<other>.)", re.DOTALL
)
_MIGRATIONS = "schema_migrations"


async def schema_dump(dsn: str, *, bodies: bool = False) -> str:
    """Return the schema of a freshly migrated database, sorted, and how many rows migrations left in each table.

    Args:
        dsn: a superuser's, who sees all rows.
        bodies: whether to write the bodies of functions in full, beside their digests.
    """
    connection = await asyncpg.connect(dsn)
    try:
        facts = [(row["object"], row["fact"]) for row in await connection.fetch(_QUERY)]
        tables = [name.partition("table ")[2] for name in dict(facts) if name.startswith("table ")]
        for table in tables:
            rows = await connection.fetchval(f"SELECT count(*) FROM {table}")
            if rows and _MIGRATIONS not in table:
                facts.append((f"table {table}", f"rows {rows}"))
    finally:
        await connection.close()
    lines = []
    for name, group in groupby(sorted(facts), key=lambda fact: fact[0]):
        lines.append(name)
        for _, fact in group:
            kind, _, rest = fact.partition(" ")
            if kind == "body":
                plain = normalized(rest)
                lines.append(f"    body {hashlib.md5(plain.encode(), usedforsecurity=False).hexdigest()}")
                lines += [f"        {plain}"] if bodies else []
            else:
                lines.append("    " + " ".join(fact.split()))
    return "\n".join(lines) + "\n"


def normalized(body: str) -> str:
    """Return the body of a function without comments, and with white space only where words would run together."""
    written = "".join(piece["quoted"] or piece["other"] or " " for piece in _PIECE.finditer(body))
    pieces = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", written)
    pieces[::2] = [re.sub(r" ?([(),;]) ?", r"\1", re.sub(r" +", " ", plain)) for plain in pieces[::2]]
    return "".join(pieces).strip()


if __name__ == "__main__":
    print(asyncio.run(schema_dump(sys.argv[1], bodies="--bodies" in sys.argv[2:])), end="")
