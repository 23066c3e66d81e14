"""Memories that wait on disk, and streams that are imported: nothing is lost, nothing is kept twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from myria_client import (
    AsyncBuffer,
    AsyncClient,
    Buffer,
    Client,
    NewMemory,
    NotAllowed,
    NotFound,
    Retry,
    Unreachable,
)
from tests.python_client.conftest import call
from tests.python_client.test_memories import QUICK, Losing
from tests.server.wire import Served
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
FLAKY = """
import sys
from myria_client import Buffer, Client, Retry
client = Client(sys.argv[1], retry=Retry(times=1, first_pause_s=0.01), timeout_s=0.05)
buffer = Buffer(client, sys.argv[2], again_s=0.01)
for number in range(int(sys.argv[3]), 10**6):
    buffer.remember(f"memory {number}", agent_id="bot", tags=[f"n{number}"])
    print(number, flush=True)
"""


def new(*texts: str) -> Iterator[NewMemory]:
    for text in texts:
        yield NewMemory(agent_id="bot", content=text)


async def contents(served: Served) -> list[str]:
    async with AsyncClient(f"http://127.0.0.1:{served.port}", timeout_s=PATIENCE_S) as client:
        return [memory.content async for memory in client.memories.each(order="asc")]


@pytest.mark.processes
async def test_killed_again_and_again(served: Served, tmp_path: Path) -> None:
    """What was acknowledged before each kill is at the server in the end, once, whatever was on its way."""
    path = tmp_path / "buffer.sqlite"
    url = f"http://127.0.0.1:{served.port}"
    acknowledged = 0
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            FLAKY,
            url,
            str(path),
            str(acknowledged + 1),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "clients/python")},
        )
        assert process.stdout is not None
        wanted = acknowledged + 150
        while acknowledged < wanted:
            acknowledged = int(await process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        for line in (await process.stdout.read()).split():
            acknowledged = int(line)
        await process.wait()
    async with AsyncClient(url, timeout_s=PATIENCE_S) as client, AsyncBuffer(client, path) as buffer:
        await buffer.flush()
        assert (buffer.waiting, buffer.refused()) == (0, [])
    kept = await contents(served)
    assert len(set(kept)) == len(kept)
    assert {f"memory {number}" for number in range(1, acknowledged + 1)} <= set(kept)


async def test_both_buffers_send_in_the_background(served: Served, tmp_path: Path) -> None:
    """What is remembered arrives in order without another call; leaving sends what is left."""
    url = f"http://127.0.0.1:{served.port}"

    def waiting() -> None:
        with Client(url, agent="bot", timeout_s=PATIENCE_S) as client, Buffer(client, tmp_path / "w") as buffer:
            for number in range(3):
                buffer.remember(f"w{number}")

    await asyncio.to_thread(waiting)
    async with (
        AsyncClient(url, agent="bot", timeout_s=PATIENCE_S) as client,
        AsyncBuffer(client, tmp_path / "a") as buffer,
    ):
        await buffer.remember("a0")
        async with asyncio.timeout(PATIENCE_S):
            while buffer.waiting:
                await asyncio.sleep(0.01)
        await buffer.remember("a1")
    assert await contents(served) == ["w0", "w1", "w2", "a0", "a1"]


async def test_what_waits_stays_until_it_can_be_sent(served: Served, tmp_path: Path) -> None:
    """A server that is away, a key that is none and a lost answer lose nothing and double nothing."""
    path = tmp_path / "b"
    away = AsyncClient("http://127.0.0.1:9", retry=Retry(times=0))
    async with AsyncBuffer(away, path, again_s=60) as buffer:
        await buffer.remember("one", agent_id="bot")
        await buffer.remember("two", agent_id="bot")
        with pytest.raises(Unreachable):
            await buffer.flush()
        assert buffer.waiting == 2
    await away.close()

    def refuse(request: httpx.Request) -> httpx.Response:
        missing = request.headers["authorization"] == "Bearer none"
        body = {"error": "invalid API key", "code": "credential_invalid", "retryable": False}
        return httpx.Response(401, json=body) if missing else httpx.Response(404, text="nothing here")

    for key, kind in (("none", NotAllowed), ("other", NotFound)):
        async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as http:
            async with AsyncBuffer(AsyncClient(key=key, http=http), path) as buffer:
                with pytest.raises(kind):
                    await buffer.flush()
            assert isinstance(buffer.error, kind)
    url = f"http://127.0.0.1:{served.port}"
    async with (
        httpx.AsyncClient(transport=Losing(1)) as http,
        AsyncBuffer(AsyncClient(url, http=http, retry=Retry(times=0)), path, again_s=0.01) as buffer,
        asyncio.timeout(PATIENCE_S),
    ):
        while buffer.waiting:
            await asyncio.sleep(0.01)
    assert await contents(served) == ["one", "two"]


async def test_a_memory_that_is_refused_stops_no_other(served: Served, tmp_path: Path) -> None:
    """It is kept aside with the reason, also where it spoils the whole call, until it is dropped."""
    url = f"http://127.0.0.1:{served.port}"
    async with AsyncClient(url, agent="bot", retry=QUICK, timeout_s=PATIENCE_S) as client:
        buffer = AsyncBuffer(client, tmp_path / "b")
        for text in ("good", "", "\ud800", "\u0000", "fine"):
            await buffer.remember(text)
        await buffer.flush()
        assert [one.memory["content"] for one in buffer.refused()] == ["", "\ud800", "\u0000"]
        assert all(one.error for one in buffer.refused())
        for one in buffer.refused():
            buffer.drop(one.number)
        assert (buffer.refused(), buffer.waiting) == ([], 0)
        await buffer.close()
    assert sorted(await contents(served)) == ["fine", "good"]


async def test_a_batch_whose_memory_was_withdrawn_since(served: Served, tmp_path: Path) -> None:
    """One that arrived, whose answer was lost, and of which a memory was forgotten meanwhile, is not sent for ever."""
    url = f"http://127.0.0.1:{served.port}"
    path = tmp_path / "b"
    async with httpx.AsyncClient(transport=Losing(1)) as http:
        buffer = AsyncBuffer(AsyncClient(url, agent="bot", http=http, retry=Retry(times=0)), path)
        await buffer.remember("one")
        await buffer.remember("two")
        with pytest.raises(Unreachable):
            await buffer.flush()
        async with AsyncClient(url, timeout_s=PATIENCE_S) as client:
            await client.forget((await client.recall())[0].id)
        await buffer.flush()
        assert buffer.waiting == 0
        await buffer.close()
    assert len(await contents(served)) == 1


async def test_a_stream_is_imported_and_goes_on_where_it_was_cut(client: Any, served: Served, tmp_path: Path) -> None:
    """Of any length, a batch at a time; what was refused or a duplicate is told of; again it answers the same."""
    checkpoint = tmp_path / "checkpoint.json"
    stream = ["a", "b", "", "c", "a", "\ud800", "d"]
    named = {"name": "first", "checkpoint": checkpoint, "batch": 2}

    def cut() -> Iterator[NewMemory]:
        yield from new(*stream[:5])
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        await call(client.memories.keep_each, cut(), **named)
    assert json.loads(checkpoint.read_text())["done"] == 4
    rest = await call(client.memories.keep_each, new(*stream), **{**named, "batch": 50})
    assert [(one.index, one.status) for one in rest] == [(4, "duplicate"), (5, "refused"), (6, "stored")]
    assert sorted(await contents(served)) == ["a", "b", "c", "d"]
    again = await call(client.memories.keep_each, new(*stream), name="first", batch=2)
    assert [one.status for one in again] == ["stored", "stored", "refused", "stored", "duplicate", "refused", "stored"]
    assert sorted(await contents(served)) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="of the import first"):
        await call(client.memories.keep_each, new("x"), name="second", checkpoint=checkpoint)
    checkpoint.write_text("{")
    with pytest.raises(ValueError, match="no checkpoint"):
        await call(client.memories.keep_each, new("x"), name="first", checkpoint=checkpoint)


async def test_a_stream_may_be_asynchronous(served: Served) -> None:
    """It is taken as it comes."""

    async def coming() -> AsyncIterator[NewMemory]:
        for memory in new("x", "y", "z"):
            await asyncio.sleep(0)
            yield memory

    async with AsyncClient(f"http://127.0.0.1:{served.port}", timeout_s=PATIENCE_S) as client:
        outcomes = [one async for one in client.memories.keep_each(coming(), name="n", batch=2)]
    assert [(one.index, one.status) for one in outcomes] == [(0, "stored"), (1, "stored"), (2, "stored")]
