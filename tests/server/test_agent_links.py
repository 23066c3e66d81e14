"""The agent's face links notes: what a link says reaches whoever sees both ends, whatever else is linked."""

from __future__ import annotations

import pytest

from myria.memory import Memory
from myria.notes import links
from tests.server.test_agent import ask, keep
from tests.server.wire import Served

TENANT = "default"


async def edges(served: Served, note_id: str, **more: str) -> list[tuple[str, str, str]]:
    answer = await ask(served, "graph_explore", startId=note_id, **more)
    return [(edge["from"], edge["to"], edge["relation_type"]) for edge in answer["edges"]]


async def test_a_repeat_of_a_note_links_it(served: Served, memory: Memory) -> None:
    """Remembering what is kept already, now with linkedTo, links the note that stands; it never links it to itself."""
    cause = await keep(served, "The fuse blew")
    first = await keep(served, "The kiln went cold")
    again = await ask(served, "remember", content="The kiln went cold", linkedTo=[cause, first])
    assert (again["created"], again["id"]) == (False, first)
    around = await memory.links.around(TENANT, first, may_see=lambda _: True)
    assert [(link.from_id, link.to_id, link.relation) for link in around.links] == [(first, cause, "related")]


async def test_links_that_are_not_asked_for_hide_none(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at few links finds a cause behind newer links of other relations."""
    monkeypatch.setattr(links, "MAX_LINKS", 2)
    start = await keep(served, "The kiln went cold")
    cause = await keep(served, "The fuse blew")
    await ask(served, "link", fromId=start, toId=cause, relationType="caused_by")
    for number in range(3):
        await ask(served, "link", fromId=start, toId=await keep(served, f"Remark {number}"))
    assert await edges(served, start) == [(start, cause, "caused_by")]


async def test_links_to_what_one_may_not_see_hide_none(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool's note that another agent linked often shows the pool's own link as it did before."""
    monkeypatch.setattr(links, "MAX_LINKS", 2)
    start = await keep(served, "The kiln went cold")
    cause = await keep(served, "The fuse blew")
    await ask(served, "link", fromId=start, toId=cause, relationType="caused_by")
    for number in range(3):
        hidden = await keep(served, f"The planner's remark {number}", agentId="planner")
        await ask(served, "link", fromId=hidden, toId=start, relationType="caused_by", agentId="planner")
    assert await edges(served, start) == [(start, cause, "caused_by")]


async def test_a_link_tells_nobody_the_id_of_a_note_that_is_not_theirs(served: Served, memory: Memory) -> None:
    """Who sees where a link begins gets no byte of where it ends from the core tools, with internal events or by id."""
    start = await keep(served, "The kiln went cold")
    hidden = await keep(served, "The planner's remark", agentId="planner")
    await ask(served, "link", fromId=start, toId=hidden, agentId="planner")
    pool = {"masks": [{"participants": ["me", "agent"], "exact": True}], "include_internal": True}
    for tool, more in (("query_event_nodes", {}), ("query_references", {"include_payload": True})):
        answer = await served.call(tool, pool | more)
        assert start in str(answer.content)
        assert hidden not in str(answer.content)
    async with memory.database.read(TENANT) as connection:
        link = await connection.fetchval("SELECT event_id FROM myria.events WHERE type = 'myria.link'")
    asked = {"event_id": link, "participants": ["me", "agent"], "include_internal": True}
    assert (await served.call("get_event", asked)).code == "event_not_found"
