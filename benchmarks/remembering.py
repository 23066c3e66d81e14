"""What an agent's memory costs beside the log it stands on: remembering, forgetting and recalling.

Remembering is measured beside appending: blocks of calls that take turns, of notes and of events with the same texts
in the same scope, by one client and by 32. CPU is that of the server process and of the PostgreSQL processes that
serve it.
Forgetting is one withdrawal in a log that is built in full, and the build after it: what that writes must not depend
on the log. Recalling is asked in scopes of 1,000 to 2,500 events of logs of each size, in turn, each scope by its own
key; every scope also holds a few notes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice
from random import Random

import asyncpg

from benchmarks.auth import with_key
from benchmarks.builds import counted_build
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import KEY_SLOT, Request, post, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import TENANT, built
from benchmarks.processes import Server, backends_cpu, cpu_seconds, myria_server, used_since
from benchmarks.reads import MIDDLE
from benchmarks.report import Report, number
from benchmarks.statements import statement
from benchmarks.synthetic import events, word
from benchmarks.workload import QUESTION_WORDS, TEXTS_PER_SCOPE, Scope, scopes
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database
from myria_cli import console

PART = "remembering"
DATABASE = "bench_remembering"
CONNECTIONS = (1, 32)
"""Clients of a block: alone each call is a commit of its own, together they share commits."""

ASKERS = 4
ASKED_SCOPES = 12
NOTES_EACH = 20

MOST_CPU = 2.0
MOST_ROWS = 1_000
MOST_RECALL = 1.5

_LOCAL = ("me", "agent")
"""The participants of a server that asks for no credentials."""


@dataclass(slots=True, kw_only=True)
class Kind:
    """One kind of call, and what its blocks gave, in microseconds of CPU per call."""

    name: str
    request: Callable[[str], Request]
    server_us: list[float] = field(default_factory=list)
    database_us: list[float] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def add(self, result: Result, server_us: float, database_us: float) -> None:
        """Add what a block gave."""
        self.results.append(result)
        self.server_us.append(server_us)
        self.database_us.append(database_us)

    def all_us(self) -> list[float]:
        """Return the CPU of both per block."""
        return [server + database for server, database in zip(self.server_us, self.database_us, strict=True)]


@dataclass(slots=True, kw_only=True)
class Asked:
    """A log that is recalled from, and what its rounds gave."""

    size: int
    server: Server
    requests: list[Request]
    results: list[Result] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


async def measure(options: Common, *, rounds: int, calls: int, questions: int) -> int:
    """Measure the three and write the report; return the exit status."""
    report = Report(PART)
    async with Cluster(options.work_dir) as cluster:
        report.figures["postgres"] = await cluster.versions()
        await _remembering(cluster, options, report, rounds=rounds, calls=calls)
        for size in options.sizes:
            await _forgetting(cluster, options, report, size)
        await _recalling(cluster, options, report, rounds=rounds, questions=questions)
    return report.finish(options.out)


async def _remembering(cluster: Cluster, options: Common, report: Report, *, rounds: int, calls: int) -> None:
    dsns = await cluster.create(DATABASE)
    # Every note says something else: the second of two equal ones would not be stored.
    total = len(CONNECTIONS) * (rounds + 1) * 4 * calls
    texts = (f"{event['payload']['text']} {word(number)}" for number, event in enumerate(events(total, sets=1)))
    rows = []
    log = options.work_dir / "log" / f"{PART}.log"
    async with LoadProcess() as load, myria_server(dsns.server, log) as server:
        connection = await cluster.connect(DATABASE)
        try:
            for connections in CONNECTIONS:
                kinds = _kinds(server.port)
                for round_ in range(rounds + 1):
                    # Who comes first alternates, so that what one leaves behind falls on all.
                    for kind in kinds if round_ % 2 else reversed(kinds):
                        await connection.execute(statement("checkpoint"))
                        prefix = f"{kinds.index(kind)}-{connections:02d}-{round_:02d}-"
                        measured = await _block(
                            connection,
                            server,
                            load,
                            kind,
                            connections=connections,
                            texts=list(islice(texts, calls)),
                            prefix=prefix,
                        )
                        if round_:
                            kind.add(*measured)
                append = kinds[0]
                for kind in kinds:
                    against = median(ratios(kind.all_us(), append.all_us()))
                    in_server = median(ratios(kind.server_us, append.server_us))
                    p50s = [result.latency.p50 for result in kind.results]
                    report.figures[f"{kind.name}, {connections} clients"] = {
                        "server_cpu_us": round(median(kind.server_us), 1),
                        "postgres_cpu_us": round(median(kind.database_us), 1),
                        "cpu_ratio": round(against, 3),
                        "cpu_ratio_by_round": [round(value, 3) for value in ratios(kind.all_us(), append.all_us())],
                        "server_cpu_ratio": round(in_server, 3),
                        "p50_ms": round(median(p50s), 3),
                    }
                    rows.append(
                        (
                            f"{kind.name}, {connections} clients",
                            number(median(kind.server_us), 0),
                            number(median(kind.database_us), 0),
                            number(in_server),
                            number(against),
                            number(median(p50s)),
                        )
                    )
                    if kind is not append:
                        report.check(f"CPU of {kind.name} / append, {connections} clients", against, MOST_CPU)
        finally:
            await connection.close()
    columns = ("calls", "server CPU µs", "PostgreSQL CPU µs", "server ratio", "ratio of both", "p50 ms")
    report.table(f"remembering beside appending, medians of {rounds} blocks of {calls:,}", columns, rows)


def _kinds(port: int) -> list[Kind]:
    """Return what is compared: appends, notes with their content alone, and notes with all that is inferred else."""
    event = {
        "timestamp": "2026-01-05T10:00:00Z",
        "channel": "talk",
        "participants": list(_LOCAL),
        "source_event_key": KEY_SLOT,
    }
    given = {"type": "fact", "topic": "talk", "keywords": ["talk"], "importance": 0.5}
    return [
        Kind(
            name="append",
            request=lambda text: tool_call(
                port, "append_event", {**event, "payload": {"text": text, "speaker": "agent"}}
            ),
        ),
        Kind(name="remember", request=lambda text: tool_call(port, "remember", {"content": text})),
        Kind(
            name="remember, all given",
            request=lambda text: tool_call(port, "remember", {"content": text, **given}),
        ),
        Kind(
            name="memory over REST",
            request=lambda text: post(
                port,
                "/api/v1/memories",
                # Two that begin alike would be duplicates.
                {"agent_id": "bot", "content": f"{text[-20:]} {text}"},
                [],
                tag="keep_memories",
            ),
        ),
    ]


async def _block(
    connection: asyncpg.Connection[asyncpg.Record],
    server: Server,
    load: LoadProcess,
    kind: Kind,
    *,
    connections: int,
    texts: list[str],
    prefix: str,
) -> tuple[Result, float, float]:
    """Keep each text once as one kind; return the CPU per call of server and PostgreSQL, in microseconds, too."""
    requests, calls = [kind.request(text) for text in texts], len(texts)
    before = cpu_seconds(server.pid)
    backends = await backends_cpu(connection)
    result = await load.run(requests, port=server.port, connections=connections, count=calls, key_prefix=prefix)
    _check(result)
    server_us = (cpu_seconds(server.pid) - before) / calls * 1e6
    database_us = used_since(backends, await backends_cpu(connection)) / calls * 1e6
    console.say(f"{kind.name}, {connections} clients: {server_us:,.0f} + {database_us:,.0f} µs", "dim")
    return result, server_us, database_us


async def _forgetting(cluster: Cluster, options: Common, report: Report, size: int) -> None:
    """Withdraw one event of a built log, and build."""
    base = await built(cluster, options, size)
    name = f"{base.name}_forgetting"
    dsns = await cluster.clone(base.name, name)
    connection = await cluster.connect(name)
    try:
        scope = _middle(await scopes(connection))[0]
        event_id = await connection.fetchval(statement("some_event"), scope.scope_id)
    finally:
        await connection.close()
    log = options.work_dir / "log" / f"{name}.log"
    async with myria_server(dsns.server, log) as server, LoadProcess() as load:
        arguments = {"event_ids": [event_id], "reason": "forgotten", "participants": list(scope.participants)}
        _check(
            await load.run(
                [tool_call(server.port, "withdraw_events", arguments)], port=server.port, connections=1, count=1
            )
        )
    ran, written = await counted_build(cluster, options, name)
    total = sum(written.values())
    report.figures[f"forgetting at {size}"] = {
        "scope_events": scope.events,
        "build_s": round(ran.seconds, 3),
        "rows": written,
        "rows_total": total,
        "counts": ran.counts,
    }
    by_table = [(table, f"{count:,}") for table, count in sorted(written.items(), key=lambda item: -item[1])]
    title = f"the build after one withdrawal at {size:,} events, in a scope of {scope.events:,} ({ran.seconds:.2f} s)"
    report.table(title, ("table", "rows"), [*by_table, ("all", f"{total:,}")])
    report.check(f"rows of the build after one withdrawal at {size:,}", total, MOST_ROWS)
    await cluster.drop(name)


def _middle(every: list[Scope]) -> list[Scope]:
    return [scope for scope in every if scope.visible in MIDDLE] or every


async def _recalling(cluster: Cluster, options: Common, report: Report, *, rounds: int, questions: int) -> None:
    names = []
    async with AsyncExitStack() as stack:
        load = await stack.enter_async_context(LoadProcess())
        asked = []
        for size in options.sizes:
            base = await built(cluster, options, size)
            name = f"{base.name}_recalling"
            dsns = await cluster.clone(base.name, name)
            names.append(name)
            log = options.work_dir / "log" / f"{name}.log"
            server = await stack.enter_async_context(myria_server(dsns.server, log, AUTH_MODE="keys"))
            connection = await cluster.connect(name)
            try:
                asked.append(await _asked(connection, dsns.operator, load, server, size=size))
            finally:
                await connection.close()
        for case in asked:
            warm = case.requests[: 2 * ASKED_SCOPES]
            _check(await load.run(warm, port=case.server.port, connections=1, count=len(warm)))
        for round_ in range(rounds):
            for case in asked if round_ % 2 else reversed(asked):
                before = cpu_seconds(case.server.pid)
                result = await load.run(case.requests, port=case.server.port, connections=ASKERS, count=questions)
                _check(result)
                case.cpu_ms.append((cpu_seconds(case.server.pid) - before) / questions * 1e3)
                case.results.append(result)
                console.say(f"recall at {case.size:,}: p50 {result.latency.p50:.2f} ms", "dim")
    for name in names:
        await cluster.drop(name)
    _publish_recalling(report, asked)


async def _asked(
    connection: asyncpg.Connection[asyncpg.Record], operator: str, load: LoadProcess, server: Server, *, size: int
) -> Asked:
    """Make a key for each scope, keep notes there, and return questions of what its events say."""
    chosen = _middle(await scopes(connection))[:ASKED_SCOPES]
    random = Random(1)
    by_scope: list[list[Request]] = []
    for index, scope in enumerate(chosen):
        key = await _key(operator, f"scope {index}", scope.participants)
        rows = await connection.fetch(statement("scope_texts"), scope.scope_id, TEXTS_PER_SCOPE)
        texts = [row["text"] for row in rows]
        notes = [
            tool_call(server.port, "remember", {"content": f"note {number}: {random.choice(texts)}"})
            for number in range(NOTES_EACH)
        ]
        kept = [with_key(request, key) for request in notes]
        _check(await load.run(kept, port=server.port, connections=1, count=len(kept)))
        asking = []
        for _ in range(TEXTS_PER_SCOPE):
            words = random.choice(texts).split()
            text = " ".join(random.sample(words, min(QUESTION_WORDS, len(words))))
            asking.append(with_key(tool_call(server.port, "recall", {"text": text}), key))
        by_scope.append(asking)
    return Asked(
        size=size, server=server, requests=[request for turn in zip(*by_scope, strict=True) for request in turn]
    )


async def _key(operator: str, name: str, own: tuple[str, ...]) -> str:
    async with Database(operator) as database:
        store = AccessStore(database, actor="benchmark")
        await store.ensure_tenant(TENANT)
        made, _ = await store.create_key(NewKey(name=name, tenant=TENANT, own=own, faces=("agent",)), actor="benchmark")
    return made.text


def _publish_recalling(report: Report, asked: list[Asked]) -> None:
    base = asked[0]
    rows = []
    for case in asked:
        p50s, p95s = ([getattr(result.latency, name) for result in case.results] for name in ("p50", "p95"))
        base_p50s, base_p95s = ([getattr(result.latency, name) for result in base.results] for name in ("p50", "p95"))
        p50, p95 = median(ratios(p50s, base_p50s)), median(ratios(p95s, base_p95s))
        cpu = median(ratios(case.cpu_ms, base.cpu_ms))
        report.figures[f"recall at {case.size}"] = {
            "p50_ms": round(median(p50s), 3),
            "p95_ms": round(median(p95s), 3),
            "server_cpu_ms": round(median(case.cpu_ms), 3),
            "p50_ratio": round(p50, 3),
            "p95_ratio": round(p95, 3),
            "cpu_ratio": round(cpu, 3),
        }
        shown = (median(p50s), p50, median(p95s), p95, median(case.cpu_ms), cpu)
        rows.append((f"{case.size:,}", *(number(value) for value in shown)))
        if case is not base:
            report.check(f"p50 of recall at {case.size:,} / at {base.size:,}", p50, MOST_RECALL)
            report.check(f"p95 of recall at {case.size:,} / at {base.size:,}", p95, MOST_RECALL)
    columns = ("events", "p50 ms", "ratio", "p95 ms", "ratio", "CPU ms", "ratio")
    report.table(f"recall, {ASKERS} clients, scopes of 1,000-2,500", columns, rows)


def _check(result: Result) -> None:
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed, the first: {result.first_error}")


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds (default: 3; with --full 7)")
    options.add_argument("--calls", type=int, help="calls of a block (default: 300; with --full 2,000)")
    options.add_argument("--questions", type=int, help="questions of a round (default: 100; with --full 400)")
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(
        run(
            measure(
                shared,
                rounds=given.rounds or (7 if shared.full else 3),
                calls=given.calls or (2_000 if shared.full else 300),
                questions=given.questions or (400 if shared.full else 100),
            )
        )
    )


if __name__ == "__main__":
    main()
