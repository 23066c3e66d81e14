"""What reading costs an agent that is in very many scopes, against the same events in one scope.

One log holds both: thousands of scopes of a few events each, all sharing one participant, and one scope with as many
events of the same texts. Each is asked alone by the participant its events share. Cold is the first question to a
server process that has just started; warm are the questions after it, in rounds that take the two in turn. Then appends
and small reads are measured without and beside sixteen readers of the many scopes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import orjson

from benchmarks.building import build
from benchmarks.cluster import Cluster, index_digest
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import KEY_SLOT, Request, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import load
from benchmarks.processes import myria_server, usage
from benchmarks.report import Report, number
from benchmarks.synthetic import events
from myria_cli import console

PART = "many_scopes"
MANY, ONE = "clerk", "archive"
"""Who is in all the small scopes, and who is in the one large scope."""

SCOPES, SMALL_SCOPES = 5_000, 500
EVENTS_EACH = 8
COLD_STARTS = 3
HEAVY_READERS = 16
OTHERS = 4
QUESTIONS = 64

MOST_WARM_MS = 60.0
MOST_COLD_MS = 400.0
MOST_RATIO = 2.0

_START = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class Asker:
    """One asker's figures: first questions, rounds of warm ones, and the server's CPU per warm question."""

    label: str
    requests: list[Request]
    cold_ms: list[float] = field(default_factory=list)
    warm: list[Result] = field(default_factory=list)
    cpu_s: float = 0.0

    def p50s(self) -> list[float]:
        """Return the median of each round, in milliseconds."""
        return [result.latency.p50 for result in self.warm]

    def cpu_ms(self) -> float:
        """Return the server's CPU time per question, in milliseconds: which hardly depends on other work."""
        return self.cpu_s / max(1, sum(result.acknowledged for result in self.warm)) * 1000


def many_scopes(scopes: int, each: int) -> Iterator[bytes]:
    """Yield lines to import: `scopes` scopes of `each` events, and one scope of as many, of the same texts."""
    total = scopes * each
    for number_, event in enumerate(events(total, sets=1)):
        scope, place = number_ % scopes, number_ // scopes
        at = _START + timedelta(minutes=7 * scope, seconds=40 * place)
        yield _line(event, at, f"user_{scope:06d}", MANY, key=f"m{number_:08d}")
    for number_, event in enumerate(events(total, sets=1)):
        yield _line(event, _START + timedelta(seconds=52 * number_), "reader", ONE, key=f"o{number_:08d}")


