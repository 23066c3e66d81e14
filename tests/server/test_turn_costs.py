"""What turns cost, counted in round trips to PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from myria.memory import Memory
from myria.settings import Settings, TurnsSettings
from myria_server.api.tools import path_of
from myria_server.paths import PATH_OF
from tests.isolation.world import Statements
from tests.server.wire import MODERN, Served, call, headers
from tests.support.events import TENANT, conversation

US = ("me", "agent")

Cost = Callable[..., Awaitable[int]]


@pytest.fixture
def settings() -> Settings:
    """The face is on."""
    return Settings(turns=TurnsSettings(enabled=True))


@pytest.fixture
def pools(memory: Memory) -> list[Statements]:
    """Return what counts the statements of a memory, from before it is served."""
    return [Statements(memory.appending), Statements(memory.database)]


@pytest.fixture
def cost(pools: list[Statements], served: Served, monkeypatch: pytest.MonkeyPatch) -> Cost:
    """Return how many round trips a call of a tool takes."""
    # What is known of the tenant stays good, however slow this machine is.
    monkeypatch.setattr("myria.log.quotas.FRESH_S", 3_600.0)
    monkeypatch.setattr("myria_server.http.authentication.TENANT_CHECK_S", 3_600.0)

    async def counted(tool: str, /, **arguments: Any) -> int:
        before = sum(pool.run for pool in pools)
        path = PATH_OF["turns"] if tool.startswith("memory_") else path_of(tool)
        response = await served.post(call(tool, arguments, version=MODERN), headers(tool, version=MODERN), path=path)
        assert not response.json()["result"]["isError"], response.text
        return sum(pool.run for pool in pools) - before

    return counted


def two_events(number: int) -> dict[str, Any]:
    return {
        "events": [
            {
                "timestamp": "2026-01-05T10:00:00Z",
                "channel": "talk",
                "participants": list(US),
                "source_event_key": f"{number}-{end}",
                "payload": {"text": f"{end} {number}"},
            }
            for end in ("in", "out")
        ]
    }


async def test_what_round_trips_a_turn_takes(cost: Cost, memory: Memory) -> None:
    """As many in a long log and in a long session as in short ones; those of an append are one."""
    numbers = itertools.count()
    counted = []
    for size in (50, 2_000):
        events = conversation(size, participants=US, seed=size, start=size * 1_000)
        for at in range(0, size, 250):
            await memory.log.append_events(TENANT, events[at : at + 250])
        for _ in range(8):
            turn = {"session_id": "s", "turn_id": f"t{next(numbers)}"}
            await cost("memory_after_turn", input_items=["I prefer tea, and kilns"], output_items=["ok"], **turn)
        asked = {"session_id": "s", "current_input": "What of kilns?"}
        await cost("memory_before_turn", **asked)
        await cost("query_event_nodes", participants=list(US), query="What of kilns?")
        turn = {"session_id": "s", "turn_id": f"t{next(numbers)}"}
        counted.append(
            (
                await cost("append_events", **two_events(next(numbers))),
                await cost("memory_after_turn", input_items=["What of kilns?"], output_items=["ok"], **turn),
                await cost("query_event_nodes", participants=list(US), query="What of kilns?"),
                await cost("memory_before_turn", **asked),
            )
        )
    assert counted[0] == counted[1]
    assert counted[0][0] == 1
