"""The MCP conformance suite: every scenario that applies to a server without the suite's own fixture tools.

Those for authorization servers try ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.http.listening import reserve_port
from tests.clients.conftest import Outside
from tests.server.wire import Served, serving
from tests.support.consent import press
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
NEEDS_FIXTURE = "Not testable: server does not list the diagnostic tool"
"""How the suite says that a check wants a tool that only a test server has."""


@pytest.mark.parametrize(
    ("scenario", "passed"),
    [
        ("server-initialize", 2),
        ("ping", 2),
        ("server-stateless", 21),
        ("http-header-validation", 14),
        ("tools-list", 3),
        ("dns-rebinding-protection", 2),
        ("caching", 7),
        ("input-required-result-unsupported-methods", 2),
    ],
)
async def test_scenario(served: Served, outside: Outside, tmp_path: Path, scenario: str, passed: int) -> None:
    """No check fails but those that need the suite's diagnostic tools, and at least so many pass."""
    url = f"http://localhost:{served.port}/mcp"
    _, out, err = await outside.node(SUITE, "server", "--url", url, "--scenario", scenario, "--output-dir", tmp_path)
    checks = results_in(tmp_path)
    failed = [
        (check["id"], check.get("errorMessage"))
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
        and not str(check.get("errorMessage", "")).startswith(NEEDS_FIXTURE)
    ]
    assert not failed, out + err
    assert sum(check["status"] == "SUCCESS" for check in checks) >= passed


async def test_our_authorization_server(memory: Memory, database: Database, outside: Outside, tmp_path: Path) -> None:
    """It keeps to the protocol; that it announces no client id metadata documents is a warning."""
    sock, callback = reserve_port("127.0.0.1", 0), reserve_port("127.0.0.1", 0)
    public_url, port = f"http://127.0.0.1:{sock.getsockname()[1]}", callback.getsockname()[1]
    callback.close()
    settings = Settings(auth=AuthSettings(mode="keys", public_url=public_url, server=True))
    async with access_store(database) as store, serving(memory, settings, sock=sock) as served:
        wanted = {"client_name": "Conformance", "redirect_uris": ["http://127.0.0.1/callback"]}
        client = (await served.client.post("/oauth/register", json=wanted)).json()["client_id"]
        arguments = ("--url", public_url, "--client-id", client, "--resource", f"{public_url}/mcp", "--port", str(port))
        run = (SUITE, "authorization", *arguments, "--output-dir", tmp_path)
        async with outside.node_talking(*run) as suite:
            asked = await suite.hear_of(r"http://\S+/oauth/authorize\S+")
            sent_back = await press(served.client, asked, await make_key(store, "ada"))
            await suite.hear_of("Callback server started")
            await served.client.get(sent_back.headers["location"])
            said = await suite.ended()
    statuses = {check["id"]: check["status"] for check in results_in(tmp_path)}
    assert statuses == {
        "authorization-server-metadata": "SUCCESS",
        "authorization-server-metadata-cimd": "WARNING",
        "authorization-code-grant": "SUCCESS",
    }, said


def results_in(folder: Path) -> list[dict[str, Any]]:
    """Return the checks of all scenarios that were run."""
    files = [*folder.rglob("checks.json")]
    assert files
    return [check for file in files for check in json.loads(file.read_text())]
