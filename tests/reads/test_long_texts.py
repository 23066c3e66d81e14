"""All text of an event is searched, however long it is and wherever in it the answer stands."""

from __future__ import annotations

from typing import Any

import pytest

from myria.log.masks import Mask, Masks
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from myria.settings import Settings
from tests.reads.asking import ANA_BEN, append, ask
from tests.support.building import build_now
from tests.support.events import event
from tests.support.postgres import Database

ANSWER = "The blue glaze is made with cobalt carbonate."
MOST_BYTES = Settings().ingest.payload_bytes - 1024


def _filler(size: int) -> str:
    words = "".join(f"Paragraph {number} talks about vessel {number * 7}. " for number in range(size // 30))
    return words[:size]


LONG: dict[str, dict[str, Any]] = {
    "at the end of the longest": {"text": _filler(MOST_BYTES - len(ANSWER) - 20) + ANSWER},
    "past 64 KiB": {"text": _filler(80_000) + ANSWER + _filler(80_000)},
    "past 64 KiB of other letters": {"text": "печь и глина " * 5_000 + ANSWER},
    "in the last of many fields": {"pages": [_filler(4_000) for _ in range(40)], "last": {"said": ANSWER}},
}


@pytest.mark.parametrize("place", LONG)
async def test_text_is_found_wherever_it_stands(database: Database, place: str) -> None:
    """By its words, first of all, before a build and after one; short events beside it make it no less."""
    about = [event(number, f"The kiln was fired for the {number}th time.") for number in range(30)]
    async with Memory(database.server_dsn, Settings()) as memory:
        await append(memory, [*about, event(40, payload=LONG[place])])
        for built in (False, True):
            if built:
                await build_now(database.builder_dsn)
            for question in ("What is the blue glaze made with?", "cobalt carbonate"):
                first = await _first(memory, question)
                assert ANSWER in first, (built, question)


async def _first(memory: Memory, question: str) -> str:
    answer = await ask(memory, EventNodesQuery(masks=Masks.of([Mask(ANA_BEN)]), query=question))
    return str(answer["root"]["children"][0])
