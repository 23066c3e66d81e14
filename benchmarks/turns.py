"""What a turn costs: before it, after it, and beside the calls of the log that they stand on.

A log is built in full; hosts with keys of their own continue sessions in scopes of 1,000 to 2,500 of its events. First
32 clients call before and after turns, for latencies. Then blocks take turns: before_turn beside query_event_nodes with
the same question, by four clients; after_turn of two items beside append_events of two events with the same texts, by
one client and by 32, in CPU of the server process and of the PostgreSQL processes that serve it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import asyncpg

from benchmarks.auth import with_key
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import KEY_SLOT, Request, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import TENANT, built
from benchmarks.processes import Server, backends_cpu, cpu_seconds, myria_server, usage, used_since
from benchmarks.reads import MIDDLE
from benchmarks.report import Report, number
from benchmarks.statements import statement
from benchmarks.workload import QUESTION_WORDS, TEXTS_PER_SCOPE, Scope, scopes
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database
from myria_cli import console

PART = "turns"
HOSTS = 12
SESSIONS_EACH = 6
"""Sessions that a host continues: clients call at once for several of them."""

TURNS_BEFORE = 15
"""Turns of a session that are there when measuring begins: as many items as a prompt takes from the store."""

CLIENTS = 32
ASKERS = 4
CONNECTIONS = (1, 32)

MOST_BEFORE_MS = 300
MOST_AFTER_MS = 500
MOST_BEFORE_RATIO = 1.5
MOST_AFTER_RATIO = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A key, whose it is, what its scope talks about, and its sessions."""

    key: str
    participants: tuple[str, ...]
    texts: tuple[str, ...]
    sessions: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Compared:
    """Two kinds of request with the same texts, and what their blocks gave: latencies, and CPU per call in µs."""

    names: tuple[str, str]
    requests: tuple[list[Request], list[Request]]
    results: tuple[list[Result], list[Result]] = field(default_factory=lambda: ([], []))
    server_us: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    database_us: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def all_us(self, which: int) -> list[float]:
        """Return the CPU of server and database per block."""
        return [a + b for a, b in zip(self.server_us[which], self.database_us[which], strict=True)]


async def measure(options: Common, *, rounds: int, calls: int, sessions: int = SESSIONS_EACH) -> int:
    """Measure, and write the report; return the exit status."""
    report = Report(PART)
    size = max(options.sizes)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        report.figures["postgres"] = await cluster.versions()
        report.figures["events"] = size
        base = await built(cluster, options, size)
        name = f"{base.name}_turns"
        dsns = await cluster.clone(base.name, name)
        log = options.work_dir / "log" / f"{name}.log"
        server = await stack.enter_async_context(myria_server(dsns.server, log, AUTH_MODE="keys", TURNS_ENABLED="true"))
        load = await stack.enter_async_context(LoadProcess())
        connection = await cluster.connect(name)
        stack.push_async_callback(connection.close)
        hosts = await _hosts(connection, dsns.operator, sessions)
        await _begin(load, server, hosts)
        await cluster.tidy(name)
        await _latencies(report, load, server, hosts, rounds=rounds, calls=calls, size=size)
        asked = Compared(names=("query_event_nodes", "memory_before_turn"), requests=_questions(server.port, hosts))
        await _compare(connection, load, server, asked, connections=ASKERS, rounds=rounds, calls=calls)
        kept = []
        for connections in CONNECTIONS:
            pair = Compared(names=("append_events of 2", "memory_after_turn of 2"), requests=_kept(server.port, hosts))
            await _compare(connection, load, server, pair, connections=connections, rounds=rounds, calls=calls)
            kept.append((connections, pair))
        _publish(report, asked, kept, rounds=rounds, calls=calls)
        peak = usage(server.pid).peak_mib
        report.figures["server_peak_mib"] = round(peak, 1)
    return report.finish(options.out)


async def _hosts(connection: asyncpg.Connection[asyncpg.Record], operator: str, sessions: int) -> list[Host]:
    """Make a key for each of some scopes, that of a host with so many sessions."""
    every = await scopes(connection)
    chosen: list[Scope] = [scope for scope in every if scope.visible in MIDDLE][:HOSTS] or every[:HOSTS]
    hosts = []
    async with Database(operator) as database:
        store = AccessStore(database, actor="benchmark")
        await store.ensure_tenant(TENANT)
        for number_, scope in enumerate(chosen):
            rows = await connection.fetch(statement("scope_texts"), scope.scope_id, TEXTS_PER_SCOPE)
            new = NewKey(name=f"host {number_}", tenant=TENANT, own=scope.participants, faces=("core", "turns"))
            made, _ = await store.create_key(new, actor="benchmark")
            hosts.append(
                Host(
                    key=made.text,
                    participants=scope.participants,
                    texts=tuple(row["text"] for row in rows),
                    sessions=tuple(f"s{number_}-{session}" for session in range(sessions)),
                )
            )
    return hosts


