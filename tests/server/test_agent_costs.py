"""What the tools of the agent's face cost, counted in round trips to PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from myria.access.principal import ApiName
from myria.memory import Memory
from myria_server.paths import PATH_OF
from tests.isolation.world import Statements
from tests.server.wire import MODERN, Served, call, headers
from tests.support.events import TENANT, conversation

US = ("me", "agent")

Cost = Callable[..., Awaitable[int]]


@pytest.fixture
def pools(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> list[Statements]:
    """Return what counts the statements of a memory, from before it is served."""
    monkeypatch.setattr("myria.erasure.forgetting.POLL_S", 3_600.0)  # erasures are looked for beside the requests
    return [Statements(memory.appending), Statements(memory.database)]


@pytest.fixture
def cost(pools: list[Statements], served: Served, monkeypatch: pytest.MonkeyPatch) -> Cost:
    """Return how many round trips a call of a tool takes."""
    monkeypatch.setattr("myria.notes.usage.WRITTEN_EVERY_S", 3_600.0)  # uses are written beside the requests
    # What is known of the tenant stays good, however slow this machine is.
    monkeypatch.setattr("myria.log.quotas.FRESH_S", 3_600.0)
    monkeypatch.setattr("myria_server.http.authentication.TENANT_CHECK_S", 3_600.0)

    async def counted(tool: str, face: ApiName = "agent", /, **arguments: Any) -> int:
        before = sum(pool.run for pool in pools)
        response = await served.post(
            call(tool, arguments, version=MODERN), headers(tool, version=MODERN), path=PATH_OF[face]
        )
        assert not response.json()["result"]["isError"], response.text
        return sum(pool.run for pool in pools) - before

    return counted


async def test_an_event_takes_one_round_trip_and_a_note_always_as_many(cost: Cost) -> None:
    """However many notes there are; one that is like another takes hardly more."""
    appended = {
        "timestamp": "2026-01-05T10:00:00Z",
        "channel": "talk",
        "participants": list(US),
        "payload": {"text": "x"},
    }
    await cost("append_event", "core", **appended)
    await cost("remember", content="the first of all")
    event = await cost("append_event", "core", **appended)
    notes = [await cost("remember", content=f"word{number} other{number} third{number}") for number in range(30)]
    assert event == 1
    assert len(set(notes)) == 1
    assert await cost("remember", content="word7 other7 fourth7") <= notes[0] + 2


async def test_round_trips_do_not_grow_with_the_log(cost: Cost, memory: Memory) -> None:
    """Keeping and recalling take as many in a log of fifty events as in one of two thousand."""
    counted = []
    for size in (50, 2_000):
        events = conversation(size, participants=US, seed=size, start=size * 1_000)
        for at in range(0, size, 250):
            await memory.log.append_events(TENANT, events[at : at + 250])
        await cost("remember", content=f"kiln{size} glaze{size}")
        await cost("recall", text="kiln")
        kept = await cost("remember", content=f"oven{size} shelf{size}")
        counted.append((kept, await cost("recall", text="garden"), await cost("recall", text=f"oven{size}")))
    assert counted[0] == counted[1]
