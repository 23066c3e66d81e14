"""What REST costs beside the tools that do the like: keeping many memories at once, and searching them by words.

Batches of 100 memories take turns with `append_events` of as many events of the same kind. Then what was kept is
searched: by words (`query`), and by a piece of text as it is written (`content_contains`), in blocks that take turns
with `recall` of the same words by the agent's tool.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random

import asyncpg

from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import Request, post, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, backends_cpu, cpu_seconds, myria_server, used_since
from benchmarks.report import Report, number
from benchmarks.synthetic import events
from benchmarks.workload import QUESTION_WORDS
from myria_cli import console

PART = "memories"
DATABASE = "bench_memories"
EACH = 100
"""Memories of a batch, and events of the append beside it."""

BATCHES = 10
"""Batches of a round."""

CONNECTIONS = 4
LEAST_RATE = 0.5
MOST_SEARCH = 1.3

_US = ("me", "agent")


async def measure(options: Common, *, rounds: int, batches: int, questions: int) -> int:
    """Measure both and write the report; return the exit status."""
    report = Report(PART)
    async with Cluster(options.work_dir) as cluster:
        report.figures["postgres"] = await cluster.versions()
        dsns = await cluster.create(DATABASE)
        log = options.work_dir / "log" / f"{PART}.log"
        async with LoadProcess() as load, myria_server(dsns.server, log) as server:
            made = events((rounds + 1) * 2 * batches * EACH, sets=1)
            # Two memories that begin alike would be duplicates.
            texts = [f"{number} {event['payload']['text']}" for number, event in enumerate(made)]
            connection = await cluster.connect(DATABASE)
            try:
                await _batches(connection, load, server, report, texts, rounds=rounds, batches=batches)
            finally:
                await connection.close()
            await _searches(load, server.port, report, texts, rounds=rounds, questions=questions)
    return report.finish(options.out)


async def _batches(
    connection: asyncpg.Connection[asyncpg.Record],
    load: LoadProcess,
    server: Server,
    report: Report,
    texts: list[str],
    *,
    rounds: int,
    batches: int,
) -> None:
    """Compare how many memories and events are kept in a second, in batches, and what each costs."""
    kinds: dict[str, Callable[[list[str]], Request]] = {
        "append_events": lambda batch: _appending(server.port, batch),
        "memories": lambda batch: _keeping(server.port, batch),
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    p50s: dict[str, list[float]] = {name: [] for name in kinds}
    server_us: dict[str, list[float]] = {name: [] for name in kinds}
    database_us: dict[str, list[float]] = {name: [] for name in kinds}
    coming = iter(texts)
    for round_ in range(rounds + 1):
        for name in kinds if round_ % 2 else reversed(kinds):
            requests = [kinds[name](list(islice(coming, EACH))) for _ in range(batches)]
            before, backends = cpu_seconds(server.pid), await backends_cpu(connection)
            result = _checked(await load.run(requests, port=server.port, connections=CONNECTIONS, count=batches))
            used = cpu_seconds(server.pid) - before, used_since(backends, await backends_cpu(connection))
            of_server, of_database = (seconds / (batches * EACH) * 1e6 for seconds in used)
            rate = result.throughput * EACH
            console.say(f"{name}: {rate:,.0f} a second, {of_server:.0f} + {of_database:.0f} µs of CPU each", "dim")
            if round_:
                rates[name].append(rate)
                server_us[name].append(of_server)
                database_us[name].append(of_database)
                p50s[name].append(result.latency.p50)
    by_round = ratios(rates["memories"], rates["append_events"])
    report.figures["batches"] = {
        **{f"{name}_per_s": round(median(values), 1) for name, values in rates.items()},
        **{f"{name}_p50_ms": round(median(values), 2) for name, values in p50s.items()},
        **{f"{name}_server_us": round(median(values), 1) for name, values in server_us.items()},
        **{f"{name}_postgres_us": round(median(values), 1) for name, values in database_us.items()},
        "ratio": round(median(by_round), 3),
        "ratio_by_round": [round(value, 3) for value in by_round],
    }
    rows = [
        (name, number(median(rates[name]), 0), *(number(median(of[name])) for of in (p50s, server_us, database_us)))
        for name in kinds
    ]
    title = f"{CONNECTIONS} clients, medians of {rounds} rounds of {batches} batches"
    report.table(title, (f"batches of {EACH}", "kept a second", "p50 ms", "server µs each", "PostgreSQL µs each"), rows)
    report.check("rate of memories / events, in batches", median(by_round), LEAST_RATE, at_least=True)


async def _searches(
    load: LoadProcess, port: int, report: Report, texts: list[str], *, rounds: int, questions: int
) -> None:
    """Compare searches of REST with recall of the same words."""
    random = Random(1)
    asked = []
    for _ in range(questions):
        words = random.choice(texts).split()[1:]
        asked.append(random.sample(words, min(QUESTION_WORDS, len(words))))
    kinds = {
        "recall": [tool_call(port, "recall", {"text": " ".join(words)}) for words in asked],
        "search by words": [_search(port, {"query": " ".join(words)}) for words in asked],
        "search of a piece of text": [_search(port, {"content_contains": words[0]}) for words in asked],
    }
    p50s: dict[str, list[float]] = {name: [] for name in kinds}
    p95s: dict[str, list[float]] = {name: [] for name in kinds}
    for round_ in range(rounds + 1):
        for name in kinds if round_ % 2 else reversed(kinds):
            requests = kinds[name]
            result = _checked(await load.run(requests, port=port, connections=CONNECTIONS, count=len(requests)))
            if round_:
                p50s[name].append(result.latency.p50)
                p95s[name].append(result.latency.p95)
            console.say(f"{name}: p50 {result.latency.p50:.2f}, p95 {result.latency.p95:.2f} ms", "dim")
    rows = []
    for name in kinds:
        p50, p95 = median(ratios(p50s[name], p50s["recall"])), median(ratios(p95s[name], p95s["recall"]))
        report.figures[name] = {
            "p50_ms": round(median(p50s[name]), 2),
            "p95_ms": round(median(p95s[name]), 2),
            "p50_ratio": round(p50, 3),
            "p95_ratio": round(p95, 3),
            "p95_ratio_by_round": [round(value, 3) for value in ratios(p95s[name], p95s["recall"])],
        }
        rows.append((name, *map(number, (median(p50s[name]), p50, median(p95s[name]), p95))))
        if name != "recall":
            report.check(f"p95 of {name} / recall", p95, MOST_SEARCH)
    title = f"{CONNECTIONS} clients, medians of {rounds} rounds of {questions} questions"
    report.table(title, ("asked", "p50 ms", "ratio", "p95 ms", "ratio"), rows)


def _appending(port: int, texts: list[str]) -> Request:
    made = [
        {
            "timestamp": "2026-01-05T10:00:00Z",
            "channel": "talk",
            "participants": list(_US),
            "payload": {"text": text, "speaker": "agent"},
        }
        for text in texts
    ]
    return tool_call(port, "append_events", {"events": made})


def _keeping(port: int, texts: list[str]) -> Request:
    memories = [{"agent_id": "bot", "content": text} for text in texts]
    return post(port, "/api/v1/memories", {"memories": memories}, [], tag="keep_memories")


def _search(port: int, what: dict[str, str]) -> Request:
    return post(port, "/api/v1/search", what, [], tag="search")


def _checked(result: Result) -> Result:
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed, the first: {result.first_error}")
    return result


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds (default: 3; with --full 7)")
    options.add_argument("--batches", type=int, default=BATCHES, help="batches of a round (default: %(default)s)")
    options.add_argument("--questions", type=int, help="questions of a round (default: 100; with --full 400)")
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(
        run(
            measure(
                shared,
                rounds=given.rounds or (7 if shared.full else 3),
                batches=given.batches,
                questions=given.questions or (400 if shared.full else 100),
            )
        )
    )


if __name__ == "__main__":
    main()
