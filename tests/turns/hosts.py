"""A host of turns, as tests play it: what it hands over, and what it is given."""

from __future__ import annotations

from typing import Any

import orjson

from myria.memory import Memory
from myria.notes.turns.items import REFERENCE_BEGIN, message, text_of
from myria.notes.turns.model import Session
from myria.notes.turns.preparing import Before, Prepared
from myria.notes.turns.storing import FinishedTurn, StoredTurn

TENANT = "default"
DAY = 86_400 * 10**6
MORNING = 20_500 * DAY + 8 * 3_600 * 10**6
"""Eight o'clock UTC of some day."""


class Host:
    """A host that calls before and after each turn, of one session, at a time that it chooses."""

    def __init__(self, memory: Memory, *, session: str = "s", project: str = "p", own: str = "bot") -> None:
        self.memory = memory
        self.now = MORNING
        self.session = Session(
            own=(own,), participants=tuple(sorted((own, "ana"))), project=project, session_id=session
        )

    async def before(self, *said: str, history: Any = (), tokens: int = 120_000) -> Prepared:
        current = [message("user", text) for text in said]
        asked = Before(session=self.session, history=history, current=current, max_input_tok=tokens)
        return await self.memory.before_turns.prepare(TENANT, asked, now=self.now)

    async def after(self, turn_id: str, *said: Any, answer: str = "I see.", exact: bool = False) -> StoredTurn:
        turn = FinishedTurn(
            session=self.session,
            turn_id=turn_id,
            given=[message("user", text) if isinstance(text, str) else text for text in said],
            came_out=[message("assistant", answer)] if answer else [],
            user_id="ana",
            is_current=exact,
        )
        return await self.memory.turns.store(TENANT, turn, now=self.now)

    async def facts(self) -> list[str]:
        """Return what is recalled, as the prompt says it."""
        prepared = await self.before("anything")
        return sorted(facts_of(prepared))


def facts_of(prepared: Prepared) -> list[str]:
    """Return the facts that a prompt holds, as `tier key=value`."""
    if not prepared.fact_ids:
        return []
    block = text_of(prepared.items[1])
    assert block.startswith(REFERENCE_BEGIN)
    data = orjson.loads(block.split("\n")[1])
    assert data["untrusted"] is True
    return [f"{fact['tier']} {fact['key']}={fact['value']}" for fact in data["facts"]]


async def rows(memory: Memory, statement: str) -> list[dict[str, Any]]:
    async with memory.appending.read(TENANT) as connection:
        return [dict(row) for row in await connection.fetch(statement)]


async def items(memory: Memory) -> list[str]:
    """Return the source keys of all items in the order of the log, without whose they are."""
    found = await rows(
        memory,
        "SELECT source_event_key FROM myria.events WHERE type IN ('input_item', 'output_item') ORDER BY event_seq",
    )
    return [row["source_event_key"].split("@")[0] for row in found]
