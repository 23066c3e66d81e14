"""The agent's face at the beginning and the end of a session: context and reflect, each with its parameters."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from myria.memory import Memory
from myria.notes.lines import notice
from myria.text.model_tokens import token_counter
from tests.server.test_agent import ask, found, keep, raw
from tests.server.wire import Served

count = token_counter().count


async def filled(served: Served) -> None:
    """Keep one note of each sort that context knows."""
    await keep(served, "Ana prefers short answers", type="preference", topic="style")
    await keep(served, "The build failed for want of memory", type="error", topic="build")
    await keep(served, "To deploy, tag first", type="procedure", topic="deploy")
    await keep(served, "We decided on PostgreSQL", type="decision", topic="storage")
    await keep(served, "The studio is in Porto", type="fact", topic="studio", isAnchor=True)
    await keep(served, "The draft is in the tray", type="fact", topic="desk", scope="session", sessionId="s1")
    await keep(served, "The planner's rule", type="preference", topic="plans", agentId="planner")
    await ask(served, "reflect", summary="A quiet day", open_questions=["Who paid for the clay?"])


async def test_context_is_core_memory_work_questions_and_topics(served: Served) -> None:
    """Without arguments: every kind, fenced, with dates, and times where notes share a day; counts are of the text."""
    await filled(served)
    answer = await ask(served, "context", sessionId="s1")
    text = answer["injectionText"]
    today = answer["fragments"][0]["created_at"][:10]
    lines = [re.sub(rf"^- {today} (\d\d:\d\d )?", "- ", line) for line in text.splitlines()]
    assert lines[0] == notice()
    assert lines[1] == lines[-1]
    assert lines[2:-1] == [
        "[CORE MEMORY]",
        "[FACT]",
        "- A quiet day",
        "- The studio is in Porto",
        "[PREFERENCE]",
        "- Ana prefers short answers",
        "[ERROR]",
        "- The build failed for want of memory",
        "[DECISION]",
        "- We decided on PostgreSQL",
        "[PROCEDURE]",
        "- To deploy, tag first",
        "[WORKING MEMORY]",
        "- The draft is in the tray",
        "[OPEN QUESTIONS]",
        "- Who paid for the clay?",
        "[LAST TOPICS]",
        "- studio",
        "- storage",
        "- deploy",
        "- build",
        "- style",
    ]
    assert answer["totalTokens"] == count(text)
    core, working = lines.index("[CORE MEMORY]"), lines.index("[WORKING MEMORY]")
    assert answer["coreTokens"] == count("\n".join(text.splitlines()[core:working]))
    assert answer["wmTokens"] == count("\n".join(text.splitlines()[working : working + 2]))
    assert answer["wmCount"] == 1
    assert answer["count"] == len(answer["fragments"]) == 8


@pytest.mark.parametrize(
    ("given", "shown", "hidden"),
    [
        ({"types": ["decision"]}, "We decided on PostgreSQL", "Ana prefers short answers"),
        ({"types": []}, "We decided on PostgreSQL", "The planner's rule"),
        ({"sessionId": "s1"}, "The draft is in the tray", "The planner's rule"),
        ({"sessionId": "s2"}, "The studio is in Porto", "The draft is in the tray"),
        ({"agentId": "planner"}, "The planner's rule", "The draft is in the tray"),
        ({"agentId": "default"}, "The studio is in Porto", "The planner's rule"),
        ({"tokenBudget": None}, "The studio is in Porto", "The planner's rule"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
async def test_each_parameter_of_context(served: Served, given: dict[str, Any], shown: str, hidden: str) -> None:
    """Each is heard: what is shown, and to whom."""
    await filled(served)
    answer = await ask(served, "context", **given)
    assert shown in answer["injectionText"]
    assert hidden not in str(answer)


@pytest.mark.parametrize("budget", [1, 60, 150, 700, 2000])
async def test_context_keeps_its_budget(served: Served, budget: int) -> None:
    """The text never costs more, nor do the fragments; core memory has its share; each kind comes before any twice."""
    for number, word in enumerate(["kiln", "窯", "🔥🏺", "kiln_open(x)[0]"] * 8):
        await keep(served, f"{number}: {word} " * 12, type="preference")
        await keep(served, f"{number} of s: {word} " * 12, type="fact", scope="session", sessionId="s1")
    await keep(served, "Tag first", type="procedure")
    result = await raw(served, "context", {"tokenBudget": budget, "sessionId": "s1"})
    answer = result["structuredContent"]
    assert count(answer["injectionText"]) == answer["totalTokens"] <= budget
    assert answer["coreTokens"] <= min(1000, budget * 0.65)
    assert answer["wmTokens"] <= 500
    assert count(result["content"][0]["text"]) <= max(budget, 10)
    assert (result["content"][0]["text"] == "tokenBudget is too small to show anything.") == (budget == 1)
    kinds = {fragment["type"] for fragment in answer["fragments"]}
    assert budget < 700 or kinds == {"preference", "procedure", "fact"}


async def test_reflect_keeps_each_part_and_ends_the_session(served: Served) -> None:
    """Kinds and importances are the contract's, texts those given; session notes end, and what was kept stays."""
    await keep(served, "The draft is in the tray", scope="session", sessionId="s1")
    given = {
        "summary": "We repaired the kiln",
        "decisions": ["Fire on Fridays"],
        "errors_resolved": ["The fuse blew: replaced it"],
        "new_procedures": ["Check the fuse first"],
        "open_questions": ["Who pays for the fuse?"],
        "task_effectiveness": {"overall_success": True, "tool_highlights": ["recall"], "tool_pain_points": []},
    }
    answer = await ask(served, "reflect", sessionId="s1", **given)
    assert [(note["type"], note["content"]) for note in answer["fragments"]] == [
        ("fact", "We repaired the kiln"),
        ("decision", "Fire on Fridays"),
        ("error", "The fuse blew: replaced it"),
        ("procedure", "Check the fuse first"),
        ("fact", "Who pays for the fuse?"),
    ]
    assert answer["count"] == 5
    assert answer["breakdown"] == {
        "summary": 1,
        "decisions": 1,
        "errors": 1,
        "procedures": 1,
        "questions": 1,
        "task_feedback": 1,
    }
    shown = (await ask(served, "recall", sessionId="s1"))["fragments"]
    assert {fragment["topic"] for fragment in shown} == {"session_reflect"}
    assert {(fragment.get("resolution_status"), fragment["importance"]) for fragment in shown} >= {
        ("resolved", 0.5),
        ("open", 0.4),
    }
    again = await ask(served, "reflect", sessionId="s1", **given)
    assert again["fragments"] == answer["fragments"]
    assert len((await ask(served, "recall", sessionId="s1"))["fragments"]) == 5
    await keep(served, "A new draft", scope="session", sessionId="s1")
    assert "A new draft" in await found(served, "draft", sessionId="s1")
    assert "The draft is in the tray" not in await found(served, "draft", sessionId="s1")


