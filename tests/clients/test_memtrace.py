"""memtrace-sdk as its makers ship it, against a server with keys: each of its calls, and its own exceptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from tests.clients.conftest import Outside
from tests.server.wire import serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

HERE = Path(__file__).parent

EXPECTED = {
    "agent": "bot",
    "types": ["Agent", "Session", "Memory"],
    "decided": ["decision", {"reasoning": "Only two pages deep"}],
    "added": {
        "memory_type": "entity",
        "event_type": "person",
        "content": "Ada builds it",
        "metadata": {"deep": {"er": [1, 2.5, None]}},
        "tags": ["team", "v1.2"],
        "dedup_key": "mine",
        "importance": 0.75,
        "parent_id": "note_1",
    },
    "batch": ["one", "two"],
    "recall": 5,
    "listed": ["Skip pagination", "Ada builds it"],
    "more": True,
    "found": 1,
    "agents": 1,
    "got": [True, True],
    "stats": {"memory_count": 5, "active_sessions": 1},
    "of agent": 1,
    "session": {"m": 1},
    "sessions": 1,
    "of session": 1,
    "context": 1,
    "closed": "closed",
    "deleted": None,
    "refused": [
        ["ConflictError", 409, "duplicate memory"],
        ["NotFoundError", 404, "agent not found"],
        ["NotFoundError", 404, "session not found"],
        [
            "MemtraceError",
            400,
            "invalid agent_id: it must begin with a letter, and hold letters, digits, _ and -, at most 128",
        ],
        ["AuthenticationError", 401, "invalid API key"],
    ],
    "not called": [],
}


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_every_call_of_the_sdk(memory: Memory, database: Database, outside: Outside, kind: str) -> None:
    """The unmodified package from PyPI is answered as by the server it was made for."""
    guarded = Settings(auth=AuthSettings(mode="keys"))
    async with access_store(database) as store, serving(memory, guarded) as served:
        key = await make_key(store, "ada", faces=("rest",))
        url = f"http://127.0.0.1:{served.port}"
        status, out, err = await outside.memtrace(HERE / "memtrace" / "calls.py", kind, url, key)
    assert status == 0, err
    assert json.loads(out) == EXPECTED
