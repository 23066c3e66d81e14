"""Notes of agents: kept, amended, forgotten, restored, linked, recalled in every way, and sessions begun and ended."""

from __future__ import annotations

from typing import Any

from tests.golden.replay import Golden

COMMANDS = (("verify",), ("feedback", "--json"), ("export",))


async def play(golden: Golden) -> None:
    """Live through two sessions of work on a bakery's site, some days apart."""

    async def keep(content: str, **more: Any) -> str:
        kept = await golden.tool("remember", content=content, agentId="fern", **more)
        note_id: str = kept["id"]
        return note_id

    await golden.tool("context", agentId="fern", sessionId="s1")
    opening = await keep("The bakery opens at seven on weekdays.", type="fact", topic="bakery", keywords=["hours"])
    oven = await keep("The oven of the bakery is a Heuft, bought in 2019.", type="fact", topic="bakery", importance=0.9)
    choice = await keep("We use PostgreSQL for orders, since two shops write at once.", type="decision", topic="orders")
    bug = await keep(
        "Orders of Sunday were lost: the clock of the till was an hour behind.", type="error", topic="orders"
    )
    remedy = await keep(
        "Set the till's clock by NTP, then import the file of Sunday again.", type="procedure", topic="orders"
    )
    await keep("Inês wants her summary on Fridays, in three lines.", type="preference", isAnchor=True, topic="people")
    await keep("Jonas is the brother of Mika.", type="relation", topic="people")
    await keep("The draft of the menu lies on the blue table.", scope="session", sessionId="s1", topic="bakery")
    await keep(
        "On 12 March 2026 the mixer broke during the night shift.",
        type="episode",
        contextSummary="Night shift",
        goal="bake 400 rolls",
        outcome="only 250 were baked",
        caseId="mixer",
        phase="diagnosis",
        resolutionStatus="open",
        workspace="plant",
        affect="frustration",
        assertionStatus="observed",
        source="log",
    )
    await keep(
        "The mixer's belt was replaced; it runs again.",
        type="episode",
        caseId="mixer",
        phase="repair",
        resolutionStatus="resolved",
        workspace="plant",
        affect="confidence",
    )
    await golden.tool("remember", content="The bakery opens at seven on weekdays.", agentId="fern")
    await golden.tool(
        "remember", content="The bakery opens at eight on weekdays now.", agentId="fern", supersedes=[opening]
    )
    keyed = {"content": "Flour comes on Mondays.", "idempotencyKey": "k1", "agentId": "fern"}
    await golden.tool("remember", **keyed)
    await golden.tool("remember", **keyed)
    await golden.tool("remember", **{**keyed, "content": "Flour comes on Tuesdays."})
    await golden.tool("remember", content="Nothing is kept of this.", agentId="fern", dryRun=True)
    await golden.tool(
        "remember", content="Yeast is ordered on Wednesdays.", agentId="fern", linkedTo=[oven, "note_unknown"]
    )
    # Items of a batch are kept at the same time, in an order of chance: at most one of each here reaches the log.
    said = {"content": "Jonas is the brother of Mika.", "topic": "people"}
    new = {"content": "The second shop is in Harbour Street.", "type": "fact", "keywords": ["shop", "address"]}
    wrong = [
        {"content": ""},
        {"content": "Too important", "importance": 2},
        {"content": "Unknown type", "type": "rumour"},
    ]
    for items in ([said, new, *wrong], [said, *wrong], [new, *wrong]):
        await golden.tool("batch_remember", items=items, agentId="fern", dryRun=len(items) == 5)
    await golden.tool(
        "batch_remember", items=[{"content": "Rosa does the accounts.", "topic": "people"}], agentId="fern"
    )
    await golden.tool("batch_remember", items=[], agentId="fern")
    await golden.tool("link", fromId=bug, toId=remedy, relationType="resolved_by", agentId="fern")
    await golden.tool("link", fromId=bug, toId=oven, relationType="caused_by", weight=0.4, agentId="fern", dryRun=True)
    await golden.tool("link", fromId=choice, toId=bug, relationType="caused_by", agentId="fern")
    await golden.tool("link", fromId=choice, toId=choice, agentId="fern")
    await golden.tool("link", fromId=choice, toId="note_unknown", agentId="fern")
    await golden.tool("graph_explore", startId=choice, agentId="fern")
    await golden.tool("graph_explore", startId=bug, agentId="fern")
    await golden.tool("amend", id=oven, content="The oven of the bakery is a Heuft, bought in 2018.", agentId="fern")
    await golden.tool("amend", id=oven, importance=0.7, topic="equipment", agentId="fern")
    await golden.tool("amend", id=oven, content="It would say this.", dryRun=True, agentId="fern")
    await golden.tool("amend", id=oven, agentId="fern")
    await golden.tool("fragment_history", id=oven, agentId="fern")
    await golden.tool("fragment_history", id=opening, agentId="fern")
    await golden.build()
    asked: tuple[dict[str, Any], ...] = (
        {"text": "when does the bakery open"},
        {"text": "when does the bakery open", "includeSuperseded": True, "format": "json"},
        {"text": "oven", "includeLinks": True, "includeKeywords": True, "includeContext": True},
        {"text": "lost orders", "includeLinks": True, "linkRelationType": "resolved_by"},
        {"keywords": ["hours", "shop"]},
        {"topic": "people"},
        {"type": "preference"},
        {"text": "mixer", "caseMode": True, "maxCases": 2},
        {"caseId": "mixer", "resolutionStatus": "resolved"},
        {"workspace": "plant", "affect": ["frustration"], "phase": "diagnosis"},
        {"text": "bakery", "pageSize": 2},
        {"text": "bakery", "tokenBudget": 60},
        {"text": "bakery", "minImportance": 0.6, "fields": ["id", "content"]},
        {"text": "bakery", "depth": "high-level"},
        {"text": "bakery", "depth": "tool-level"},
        {"text": "menu table", "sessionId": "s1"},
        {"text": "menu table"},
        {"isAnchor": True},
        {"text": "mixer", "timeRange": {"from": "2026-03-20T12:00:00Z", "to": "2026-03-20T12:10:00Z"}},
        {"text": "oven bought", "asOf": "2026-03-20T12:20:00Z"},
        {"text": "completely unrelated submarine", "threshold": 0.9},
        {"text": "bakery", "excludeSeen": True, "sessionId": "s1"},
        {"text": "bakery", "excludeSeen": True, "sessionId": "s1"},
        {"text": "till", "contextText": "orders of Sunday"},
        {},
    )
    for question in asked:
        await golden.tool("recall", agentId="fern", **question)
    page = await golden.tool("recall", agentId="fern", text="bakery orders people", pageSize=3, format="json")
    for _ in range(3):
        if not (cursor := page.get("nextCursor")):
            break
        page = await golden.tool(
            "recall", agentId="fern", text="bakery orders people", pageSize=3, cursor=cursor, format="json"
        )
    await golden.tool("memory_stats", agentId="fern")
    feedback = {
        "tool_name": "recall",
        "relevant": True,
        "sufficient": False,
        "suggestion": "show the day",
        "agentId": "fern",
    }
    await golden.tool("tool_feedback", **feedback, session_id="s1", trigger_type="voluntary", fragment_ids=[oven])
    await golden.tool(
        "reflect",
        agentId="fern",
        sessionId="s1",
        summary="The orders of Sunday were found again, and the mixer runs.",
        decisions=["Tills take their time from NTP."],
        errors_resolved=["Lost orders: the till's clock was wrong."],
        new_procedures=["Import a day again with `orders import --day`."],
        open_questions=["Who pays for the belt?"],
        narrative_summary="It began with a call on Monday.",
        task_effectiveness={"overall_success": True, "tool_highlights": ["recall"], "tool_pain_points": ["link"]},
    )
    await golden.tool("reflect", agentId="fern", sessionId="s1", summary="Once more.")
    await golden.wait(days=3)
    await golden.tool("context", agentId="fern", sessionId="s2")
    await golden.tool(
        "context", agentId="fern", sessionId="s2", structured=True, types=["decision", "procedure"], tokenBudget=400
    )
    await golden.tool("forget", id=remedy, agentId="fern", dryRun=True)
    await golden.tool("forget", id=remedy, agentId="fern")
    await golden.tool("recall", text="NTP till", agentId="fern")
    await golden.tool("restore", id=remedy, agentId="fern")
    await golden.tool("recall", text="NTP till", agentId="fern")
    await golden.tool("forget", topic="people", agentId="fern", dryRun=True)
    await golden.tool("forget", topic="people", agentId="fern")
    await golden.tool("forget", topic="people", agentId="fern", force=True)
    await golden.tool("forget", text="second shop", agentId="fern", dryRun=True)
    await golden.tool("forget", id="note_unknown", agentId="fern")
    await golden.tool("forget", agentId="fern")
    await golden.tool("restore", id="note_unknown", agentId="fern")
    await golden.tool("amend", id="note_unknown", content="x", agentId="fern")
    await golden.tool("fragment_history", id="note_unknown", agentId="fern")
    await golden.tool("graph_explore", startId="note_unknown", agentId="fern")
    for content in (
        "The flour is stored in the cellar of the first shop.",
        "The flour is stored in the cellar of the first shop!",
    ):
        await keep(content, topic="stock")
    await golden.wait(days=40)
    await golden.tool("memory_consolidate", agentId="fern")
    await golden.build()
    await golden.tool("recall", text="bakery", agentId="fern")
    await golden.tool("recall", text="bakery", agentId="moss")
    await golden.tool("memory_stats", agentId="moss")
    await golden.tool("memory_stats", agentId="fern")
    await golden.tool("recall", text="bakery")
    await golden.tool("myria_query_event_nodes", query="bakery", limit=3, format="text")
    await golden.tool("myria_query_event_nodes", participants=["agent:fern"], query="bakery", limit=3, view="lean")
