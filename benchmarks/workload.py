"""The events that are measured with, and questions made of what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Any

import orjson

from benchmarks.cluster import Cluster, statement
from benchmarks.mcp_http import KEY_SLOT, tool_call
from benchmarks.processes import ROOT
from benchmarks.synthetic import events

MIDDLE = range(1_000, 2_501)
"""Events of a measured scope."""

ASKED_SCOPES = 12
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
    """A scope, how many events it has, and texts of some of them."""

    participants: tuple[str, ...]
    events: int
    texts: tuple[str, ...]


async def scopes(cluster: Cluster, name: str) -> tuple[list[Scope], Scope]:
    """Return some scopes of a database that are of MIDDLE size (any where there is none), and its largest one."""
    async with cluster.connection(name) as connection:
        rows = await connection.fetch(statement("scope_sizes"))
        middle = [row for row in rows if row["events"] in MIDDLE] or rows
        made = []
        for row in (*middle[:ASKED_SCOPES], rows[0]):
            texts = [text for (text,) in await connection.fetch(statement("scope_texts"), row["scope_id"], 40)]
            made.append(Scope(participants=tuple(row["participants"]), events=row["events"], texts=tuple(texts)))
    return made[:-1], made[-1]


def questions(chosen: Sequence[Scope], *, port: int, count: int, seed: int = 1) -> list[bytes]:
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
