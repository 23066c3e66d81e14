"""The events that are measured with: generated once into the work folder, and questions made of what they say."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import orjson

from benchmarks.adapter import event_arguments
from benchmarks.mcp_http import Request, tool_call
from benchmarks.options import Common
from benchmarks.processes import run_command
from benchmarks.statements import statement
from myria_cli import console

TEXTS_PER_SCOPE = 40
QUESTION_WORDS = 4


async def events_file(options: Common, n: int, *, sets: int = 0) -> Path:
    """Return a JSON lines file of n generated events, made now or found in the work folder."""
    generator = ["-m", "benchmarks.synthetic"] if options.synth is None else [str(options.synth)]
    kind = "own" if options.synth is None else options.synth.stem
    folder = options.work_dir / kind / (f"{n}" if not sets else f"{n}-{sets}")
    path = folder / "events.jsonl"
    if not (folder / "done").exists():
        console.say(f"generating {n:,} events ...", "dim")
        extra = ["--sets", str(sets)] if sets else []
        await run_command([sys.executable, *generator, "-n", str(n), "-o", str(folder), *extra], env={})
        (folder / "done").touch()
    return path


def renamed_stream(path: Path, *, skip: int, count: int, name: str) -> Iterator[bytes]:
    """Yield events `skip` .. `skip + count` of a one-scope file as lines of a scope of their own, called `name`.

    They bring their event_id, on which topic boundaries depend: so they are the same events in every database.
    """
    with path.open("rb") as source:
        for event in event_arguments(islice(source, skip, skip + count)):
            event["participants"] = [f"{name}_{participant}" for participant in event["participants"]]
            event["channel"] = name
            event["event_id"] = "evt_" + sha256(f"{name}/{event['source_event_key']}".encode()).hexdigest()[:32]
            yield orjson.dumps(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A scope with its own non-internal events, and how many events its participants see in all."""

    scope_id: int
    participants: tuple[str, ...]
    events: int
    visible: int


async def scopes(connection: asyncpg.Connection[asyncpg.Record]) -> list[Scope]:
    """Return every scope of a database, the largest first."""
    rows = await connection.fetch(statement("scope_sizes"))
    of_participant: defaultdict[str, set[int]] = defaultdict(set)
    for i, row in enumerate(rows):
        for name in row["participants"]:
            of_participant[name].add(i)
    return [
        Scope(
            scope_id=row["scope_id"],
            participants=tuple(row["participants"]),
            events=row["events"],
            visible=sum(
                rows[i]["events"] for i in set.intersection(*(of_participant[name] for name in row["participants"]))
            ),
        )
        for row in rows
    ]


async def questions(
    connection: asyncpg.Connection[asyncpg.Record], chosen: Sequence[Scope], *, port: int, count: int, seed: int = 1
) -> list[Request]:
    """Return `count` read requests over the chosen scopes: both query tools in turn, with their default limits.

    Each asks for four words of one message, so common and rare words come as they do in talk.
    """
    random = Random(seed)
    texts = {
        scope.scope_id: [
            row["text"] for row in await connection.fetch(statement("scope_texts"), scope.scope_id, TEXTS_PER_SCOPE)
        ]
        for scope in chosen
    }
    made = []
    for i in range(count):
        scope = chosen[i // 2 % len(chosen)]
        words = random.choice(texts[scope.scope_id]).split()
        query = " ".join(random.sample(words, min(QUESTION_WORDS, len(words))))
        arguments: dict[str, Any] = {"participants": list(scope.participants), "query": query}
        made.append(tool_call(port, ("query_event_nodes", "query_references")[i % 2], arguments))
    return made
