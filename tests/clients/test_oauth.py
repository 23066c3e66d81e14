"""Clients as their makers ship them connect through our authorization server, knowing the server's address alone."""

from __future__ import annotations

import time
from pathlib import Path

import asyncpg
import httpx
import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.http.listening import reserve_port
from tests.clients.conftest import CORE_TOOLS, Outside
from tests.server.wire import serving
from tests.support.consent import press
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

SCRIPT = (Path(__file__).parent / "node" / "oauth.mjs").read_text()


async def last_end(database: Database) -> float:
    """Return when the access token that was issued last ends, in seconds since 1970."""
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.execute("SELECT set_config('myria.tenant', '*', false)")
        return float(
            await connection.fetchval(
                "SELECT extract(epoch FROM max(expires_at)) FROM myria.oauth_tokens WHERE NOT refreshes"
            )
        )
    finally:
        await connection.close()


@pytest.mark.parametrize("generation", ["1", "2"])
async def test_the_typescript_client_connects_with_nothing_but_the_address(
    memory: Memory, database: Database, outside: Outside, generation: str
) -> None:
    """@modelcontextprotocol/sdk 1.x and client 2.x: challenge, registration, consent, calls, refresh, revocation."""
    sock = reserve_port("127.0.0.1", 0)
    public_url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    settings = Settings(auth=AuthSettings(mode="keys", public_url=public_url, server=True))
    clock = {"now": time.time()}
    async with (
        access_store(database) as store,
        serving(memory, settings, sock=sock, now=lambda: clock["now"]),
        httpx.AsyncClient(timeout=PATIENCE_S, verify=False) as browser,
        outside.node_talking("--input-type=module", "--eval", SCRIPT, f"{public_url}/mcp", generation) as program,
    ):
        asked = httpx.URL((await program.hear())["browse"])
        assert asked.params["resource"] == f"{public_url}/mcp"
        assert asked.params["code_challenge_method"] == "S256"
        sent_back = await press(browser, str(asked), await make_key(store, "ada"))
        assert sent_back.status_code == 303, sent_back.text
        assert (await browser.get(sent_back.headers["location"])).status_code == 302
        assert "expire" in await program.hear()
        # The next token is issued later, and so is good when this one just ended.
        clock["now"] = await last_end(database)
        await program.say("go on")
        asked_again = httpx.URL((await program.hear())["browse"])
        told = await program.hear()
    assert asked_again.params["client_id"] == asked.params["client_id"]
    assert told["challenged"]
    assert told["state"] == asked.params["state"] == "state-1"
    assert told["tools"] == len(CORE_TOOLS)
    assert told["stored"]["participants"] == ["ada"]
    assert told["found"]["counts"]["events"] == 1
    assert told["scope"] == "append read"
    assert told["refreshed"]
    assert told["revoked"] == 200
    assert told["invalidated"] == ["tokens"]
    assert told["registrations"] == 1
    assert told["client"] == {"auth": "none", "secret": None}


async def test_the_python_client_1_connects_with_nothing_but_the_address(
    memory: Memory, database: Database, outside: Outside
) -> None:
    """mcp 1.x: challenge, registration, consent, calls, and a refresh when its own clock says that it is time."""
    sock = reserve_port("127.0.0.1", 0)
    public_url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    settings = Settings(auth=AuthSettings(mode="keys", public_url=public_url, server=True))
    async with (
        access_store(database) as store,
        serving(memory, settings, sock=sock),
        httpx.AsyncClient(timeout=PATIENCE_S, verify=False) as browser,
        outside.mcp1_talking(Path(__file__).parent / "mcp1" / "oauth.py", f"{public_url}/mcp") as program,
    ):
        asked = (await program.hear())["browse"]
        sent_back = await press(browser, asked, await make_key(store, "ada"))
        answer = httpx.URL(sent_back.headers["location"]).params
        await program.say(f"{answer['code']} {answer['state']}")
        told = await program.hear()
    assert told["tools"] == len(CORE_TOOLS)
    assert told["stored"]["participants"] == ["ada"]
    assert told["found"]["counts"]["events"] == 1
    assert told["scope"] == "append read"
    assert told["tokens"] == 2
