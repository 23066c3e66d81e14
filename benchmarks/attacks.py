"""Attacks that cost little to make, and what they cost the server and another tenant.

One server with keys, on one durable PostgreSQL. Each attack is made by a process of its
own, on the same processors (`benchmarks/attacker.py`). Meanwhile /livez is asked again and again, and a key of another
tenant appends and asks; before and after each attack it does so alone. Memory is the kernel's high-water mark.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from benchmarks.attacker import ATTACKS, LIMIT_PER_S, UNCODED
from benchmarks.load import drive
from benchmarks.mcp_http import request, tool_call
from benchmarks.options import Bench, run_part
from benchmarks.processes import ROOT, myria_server, usage
from benchmarks.report import Report, number
from benchmarks.workload import sample_events
from myria_cli import console
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX

PART = "attacks"
DATABASE = "bench_attacks"

MEMORY_MIB = 600
LIVEZ_MS = 200
MOST_P95 = 2.0

EVENTS, EVENT_BYTES, MEMORY_BYTES = 100, 60_000, 20_000
EVENT_PARTS = 40_000
OWN = ("ada", "bot")


async def measure(bench: Bench, report: Report) -> None:
    """Make the attacks one after the other, each for five times as long as a round."""
    rows, seconds = [], 5 * bench.seconds
    dsns = await bench.cluster.create(DATABASE)
    faces = tuple(face for face in PATH_OF if face != "admin")
    keys = {
        tenant: await bench.cluster.key(DATABASE, OWN, tenant=tenant, faces=faces, requests_per_s=rate)
        for tenant, rate in (("quiet", None), ("greedy", None), ("noisy", float(LIMIT_PER_S)))
    }
    async with myria_server(
        dsns.server,
        bench.log(PART),
        AUTH_MODE="keys",
        AUTH_SERVER="true",
        AUTH_PUBLIC_URL="http://127.0.0.1:8321",
        TURNS_ENABLED="true",
    ) as server:
        await drive(_filling(server.port, keys["greedy"]), port=server.port)
        port, key, own = server.port, keys["quiet"], list(OWN)
        asking = tool_call(port, "query_event_nodes", {"query": "What did we decide about the memory?"}, key=key)
        appends = [tool_call(port, "append_event", event, key=key) for event in sample_events(participants=own)]
        quiet = [call for append in appends for call in (append, asking)]

        async def p95(for_s: float) -> float:
            run = drive(quiet, port=server.port, connections=4, seconds=for_s, pause_s=0.02)
            return (await run).ms(0.95)

        await p95(bench.seconds)
        for attack in ATTACKS:
            key = keys["noisy" if attack == "noise" else "greedy"]
            alone = await p95(seconds / 4)
            async with _attack(attack, server.port, key) as told:
                asked = drive([request(server.port, "/livez")], port=server.port, seconds=seconds, pause_s=0.05)
                livez, beside = await asyncio.gather(asked, p95(seconds))
            livez_ms = livez.ms(1.0)
            ratio = beside / ((alone + await p95(seconds / 4)) / 2)
            peak_mib, answers = usage(server.pid).peak_mib, dict(sorted(told.items()))
            report.figures[attack] = {"livez_ms": livez_ms, "p95_ratio": ratio, "told": answers}
            rows.append((attack, *map(number, (peak_mib, livez_ms, alone, beside, ratio))))
            report.check(f"{attack}: memory of the server", peak_mib, MEMORY_MIB, unit="MiB")
            report.check(f"{attack}: longest wait for /livez", livez_ms, LIVEZ_MS, unit="ms")
            report.check(f"{attack}: another tenant's p95 beside / alone", ratio, MOST_P95)
            console.say(f"{attack}: {answers}", "dim")
    report.check("bodies: refusals without a code", report.figures["bodies"]["told"].get(UNCODED, 0), 0)
    report.table("attacks", ("attack", "MiB peak", "livez most", "p95 alone", "p95 beside", "ratio"), rows)


def _filling(port: int, key: str) -> list[bytes]:
    """Return what keeps what the greedy key will ask for: events that are long, or of very many parts, and memories."""
    made = []
    for number_ in range(EVENTS):
        payload: dict[str, Any] = {"text": f"garden {number_} " + "words " * (EVENT_BYTES // 6)}
        if number_ % 4 == 0:
            payload = {"text": f"garden {number_}", "parts": [{} for _ in range(EVENT_PARTS)]}
        event = {"timestamp": "2026-03-19T20:00:00Z", "channel": "c", "participants": list(OWN), "payload": payload}
        made.append(tool_call(port, "append_event", event, key=key))
        for part in range(2):
            memory = {"agent_id": "a", "content": f"garden {number_} {part} " + "x" * MEMORY_BYTES}
            made.append(request(port, f"{PREFIX}/memories", memory, key=key))
    return made


@asynccontextmanager
async def _attack(attack: str, port: int, key: str) -> AsyncIterator[Counter[str]]:
    """Attack for the block; yield what will count how the server answered."""
    told: Counter[str] = Counter()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.attacker", attack, str(port)), cwd=ROOT, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(key.encode() + b"\n")
        await process.stdin.drain()
        await process.stdout.readline()  # it has begun
        await asyncio.sleep(0.75)
        yield told
    finally:
        process.stdin.close()
        answer = await process.stdout.read()
        await process.wait()
        told.update(orjson.loads(answer))


if __name__ == "__main__":
    run_part(PART, __doc__, measure)
