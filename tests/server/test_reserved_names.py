"""A name that stands for everybody is nobody's own: an agent or a user that takes it is refused, at every face."""

from __future__ import annotations

from typing import Any

import pytest

from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import AuthSettings, RestSettings, Settings, TurnsSettings
from myria_server.api.tools import TOOLS, input_schema, path_of
from myria_server.paths import TURNS_OVER_HTTP
from tests.server.test_auth_matrix import ACTING, ARGUMENTS
from tests.server.wire import BASE_HEADERS, Served, call, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

SETTINGS = Settings(turns=TurnsSettings(enabled=True))
NAMED = Settings(
    auth=AuthSettings(local_participants=("Søren", "house")),
    rest=RestSettings(shared_participant="guild"),
    turns=TurnsSettings(enabled=True),
)
SPEAKING = tuple(tool.name for tool in TOOLS if "user_id" in input_schema(tool, Limits())["properties"])


async def refusal(served: Served, tool: str, arguments: Any, *, key: str = "") -> tuple[str, str]:
    """Return the code and the text with which a call is refused, or two empty texts."""
    sent = BASE_HEADERS | ({"authorization": f"Bearer {key}"} if key else {})
    response = await served.post(call(tool, arguments, version=None), sent, path=path_of(tool))
    result = response.json()["result"]
    content = result["structuredContent"]
    return (content["code"], content.get("error") or content["message"]) if result["isError"] else ("", "")


@pytest.mark.parametrize("name", ["agent", "me", "org", " org", "me "])
async def test_no_agent_takes_a_name_that_all_share(memory: Memory, name: str) -> None:
    """By no tool that takes an agentId; the refusal names it."""
    async with serving(memory, SETTINGS) as served:
        for tool in ACTING:
            code, text = await refusal(served, tool, {**ARGUMENTS.get(tool, {}), "agentId": name})
            assert code == "invalid_argument", tool
            assert f"agentId {name.strip()!r} is taken" in text


@pytest.mark.parametrize("name", ["Søren", "house", " guild"])
async def test_the_names_are_those_of_the_settings(memory: Memory, name: str) -> None:
    """And then the default names are free."""
    async with serving(memory, NAMED) as served:
        assert (await refusal(served, "remember", {"content": "x", "agentId": name}))[0] == "invalid_argument"
        assert (await refusal(served, "remember", {"content": "x", "agentId": "agent"}))[0] == ""


@pytest.mark.parametrize("name", ["ada", "bot", "agent", "org"])
async def test_no_agent_takes_a_name_of_its_key(database: Database, memory: Memory, name: str) -> None:
    """All agents of a key read what is kept for its own participants."""
    settings = Settings(auth=AuthSettings(mode="keys"))
    async with access_store(database) as store, serving(memory, settings) as served:
        key = await make_key(store, "ada", "bot", may_ask=("*",), faces=("agent",))
        arguments = {"content": "the present is a lathe", "agentId": name}
        assert (await refusal(served, "remember", arguments, key=key))[0] == "invalid_argument"
        assert await refusal(served, "remember", arguments | {"agentId": "planner"}, key=key) == ("", "")


@pytest.mark.parametrize("name", ["agent", "me", "org"])
async def test_no_user_of_a_turn_takes_a_name_that_all_share(memory: Memory, name: str) -> None:
    """By no tool of turns, nor over plain HTTP."""
    async with serving(memory, SETTINGS) as served:
        said = {"current_input": "My name is Ana", "output_items": [], "user_id": name}
        for tool in SPEAKING:
            known = input_schema(next(each for each in TOOLS if each.name == tool), Limits())["properties"]
            arguments = {field: value for field, value in said.items() if field in known}
            code, text = await refusal(served, tool, arguments)
            assert code == "INVALID_ARGUMENT", (tool, text)
            assert f"user_id {name!r} is taken" in text
        for path in TURNS_OVER_HTTP:
            body = {"user_id": name} | ({"current_input": "Who am I?"} if path.endswith("before") else {})
            response = await served.client.post(path, json=body)
            assert "is taken" in response.text, response.text


@pytest.mark.parametrize("name", ["Agent", "agents", "my org", "planner"])
async def test_any_other_name_is_one_agent_alone(memory: Memory, name: str) -> None:
    """However like a name that all share: what it keeps, another does not recall."""
    async with serving(memory, SETTINGS) as served:
        kept = {"content": "the present for Mara is a lathe", "agentId": name}
        assert await refusal(served, "remember", kept) == ("", "")
        sent = call("recall", {"text": "present for Mara", "agentId": "other", "format": "json"}, version=None)
        response = await served.post(sent, BASE_HEADERS, path=path_of("recall"))
        assert response.json()["result"]["structuredContent"]["fragments"] == []
