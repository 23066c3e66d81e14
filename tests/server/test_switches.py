"""What a setting switches off is answered with the setting that switches it on."""

from __future__ import annotations

import pytest

from myria.memory import Memory
from myria.settings import AgentSettings, McpSettings, RestSettings, Settings
from tests.server.wire import BASE_HEADERS, call, headers, serving

OFF = Settings(
    agent=AgentSettings(enabled=False), rest=RestSettings(enabled=False), mcp=McpSettings(profiles=("core",))
)
"""With turns and auth.server off as well, as by default."""


@pytest.mark.parametrize(
    ("path", "setting"),
    [
        ("/mcp/agent", "agent.enabled"),
        ("/mcp/turns", "turns.enabled"),
        ("/v1/turns:before", "turns.enabled"),
        ("/v1/turns:after", "turns.enabled"),
        ("/api/v1/memories", "rest.enabled"),
        ("/api/v1/docs", "rest.enabled"),
        ("/mcp/memtrace", "rest.enabled"),
        ("/oauth/register", "auth.server"),
        ("/.well-known/oauth-authorization-server", "auth.server"),
    ],
)
async def test_a_face_that_is_off_names_its_setting(memory: Memory, path: str, setting: str) -> None:
    """By GET and by POST, with the variable that sets it."""
    async with serving(memory, OFF) as served:
        for method in ("GET", "POST"):
            answer = await served.client.request(method, path, json={}, headers=BASE_HEADERS)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["details"]) == (
                404,
                "path_not_found",
                {"setting": setting},
            )
            assert f"MYRIA_{setting.upper().replace('.', '_')}=true" in error["message"]


async def test_a_path_that_nothing_serves_names_what_is_served(memory: Memory) -> None:
    """And nothing that is off."""
    async with serving(memory, OFF) as served:
        message = (await served.client.get("/nowhere")).json()["error"]["message"]
    assert message == "nothing is served here; MCP is at /mcp, /mcp/admin"


async def test_a_profile_that_is_off_names_its_setting(memory: Memory) -> None:
    """A tool that belongs to none of the groups that are offered says which setting offers them."""
    async with serving(memory, OFF) as served:
        sent = call("get_snapshot_status", {})
        answer = await served.client.post("/mcp", json=sent, headers=headers("get_snapshot_status"))
    error = answer.json()["result"]["structuredContent"]["error"]
    assert (error["code"], error["details"]) == ("tool_not_enabled", {"setting": "mcp.profiles"})
