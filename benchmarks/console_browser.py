"""What a browser makes of the console: how soon it paints a page, and what pages cost that stay open.

Chromium opens the first page again and again, with an empty cache each time. Then it keeps the pages open that change
by themselves, first while nothing happens, then while events come and are built in.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from benchmarks.console import Console, console_over
from benchmarks.console_pages import LIVE, PAGES
from benchmarks.databases import build, load
from benchmarks.options import Bench, run_part
from benchmarks.processes import cpu_seconds
from benchmarks.report import Report, median, number
from benchmarks.synthetic import events
from myria_cli import console as terminal
from tests.clients import toolchain

PART = "console_browser"
MOST_PAINT_MS = 300.0
MOST_CORE = 0.01
LIVE_ROUNDS = 20
"""How many timed rounds a page stays open, so that what it costs is more than chance."""
LATER_EVENTS = 50
SEEN_WITHIN_S = 8.0
"""Seconds after which a page that asks every 3 s has shown what happened."""

PROGRAM = Path(__file__).with_suffix(".mjs")


async def measure(bench: Bench, report: Report) -> None:
    """Measure over a log of the largest size."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        terminal.say("no Chromium here (apt-get install chromium): nothing is measured in a browser", "yellow")
        return
    size = max(bench.sizes)
    async with console_over(bench, size) as console:
        await asyncio.sleep(bench.seconds)  # what follows a start is over
        idle = await _core(console, bench)
        async with _browser(bench, chromium, console) as browser:
            paints = (await _hear(browser))["paints"]
            await _hear(browser)  # the pages are open
            await asyncio.sleep(bench.seconds)
            open_ = await _core(console, bench)
            await _let_something_happen(bench, size)
            shifts = dict(zip(LIVE, (await _hear(browser, say="done"))["shifts"], strict=True))
    rows = [(name, f"{len(shifted)}", number(sum(value for value, *_ in shifted))) for name, shifted in shifts.items()]
    report.table("pages that stay open while events come and are built in", ("page", "shifts", "score"), rows)
    report.figures |= {"paints ms": paints, "idle": idle, "open": open_, "shifts": shifts}
    report.check(f"first paint of Ask at {size:,} events, median", median(paints), MOST_PAINT_MS, unit="ms")
    each = max(0.0, open_ - idle) / len(LIVE)
    report.check(f"{len(LIVE)} open pages: part of a core for each", each, MOST_CORE)
    report.check("layout shifts on open pages", sum(len(shifted) for shifted in shifts.values()), 0)


async def _core(console: Console, bench: Bench) -> float:
    """Return which part of a core the server needs over a while."""
    seconds, before = bench.seconds * LIVE_ROUNDS, cpu_seconds(console.server.pid)
    await asyncio.sleep(seconds)
    return (cpu_seconds(console.server.pid) - before) / seconds


async def _let_something_happen(bench: Bench, size: int) -> None:
    """Append events, build them in, and wait until every open page has asked again."""
    name = f"bench_{size}_console"
    await load(bench, name, _lines())
    await asyncio.sleep(SEEN_WITHIN_S)
    await build(bench, name)
    await asyncio.sleep(SEEN_WITHIN_S)


def _lines() -> Iterator[bytes]:
    """Yield events with keys of their own, as lines to import."""
    for place, event in enumerate(events(LATER_EVENTS, sets=4, seed=2)):
        yield orjson.dumps({**event, "source_event_key": f"later{place}"}, option=orjson.OPT_APPEND_NEWLINE)


@asynccontextmanager
async def _browser(bench: Bench, chromium: str, console: Console) -> AsyncIterator[asyncio.subprocess.Process]:
    wanted = {
        "url": f"http://127.0.0.1:{console.server.port}",
        "cookie": console.cookie.split("=", 1),
        "painted": console.shown.address(PAGES["ask"]),
        "times": 3 * bench.rounds,
        "live": [console.shown.address(page) for page in LIVE.values()],
    }
    with bench.log(PART).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(toolchain.node(), "--input-type=module", "--eval", PROGRAM.read_text(), chromium, json.dumps(wanted)),
            cwd=toolchain.node_folder(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the program ends then
        await process.wait()


async def _hear(browser: asyncio.subprocess.Process, *, say: str | None = None) -> dict[str, Any]:
    """Return the next thing that the browser's program says, after telling it something."""
    assert browser.stdin is not None
    assert browser.stdout is not None
    if say is not None:
        browser.stdin.write(f"{say}\n".encode())
        await browser.stdin.drain()
    line = await browser.stdout.readline()
    if not line:
        raise RuntimeError("the browser ended; see the log of console_browser")
    heard: dict[str, Any] = json.loads(line)
    return heard


if __name__ == "__main__":
    run_part(PART, __doc__, measure)
