"""Attacks that cost little to make: large answers, forged tokens of turns, floods of registrations.

One server with keys, which may have 1 GiB of data, on one durable PostgreSQL. Each attack lasts a minute and is made by
a process of its own, on the same processors (`benchmarks/attacker.py`). Meanwhile /livez is asked again and again, and
a key of another tenant appends and asks; before and after each attack it does so alone. Memory is the kernel's
high-water mark.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks.appends import append_arguments
from benchmarks.attacker import ATTACKS
from benchmarks.auth import QUESTION, with_key
from benchmarks.cluster import Cluster
from benchmarks.figures import median, quantile
from benchmarks.load import LoadProcess
from benchmarks.mcp_http import Request, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, usage
from benchmarks.report import Report, number
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database
from myria_cli import console
from myria_server.api.memtrace.schemas import PREFIX
from myria_server.api.tools import PATH_OF

PART = "attacks"
DATABASE = "bench_attacks"
ROOT = Path(__file__).resolve().parents[1]

DATA_BYTES = 1 << 30
MEMORY_MIB = 600
LIVEZ_MS = 200
SILENT_MS = 100
MOST_P95 = 2.0

QUIET_CONNECTIONS = 4
QUIET_PAUSE_S = 0.02
LIVEZ_EVERY_S = 0.05
EVENTS, MEMORIES, AGENTS = 100, 200, 60
EVENT_BYTES, MEMORY_BYTES, AGENT_BYTES = 60_000, 20_000, 20_000
EVENT_PARTS = 40_000
OWN = ("ada", "bot")


async def measure(options: Common, *, seconds: float, attacks: tuple[str, ...] = tuple(ATTACKS)) -> int:
    """Make the attacks one after the other, and write the report; return the exit status."""
    report = Report(PART)
    rows = []
    async with AsyncExitStack() as stack:
        serving = await stack.enter_async_context(AsyncExitStack())
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        dsns = await cluster.create(DATABASE)
        report.figures["postgres"] = await cluster.versions()
        keys = await _keys(dsns.operator)
        load = await stack.enter_async_context(LoadProcess())
        loop_file = options.work_dir / "attacks-loop.json"
        log = options.work_dir / "log" / "attacks.log"
        server = await serving.enter_async_context(_server(dsns.server, loop_file, log))
        if "answers" in attacks:
            await _fill(server.port, keys["greedy"])
        quiet = _quiet(server.port, keys["quiet"])
        await load.run(quiet, port=server.port, connections=QUIET_CONNECTIONS, count=400, key_prefix="warm-")

        numbers = itertools.count()

        async def p95(name: str, for_s: float) -> float:
            result = await load.run(
                quiet,
                port=server.port,
                connections=QUIET_CONNECTIONS,
                seconds=for_s,
                key_prefix=f"{next(numbers)}-",
                pause_s=QUIET_PAUSE_S,
            )
            report.check(f"{name}quiet calls that failed", result.errors, 0)
            return result.latency.p95

        for attack in attacks:
            alone = [await p95(f"{attack}, before: ", seconds / 4)]
            idle_mib = usage(server.pid).rss_mib
            async with _livez(server.port) as livez, _attack(attack, server.port, keys["greedy"]) as told:
                beside = await p95(f"{attack}, beside: ", seconds)
            peak_mib = usage(server.pid).peak_mib
            alone.append(await p95(f"{attack}, after: ", seconds / 4))
            livez.sort()
            slowest = {"p99": quantile(livez, 0.99), "longest": livez[-1]}
            ratio = beside / median(alone)
            report.figures[attack] = {
                "idle_mib": round(idle_mib, 1),
                "peak_mib": round(peak_mib, 1),
                "livez_ms": {name: round(ms, 1) for name, ms in slowest.items()},
                "p95_ms": {"alone": [round(ms, 2) for ms in alone], "beside": round(beside, 2)},
                "p95_ratio": round(ratio, 2),
                "told": dict(sorted(told.items())),
            }
            rows.append((attack, *map(number, (idle_mib, peak_mib, *slowest.values(), median(alone), beside, ratio))))
            report.check(f"{attack}: memory of the server", round(peak_mib), MEMORY_MIB, unit="MiB")
            report.check(f"{attack}: longest wait for /livez", round(slowest["longest"], 1), LIVEZ_MS, unit="ms")
            report.check(f"{attack}: another tenant's p95 beside / alone", round(ratio, 2), MOST_P95)
            console.say(f"{attack}: {dict(sorted(told.items()))}", "dim")
        await serving.aclose()
        loop = report.figures["loop"] = orjson.loads(loop_file.read_bytes())
        report.check("longest CPU between two turns of the event loop", loop["silent_cpu_ms"], SILENT_MS, unit="ms")
    columns = ("attack", "MiB before", "MiB peak", "livez p99", "livez most", "p95 alone", "p95 beside", "ratio")
    report.table("attacks", columns, rows)
    return report.finish(options.out)


def _server(dsn: str, loop_file: Path, log: Path) -> Server:
    """Return a server with everything that is attacked, whose data are bounded where that can be said."""
    bounded = (tool, f"--data={DATA_BYTES}") if (tool := shutil.which("prlimit")) else ()
    env = {
        "MYRIA_POSTGRES_DSN": dsn,
        "MYRIA_AUTH_MODE": "keys",
        "MYRIA_AUTH_SERVER": "true",
        "MYRIA_AUTH_PUBLIC_URL": "http://127.0.0.1:8321",
        "MYRIA_TURNS_ENABLED": "true",
    }
    command = (*bounded, sys.executable, "-m", "benchmarks.watched", "{port}", str(loop_file))
    return Server(command, env=env, ready="/readyz", log=log)


async def _keys(dsn: str) -> dict[str, str]:
    """Make a tenant with a key for each side; return the keys' texts."""
    texts = {}
    async with Database(dsn) as database:
        store = AccessStore(database, actor="benchmark")
        for tenant in ("quiet", "greedy"):
            await store.ensure_tenant(tenant)
            faces = tuple(face for face in PATH_OF if face != "admin")
            new = NewKey(name=tenant, tenant=tenant, own=OWN, faces=faces)
            texts[tenant] = (await store.create_key(new, actor="benchmark"))[0].text
    return texts


