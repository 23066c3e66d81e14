"""What the pages of the console weigh and cost, as the log grows.

Each page is asked for again and again by one client, over logs with two snapshots that differ by 1,000 events. Among
them are events and notes with the longest texts. `benchmarks.console_browser` measures what a browser makes of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from itertools import islice

import httpx
import orjson

from benchmarks.console_pages import PAGES, Shown, first_link, loaded_by
from benchmarks.databases import build, built, load
from benchmarks.load import drive
from benchmarks.mcp_http import request, tool_call
from benchmarks.options import Bench, run_part
from benchmarks.processes import Server, myria_server, usage
from benchmarks.report import Report, number
from benchmarks.synthetic import events
from benchmarks.workload import SPARE, Scope, lines, scopes

PART = "console"
MOST_PAGE_BYTES = 150_000
MOST_LOADED_BYTES = 150_000
MOST_DIFF_S = 1.0
MOST_DIFF_MIB = 64.0
DIFF_EVENTS = 100_000
"""The size of log for which the bound of a difference is meant."""

ARCHIVIST = "archivist"
LONG_EVENTS, LONG_NOTES = 60, 60
LONG_EVENT, LONG_NOTE = 120_000, 9_000
"""Characters of one text. There are as many as fill a page."""
HELD = "decision"
"""The kind of the notes that wait for a review."""

_MORE = re.compile(r'<a class="button" href="([^"]+)">More</a>')


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """A server with the console on, the cookie of somebody who is signed in there, and what there is to show."""

    server: Server
    cookie: str
    shown: Shown

    @property
    def origin(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server.port}"


async def measure(bench: Bench, report: Report) -> None:
    """Measure the pages over logs of each size."""
    for size in bench.sizes:
        async with console_over(bench, size) as console:
            # First, while the server holds nothing else.
            address = console.shown.address(PAGES["changes: differences"])
            what = f"{SPARE:,} new events among {size:,}"
            seconds = await _difference(report, console.server, console.cookie, address, what)
            if size <= DIFF_EVENTS:
                report.check(f"{what}: all of what differs", sum(seconds), MOST_DIFF_S, unit="s")
            await _pages(bench, report, console, size)
        if size <= DIFF_EVENTS:
            await _difference_in_one_scope(bench, report, size)


@asynccontextmanager
async def console_over(bench: Bench, size: int) -> AsyncIterator[Console]:
    """Serve a log of so many events with two snapshots; sign somebody in who may ask as anybody, and administer."""
    name = f"bench_{size}_console"
    if name not in bench.cluster.ready:
        log = await built(bench, size)
        await bench.cluster.clone(log, name)
        await load(bench, name, _long_events())
        before = (await build(bench, name)).snapshot_id
        await load(bench, name, islice(lines(size), size, size + SPARE))
        after = (await build(bench, name)).snapshot_id
        await bench.cluster.tidy(name)
        bench.cluster.ready[name] = {"before": before, "after": after}
    async with _served(bench, name) as (server, key, cookie):
        await _keep_notes(server, key)
        _, largest = await scopes(bench.cluster, name)
        async with _client(server, cookie) as client:
            shown = await _what_to_show(client, largest, bench.cluster.ready[name])
        yield Console(server=server, cookie=cookie, shown=shown)


@asynccontextmanager
async def _served(bench: Bench, name: str) -> AsyncIterator[tuple[Server, str, str]]:
    """Serve a database; yield the server, and the key and cookie of somebody who may all."""
    faces = ("core", "agent", "admin")
    roles = ("read", "append", "admin", "erase")
    key = await bench.cluster.key(name, (), may_ask=("*",), roles=roles, faces=faces)
    async with myria_server(
        bench.cluster.dsns(name).server, bench.log(f"{PART}-{name}"), CONSOLE_ENABLED="true", AUTH_MODE="keys"
    ) as server:
        yield server, key, await _signed_in(server, key)


async def _pages(bench: Bench, report: Report, console: Console, size: int) -> None:
    rows: list[tuple[str, ...]] = []
    figures: dict[str, dict[str, float]] = {}
    loaded: set[str] = set()
    async with _client(console.server, console.cookie) as client:
        for name, page in PAGES.items():
            address = console.shown.address(page)
            answer = await client.get(address)
            _need_page(name, answer)
            loaded.update(loaded_by(answer.text))
            figures[name] = {"bytes": len(answer.content)}
            if not answer.is_error:
                asked = request(console.server.port, address, headers=(f"Cookie: {console.cookie}",))
                timed = await drive([asked], port=console.server.port, count=bench.requests // 5)
                figures[name] |= {"p50 ms": timed.ms(0.5), "p95 ms": timed.ms(0.95)}
            times = [number(figures[name][column]) for column in ("p50 ms", "p95 ms") if column in figures[name]]
            rows.append((name, f"{len(answer.content):,}", *(times or ("", ""))))
        bytes_loaded = sum([len((await client.get(address)).content) for address in sorted(loaded)])
    report.figures[f"pages at {size:,}"] = figures
    report.table(f"pages at {size:,} events, 1 client", ("page", "bytes", "p50 ms", "p95 ms"), rows)
    largest = max(figures, key=lambda name: figures[name]["bytes"])
    report.check(f"largest page at {size:,}: {largest}", figures[largest]["bytes"], MOST_PAGE_BYTES, unit="bytes")
    report.check(f"scripts and styles at {size:,}", bytes_loaded, MOST_LOADED_BYTES, unit="bytes")


async def _difference(report: Report, server: Server, cookie: str, first: str, what: str) -> list[float]:
    """Read the difference of two snapshots to its end, page by page; return the seconds of each."""
    began_mib = usage(server.pid).rss_mib
    seconds: list[float] = []
    address: str | None = first
    async with _client(server, cookie) as client:
        while address is not None:
            began = time.perf_counter()
            answer = await client.get(address)
            seconds.append(time.perf_counter() - began)
            _need_page("changes: differences", answer)
            more = _MORE.search(answer.text)
            address = None if more is None else unescape(more[1])
    mib = usage(server.pid).peak_mib - began_mib
    report.figures[f"difference: {what}"] = {"seconds": seconds, "MiB": mib}
    report.check(f"{what}: the first of {len(seconds)} pages of what differs", seconds[0], MOST_DIFF_S, unit="s")
    report.check(f"{what}: memory for what differs", mib, MOST_DIFF_MIB, unit="MiB")
    return seconds


async def _difference_in_one_scope(bench: Bench, report: Report, size: int) -> None:
    """Read what late events all over one scope changed: of its tree, much more differs than where new ones are last."""
    name = f"bench_{size}_scope_console"
    if name not in bench.cluster.ready:
        log = await built(bench, size, sets=1)
        await bench.cluster.clone(log, name)
        await load(bench, name, _late_events(size))
        await build(bench, name)
        await bench.cluster.tidy(name)
        bench.cluster.ready[name] = {}
    async with _served(bench, name) as (server, _, cookie):
        address = "/console/changes/diff?from=1&to=active"
        await _difference(report, server, cookie, address, f"{SPARE:,} late events in one scope of {size:,}")


def _late_events(size: int) -> Iterator[bytes]:
    """Yield events like those of a log of one scope, at the same moments, spread over all of it."""
    for place, event in enumerate(islice(events(size, sets=1), 0, size, max(1, size // SPARE))):
        yield orjson.dumps({**event, "source_event_key": f"late{place}"}, option=orjson.OPT_APPEND_NEWLINE)


def _client(server: Server, cookie: str) -> httpx.AsyncClient:
    origin = f"http://127.0.0.1:{server.port}"
    return httpx.AsyncClient(base_url=origin, headers={"cookie": cookie, "origin": origin}, timeout=60.0)


def _need_page(name: str, answer: httpx.Response) -> None:
    """Raise where an answer is not the page that was asked for."""
    if answer.status_code != (404 if name == "no such page" else 200):
        raise RuntimeError(f"{name}: {answer.status_code} {answer.headers.get('location', '')} {answer.text[-1500:]}")


async def _signed_in(server: Server, key: str) -> str:
    async with _client(server, "") as client:
        answer = await client.post("/console/sign-in", data={"key": key})
        return answer.headers["set-cookie"].partition(";")[0]


async def _keep_notes(server: Server, key: str) -> None:
    texts = [event["payload"]["text"] for event in events(LONG_NOTES, sets=1)]
    kept = [
        tool_call(server.port, "remember", {"content": _long(text, LONG_NOTE), "agentId": ARCHIVIST, **more}, key=key)
        for text in texts
        for more in ({}, {"type": HELD})
    ]
    await drive(kept, port=server.port)


async def _what_to_show(client: httpx.AsyncClient, scope: Scope, snapshots: Mapping[str, str]) -> Shown:
    """Find what the addresses of pages name, by following links as a person does."""

    async def link(page: str, below: str, **parameters: str) -> str:
        answer = await client.get(f"/console/{page}", params=parameters)
        _need_page(page, answer)
        return first_link(answer.text, below)

    who = scope.participants[0]
    question = " ".join(scope.texts[0].split()[:4])
    return Shown(
        who=who,
        archivist=ARCHIVIST,
        question=question,
        event=await link("ask", "events", **{"as": who, "q": question}),
        long_event=await link("ask", "events", **{"as": ARCHIVIST}),
        topic=await link("topics", "topics", **{"as": who}),
        note=await link("notes", "notes", **{"as": ARCHIVIST}),
        before=snapshots["before"],
        after=snapshots["after"],
        build=await link("changes", "changes/builds"),
    )


def _long_events() -> Iterator[bytes]:
    """Yield events with very long texts, as lines to import."""
    begin = datetime(2022, 1, 1, tzinfo=UTC)
    for place, event in enumerate(events(LONG_EVENTS, sets=1)):
        own = {
            "timestamp": (begin + timedelta(minutes=place)).isoformat(),
            "participants": [ARCHIVIST],
            "source_event_key": f"long{place}",
            "payload": {"text": _long(event["payload"]["text"], LONG_EVENT), "speaker": ARCHIVIST},
        }
        yield orjson.dumps({**event, **own}, option=orjson.OPT_APPEND_NEWLINE)


def _long(text: str, characters: int) -> str:
    """Return a text of so many characters that begins with another one."""
    return (f"{text} " * (characters // (len(text) + 1) + 1))[:characters]


if __name__ == "__main__":
    run_part(PART, __doc__, measure)
