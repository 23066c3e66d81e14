"""Notes that a policy holds back: kept, listed, approved with what they replace, refused, and that taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from myria.settings import ReviewSettings
from myria_server.paths import REST_PREFIX as PREFIX
from tests.golden.replay import ALL_FACES, Golden

SETTINGS = replace(ALL_FACES, review=ReviewSettings(kinds=("decision", "fact_l0"), sources=("api:rest",)))
COMMANDS = (("verify",), ("export",))


async def play(golden: Golden) -> None:
    """Decide about a kiln, over each API."""

    async def decide(note_ids: list[str], decision: str, **more: Any) -> None:
        await golden.tool("myria_decide_notes", note_ids=note_ids, decision=decision, **more)

    async def look() -> None:
        await golden.tool("recall", text="kiln", agentId="fern")
        await golden.tool("myria_list_held_notes")

    said = {"agentId": "fern", "type": "decision"}
    fact = await golden.tool("remember", content="The kiln is fired on Fridays.", agentId="fern", type="fact")
    kept = await golden.tool("remember", content="The kiln is fired on Mondays.", supersedes=[fact["id"]], **said)
    await golden.tool("remember", content="The kiln is fired on Mondays.", **said)
    other = await golden.tool("remember", content="The kiln is sold.", **said)
    await golden.tool("forget", id=kept["id"], agentId="fern")
    await golden.tool("restore", id=kept["id"], agentId="fern")
    await look()
    await decide([kept["id"]], "approve", reason="agreed on the phone")
    await decide([other["id"], kept["id"], "note_unknown"], "refuse", reason="no")
    await look()
    await golden.tool("myria_list_held_notes", state="decided", kind="decision", participant="fern")
    changed = await golden.tool(
        "amend", id=kept["id"], content="The kiln is fired on Tuesdays.", agentId="fern", reason="heard wrong"
    )
    await decide([changed["fragment"]["id"]], "approve")
    await decide([changed["fragment"]["id"], other["id"]], "hold")
    await look()
    memory = {"agent_id": "fern", "event_type": "note", "content": "The kiln is hot."}
    await golden.http("POST", f"{PREFIX}/memories", memory)
    await golden.tool("reflect", summary=["The kiln was discussed."], decisions=["Keep the kiln."], agentId="fern")
    await golden.tool("myria_list_held_notes", limit=1)
    await golden.tool("myria_list_held_notes", cursor="x")
    await decide([], "approve")
