"""What an erasure takes, and what others notice of it: a thousand events all over a built log, while a client works.

The events are spread evenly over the log, so that nearly every scope, topic and search block is concerned: the worst
case. One client appends and asks in turn without a pause, in blocks of two seconds, before and during the erasure;
the ratio is that of the blocks' medians. Then the receipt is proved, and a build plans the scopes concerned anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random

import orjson

from benchmarks.building import Built
from benchmarks.builds import counted_build
from benchmarks.cluster import Cluster
from benchmarks.figures import median
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import KEY_SLOT, Request, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import built
from benchmarks.processes import MYRIA, Ran, myria_server, run_command
from benchmarks.report import Report, number
from benchmarks.statements import statement
from benchmarks.synthetic import word
from benchmarks.workload import questions, scopes

PART = "erasing"
EVENTS = 1_000
BLOCK_S = 2.0
QUESTIONS = 200
ASKED_SCOPES = 12

MOST_S = 60.0
MOST_P95 = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Erased:
    """What was erased and how, and what the clients got in the blocks before and meanwhile."""

    events: int
    erased: Ran
    proved: Ran
    built: Built
    rows: dict[str, int]
    before: list[Result]
    during: list[Result]


async def measure(options: Common, *, events: int, blocks: int) -> int:
    """Erase from a log of each size and write the report; return the exit status."""
    report = Report(PART)
    async with Cluster(options.work_dir) as cluster:
        report.figures["postgres"] = await cluster.versions()
        for size in options.sizes:
            await _erasing(cluster, options, report, size, events=min(events, size // 10), blocks=blocks)
    return report.finish(options.out)


async def _erasing(cluster: Cluster, options: Common, report: Report, size: int, *, events: int, blocks: int) -> None:
    base = await built(cluster, options, size)
    name = f"{base.name}_erasing"
    dsns = await cluster.clone(base.name, name)
    log = options.work_dir / "log" / f"{name}.log"
    receipt = options.work_dir / f"{name}.receipt.json"
    receipt.unlink(missing_ok=True)
    connection = await cluster.connect(name)
    try:
        chosen = [row["event_id"] for row in await connection.fetch(statement("spread_events"), events)]
        async with LoadProcess() as load, myria_server(dsns.server, log) as server:
            asked = (await scopes(connection))[:ASKED_SCOPES]
            asking = await questions(connection, asked, port=server.port, count=QUESTIONS)
            requests = _mixed(server.port, asking)
            await load.run(requests, port=server.port, connections=1, seconds=BLOCK_S, key_prefix="warm-")
            before = [await _block(load, requests, server.port, f"b{at:03d}-") for at in range(blocks)]
            named = [part for event_id in chosen for part in ("--event", event_id)]
            command = [*MYRIA, "erase", *named, "--yes", "--reason", "benchmark", "--receipt", str(receipt)]
            erasing = asyncio.create_task(run_command(command, env={"MYRIA_POSTGRES_DSN": dsns.owner}, log=log))
            during: list[Result] = []
            while not erasing.done():
                during.append(await _block(load, requests, server.port, f"d{len(during):03d}-"))
            erased = await erasing
            proved = await _proved(dsns.owner, receipt, log)
    finally:
        await connection.close()
    ran, _ = await counted_build(cluster, options, name)
    rows = orjson.loads(receipt.read_bytes())["receipt"]["rows"]
    _publish(
        report,
        size,
        _Erased(events=events, erased=erased, proved=proved, built=ran, rows=rows, before=before, during=during),
    )
    await cluster.drop(name)


def _mixed(port: int, asking: list[Request]) -> list[Request]:
    """Return questions and appends in turn."""
    random = Random(1)
    requests = []
    for question in asking:
        text = " ".join(word(random.randrange(30_000)) for _ in range(24))
        event = {
            "timestamp": "2026-01-05T10:00:00Z",
            "channel": "talk",
            "participants": ["me", "agent"],
            "source_event_key": KEY_SLOT,
            "payload": {"text": text, "speaker": "me"},
        }
        requests += [question, tool_call(port, "append_event", event)]
    return requests


async def _block(load: LoadProcess, requests: list[Request], port: int, prefix: str) -> Result:
    result = await load.run(requests, port=port, connections=1, seconds=BLOCK_S, key_prefix=prefix)
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed, the first: {result.first_error}")
    return result


async def _proved(dsn: str, receipt: Path, log: Path) -> Ran:
    """Prove the receipt; it fails where a word is left."""
    command = [*MYRIA, "verify", "--receipt", str(receipt)]
    return await run_command(command, env={"MYRIA_POSTGRES_DSN": dsn}, log=log)


def _publish(report: Report, size: int, ran: _Erased) -> None:
    report.figures[f"at {size}"] = {
        "events": ran.events,
        "erase_s": round(ran.erased.seconds, 2),
        "erase_cpu_s": round(ran.erased.cpu_s, 2),
        "erase_peak_mib": round(ran.erased.peak_mib),
        "verify_s": round(ran.proved.seconds, 2),
        "build_s": round(ran.built.seconds, 2),
        "build_counts": ran.built.counts,
        "rows": ran.rows,
    }
    what = f"{ran.events:,} of {size:,} events"
    rows = []
    for tag in sorted(ran.before[0].by_tag):
        p95s = [[result.by_tag[tag].p95 for result in results] for results in (ran.before, ran.during)]
        base, beside = median(p95s[0]), median(p95s[1])
        report.figures[f"{tag} at {size}"] = {
            "p95_ms": round(base, 3),
            "p95_ms_while_erasing": round(beside, 3),
            "by_block": [[round(value, 2) for value in values] for values in p95s],
        }
        rows.append((tag, number(base), number(beside), number(beside / base), number(max(p95s[1]) / base)))
        report.check(f"p95 of {tag} while {what} are erased / before", beside / base, MOST_P95)
    title = (
        f"{what} erased in {ran.erased.seconds:.1f} s, proved in {ran.proved.seconds:.1f} s; "
        f"the build after it: {ran.built.seconds:.1f} s"
    )
    report.table(title, ("calls", "p95 ms", "while erasing", "ratio", "worst block"), rows)
    report.check(f"seconds to erase {what}", ran.erased.seconds, MOST_S, unit="s")


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--events", type=int, default=EVENTS, help="events that are erased (default: %(default)s)")
    options.add_argument("--blocks", type=int, default=6, help="blocks of 2 s before it (default: %(default)s)")
    given = options.parse_args()
    raise SystemExit(run(measure(common(given), events=given.events, blocks=given.blocks)))


if __name__ == "__main__":
    main()
