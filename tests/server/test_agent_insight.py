"""The agent's face looks at notes as a whole: histories, counts, uses, and feedback on tools."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import TextResourceContents

from myria.builds.verify import verify
from myria.memory import Memory
from myria.notes.feedback import feedback_report
from myria.settings.planner import PlannerSettings
from tests.server.test_agent import ask, keep
from tests.server.wire import Served

TENANT = "default"


async def past(served: Served, note_id: str, **more: Any) -> dict[str, Any]:
    return await ask(served, "fragment_history", id=note_id, **more)


async def test_a_history_names_what_replaced_a_note(served: Served) -> None:
    """Versions newest first; a note that another replaced keeps its history, which names each successor."""
    first = await keep(served, "The kiln opens on Friday")
    await ask(served, "amend", id=first, content="The kiln opens on Saturday")
    second = await keep(served, "The kiln opens in March", supersedes=[first])
    third = await keep(served, "The kiln opens in April", supersedes=[second])
    answer = await past(served, first)
    assert [version["content"] for version in answer["versions"]] == [
        "The kiln opens on Saturday",
        "The kiln opens on Friday",
    ]
    assert answer["superseded_by"] == [second, third]
    await ask(served, "forget", id=third, force=True)
    assert (await past(served, first))["superseded_by"] == [second]


async def test_what_is_forgotten_has_no_history(served: Served) -> None:
    """Forgotten, of others, and never there are refused alike; restored, it is there again."""
    mine = await keep(served, "The kiln opens on Friday")
    others = await keep(served, "The planner's secret", agentId="planner")
    await ask(served, "forget", id=mine, force=True)
    answers = [await past(served, name) for name in (mine, others, "note_absent")]
    assert {(answer["success"], answer["code"]) for answer in answers} == {(False, "note_not_found")}
    await ask(served, "restore", id=mine)
    assert (await past(served, mine))["count"] == 1


async def test_statistics_count_what_the_caller_sees(served: Served) -> None:
    """Another agent's notes do not count; forgotten ones neither."""
    await keep(served, "ana prefers tea", type="preference")
    gone = await keep(served, "the build failed", type="error")
    await keep(served, "The planner's note", agentId="planner")
    await ask(served, "forget", id=gone, force=True)
    stats = (await ask(served, "memory_stats"))["stats"]
    assert (stats["total"], stats["preference_count"], stats["error_count"]) == (1, 1, 0)
    assert (await ask(served, "memory_stats", agentId="planner"))["stats"]["total"] == 2
    assert (await ask(served, "memory_stats", agentId="nobody"))["stats"]["total"] == 1


async def test_uses_are_counted_beside_the_log(served: Served, memory: Memory) -> None:
    """What recall shows is used: once the counts are written, statistics tell; the log has no new event."""
    await keep(served, "ana prefers tea", type="preference")
    async with memory.database.read(TENANT) as connection:
        before = await connection.fetchval("SELECT count(*) FROM myria.events")
    for _ in range(3):
        await ask(served, "recall", text="tea")
    await memory.usage.write()
    stats = (await ask(served, "memory_stats"))["stats"]
    assert stats["total_accesses"] == 3
    assert float(stats["avg_utility"]) > float(stats["avg_importance"])
    async with memory.database.read(TENANT) as connection:
        assert await connection.fetchval("SELECT count(*) FROM myria.events") == before


async def test_feedback_is_kept_for_those_who_run_the_tenant(served: Served, memory: Memory) -> None:
    """It is folded by tool, whole and without secrets, and enters no answer; the fold is the log's."""
    said = {"tool_name": "recall", "relevant": True}
    await ask(served, "tool_feedback", **said, sufficient=True)
    await ask(served, "tool_feedback", **said, sufficient=False, suggestion="ask ines@example.com " + "x" * 200)
    report = await feedback_report(memory.database, TENANT, limit=5)
    assert report["tools"] == [{"tool": "recall", "said": 2, "relevant": 2, "sufficient": 1}]
    (words,) = report["newest"]
    assert words["suggestion"] == "ask [REDACTED_EMAIL] " + "x" * 200
    too_long = await ask(served, "tool_feedback", **said, sufficient=False, context="x" * 2001)
    assert (too_long["code"], too_long["details"]["field"]) == ("invalid_text", "context")
    assert (await ask(served, "recall"))["count"] == 0
    assert (await ask(served, "tool_feedback", **said, sufficient="yes"))["code"] == "invalid_argument"
    assert (await verify(memory.database, TENANT, PlannerSettings())).failed == 0
    async with memory.database.read(TENANT) as connection:
        payload = await connection.fetchval("SELECT payload FROM myria.events WHERE internal LIMIT 1")
    assert orjson.loads(payload)["feedback"]["tool"] == "recall"


