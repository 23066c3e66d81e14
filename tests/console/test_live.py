"""What builds do now comes to open pages by itself, and streams end when their time has come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from myria.access.store import AccessStore
from myria.builds.run import run_build
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import ConsoleSettings, McpSettings, Settings
from myria_server.console import live
from myria_server.http import streams
from tests.console.conftest import WITH_KEYS, Browser, text_of
from tests.server.wire import Served, event, serving
from tests.support import builds
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

EVENTS = "/console/changes/events"
ASKED = {"accept": "text/event-stream"}


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams look for news all the time."""
    monkeypatch.setattr(live, "ROUND_S", 0.01)
    monkeypatch.setattr(live, "LOOK_S", 0.01)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """Keys may be made."""
    async with access_store(database) as opened:
        yield opened


class Stream:
    """An open stream, read event by event."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._blocks = self._read()

    async def _read(self) -> AsyncIterator[str]:
        block: list[str] = []
        async for line in self.answer.aiter_lines():
            if line:
                block.append(line)
            else:
                yield "\n".join(block)
                block = []

    async def block(self) -> str | None:
        """Return the next event or comment as it was sent, None when the stream has ended."""
        return await anext(self._blocks, None)

    async def until(self, text: str) -> str:
        """Return the next event or comment that holds a text."""
        while (block := await self.block()) is not None:
            if text in block:
                return block
        raise AssertionError(f"the stream ended without {text!r}")


@asynccontextmanager
async def stream(browser: Browser, path: str = EVENTS) -> AsyncIterator[Stream]:
    """Open a stream as a page does."""
    async with browser.client.stream("GET", path, headers=ASKED) as answer:
        yield Stream(answer)


async def test_news_comes_to_an_open_page(served: Served, browser: Browser) -> None:
    """The page's part comes at once and again when something changed; it is what the page shows without scripts."""
    await served.call("append_event", event("a"))
    page = await browser.get("/console/changes")
    assert "1 event waiting" in text_of(page.text)
    async with stream(browser) as opened:
        assert opened.answer.headers["content-type"].startswith("text/event-stream")
        assert opened.answer.headers["cache-control"] == "no-store"
        assert (await opened.block() or "").startswith("retry: ")
        first = await opened.block() or ""
        assert all(line.startswith("data: ") for line in first.splitlines())
        part = "\n".join(line.removeprefix("data: ") for line in first.splitlines())
        assert part in page.text
        await served.call("append_event", event("b"))
        assert ">2</dd>" in await opened.until(">2</dd>")


async def test_a_build_that_is_given_up_ends_on_an_open_page(
    served: Served, browser: Browser, database: Database
) -> None:
    """The page shows that it waits, then that it was given up; by whom and why is for administrators."""
    build_id = await builds.queue(database)
    async with stream(browser) as opened:
        await opened.until("waiting")
        await served.call("abort_build", {"build_id": build_id, "reason": "wrong model"})
        news = await opened.until("given up")
        assert "idle" in news
        assert "wrong model" not in news


async def test_the_page_of_a_build_moves_and_tells_its_end(
    served: Served, browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what the build does, then how it ended, with reason, code and what to do; then its stream is over."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the kiln is cold")

    await served.call("append_event", event("a"))
    monkeypatch.setattr("myria.builds.run.compile_scope", broken)
    build_id = await builds.queue(database)
    path = f"/console/changes/builds/{build_id}"
    page = await browser.get(path)
    assert "The build waits for a builder" in text_of(page.text)
    assert f'data-live="{path}/events"' in page.text
    async with stream(browser, f"{path}/events") as opened:
        await opened.block()
        first = (await opened.block() or "").replace("data: ", "")
        assert first in page.text
        await run_build(builds.DEFAULTS, database.builder_dsn, "default", build_id)
        last = ""
        while "event: over" not in (block := await opened.block() or "event: over"):
            last = block
        assert await opened.block() is None
    assert last.replace("data: ", "") in (ended := (await browser.get(path)).text)
    assert "data-live" not in ended
    for part in ("Build failed", "the kiln is cold", "build_invalid", "Mend the cause first", "Build again …"):
        assert part in text_of(f"<body>{last.replace('data: ', '')}")


@pytest.mark.parametrize("build_id", ["bld_nobody", "%00"])
async def test_nobody_watches_a_build_that_there_is_not(browser: Browser, build_id: str) -> None:
    """The address of its stream answers as its page does."""
    answer = await browser.client.get(f"/console/changes/builds/{build_id}/events", headers=ASKED)
    assert answer.status_code in (400, 404)


async def test_the_page_says_that_vectors_wait(browser: Browser, database: Database) -> None:
    """Since when, and what that means for builds and answers, without what the provider said."""
    assert "Vectors are off." in text_of((await browser.get("/console/changes")).text)
    async with Pool(database.operator_dsn) as control, control.write("default") as connection:
        await connection.execute(sql("builds.ensure_tenant"), "default")
        await connection.execute(sql("triggers.note_wait"), "default", "vectors", "401: no credit")
    said = text_of((await browser.get("/console/changes")).text)
    assert "Vectors wait for their model since" in said
    assert "Builds go on" in said
    assert "no credit" not in said


