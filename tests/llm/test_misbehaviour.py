"""Whatever a provider does, a build publishes a valid snapshot and a query answers in time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from myria.builds import Outcome
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import Settings
from myria_server.api import answers
from tests.llm.conftest import Configuring, Starting
from tests.llm.misbehaviour import MISBEHAVIOUR, OF_THE_MODEL, OF_THE_PROVIDER
from tests.llm.provider import Asked
from tests.llm.test_building import sound, with_model
from tests.reads.asking import ids_of
from tests.support import builds
from tests.support.counts import SOAK, some
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

DEADLINE_S = 0.6
PARTS = 4
"""Tests that share the misbehaviours: each builds once for each of its own, over a log that grows."""

HARMLESS = frozenset({"every other request fails", "lies about usage", "rests on others", "costs a fortune"})
"""What may end well: money is counted after a call, so the first one of a task is always spent."""


def test_there_are_forty() -> None:
    """The list is as long as it must be."""
    assert len(MISBEHAVIOUR) >= 40


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_build_publishes_a_valid_snapshot(
    database: Database, provide: Starting, configured: Configuring, part: int
) -> None:
    """Under each misbehaviour a build of new events publishes, loses none, and is degraded where the model failed.

    Of those that the client notices, outside a soak run, it meets every third: queries meet them all.
    """
    current: list[Any] = [None]

    def script(asked: Asked) -> Any:
        return current[0](asked)

    provider = provide(script)
    llm = configured(
        provider,
        retries=1,
        call_timeout_s=0.3,
        breaker_failures=2,
        breaker_pause_s=60.0,
        task_deadline_s=3.0,
        reply_bytes=1_000_000,
        task_usd=5.0,
    )
    wrong = []
    unread = list(OF_THE_PROVIDER.items())
    tried = [*(unread if SOAK else unread[::3]), *OF_THE_MODEL.items()][part::PARTS]
    for number, (name, misbehaving) in enumerate(tried):
        current[0] = misbehaving
        await append(database.server_dsn, conversation(9, seed=number, start=number * 100_000))
        built = await builds.build(database, configured=with_model(llm))
        reason = await builds.value(
            database, "SELECT degraded_reason FROM myria.build_tasks WHERE build_id = $1", built.build_id
        )
        if built.outcome is not Outcome.SUCCEEDED or (reason is None and name not in HARMLESS):
            wrong.append((name, built.outcome, reason, built.error))
    assert not wrong
    assert not provider.errors
    counted = await builds.value(database, "SELECT count(*) FROM myria.events WHERE NOT internal")
    assert counted == 9 * len(tried)
    called = await builds.rows(database, "SELECT outcome FROM myria.llm_calls")
    # A call may run out of its time before it is sent.
    unsent = len(called) - len(provider.asked)
    assert 0 <= unsent <= sum(row["outcome"] == "timeout" for row in called)
    await sound(database, deep=True)


async def test_every_query_is_answered(database: Database, provide: Starting, configured: Configuring) -> None:
    """Under each misbehaviour, some of them endless, an answer comes all the same and holds what the ranking found."""
    await append(database.server_dsn, conversation(80, seed=1))
    await builds.build(database)
    current: list[Any] = [None]

    def script(asked: Asked) -> Any:
        return current[0](asked)

    provider = provide(script)
    llm = configured(
        provider, retries=1, call_timeout_s=0.25, walk_deadline_s=DEADLINE_S, breaker_failures=1_000, walk_usd=1.0
    )
    query = ReferencesQuery(participants=("ana",), query="garden tomato bread", max_nodes=24)
    wrong = []
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        plain = await memory.retrieval.query_references(TENANT, replace(query, mode="deterministic"))
        for name, misbehaving in some(MISBEHAVIOUR.items(), 1):
            current[0] = misbehaving
            async with asyncio.timeout(300):
                answer = await memory.retrieval.query_references(TENANT, query)
            answers.Tree.model_validate(answer)
            if not set(ids_of(plain)) <= set(ids_of(answer)):
                wrong.append((name, answer["degraded_reason"]))
            if not answer["degraded"] and answer["root"] == plain["root"]:
                wrong.append((name, "neither degraded nor walked"))
    assert not wrong
    assert not provider.errors
