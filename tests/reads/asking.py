"""Asking a memory in tests, and what its answers must look like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import asyncpg

from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria_server.api import answers
from tests.support.events import TENANT

Json = dict[str, Any]
Query = EventNodesQuery | ReferencesQuery

ANA_BEN = ("ana", "ben")


async def append(memory: Memory, events: Sequence[NewEvent]) -> list[AppendResult]:
    """Append events in batches of a hundred; return their acknowledgements."""
    results: list[AppendResult] = []
    for at in range(0, len(events), 100):
        results += await memory.log.append_events(TENANT, events[at : at + 100])
    return results


async def ask(memory: Memory, query: Query, *, tenant: str = TENANT) -> Json:
    """Return the answer, after checking it against the published model and its own counts."""
    if isinstance(query, EventNodesQuery):
        answer = await memory.retrieval.query_event_nodes(tenant, query)
    else:
        answer = await memory.retrieval.query_references(tenant, query)
    answers.Tree.model_validate(answer)
    nodes = list(walk(answer["root"]))
    events = [node for node in nodes if node["kind"] in ("event", "event_ref")]
    assert answer["counts"] == {
        "nodes": len(nodes),
        "events": len(events),
        "topics": len(nodes) - 1 - len(events),
        "indexed": sum(event["indexed"] for event in events),
        "fresh": sum(not event["indexed"] for event in events),
    }
    for node in nodes:
        for child in node.get("children", ()):
            assert set(child["participants"]) <= set(node["participants"])
    return answer


async def pages(memory: Memory, query: Query, *, tenant: str = TENANT) -> list[Json]:
    """Return every page of an answer."""
    found = [await ask(memory, query, tenant=tenant)]
    while found[-1]["next_cursor"] is not None:
        found.append(await ask(memory, replace(query, cursor=found[-1]["next_cursor"]), tenant=tenant))
    return found


def walk(node: Json) -> Iterator[Json]:
    """Yield a node and all below it."""
    yield node
    for child in node.get("children", ()):
        yield from walk(child)


def events_of(answer: Json) -> list[Json]:
    """Return the events and references of an answer, in the order of its tree."""
    return [node for node in walk(answer["root"]) if node["kind"] in ("event", "event_ref")]


def ids_of(answer: Json) -> list[str]:
    """Return the event ids of an answer, in the order of its tree."""
    return [event["event_id"] for event in events_of(answer)]


def texts_of(answer: Json) -> list[str]:
    """Return the texts of an answer's events, in the order of its tree."""
    return [event["payload"]["text"] if "payload" in event else event["snippet"] for event in events_of(answer)]


def statements_of(memory: Memory) -> list[tuple[str, Sequence[Any]]]:
    """Return a list to which the name and the arguments of every read are added that this memory runs from now on."""
    read: list[tuple[str, Sequence[Any]]] = []
    subjects = ("events", "retrieval", "vectors")
    name_of = {sql(f"{subject}.{name}"): f"{subject}.{name}" for subject in subjects for name in sql.subject(subject)}
    acquire = memory.database._acquire

    def log(record: Any) -> None:
        if record.query in name_of:
            read.append((name_of[record.query], record.args))

    async def logged(pool: Any) -> Any:
        connection = await acquire(pool)
        connection.add_query_logger(log)
        return connection

    memory.database._acquire = logged  # type: ignore[method-assign]
    return read


async def superuser(dsn: str) -> asyncpg.Connection[Any]:
    """Return a connection that row-level security does not bind."""
    return await asyncpg.connect(dsn)
