"""Names in another spelling, as a key with patterns of its own sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from myria.access.principal import Principal
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from myria.search.spellings import MAX_SPELLINGS, candidates
from myria.settings import Settings
from tests.support.events import TENANT, event
from tests.support.postgres import Database


@pytest.fixture
async def memory(database: Database) -> AsyncIterator[Memory]:
    """A memory of four scopes."""
    async with Memory(database.server_dsn, Settings()) as opened:
        for who in (("bot", "user:ada"), ("bot", "agent:ada"), ("ada",), ("bot", "user:ben")):
            await opened.log.append_events(TENANT, [event(1, "hello", participants=who)])
        yield opened


async def spellings(memory: Memory, named: str, *, may_ask: tuple[str, ...]) -> dict[str, list[str]]:
    asker = Principal(
        tenant=TENANT, actor="k", roles=frozenset({"read"}), faces=frozenset({"core"}), own=("bot",), may_ask=may_ask
    )
    query = EventNodesQuery(masks=asker.asking((named,)))
    shown = await memory.show(TENANT, query, may_name=asker.may_name)
    others: dict[str, list[str]] = shown.content.get("other_spellings", {})
    return others


async def test_only_names_that_one_may_ask_as(memory: Memory) -> None:
    """Of the scopes beside `bot`, those within the patterns are pointed out; `ada` without `bot` is not this key's."""
    assert await spellings(memory, "Ada", may_ask=("user:*", "Ada")) == {"Ada": ["user:ada"]}
    assert await spellings(memory, "Ada", may_ask=("*",)) == {"Ada": ["user:ada", "agent:ada"]}
    assert await spellings(memory, "Ada", may_ask=("Ada",)) == {}
    assert await spellings(memory, "user:Ben", may_ask=("user:*",)) == {"user:Ben": ["user:ben"]}


def test_candidates_are_few() -> None:
    """A look costs a bounded number of look-ups, whatever the name."""
    for name in ("Ada", "user:Ada", "a_b-c.d e" * 10, "@x", ":", "__", "ADA/", "Ünï"):
        assert len(candidates(name)) <= 150
        assert name not in candidates(name)
    assert MAX_SPELLINGS < 10