def _quiet(port: int, key: str) -> list[Request]:
    question = with_key(tool_call(port, "query_event_nodes", {"query": QUESTION, "limit": 5}), key)
    requests = []
    for event in append_arguments():
        requests += [with_key(tool_call(port, "append_event", {**event, "participants": list(OWN)}), key), question]
    return requests


async def _fill(port: int, key: str) -> None:
    """Keep what the greedy key will ask for: events that are long, or of very many parts, memories and agents."""
    base, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60, trust_env=False) as http:
        for event in range(EVENTS):
            payload: dict[str, Any] = {"text": f"garden {event} " + "words " * (EVENT_BYTES // 6)}
            if event % 4 == 0:
                payload = {"text": f"garden {event}", "parts": [{} for _ in range(EVENT_PARTS)]}
            said = {"timestamp": "2026-03-19T20:00:00Z", "channel": "c", "participants": list(OWN), "payload": payload}
            message = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "myria_append_event", "arguments": said},
            }
            answer = await http.post("/mcp", json=message, headers={"accept": "application/json"})
            if answer.status_code != 200 or answer.json()["result"]["isError"]:
                raise RuntimeError(f"an event was refused: {answer.text[:500]}")
        for name, count in (("memories", MEMORIES), ("agents", AGENTS)):
            for entry in range(count):
                body: dict[str, Any] = {"agent_id": "a", "content": f"garden {entry} " + "x" * MEMORY_BYTES}
                if name == "agents":
                    body = {"name": f"agent-{entry}", "config": {"text": "x" * AGENT_BYTES}}
                (await http.post(f"{PREFIX}/{name}", json=body)).raise_for_status()


@asynccontextmanager
async def _livez(port: int) -> AsyncIterator[list[float]]:
    """Ask /livez again and again for the block; yield what will hold the milliseconds that each answer took."""
    waits: list[float] = []

    async def ask() -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
            while True:
                began = time.perf_counter()
                (await http.get("/livez")).raise_for_status()
                waits.append((time.perf_counter() - began) * 1e3)
                await asyncio.sleep(LIVEZ_EVERY_S)

    asking = asyncio.create_task(ask())
    try:
        yield waits
        if asking.done():
            asking.result()
    finally:
        asking.cancel()


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
        yield told
    finally:
        process.stdin.close()
        answer = await process.stdout.read()
        await process.wait()
        with suppress(orjson.JSONDecodeError):
            told.update(orjson.loads(answer))


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, help="length of an attack (default: 15; with --full 60)")
    options.add_argument("--attack", action="append", choices=tuple(ATTACKS), help="this one alone; repeat for several")
    given = options.parse_args()
    shared = common(given)
    seconds = given.seconds or (60.0 if shared.full else 15.0)
    raise SystemExit(run(measure(shared, seconds=seconds, attacks=tuple(given.attack or ATTACKS))))


if __name__ == "__main__":
    main()
