"""Arrays given as text are read as what they were."""

from __future__ import annotations

import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myria.db.arrays import byte_strings, plain, plains, texts
from tests.support.postgres import Database

PRINTED = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
SIGNS = st.text("{}\\\",'x NUL", max_size=12)


async def test_postgresql_reads_what_was_given(database: Database) -> None:
    """Texts, byte strings, numbers and truth values come back, with NULL, quotes, braces and empty ones among them."""
    connection = await asyncpg.connect(database.server_dsn)
    asked: list[tuple[str, str, list[object]]] = []

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(st.none() | PRINTED | SIGNS, max_size=6),
        st.lists(st.none() | st.binary(max_size=40), max_size=6),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6),
        st.lists(st.booleans(), max_size=6),
        st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), max_size=6),
    )
    def collect(
        words: list[str | None],
        raw: list[bytes | None],
        numbers: list[int],
        truths: list[bool],
        lists: list[list[int]],
    ) -> None:
        asked.append(("text", texts(words), list(words)))
        asked.append(("bytea", byte_strings(raw), list(raw)))
        asked.append(("bigint", plain(numbers), list(numbers)))
        asked.append(("boolean", plain(truths), list(truths)))
        asked.append(("text", plains(lists), list(map(plain, lists))))

    collect()
    try:
        for kind, given_as, expected in asked:
            assert await connection.fetchval(f"SELECT $1::text::{kind}[]", given_as) == expected
    finally:
        await connection.close()