async def test_without_scripts_the_page_says_to_reload(browser: Browser) -> None:
    """Nothing moves by itself then, and the page says so."""
    page = await browser.get("/console/changes")
    assert "<noscript><p" in page.text
    assert "Reload the page" in page.text


async def test_a_silent_stream_sends_comments(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing changes, the part comes once, and comments keep the connection alive."""
    monkeypatch.setattr(live, "BEAT_S", 0.0)
    async with stream(browser) as opened:
        await opened.until("events wait")
        assert [await opened.block() for _ in range(5)] == [": still here"] * 5


async def test_all_pages_share_one_look_at_the_database(
    memory: Memory, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the look that opens each page, ten open pages cost as many statements as one."""
    monkeypatch.setattr(live, "LOOK_S", 3_600.0)
    looks = 0
    status = memory.registry.status

    async def counted(tenant: str) -> dict[str, Any]:
        nonlocal looks
        looks += 1
        return await status(tenant)

    monkeypatch.setattr(memory.registry, "status", counted)
    async with AsyncExitStack() as pages:
        opened = [await pages.enter_async_context(stream(browser)) for _ in range(10)]
        for page in opened:
            await page.until("events wait")
    assert looks == 10 + 1


async def test_streams_are_bounded(served: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than a process may have is refused; its place is free again once another has closed."""
    monkeypatch.setattr(streams, "MAX_STREAMS", 1)
    async with stream(browser) as opened:
        await opened.until("events wait")
        refused = await browser.client.get(EVENTS, headers=ASKED)
        assert refused.status_code == 503
        assert "overloaded" in refused.text
    for _ in range(100):
        async with stream(browser) as again:
            if again.answer.status_code == 200:
                break
    assert again.answer.status_code == 200


async def test_a_shutdown_ends_open_streams(memory: Memory) -> None:
    """A server that may wait for an hour for open requests ends streams at once, and says when to come again."""
    patient = Settings(console=ConsoleSettings(enabled=True), mcp=McpSettings(drain_s=3600.0))
    async with serving(memory, patient) as served:
        served.server.app.readiness.draining = True
        async with stream(Browser(served.client)) as late:
            assert [await late.block(), await late.block()] == [f"retry: {live.RETRY_MS}", None]
        served.server.app.readiness.draining = False
        async with stream(Browser(served.client)) as opened:
            await opened.until("events wait")
            served.server.stop()
            while await opened.block() is not None:
                pass


class TestWithKeys:
    """Where a key is asked for."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Callers need a key."""
        return WITH_KEYS

    @pytest.mark.parametrize("end", ["key", "session"])
    async def test_a_stream_ends_with_its_session(
        self, served: Served, browser: Browser, store: AccessStore, end: str
    ) -> None:
        """After the key is revoked, or its owner has signed out, only the word comes that it is over."""
        key = await make_key(store, "ada")
        await browser.sign_in(key)
        async with stream(browser) as opened:
            await opened.until("events wait")
            if end == "key":
                await store.revoke_key(key.split("_")[1])
            else:
                await browser.submit(await browser.get("/console/ask"), "/console/sign-out")
            assert await opened.until("event: ") == "event: ended\ndata:"
            assert await opened.block() is None
        over = await browser.client.get(EVENTS, headers=ASKED)
        assert over.text == "event: ended\ndata:\n\n"

    async def test_nobody_sees_builds_of_another_tenant(
        self, served: Served, browser: Browser, store: AccessStore, database: Database, memory: Memory
    ) -> None:
        """Streams at the same time show each tenant its own."""
        async with access_store(database, "other") as others:
            await browser.sign_in(await make_key(store, "ada"))
            theirs = Browser(httpx.AsyncClient(base_url=served.client.base_url))
            await theirs.sign_in(await make_key(others, "bob", tenant="other"))
        await memory.log.append_events("default", [parse_event(event("a"), Limits())])
        async with stream(browser) as ours, stream(theirs) as other:
            await ours.until(">1</dd>")
            assert ">0</dd>" in await other.until("events wait")
        await theirs.client.aclose()

    async def test_the_stream_of_a_build_is_for_administrators_of_its_tenant(
        self, browser: Browser, store: AccessStore, database: Database
    ) -> None:
        """Others are refused, as on the page of the build."""
        build_id = await builds.queue(database, tenant="other")
        own_id = await builds.queue(database)
        for roles, faces, statuses in (
            (("read",), ("core",), (403, 403)),
            (("read", "admin"), ("core",), (403, 403)),
            (("read", "admin"), ("core", "admin"), (404, 200)),
        ):
            await browser.sign_in(await make_key(store, "ada", roles=roles, faces=faces))
            for asked, status in zip((build_id, own_id), statuses, strict=True):
                async with stream(browser, f"/console/changes/builds/{asked}/events") as opened:
                    assert opened.answer.status_code == status

    async def test_a_key_takes_not_all_streams(
        self, served: Served, browser: Browser, store: AccessStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A key that has as many as it may gets 429."""
        monkeypatch.setattr(streams, "STREAMS_EACH", 1)
        await browser.sign_in(await make_key(store, "ada"))
        async with stream(browser) as opened:
            await opened.until("events wait")
            assert (await browser.client.get(EVENTS, headers=ASKED)).status_code == 429