@pytest.mark.parametrize("language", ["Who pays?", "Wer zahlt die Sicherung?", "누가 내나요?", "[미해결] 누가 내나요?"])
async def test_an_open_question_is_what_was_asked(served: Served, language: str) -> None:
    """Its text is as it was given, in any language; context shows it until somebody amends that it is open."""
    answer = await ask(served, "reflect", summary="A day", open_questions=[language], errors_resolved=["Die Sicherung"])
    assert [note["content"] for note in answer["fragments"]] == ["A day", "Die Sicherung", language]
    opened = await ask(served, "context", structured=True)
    assert [note["content"] for note in opened["open_questions"]] == [language]
    lines = (await raw(served, "recall", {}))["content"][0]["text"]
    assert f"{language} (open)" in lines
    assert "Die Sicherung (resolved)" in lines
    await ask(served, "amend", id=answer["fragments"][2]["id"], resolutionStatus="resolved")
    assert (await ask(served, "context", structured=True))["open_questions"] == []


async def test_a_question_of_an_earlier_release_stays_open(served: Served) -> None:
    """Its text says so, as that of one that Memento exports does."""
    question = "[미해결] Who pays?"
    await keep(served, question, type="fact", topic="session_reflect")
    assert [note["content"] for note in (await ask(served, "context", structured=True))["open_questions"]] == [question]


