"""What an agent's calls cost beside the calls of the log that say the same, by one client or four and by 32.

Notes, memories and turns are kept beside events with the same texts; recall, search and what comes before a turn are
asked beside questions of the log. All is of one server and one scope. CPU is that of the server process and of the
PostgreSQL processes that serve it.
"""

from __future__ import annotations

from itertools import count, islice
from random import Random
from typing import Any

from benchmarks.mcp_http import KEY_SLOT, Request, post, tool_call
from benchmarks.options import Bench, run_part
from benchmarks.processes import myria_server
from benchmarks.report import Report, median
from benchmarks.sides import Side, in_turns, publish
from benchmarks.synthetic import events

PART = "calls"
DATABASE = "bench_calls"
US = ["me", "agent"]
"""The participants of a server that asks for no credentials."""
SESSIONS = 72

GROUPS: tuple[tuple[tuple[int, ...], dict[str, float]], ...] = (
    ((1, 32), {"append_event": 1.0, "remember": 2.0, "POST /memories": 2.0}),
    ((1, 32), {"append_events": 1.0, "memory_after_turn": 2.0}),
    ((4, 32), {"query_event_nodes": 1.0, "memory_before_turn": 1.5}),
    ((4,), {"recall": 1.0, "POST /search": 1.3}),
)
"""Numbers of clients, and calls with their bounds by the first of the group: of CPU, or of p95 where one asks."""
ASKS = {"query_event_nodes", "recall"}
MOST_MS = {"memory_before_turn": 300.0, "memory_after_turn": 500.0}
"""Bounds of p95 with 32 clients that never rest."""


async def measure(bench: Bench, report: Report) -> None:
    """Keep, and ask for what was kept."""
    dsns = await bench.cluster.create(DATABASE)
    # every note says something else: the second of two equal ones would not be stored
    numbers, random = count(), Random(1)
    said = [event["payload"]["text"] for event in islice(events(2_000, sets=1), 2_000)]
    async with (
        myria_server(dsns.server, bench.log(PART), TURNS_ENABLED="true") as server,
        bench.cluster.connection(DATABASE) as database,
    ):
        for clients, bounds in GROUPS:
            asks = not ASKS.isdisjoint(bounds)
            made = bench.requests * (1 if asks else bench.rounds + 1)
            for connections in clients:
                texts = [random.choice(said) for _ in range(made)]
                texts = [" ".join(random.sample(text.split() * 4, 4)) if asks else text for text in texts]
                sides = [
                    Side(
                        name=name,
                        server=server,
                        requests=[_call(server.port, name, text, next(numbers)) for text in texts],
                        connections=connections,
                        database=database,
                        once=not asks,
                    )
                    for name in bounds
                ]
                await in_turns(bench.load, sides, rounds=bench.rounds, count=bench.requests)
                first, *_ = sides
                compared = publish(report, f"{connections} clients, beside {first.name}", sides)
                for side, beside in list(zip(sides, compared, strict=True))[1:]:
                    promise = f"{side.name} / {first.name}, {connections} clients"
                    if not asks:
                        report.check(f"{promise}: CPU", beside.cpu, bounds[side.name])
                    elif connections == 4:
                        report.check(f"{promise}: p95", beside.p95, bounds[side.name])
                    if connections == 32 and (most := MOST_MS.get(side.name)):
                        p95 = median(side.ms(0.95))
                        report.check(f"{side.name}, 32 clients: p95", p95, most, unit="ms")


def _call(port: int, name: str, text: str, number: int) -> Request:
    """Return a call that keeps a text or asks for some words."""
    turn: dict[str, Any] = {"project": "bench", "session_id": f"s{number % SESSIONS}"}
    match name:
        case "append_event":
            return tool_call(port, name, {**_event(text), "source_event_key": KEY_SLOT})
        case "append_events":
            return tool_call(port, name, {"events": [_event(f"{text} {number}"), _event(text)]})
        case "remember":
            return tool_call(port, name, {"content": f"{number} {text}"})
        case "memory_after_turn":
            items = [
                {"type": "message", "role": role, "content": [{"type": kind, "text": f"{text} {number}"}]}
                for role, kind in (("user", "input_text"), ("assistant", "output_text"))
            ]
            kept = {"turn_id": f"t{number}", "input_items": items[:1], "output_items": items[1:]}
            return tool_call(port, name, {**turn, **kept})
        case "POST /memories":
            return post(port, "/api/v1/memories", {"agent_id": "bot", "content": f"{number} {text}"}, tag="memories")
        case "query_event_nodes":
            return tool_call(port, name, {"participants": US, "query": text})
        case "recall":
            return tool_call(port, name, {"text": text})
        case "memory_before_turn":
            return tool_call(port, name, {**turn, "current_input": text})
        case _:
            return post(port, "/api/v1/search", {"query": text}, tag="search")


def _event(text: str) -> dict[str, Any]:
    own = {"timestamp": "2026-01-05T10:00:00Z", "channel": "talk", "participants": US}
    return {**own, "payload": {"text": text, "speaker": "agent"}}


if __name__ == "__main__":
    run_part(PART, __doc__, measure)