def _after(port: int, host: Host, session: str, texts: tuple[str, str], turn_id: str) -> Request:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": texts[0]}]}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": texts[1]}]}
    arguments = {
        "project": "bench",
        "session_id": session,
        "turn_id": turn_id,
        "input_items": [said],
        "output_items": [answer],
    }
    return with_key(tool_call(port, "memory_after_turn", arguments), host.key)


def _before(port: int, host: Host, session: str, question: str) -> Request:
    arguments = {"project": "bench", "session_id": session, "current_input": question}
    return with_key(tool_call(port, "memory_before_turn", arguments), host.key)


def _slots(hosts: list[Host]) -> list[tuple[Host, str]]:
    """Return every session of every host, so that neighbours are of different hosts."""
    return [(host, host.sessions[at]) for at in range(len(hosts[0].sessions)) for host in hosts]


def _question(random: Random, host: Host) -> str:
    words = random.choice(host.texts).split()
    return " ".join(random.sample(words, min(QUESTION_WORDS, len(words))))


async def _begin(load: LoadProcess, server: Server, hosts: list[Host]) -> None:
    """Store the turns that sessions have when measuring begins; in one of five something is said that is a fact."""
    random = Random(1)
    requests = []
    for turn in range(TURNS_BEFORE):
        for host, session in _slots(hosts):
            said = random.choice(host.texts)
            if turn % 5 == 0:
                said = f"I prefer {said.split()[0]}. {said}"
            requests.append(_after(server.port, host, session, (said, random.choice(host.texts)), f"first-{turn}"))
    _check(await load.run(requests, port=server.port, connections=ASKERS, count=len(requests)))


async def _latencies(
    report: Report, load: LoadProcess, server: Server, hosts: list[Host], *, rounds: int, calls: int, size: int
) -> None:
    """Let 32 clients call before and after turns of all sessions."""
    random = Random(2)
    results = []
    for round_ in range(rounds + 1):
        requests = []
        for _ in range(2):
            for host, session in _slots(hosts):
                requests.append(_before(server.port, host, session, _question(random, host)))
                texts = (random.choice(host.texts), random.choice(host.texts))
                requests.append(_after(server.port, host, session, texts, KEY_SLOT))
        result = await load.run(
            requests, port=server.port, connections=CLIENTS, count=2 * calls, key_prefix=f"latency-{round_:02d}-"
        )
        _check(result)
        if round_:
            results.append(result)
    rows = []
    for tool, limit in (("memory_before_turn", MOST_BEFORE_MS), ("memory_after_turn", MOST_AFTER_MS)):
        p50, p95 = (
            median([getattr(result.by_tag[tool], quantile) for result in results]) for quantile in ("p50", "p95")
        )
        report.figures[f"{tool}, {CLIENTS} clients"] = {"p50_ms": round(p50, 2), "p95_ms": round(p95, 2)}
        report.check(f"p95 of {tool}, {CLIENTS} clients, {size:,} events", round(p95, 1), limit, unit="ms")
        rows.append((tool, number(p50, 1), number(p95, 1), f"{limit}"))
    throughput = median([result.throughput for result in results])
    report.figures["calls_per_s"] = round(throughput, 1)
    title = f"{CLIENTS} clients, before and after turns by turns, {size:,} events: {throughput:,.0f} calls/s"
    report.table(title, ("tool", "p50 ms", "p95 ms", "limit"), rows)


def _questions(port: int, hosts: list[Host]) -> tuple[list[Request], list[Request]]:
    random = Random(3)
    plain, turns = [], []
    for _ in range(5):
        for host, session in _slots(hosts):
            question = _question(random, host)
            arguments: dict[str, Any] = {"participants": list(host.participants), "query": question}
            plain.append(with_key(tool_call(port, "query_event_nodes", arguments), host.key))
            turns.append(_before(port, host, session, question))
    return plain, turns