async def test_how_tasks_went_is_told_to_those_who_run_the_tenant(served: Served, memory: Memory) -> None:
    """What reflections say of it, in all and in words, newest first; with a session and without, and nothing erased."""
    said = {"overall_success": "true", "tool_highlights": ["recall found it"], "tool_pain_points": []}
    await ask(served, "reflect", summary="We fired the kiln", sessionId="s1", task_effectiveness=said)
    await ask(served, "reflect", summary="We did not", task_effectiveness={"overall_success": False})
    await ask(served, "reflect", summary="Nobody says how it went", sessionId="s2")
    report = await feedback_report(memory.database, TENANT, limit=5)
    assert report["tasks"] == {"said": 2, "succeeded": 1}
    assert [(task["session"], task["success"], task["highlights"]) for task in report["newest_tasks"]] == [
        (None, False, []),
        ("s1", True, ["recall found it"]),
    ]


async def test_resources_tell_what_is_kept(served: Served) -> None:
    """Hosts list and read three: numbers and topics of what the caller sees, and the rules; the other face has none."""
    await keep(served, "ana prefers tea", type="preference", topic="tea")
    await keep(served, "The planner's note", agentId="planner", topic="plans")
    async with Client(f"{served.server.url}/agent", mode="auto") as client:
        listed = (await client.list_resources()).resources
        assert [str(resource.uri) for resource in listed] == ["memory://stats", "memory://topics", "memory://config"]
        read: dict[str, Any] = {}
        for resource in listed:
            (content,) = (await client.read_resource(resource.uri)).contents
            assert isinstance(content, TextResourceContents)
            read[resource.name] = orjson.loads(content.text)
        with pytest.raises(MCPError, match="memory://topics"):
            await client.read_resource("memory://nothing")
    assert read["stats"]["preference_count"] == read["stats"]["total"] == 1
    assert read["topics"] == {"topics": [{"topic": "tea", "notes": 1}]}
    assert read["config"]["types"]["preference"]["lifetime"] == "permanent"
    async with Client(served.server.url, mode="auto") as client:
        assert (await client.list_resources()).resources == []


async def test_feedback_holds_no_secret(served: Served, memory: Memory) -> None:
    """What must not be kept is taken out of its words."""
    said = "x" * 84 + " AKIA" + "IOSFODNN7EXAMPLE"
    await ask(served, "tool_feedback", tool_name="recall", relevant=True, sufficient=True, suggestion=said)
    async with memory.database.read(TENANT) as connection:
        payload = await connection.fetchval("SELECT payload::text FROM myria.events WHERE internal LIMIT 1")
    assert "AKIA" not in payload


async def test_the_name_of_a_tool_is_cleaned(served: Served, memory: Memory) -> None:
    """What stands in the place of a tool's name is kept and answered without secrets."""
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    answer = await ask(served, "tool_feedback", tool_name=f"tool {secret}", relevant=True, sufficient=True)
    async with memory.database.read(TENANT) as connection:
        payload = await connection.fetchval("SELECT payload::text FROM myria.events WHERE internal LIMIT 1")
    assert secret not in payload + str(answer) + str(await feedback_report(memory.database, TENANT, limit=10))


async def test_what_was_replaced_ends_with_its_session(served: Served) -> None:
    """A session's note that another replaced has no history once the session is over."""
    first = await keep(served, "Today the kiln is blue", scope="session", sessionId="s1")
    await keep(served, "Today the kiln is red", scope="session", sessionId="s1", supersedes=[first])
    assert (await ask(served, "fragment_history", id=first))["count"] == 1
    await ask(served, "reflect", summary="We painted", sessionId="s1")
    assert (await ask(served, "fragment_history", id=first))["code"] == "note_not_found"


async def test_consolidation_tells_whether_there_is_feedback_to_report(served: Served) -> None:
    """Of what the caller sees: feedback of another agent is not told."""

    async def told(agent: str) -> bool:
        answer: dict[str, bool] = await ask(served, "memory_consolidate", agentId=agent)
        return answer["feedbackReportGenerated"]

    assert not await told("row-one")
    await ask(served, "tool_feedback", tool_name="recall", relevant=True, sufficient=True, agentId="row-one")
    assert (await told("row-one"), await told("row-two")) == (True, False)
