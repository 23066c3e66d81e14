"""A page of the console that is open while its server is replaced, in a real browser: it says so, and goes on."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import asyncpg
import httpx

from myria.builds.queue import take_up
from myria.builds.run import run_build
from myria.db.database import Database as Pool
from tests.clients.conftest import Outside, Talking
from tests.clients.test_console import chromium
from tests.server.wire import call, event, headers
from tests.support import builds
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawned, Spawner, free_port
from tests.support.skips import not_here

__all__ = ["chromium"]

BROWSER = (Path(__file__).parent / "node" / "console_away.mjs").read_text()


class Server:
    """A server in a process of its own, which another one replaces at the same address."""

    def __init__(self, spawn: Spawner, database: Database) -> None:
        self._spawn = spawn
        self._environment = {"MYRIA_POSTGRES_DSN": database.server_dsn, "MYRIA_CONSOLE_ENABLED": "true"}
        self._process: Spawned | None = None
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start a process, and return once it answers."""
        self._process = self._spawn.myria("serve", "--port", str(self._port), env=self._environment)
        await asyncio.to_thread(self._process.wait_for, "serving MCP")

    async def end(self) -> None:
        """End it as Kubernetes does, while its pages are open."""
        assert self._process is not None
        self._process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(self._process.wait) == 0

    async def append(self, key: str) -> None:
        """Append an event."""
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_S) as client:
            name = "myria.append_event"
            answer = await client.post("/mcp", json=call(name, event(key)), headers=headers(name))
        assert not answer.json()["result"]["isError"], answer.text


async def hear(browser: Talking) -> dict[str, object]:
    """Return what the browser says next; skip the test where it has no sandbox."""
    try:
        return await browser.hear()
    except AssertionError as error:
        if "No usable sandbox" in str(error):
            not_here("Chromium finds no sandbox for this user")
        raise


async def test_an_open_page_outlives_its_server(
    outside: Outside, chromium: str, spawn: Spawner, database: Database
) -> None:
    """It says that the server is gone, goes on with the next one, and no form is lost or carried out twice; links and
    forms that ask wait as those that act do, and are followed as a browser does. The page of the build that was asked
    for tells its end; nothing on a page moves when news come."""
    server = Server(spawn, database)
    await server.start()
    await server.append("a")
    async with outside.node_talking("--input-type=module", "--eval", BROWSER, chromium, server.url) as browser:
        assert await hear(browser) == {"open": True}
        await server.end()
        await browser.say("gone")
        heard = await hear(browser)
        assert "does not answer" in str(heard["offline"])
        assert (heard["typed"], heard["address"]) == ("user", f"{server.url}/console/people")
        await server.start()
        await server.append("b")
        await browser.say("back")
        heard = await hear(browser)
        assert str(heard.pop("saved")).endswith(".jsonl")
        assert heard == {"stayed": True, "current": "Topics", "back": "user", "forth": "/console/people/one"}
        assert await hear(browser) == {"again": True, "shift": 0}
        assert await hear(browser) == {"form": True}
        await server.end()
        await browser.say("gone")
        assert await hear(browser) == {"kept": "while it is away", "place": "/console/changes/build"}
        await server.start()
        await browser.say("back")
        heard = await hear(browser)
        assert "A build was requested" in str(heard["done"])
        assert heard["statuses"] == [303, 303, 303]
        assert "form_refused" in str((await hear(browser))["refusal"])
        async with Pool(database.operator_dsn) as control:
            build = await take_up(control, "default")
        assert build is not None
        await browser.say(build["build_id"])
        assert await hear(browser) == {"build": "Build queued"}
        await run_build(builds.DEFAULTS, database.builder_dsn, "default", build["build_id"])
        ended = {"build": "Build succeeded", "told": "Its snapshot was published.", "shift": 0}
        assert await hear(browser) == ended
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        requests = await connection.fetch("SELECT reason FROM myria.rebuild_requests")
    finally:
        await connection.close()
    assert [row["reason"] for row in requests] == ["while it is away"]
