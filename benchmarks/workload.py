"""The events that are measured with, and questions made of what they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Any

import asyncpg
import orjson

from benchmarks.mcp_http import KEY_SLOT, Request, tool_call
from benchmarks.processes import ROOT
from benchmarks.statements import statement
from benchmarks.synthetic import events

MIDDLE = range(1_000, 2_501)
"""Events that the participants of a measured scope see."""

ASKED_SCOPES = 12
TEXTS_PER_SCOPE = 40
SPARE = 1_000
"""Events that `lines` yields beyond those that are asked for: what incremental builds then add."""


def lines(n: int, sets: int = 0) -> Iterator[bytes]:
    """Yield n generated events, and SPARE more, as lines to import."""
    for event in events(n + SPARE, sets=sets):
        yield orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)


def sample_events(count: int = 64, **fields: Any) -> list[dict[str, Any]]:
    """Return so many events of the sample conversation, again and again, with some fields of their own.

    The load process fills in their keys.
    """
    with (ROOT / "examples" / "workshop.jsonl").open("rb") as source:
        said = [orjson.loads(line) for line in islice(source, 64)]
    return [{**event, "source_event_key": KEY_SLOT, **fields} for event in islice(cycle(said), count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A scope, how many events its participants see in all, and texts of some of its own."""

    participants: tuple[str, ...]
    visible: int
    texts: tuple[str, ...]


async def scopes(connection: asyncpg.Connection[asyncpg.Record]) -> tuple[list[Scope], Scope]:
    """Return some scopes of MIDDLE size (any where there is none), and the largest one."""
    rows = await connection.fetch(statement("scope_sizes"))
    of_participant: defaultdict[str, set[int]] = defaultdict(set)
    for at, row in enumerate(rows):
        for name in row["participants"]:
            of_participant[name].add(at)

    def visible(at: int) -> int:
        seen = set.intersection(*(of_participant[name] for name in rows[at]["participants"]))
        return sum(rows[scope]["events"] for scope in seen)

    async def scope(at: int) -> Scope:
        texts = await connection.fetch(statement("scope_texts"), rows[at]["scope_id"], TEXTS_PER_SCOPE)
        said = tuple(row["text"] for row in texts)
        return Scope(participants=tuple(rows[at]["participants"]), visible=visible(at), texts=said)

    middle = [at for at in range(len(rows)) if visible(at) in MIDDLE] or list(range(len(rows)))
    return [await scope(at) for at in middle[:ASKED_SCOPES]], await scope(0)


def questions(chosen: Sequence[Scope], *, port: int, count: int, seed: int = 1) -> list[Request]:
    """Return `count` questions over the chosen scopes: both query tools in turn, with their default limits.

    Each asks for four words of one message, so common and rare words come as they do in talk.
    """
    random, made = Random(seed), []
    for number in range(count):
        scope = chosen[number // 2 % len(chosen)]
        words = random.choice(scope.texts).split()
        query = " ".join(random.sample(words, min(4, len(words))))
        arguments = {"participants": list(scope.participants), "query": query}
        made.append(tool_call(port, ("query_event_nodes", "query_references")[number % 2], arguments))
    return made
