"""Ids that follow from what a caller says are of its tenant alone: equal ones would tell one tenant of another."""

from __future__ import annotations

from typing import Any

import pytest

from myria.contract.rest import PREFIX
from myria.contract.tools import PATH_OF
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from tests.server.wire import BASE_HEADERS, Served, call, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

SETTINGS = Settings(auth=AuthSettings(mode="keys"))


async def remembered(served: Served, key: str, **arguments: Any) -> dict[str, Any]:
    """Remember something, and return the answer."""
    sent = BASE_HEADERS | {"authorization": f"Bearer {key}"}
    response = await served.post(call("remember", arguments, version=None), sent, path=PATH_OF["agent"])
    content: dict[str, Any] = response.json()["result"]["structuredContent"]
    return content


async def made(served: Served, key: str, path: str, body: Any) -> str:
    """Make something over REST under a key of the caller's, twice; return its id."""
    sent = {"authorization": f"Bearer {key}", "idempotency-key": "once"}
    answers = [await served.client.post(PREFIX + path, json=body, headers=sent) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    return str(answers[0].json()["id"])


@pytest.mark.parametrize("own", [("ada",), ("ada", "bot")])
async def test_an_id_by_a_callers_key_is_of_its_tenant(
    database: Database, memory: Memory, own: tuple[str, ...]
) -> None:
    """Of a note, an agent, a session and a memory; a repeat in the same tenant still finds the first."""
    async with access_store(database, "north", "south") as store, serving(memory, SETTINGS) as served:
        ids: dict[str, list[str]] = {}
        for tenant in ("north", "south"):
            key = await make_key(store, *own, tenant=tenant)
            note = {"content": "The kiln is hot", "idempotencyKey": "once"}
            first, again = [await remembered(served, key, **note) for _ in range(2)]
            assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
            agent = await made(served, key, "/agents", {"name": "bot"})
            ids[tenant] = [
                first["id"],
                agent,
                await made(served, key, "/sessions", {"agent_id": "bot"}),
                await made(served, key, "/memories", {"agent_id": "bot", "content": "The kiln is hot"}),
            ]
        assert set(ids["north"]).isdisjoint(ids["south"])


async def test_a_key_that_replaced_a_note_is_repeated(database: Database, memory: Memory) -> None:
    """What it replaced then is replaced already, and is no reason to refuse it."""
    async with access_store(database) as store, serving(memory, SETTINGS) as served:
        key = await make_key(store, "ada")
        old = await remembered(served, key, content="The kiln opens on Monday")
        new = {"content": "The kiln opens on Tuesday", "supersedes": [old["id"]], "idempotencyKey": "once"}
        first, again = [await remembered(served, key, **new) for _ in range(2)]
        assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
