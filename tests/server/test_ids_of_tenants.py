"""Ids that follow from what a caller says are of its tenant alone: equal ones would tell one tenant of another."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.turn_rows import said
from tests.server.wire import BASE_HEADERS, Served, call, event, serving
from tests.support.building import build_now
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

SETTINGS = Settings(auth=AuthSettings(mode="keys"))


async def remembered(served: Served, key: str, **arguments: Any) -> dict[str, Any]:
    """Remember something, and return the answer."""
    sent = BASE_HEADERS | {"authorization": f"Bearer {key}"}
    response = await served.post(call("remember", arguments, version=None), sent, path=PATH_OF["agent"])
    content: dict[str, Any] = response.json()["result"]["structuredContent"]
    return content


async def used(served: Served, key: str, path: str, tool: str, arguments: Any) -> None:
    """Call a tool of the face of a path."""
    sent = BASE_HEADERS | {"authorization": f"Bearer {key}"}
    response = await served.post(call(tool, arguments, version=None), sent, path=path)
    assert not response.json()["result"]["isError"], response.text


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


NAMED = {"tenant_id", "context_id", "agent_id", "turn_id"}
"""Columns of what a caller names, or of whose tenant it is."""


async def ids_of(database: Database, tenant: str) -> dict[str, set[Any]]:
    """Return what the columns of ids of every table hold of a tenant."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        columns = await connection.fetch(
            "SELECT c.table_name, c.column_name FROM information_schema.columns c "
            "JOIN information_schema.tables t USING (table_schema, table_name) "
            "JOIN information_schema.columns o USING (table_schema, table_name) "
            "WHERE c.table_schema = 'myria' AND t.table_type = 'BASE TABLE' AND o.column_name = 'tenant_id' "
            "AND c.data_type IN ('text', 'bytea') AND c.column_name ~ '(_id|^id)$'"
        )
        found: dict[str, set[Any]] = {}
        for table, column in columns:
            if column not in NAMED:
                rows = await connection.fetch(
                    f"SELECT DISTINCT {column} AS id FROM myria.{table} WHERE tenant_id = $1 AND {column} IS NOT NULL",
                    tenant,
                )
                found[f"{table}.{column}"] = {row["id"] for row in rows}
        return found
    finally:
        await connection.close()


async def test_tenants_that_say_the_same_share_no_id(database: Database, memory: Memory) -> None:
    """Whatever is made of equal input on every face: notes, facts, memories, agents, sessions, topics, snapshots."""
    settings = Settings(auth=AuthSettings(mode="keys"), turns=TurnsSettings(enabled=True))
    async with access_store(database, "north", "south") as store, serving(memory, settings) as served:
        for tenant in ("north", "south"):
            key = await make_key(store, "ada", "bot", tenant=tenant)
            for number in range(6):
                await remembered(served, key, content=f"The kiln of shed {number} is hot", idempotencyKey=f"n{number}")
                turn = {
                    "turn_id": f"t{number}",
                    "input_items": [said(f"My name is Ada. I live in Porto. I like tea {number}.")],
                    "output_items": [said("I see.", "assistant")],
                }
                await used(served, key, PATH_OF["turns"], "memory_after_turn", turn)
                happened = event(f"e{number}", text=f"Glaze {number} is blue", participants=["ada", "bot"])
                await used(served, key, PATH_OF["core"], "append_event", happened)
            for path, body in (
                ("/agents", {"name": "bot"}),
                ("/sessions", {"agent_id": "bot"}),
                ("/memories", {"agent_id": "bot", "content": "The kiln is hot"}),
            ):
                await made(served, key, path, body)
            await build_now(database.builder_dsn, tenant=tenant)
    north, south = [await ids_of(database, tenant) for tenant in ("north", "south")]
    assert {column: north[column] & south[column] for column in north if north[column] & south[column]} == {}
    for column in (
        "notes.note_id",
        "events.event_id",
        "registrations.id",
        "renderings.rendering_id",
    ):
        assert north[column], sorted(north)