def _line(event: dict[str, Any], at: datetime, person: str, shared: str, *, key: str) -> bytes:
    return orjson.dumps(
        {
            "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "channel": f"with {shared}",
            "participants": [shared, person],
            "source_event_key": key,
            "type": "message",
            "payload": {"text": event["payload"]["text"], "speaker": (person, shared)[at.minute % 2]},
            "topic_hints": event["topic_hints"],
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


async def measure(
    options: Common,
    *,
    scopes: int,
    each: int,
    rounds: int,
    requests: int,
    seconds: float,
    cold_starts: int = COLD_STARTS,
) -> int:
    """Prepare, run the rounds, and write the report; return the exit status."""
    report = Report(PART)
    logs = options.work_dir / "log"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        name = await _prepared(cluster, options, scopes, each)
        dsn = (await cluster.clone(name, f"{name}_run")).server
        load_process = await stack.enter_async_context(LoadProcess())
        heavy_process = await stack.enter_async_context(LoadProcess())
        askers = [
            Asker(label=f"1 scope of {scopes * each:,}", requests=[]),
            Asker(label=f"{scopes:,} scopes of {each}", requests=[]),
        ]
        for start in range(cold_starts):
            for asker, who in zip(askers, (ONE, MANY), strict=True):
                async with myria_server(dsn, logs / f"{PART}-cold.log") as server:
                    question = _questions(server.port, who, scopes * each, seed=start)[:1]
                    first = await load_process.run(question, port=server.port, connections=1, count=1)
                    _check(first)
                    asker.cold_ms.append(first.latency.p50)
        server = await stack.enter_async_context(myria_server(dsn, logs / f"{PART}.log"))
        at_start = usage(server.pid)
        for asker, who in zip(askers, (ONE, MANY), strict=True):
            asker.requests = _questions(server.port, who, scopes * each, seed=1)
            _check(await load_process.run(asker.requests, port=server.port, connections=1, count=8))
        for _ in range(rounds):
            for asker in askers:
                used = usage(server.pid).cpu_s
                result = await load_process.run(asker.requests, port=server.port, connections=1, count=requests)
                _check(result)
                asker.cpu_s += usage(server.pid).cpu_s - used
                asker.warm.append(result)
        others = _others(server.port, scopes)
        quiet: list[Result] = []
        beside: list[Result] = []
        heavy: list[Result] = []
        _check(await load_process.run(others, port=server.port, connections=OTHERS, seconds=1.0, key_prefix="warm"))
        for round_ in range(rounds):
            plain = await load_process.run(
                others, port=server.port, connections=OTHERS, seconds=seconds, key_prefix=f"q{round_}"
            )
            readers = asyncio.create_task(
                heavy_process.run(
                    askers[1].requests, port=server.port, connections=HEAVY_READERS, seconds=seconds + 1.0
                )
            )
            busy = await load_process.run(
                others, port=server.port, connections=OTHERS, seconds=seconds, key_prefix=f"b{round_}"
            )
            read = await readers
            for result, into in ((plain, quiet), (busy, beside), (read, heavy)):
                _check(result)
                into.append(result)
        memory = usage(server.pid)
    _publish(report, askers)
    _publish_others(report, quiet, beside, heavy)
    report.figures["server_rss_mib"] = {
        "at_start": round(at_start.rss_mib, 1),
        "after": round(memory.rss_mib, 1),
        "peak": round(memory.peak_mib, 1),
    }
    console.say(f"server memory: {at_start.rss_mib:,.0f} MiB at start, {memory.rss_mib:,.0f} after", "dim")
    return report.finish(options.out)


async def _prepared(cluster: Cluster, options: Common, scopes: int, each: int) -> str:
    """Return the database with both kinds of scopes, all of them in its active snapshot."""
    name = f"bench_scopes_{scopes}x{each}"
    recipe = {"scopes": scopes, "each": each, "code": index_digest()}
    if await cluster.prepared(name, recipe) is None or options.rebuild:
        dsns = await cluster.create(name)
        total = 2 * scopes * each
        await load(dsns.server, many_scopes(scopes, each), total=total, what=f"loading {total:,} events")
        console.say(f"building {scopes + 1:,} scopes in full ...", "dim")
        ran = await build(dsns, options.work_dir / "log" / f"{name}.log", full=True)
        await cluster.tidy(name)
        cluster.note(name, recipe, {"full_build_s": round(ran.seconds, 1)})
    return name


def _questions(port: int, who: str, total: int, *, seed: int) -> list[Request]:
    """Return questions of four words of one message each, both query tools in turn."""
    random = Random(seed)
    texts = [event["payload"]["text"] for event, _ in zip(events(total, sets=1), range(1_000), strict=False)]
    made = []
    for i in range(QUESTIONS):
        words = random.choice(texts).split()
        arguments = {"participants": [who], "query": " ".join(random.sample(words, min(4, len(words))))}
        made.append(tool_call(port, ("query_event_nodes", "query_references")[i % 2], arguments))
    return made


def _others(port: int, scopes: int) -> list[Request]:
    """Return appends to the small scopes, and reads of single ones, in turn."""
    random = Random(2)
    texts = [event["payload"]["text"] for event, _ in zip(events(1_000, sets=1), range(QUESTIONS), strict=False)]
    made = []
    for i, text in enumerate(texts):
        participants = [MANY, f"user_{random.randrange(scopes):06d}"]
        if i % 2:
            made.append(tool_call(port, "query_event_nodes", {"participants": participants, "query": text[:60]}))
        else:
            event = {
                "timestamp": "2026-01-05T10:00:00Z",
                "channel": f"with {MANY}",
                "participants": participants,
                "source_event_key": KEY_SLOT,
                "payload": {"text": text},
            }
            made.append(tool_call(port, "append_event", event))
    return made


def _check(result: Result) -> None:
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed, the first: {result.first_error}")


def _publish(report: Report, askers: list[Asker]) -> None:
    single, many = askers
    against = ratios(many.p50s(), single.p50s())
    rows = []
    for asker in askers:
        report.figures[asker.label] = {
            "warm_p50_ms": round(median(asker.p50s()), 3),
            "warm_p50_ms_by_round": [round(value, 3) for value in asker.p50s()],
            "warm_p95_ms": round(median([result.latency.p95 for result in asker.warm]), 3),
            "server_cpu_ms_per_request": round(asker.cpu_ms(), 3),
            "cold_ms": [round(value, 1) for value in asker.cold_ms],
        }
        rows.append(
            (
                asker.label,
                number(median(asker.p50s())),
                number(median([result.latency.p95 for result in asker.warm])),
                number(asker.cpu_ms()),
                number(median(asker.cold_ms), 0),
            )
        )
    report.figures["warm_p50_ratio"] = round(median(against), 3)
    report.figures["cpu_ratio"] = round(many.cpu_ms() / max(0.001, single.cpu_ms()), 3)
    columns = ("asked", "warm p50 ms", "warm p95 ms", "CPU ms/request", "cold ms")
    report.table("one client, median of rounds", columns, rows)
    report.check(f"warm p50 of {many.label}", median(many.p50s()), MOST_WARM_MS, unit="ms")
    report.check(f"cold question to {many.label}", median(many.cold_ms), MOST_COLD_MS, unit="ms")
    report.check(f"warm p50 of {many.label} / {single.label}", median(against), MOST_RATIO)


def _publish_others(report: Report, quiet: list[Result], beside: list[Result], heavy: list[Result]) -> None:
    rows = []
    for tag in sorted(quiet[0].by_tag):
        alone = [result.by_tag[tag].p95 for result in quiet]
        busy = [result.by_tag[tag].p95 for result in beside]
        against = median(ratios(busy, alone))
        report.figures[f"{tag} beside {HEAVY_READERS} readers"] = {
            "p95_ms_without": round(median(alone), 3),
            "p95_ms_beside": round(median(busy), 3),
            "p95_ratio": round(against, 3),
        }
        what = "appends" if tag == "append_event" else "small reads"
        rows.append((what, number(median(alone)), number(median(busy)), number(against)))
        report.check(f"p95 of {what} beside {HEAVY_READERS} readers of many scopes / without", against, MOST_RATIO)
    report.figures["heavy_reads_per_s"] = round(median([result.throughput for result in heavy]), 1)
    columns = (f"{OTHERS} clients", "p95 ms without", "p95 ms beside", "ratio")
    report.table(f"beside {HEAVY_READERS} readers of many scopes, median of rounds", columns, rows)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--scopes", type=int, help=f"small scopes (default: {SMALL_SCOPES}; with --full {SCOPES:,})")
    options.add_argument("--each", type=int, default=EVENTS_EACH, help="events of each (default: %(default)s)")
    options.add_argument("--rounds", type=int, help="rounds (default: 2; with --full 5)")
    options.add_argument("--requests", type=int, help="questions of a warm round (default: 50; with --full 200)")
    options.add_argument("--seconds", type=float, help="length of a round beside readers (default: 3; with --full 10)")
    options.add_argument(
        "--cold-starts", type=int, default=COLD_STARTS, help="starts of a server that is asked once, for each"
    )
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(
        run(
            measure(
                shared,
                scopes=given.scopes or (SCOPES if shared.full else SMALL_SCOPES),
                each=given.each,
                rounds=given.rounds or (5 if shared.full else 2),
                requests=given.requests or (200 if shared.full else 50),
                seconds=given.seconds or (10.0 if shared.full else 3.0),
                cold_starts=given.cold_starts,
            )
        )
    )


if __name__ == "__main__":
    main()