def _kept(port: int, hosts: list[Host]) -> tuple[list[Request], list[Request]]:
    random = Random(4)
    plain, turns = [], []
    for host, session in _slots(hosts):
        texts = (random.choice(host.texts), random.choice(host.texts))
        events = [
            {
                "timestamp": "2026-01-05T10:00:00Z",
                "channel": "talk",
                "participants": list(host.participants),
                "context_id": session,
                "payload": {"text": text, "speaker": end},
            }
            for end, text in zip(("in", "out"), texts, strict=True)
        ]
        events[0]["source_event_key"] = KEY_SLOT  # one slot per request: the second event has no key, and costs less
        plain.append(with_key(tool_call(port, "append_events", {"events": events}), host.key))
        turns.append(_after(port, host, session, texts, KEY_SLOT))
    return plain, turns


async def _compare(
    connection: asyncpg.Connection[asyncpg.Record],
    load: LoadProcess,
    server: Server,
    pair: Compared,
    *,
    connections: int,
    rounds: int,
    calls: int,
) -> None:
    """Send blocks of both kinds, in alternating order; the first round is not counted."""
    for round_ in range(rounds + 1):
        await connection.execute(statement("checkpoint"))
        for which in (0, 1) if round_ % 2 else (1, 0):
            before, backends = cpu_seconds(server.pid), await backends_cpu(connection)
            result = await load.run(
                pair.requests[which],
                port=server.port,
                connections=connections,
                count=calls,
                key_prefix=f"{which}-{connections:02d}-{round_:02d}-",
            )
            _check(result)
            server_us = (cpu_seconds(server.pid) - before) / calls * 1e6
            database_us = used_since(backends, await backends_cpu(connection)) / calls * 1e6
            if round_:
                pair.results[which].append(result)
                pair.server_us[which].append(server_us)
                pair.database_us[which].append(database_us)
            console.say(
                f"{pair.names[which]}, {connections} clients: p95 {result.latency.p95:.2f} ms, "
                f"{server_us:,.0f} + {database_us:,.0f} µs",
                "dim",
            )


def _publish(report: Report, asked: Compared, kept: list[tuple[int, Compared]], *, rounds: int, calls: int) -> None:
    rows = []
    for clients, pair in ((ASKERS, asked), *kept):
        for which, name in enumerate(pair.names):
            p50, p95 = (
                median([getattr(result.latency, quantile) for result in pair.results[which]])
                for quantile in ("p50", "p95")
            )
            in_time = median(
                ratios(
                    [result.latency.p95 for result in pair.results[which]],
                    [result.latency.p95 for result in pair.results[0]],
                )
            )
            in_cpu = median(ratios(pair.all_us(which), pair.all_us(0)))
            report.figures[f"{name}, {clients} clients"] = {
                "p50_ms": round(p50, 3),
                "p95_ms": round(p95, 3),
                "server_cpu_us": round(median(pair.server_us[which]), 1),
                "postgres_cpu_us": round(median(pair.database_us[which]), 1),
                "p95_ratio": round(in_time, 3),
                "cpu_ratio": round(in_cpu, 3),
            }
            rows.append(
                (
                    f"{name}, {clients} clients",
                    number(p50),
                    number(p95),
                    number(median(pair.server_us[which]), 0),
                    number(median(pair.database_us[which]), 0),
                    number(in_time),
                    number(in_cpu),
                )
            )
            if which and pair is asked:
                report.check(f"p95 of {name} / {pair.names[0]}", round(in_time, 2), MOST_BEFORE_RATIO)
            elif which:
                report.check(f"CPU of {name} / {pair.names[0]}, {clients} clients", round(in_cpu, 2), MOST_AFTER_RATIO)
    columns = ("calls", "p50 ms", "p95 ms", "server CPU µs", "PostgreSQL CPU µs", "p95 ratio", "CPU ratio")
    report.table(f"beside the calls of the log, medians of {rounds} blocks of {calls:,}", columns, rows)


def _check(result: Result) -> None:
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed, the first: {result.first_error}")


def main() -> None:
    """Run this part alone."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds (default: 3; with --full 7)")
    options.add_argument("--calls", type=int, help="calls of a block (default: 300; with --full 2,000)")
    options.add_argument("--sessions", type=int, default=SESSIONS_EACH, help="sessions of each host (default: 6)")
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(
        run(
            measure(
                shared,
                rounds=given.rounds or (7 if shared.full else 3),
                calls=given.calls or (2_000 if shared.full else 300),
                sessions=given.sessions,
            )
        )
    )


if __name__ == "__main__":
    main()
