"""A long tail that nobody has read yet: it is analysed once, however many ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from myria.index.documents import Doc
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from tests.reads.asking import ANA_BEN, append, ask, events_of
from tests.support.events import TENANT, conversation

SIZE = 400
QUESTION = EventNodesQuery(participants=ANA_BEN, limit=50)


class Analysing:
    """Counts the events that are analysed, and interrupts a task in the middle where one is given."""

    def __init__(self) -> None:
        self.events = 0
        self.interrupted: asyncio.Task[Any] | None = None
        self._of_payload = Doc.of_payload.__func__  # type: ignore[attr-defined]

    def __call__(self, cls: Any, *rest: Any, **named: Any) -> Doc:
        self.events += 1
        if self.interrupted is not None and self.events == SIZE // 2:
            self.interrupted.cancel()
        made: Doc = self._of_payload(cls, *rest, **named)
        return made


@pytest.fixture
async def analysing(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Analysing]:
    """What counts while a log without a build is read."""
    await append(memory, conversation(SIZE))
    counting = Analysing()
    with monkeypatch.context() as patched:
        patched.setattr(Doc, "of_payload", classmethod(counting))
        yield counting


async def test_of_many_who_ask_at_once_one_reads_the_tail(memory: Memory, analysing: Analysing) -> None:
    """Each event is analysed once, and all get the same answer."""
    found = await asyncio.gather(*(ask(memory, QUESTION) for _ in range(4)))
    assert analysing.events == SIZE
    assert len(events_of(found[0])) == QUESTION.limit
    assert all(events_of(answer) == events_of(found[0]) for answer in found)


async def test_what_an_interrupted_read_has_done_is_not_done_again(memory: Memory, analysing: Analysing) -> None:
    """Where no question had the time for all of a tail, the next ones come to its end, and to whatever is new."""
    analysing.interrupted = asyncio.create_task(memory.retrieval.query_event_nodes(TENANT, QUESTION))
    with pytest.raises(asyncio.CancelledError):
        await analysing.interrupted
    assert SIZE // 2 <= analysing.events < SIZE
    await append(memory, conversation(10, seed=2, start=4_000_000))
    answer = await ask(memory, QUESTION)
    assert analysing.events == SIZE + 10
    again = await ask(memory, QUESTION)
    assert analysing.events == SIZE + 10
    assert events_of(again) == events_of(answer)
    async with Memory(memory.database.dsn, memory.settings) as other:
        assert events_of(await ask(other, QUESTION)) == events_of(answer)
