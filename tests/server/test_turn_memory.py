"""What the largest requests of turns cost a server process in memory: its limits hold before memory is spent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from benchmarks.processes import usage
from myria.settings import TurnsSettings
from tests.support.counts import SOAK
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawner, free_port

pytestmark = pytest.mark.processes

LIMIT = TurnsSettings().request_bytes
MOST_MIB = 64
WIDE = "\N{GRINNING FACE}"
"""One such character in a text makes Python hold four bytes for each of its characters."""


def item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def filled(field: str, make: Callable[[], Any], **more: Any) -> bytes:
    """Return a request as large as may be, of a list of equal items."""
    each = len(json.dumps(make(), ensure_ascii=False).encode()) + 2
    empty = len(json.dumps({**more, field: []}).encode())
    body = json.dumps({**more, field: [make()] * ((LIMIT - empty) // each)}, ensure_ascii=False).encode()
    assert LIMIT - each <= len(body) <= LIMIT
    return body


BODIES = {
    "long texts": ("after", filled("input_items", lambda: item("a" * 60_000 + WIDE), turn_id="a")),
    "a thousand texts": ("after", filled("input_items", lambda: item("my name is ada " * 130 + WIDE), turn_id="b")),
    "texts with secrets": (
        "after",
        filled("output_items", lambda: item(f"password: hunter22 {WIDE}" * 999), turn_id="c"),
    ),
    "metadata": (
        "after",
        filled("input_items", lambda: {"metadata": {f"k{n}": WIDE * 400 for n in range(64)}}, turn_id="d"),
    ),
    "history": ("before", filled("conversation_items", lambda: item("a" * 60_000 + WIDE))),
    "a long history": ("before", filled("conversation_items", lambda: item("kiln " * 400 + WIDE))),
    "more items than may be": ("before", filled("conversation_items", lambda: item(WIDE))),
    "only brackets": ("after", b'{"input_items": ' + b"[" * (LIMIT - 100)),
    "numbers": ("after", filled("input_items", lambda: 1)),
    "one text": ("before", json.dumps({"current_input": "a" * (LIMIT - 50)}).encode()),
}


ALONE = ("texts with secrets", "metadata", "history", "a long history")
"""The dearest: what a server keeps of one would count with the next."""
TOGETHER = (
    ("long texts", "a thousand texts"),
    ("more items than may be", "only brackets", "numbers", "one text"),
    *((name,) for name in (ALONE if SOAK else ALONE[:1])),
)
"""Which of them one server takes, one after the other: the start of a server is most of what a body takes. Those that
each need a server of their own are all tried in soak runs."""


@pytest.mark.soak
async def test_the_largest_request_costs_less_than_64_mib(database: Database, spawn: Spawner) -> None:
    """Whatever fills it, taken or refused; a larger one is refused by its length."""
    assert not SOAK or sorted(name for names in TOGETHER for name in names) == sorted(BODIES)
    grown = {}
    for names in TOGETHER:
        port = free_port()
        environment = {"MYRIA_POSTGRES_DSN": database.server_dsn, "MYRIA_TURNS_ENABLED": "true"}
        server = spawn.python("-m", "myria_cli.main", "serve", "--port", str(port), env=environment)
        await asyncio.to_thread(server.wait_for, "serving MCP")
        address = f"http://127.0.0.1:{port}/v1/turns:"
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
            for number in range(3):  # its caches and pools are filled now
                said = {
                    "session_id": "w",
                    "turn_id": f"w{number}",
                    "input_items": ["My name is Ada, password: hunter22"],
                }
                assert (await client.post(address + "after", json=said)).status_code == 200
                await client.post(address + "before", json={"session_id": "w", "current_input": "Who am I?"})
            idle = usage(server.pid).rss_mib
            for name in names:
                end, body = BODIES[name]
                answer = await client.post(address + end, content=body)
                grown[name] = usage(server.pid).peak_mib - idle
                assert answer.status_code == 200 or answer.json()["code"] == "INVALID_ARGUMENT", answer.text[:300]
                refused = await client.post(address + end, content=b" " * (LIMIT + 1))
                assert (refused.status_code, refused.json()["code"]) == (413, "INVALID_ARGUMENT")
        server.end()
    print({name: round(mib, 1) for name, mib in grown.items()})
    assert max(grown.values()) < MOST_MIB, grown
