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


async def types(memory: Memory, note_id: str) -> set[tuple[str, str, float]]:
    around = await memory.links.around(TENANT, note_id, may_see=lambda _: True)
    return {(link.to_id, link.relation, link.weight) for link in around.links}


async def test_types_of_links_add_up(served: Served, memory: Memory) -> None:
    """A link without a type, or of another one, takes nothing away; the same type again takes the weight."""
    start, cause = await keep(served, "The kiln went cold"), await keep(served, "The fuse blew")
    await ask(served, "link", fromId=start, toId=cause, relationType="caused_by", weight=0.5)
    await ask(served, "link", fromId=start, toId=cause)
    await ask(served, "link", fromId=start, toId=cause, relationType="part_of")
    await ask(served, "link", fromId=start, toId=cause, relationType="part_of", weight=0.25)
    assert await types(memory, start) == {(cause, "caused_by", 0.5), (cause, "related", 1), (cause, "part_of", 0.25)}
    assert set(await edges(served, start)) == {(start, cause, "caused_by"), (start, cause, "part_of")}
    (fragment,) = [one for one in (await ask(served, "recall", text="kiln cold"))["fragments"] if one["id"] == start]
    assert {told["relation_type"] for told in fragment["linked"]} == {"caused_by", "part_of"}


async def test_replacing_a_link_is_said(served: Served, memory: Memory) -> None:
    """Only `replaces` takes the other types of that pair away, in that direction; later links add up again."""
    start, cause = await keep(served, "The kiln went cold"), await keep(served, "The fuse blew")
    await ask(served, "link", fromId=start, toId=cause, relationType="caused_by")
    await ask(served, "link", fromId=cause, toId=start, relationType="part_of")
    await ask(served, "link", fromId=start, toId=cause, relationType="contradicts", replaces=True, dryRun=True)
    assert (cause, "caused_by", 1) in await types(memory, start)
    await ask(served, "link", fromId=start, toId=cause, relationType="contradicts", replaces=True)
    assert await types(memory, start) == {(cause, "contradicts", 1), (start, "part_of", 1)}
    await ask(served, "link", fromId=start, toId=cause, relationType="caused_by")
    assert await types(memory, start) == {(cause, "contradicts", 1), (cause, "caused_by", 1), (start, "part_of", 1)}


async def test_a_repeated_note_takes_no_type_away(served: Served, memory: Memory) -> None:
    """remember with linkedTo says nothing of a pair that is linked."""
    cause = await keep(served, "The fuse blew")
    first = await keep(served, "The kiln went cold", linkedTo=[cause])
    await ask(served, "link", fromId=first, toId=cause, relationType="caused_by")
    await ask(served, "remember", content="The kiln went cold", linkedTo=[cause])
    assert await types(memory, first) == {(cause, "related", 1), (cause, "caused_by", 1)}


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
