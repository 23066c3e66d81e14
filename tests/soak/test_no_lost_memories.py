"""No acknowledged memory is lost, or kept twice, whatever is killed: the original drops its buffer."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from myria_server.paths import REST_PREFIX as PREFIX
from tests.soak.killing import kill
from tests.support.counts import SOAK
from tests.support.processes import Spawner, free_port

MEMORIES = 20_000 if SOAK else 400
KILLS = 40 if SOAK else 2
VICTIMS = ("postgres", "server", "backend", "all")
WRITERS = 16
BATCH = 20
SEED = 20_261_124


@dataclass(slots=True)
class Acknowledged:
    """What the server said that it keeps: the text of each memory by its id."""

    texts: dict[str, str] = field(default_factory=dict)

    def add(self, memory: dict[str, Any]) -> None:
        """Note one; a repeated answer names the same memory."""
        assert self.texts.setdefault(memory["id"], memory["content"]) == memory["content"]


@pytest.mark.soak
async def test_no_acknowledged_memory_is_lost_or_doubled(new_dir: Path, spawn: Spawner) -> None:
    """Writers repeat what was not answered, with the same Idempotency-Key, while everything is killed under them."""
    port = free_port()
    up = spawn.myria("up", "--json", "--port", str(port), "--data-dir", new_dir)
    await asyncio.to_thread(up.wait_for, r'"url"', 120)
    kept, rng = Acknowledged(), random.Random(SEED)
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        writing = asyncio.gather(*(_write(client, kept, writer) for writer in range(WRITERS)))
        try:
            for number in range(KILLS):
                # Each kill waits for its share of the memories, so that all fall among them.
                while len(kept.texts) * (KILLS + 1) < MEMORIES * (number + 1) and not writing.done():
                    await asyncio.sleep(0.05)
                victim = VICTIMS[number % len(VICTIMS)]
                assert await kill(victim, up.pid, new_dir, rng), f"no {victim} to kill\n{up.output()[-2000:]}"
            await writing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        listed = await _listed(client)
    assert len(kept.texts) == MEMORIES
    assert listed == kept.texts
    print(f"\n{len(listed)} memories over {KILLS} kills in {time.monotonic() - began:.0f} s: none lost, none doubled")


async def _write(client: httpx.AsyncClient, kept: Acknowledged, writer: int) -> None:
    """Keep this writer's share, some by themselves and some together."""
    texts = [f"{writer}-{number} was seen" for number in range(MEMORIES // WRITERS)]
    rng = random.Random(f"{SEED}:{writer}")
    while texts:
        together = min(len(texts), BATCH if rng.random() < 0.3 else 1)
        chosen, texts = texts[:together], texts[together:]
        memories = [{"agent_id": "bot", "content": text} for text in chosen]
        body: dict[str, Any] = memories[0] if together == 1 else {"memories": memories}
        answer = await _until_kept(client, body, key=f"{writer}-{len(texts)}")
        answered = [answer] if together == 1 else answer["memories"]
        assert [memory["content"] for memory in answered] == chosen
        for memory in answered:
            kept.add(memory)


async def _until_kept(client: httpx.AsyncClient, body: dict[str, Any], *, key: str) -> Any:
    deadline = time.monotonic() + 240
    while True:
        try:
            response = await client.post(f"{PREFIX}/memories", json=body, headers={"idempotency-key": key})
            if response.status_code == 201:
                return response.json()
            assert response.status_code in (429, 503), response.text
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "the server did not come back"
        await asyncio.sleep(0.1)


async def _listed(client: httpx.AsyncClient) -> dict[str, str]:
    """Return every memory there is, page by page."""
    texts: dict[str, str] = {}
    query = "limit=1000"
    while True:
        page = (await client.get(f"{PREFIX}/memories?{query}")).raise_for_status().json()
        for memory in page["memories"]:
            assert memory["id"] not in texts
            texts[memory["id"]] = memory["content"]
        if not page["has_more"]:
            return texts
        query = f"limit=1000&cursor={page['next_cursor']}"
