"""Large answers are compressed for those who accept it; what is said is the same."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from myria.memory import Memory
from myria.settings import Settings
from tests.server.wire import call, event, headers, serving

NAME = "myria_query_event_nodes"


def with_compression(least: int) -> Settings:
    """Return settings under which answers of so many bytes are compressed."""
    settings = Settings()
    return replace(settings, mcp=replace(settings.mcp, compress_bytes=least))


async def ask(served: Any, encoding: str, version: str = "2026-07-28") -> tuple[dict[str, str], bytes]:
    """Ask for events; return the headers and the body as it came over the wire."""
    sent = headers(NAME, version=version) | {"accept-encoding": encoding}
    message = json.dumps(call(NAME, {"participants": ["user_42"]}, version=version)).encode()
    async with served.client.stream("POST", "/mcp", content=message, headers=sent) as response:
        body = b"".join([part async for part in response.aiter_raw()])
    return dict(response.headers), body


@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
async def test_an_answer_is_compressed_for_who_accepts_it(memory: Memory, version: str) -> None:
    """gzip when it is accepted and the answer is large enough; the content is the same."""
    async with serving(memory, with_compression(1_000)) as served:
        for number in range(5):
            await served.call("append_event", event(f"k{number}", text="a long text " * 50))
        plain_headers, plain = await ask(served, "identity", version)
        for accepted in ("gzip", "deflate, gzip;q=0.5, br"):
            packed_headers, packed = await ask(served, accepted, version)
            assert packed_headers["content-encoding"] == "gzip"
            assert packed_headers["vary"] == "accept-encoding"
            assert int(packed_headers["content-length"]) == len(packed) < len(plain) / 2
            assert gzip.decompress(packed) == plain
        assert "content-encoding" not in plain_headers
        refused, body = await ask(served, "gzip;q=0, identity", version)
        assert ("content-encoding" in refused, body) == (False, plain)


@pytest.mark.parametrize("least", [0, 1_000_000])
async def test_small_answers_stay_as_they_are(memory: Memory, least: int) -> None:
    """Below the setting, and when it is 0, nothing is compressed."""
    async with serving(memory, with_compression(least)) as served:
        await served.call("append_event", event("k"))
        answered, _ = await ask(served, "gzip")
        assert "content-encoding" not in answered