@pytest.mark.parametrize("types", [["decision"], ["fact"], ["error", "procedure"]])
async def test_context_holds_the_types_that_are_named(served: Served, types: list[str]) -> None:
    """And no others: neither anchors of another kind, nor questions, nor the session's notes, nor their topics."""
    await filled(served)
    await keep(served, "Always greet", type="preference", isAnchor=True, topic="manners")
    answer = await ask(served, "context", sessionId="s1", types=types)
    assert {note["type"] for note in answer["fragments"]} == set(types)
    assert "Always greet" not in answer["injectionText"]
    assert "manners" not in answer["injectionText"]
    assert ("[OPEN QUESTIONS]" in answer["injectionText"]) == (types == ["fact"])


@pytest.mark.parametrize(
    "given",
    [
        {"summary": "s"},
        {"summary": "s", "decisions": None, "open_questions": []},
        {"summary": "s", "agentId": "planner"},
        {"summary": "s", "sessionId": "s1", "task_effectiveness": None},
        {"summary": "s", "task_effectiveness": {"overall_success": False}},
    ],
    ids=",".join,
)
async def test_reflect_needs_a_summary_alone(served: Served, given: dict[str, Any]) -> None:
    """Whatever else is left out or empty makes no note; another agent's reflection is its own."""
    answer = await ask(served, "reflect", **given)
    assert (answer["count"], answer["breakdown"]["summary"]) == (1, 1)
    assert await found(served, "s") == ([] if "agentId" in given else ["s"])


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("reflect", {}, "summary"),
        ("reflect", {"summary": "  "}, "content"),
        ("reflect", {"summary": "s", "decisions": "one"}, "decisions"),
        ("reflect", {"summary": "s", "decisions": [1]}, "decisions"),
        ("reflect", {"summary": "s", "decisions": ["x" * 10_001]}, "10000"),
        ("reflect", {"summary": "s", "decisions": ["x"] * 51}, "decisions"),
        ("context", {"types": ["guess"]}, "preference"),
        ("context", {"tokenBudget": 0}, "tokenBudget"),
    ],
)
async def test_bad_input_is_refused_and_nothing_kept(
    served: Served, tool: str, given: dict[str, Any], says: str
) -> None:
    """The refusal says what to do."""
    refused = await ask(served, tool, **given)
    assert refused["success"] is False
    assert says in refused["error"]
    assert (await ask(served, "recall"))["count"] == 0


async def test_what_must_not_be_kept_is_taken_out_of_a_reflection(served: Served, memory: Memory) -> None:
    """Of its notes and of what is said beside them."""
    await ask(
        served,
        "reflect",
        summary="Mail ana@example.com",
        sessionId="s1",
        task_effectiveness={"tool_highlights": ["ana@example.com"]},
    )
    async with memory.database.read("default") as connection:
        rows = await connection.fetch("SELECT payload FROM myria.events")
    assert len(rows) == 2  # the summary and the end of the session
    assert not any("example.com" in row["payload"] for row in rows)


async def test_consolidating_touches_what_its_caller_sees(served: Served) -> None:
    """Duplicates are merged and named by no one else's run; what was merged can be restored."""
    double = await keep(served, "The kiln is hot.", type="fact", agentId="planner")
    await keep(served, "The kiln is hot", type="fact", agentId="planner")
    assert (await ask(served, "memory_consolidate", agentId="critic"))["duplicatesMerged"] == 0
    assert (await ask(served, "memory_consolidate"))["duplicatesMerged"] == 0
    assert (await ask(served, "memory_consolidate", agentId="planner"))["duplicatesMerged"] == 1
    assert await found(served, "kiln", agentId="planner") == ["The kiln is hot"]
    assert (await ask(served, "restore", id=double, agentId="planner"))["restored"]
    assert (await ask(served, "memory_consolidate", agentId="planner"))["duplicatesMerged"] == 0


async def test_prompts_say_how_to_keep_memory(served: Served) -> None:
    """The agent's face lists prompts and gives each; the others have none; an unknown one is refused."""
    async with Client(f"{served.server.url}/agent", mode="auto") as client:
        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["keep_memory", "begin_session", "end_session"]
        for prompt in prompts:
            (message,) = (await client.get_prompt(prompt.name)).messages
            assert isinstance(message.content, TextContent)
            assert 20 < count(message.content.text) < 250
        with pytest.raises(MCPError, match="keep_memory"):
            await client.get_prompt("nonsense")
    async with Client(served.server.url, mode="auto") as client:
        assert (await client.list_prompts()).prompts == []


async def edges(served: Served, start: str, **more: Any) -> set[tuple[str, str, str]]:
    """Return the causes and remedies around a note."""
    graph = await ask(served, "graph_explore", startId=start, **more)
    return {(edge["from"], edge["to"], edge["relation_type"]) for edge in graph["edges"]}


async def test_reflect_links_errors_with_causes_and_remedies(served: Served) -> None:
    """Each pair once, and not where the two are linked the other way round already."""
    decision = await keep(served, "Fire on Fridays", type="decision")
    given = {"summary": "s", "decisions": ["Fire on Fridays"], "new_procedures": ["Check the fuse"]}
    first = await ask(served, "reflect", **given, errors_resolved=["The fuse blew"])
    kept, error, procedure = (note["id"] for note in first["fragments"][1:])
    assert kept == decision
    expected = {(error, decision, "caused_by"), (procedure, error, "resolved_by")}
    assert await edges(served, error) == expected
    door = await keep(served, "The door stuck", type="error")
    await ask(served, "link", fromId=decision, toId=door, relationType="related")
    again = await ask(served, "reflect", **given, errors_resolved=["The fuse blew", "The door stuck"], sessionId="s1")
    assert door in {note["id"] for note in again["fragments"]}
    assert await edges(served, error) == expected
    assert await edges(served, door) == set()  # nothing of it was new
    await ask(served, "reflect", **given, errors_resolved=["The door stuck"], open_questions=["Why?"])
    assert await edges(served, door) == {(procedure, door, "resolved_by")}


async def test_contradictions_are_listed_and_nothing_decides_them(served: Served) -> None:
    """To whoever sees both notes, as long as both stand."""
    friday = await keep(served, "The kiln opens on Friday", type="fact", agentId="planner")
    monday = await keep(served, "It never opens on a Friday", type="fact", agentId="planner")
    await ask(served, "link", fromId=friday, toId=monday, relationType="contradicts", agentId="planner")
    assert (await ask(served, "memory_consolidate"))["contradictionsFound"] == 0
    for _ in range(2):
        report = await ask(served, "memory_consolidate", agentId="planner")
        assert report["contradictionsFound"] == 1
        assert report["contradictions"] == [
            {
                "from": friday,
                "to": monday,
                "from_content": "The kiln opens on Friday",
                "to_content": "It never opens on a Friday",
            }
        ]
    await ask(served, "forget", id=monday, agentId="planner")
    assert (await ask(served, "memory_consolidate", agentId="planner"))["contradictions"] == []


async def test_what_stands_for_others_has_their_links(served: Served) -> None:
    """Links of merged notes lead from and to the one that stays, and none leads to itself."""
    double, gas = await keep(served, "The kiln is hot", type="error"), await keep(served, "Gas", type="fact")
    vent = await keep(served, "Open the vent", type="procedure")
    newest = await keep(served, "The kiln is hot.", type="error", linkedTo=[double])
    await ask(served, "link", fromId=double, toId=gas, relationType="caused_by")
    await ask(served, "link", fromId=vent, toId=double, relationType="resolved_by")
    assert (await ask(served, "memory_consolidate"))["duplicatesMerged"] == 1
    assert await edges(served, newest) == {(newest, gas, "caused_by"), (vent, newest, "resolved_by")}


async def test_what_has_expired_is_no_neighbour(served: Served) -> None:
    """A session note is no end of a link once its session is over, and nothing new is like it."""
    stays = await keep(served, "The kiln is hot", type="error")
    draft = await keep(served, "The draft", type="fact", scope="session", sessionId="s1")
    await ask(served, "link", fromId=stays, toId=draft, relationType="caused_by")
    assert await edges(served, stays) == {(stays, draft, "caused_by")}
    await ask(served, "reflect", summary="done", sessionId="s1")
    assert await edges(served, stays) == set()
    assert (await ask(served, "link", fromId=stays, toId=draft))["code"] == "note_not_found"
