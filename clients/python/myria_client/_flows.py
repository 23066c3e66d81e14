"""What takes several calls, written once for both clients: generators of calls that are sent what was answered."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from myria_client import _routes as routes
from myria_client._calls import Call, Json
from myria_client._errors import Conflict, Duplicate, Invalid, NotFound
from myria_client._outbox import Outbox
from myria_client.records import KeptMemories, Memory, NewMemory, Outcome

T = TypeVar("T")
_OF_THE_BODY = (400, 413, 422)
Flow = Generator[Call[Any], Any, T]
"""Yields a call, is sent its answer (or thrown its error), and returns a T at its end."""


def remember(memory: NewMemory, key: str | None) -> Flow[Memory]:
    """Keep a memory; where the same was kept a while ago, return that one."""
    try:
        kept: Memory = yield routes.keep(memory, key)
    except Duplicate as error:
        if error.memory_id is None:
            raise
        standing: Memory = yield routes.get_memory(error.memory_id)
        if standing.content != memory.content:
            raise  # a key of its own, or only the beginning, is the same
        return standing
    return kept


def send_batch(outbox: Outbox) -> Flow[bool]:
    """Send a batch of what waits on disk; return whether there was one.

    Raises:
        Refused: for the whole call, such as a key that is none; the batch stays.
    """
    batch = outbox.next_batch()
    if batch is None:
        return False
    try:
        kept: KeptMemories = yield routes.keep_many(batch.bodies, atomic=False, key=batch.key)
    except NotFound as error:
        if error.code != "note_not_found":
            raise
        # A batch is stored whole. One of its memories was withdrawn since: an earlier try arrived.
        outbox.settle(batch, {})
    except Invalid as error:
        if error.code.startswith("HTTP_") or error.status not in _OF_THE_BODY:
            raise
        if len(batch.ids) > 1:
            outbox.part(batch)  # nothing of it was taken
        else:
            outbox.settle(batch, {0: str(error)})
    except Conflict as error:
        outbox.settle(batch, dict.fromkeys(range(len(batch.ids)), str(error)))
    else:
        refused = {one.index: one.error or "" for one in kept.outcomes if one.status == "refused"}
        outbox.settle(batch, refused)
    return True


def import_batch(bodies: Sequence[Json], key: str, start: int) -> Flow[list[Outcome]]:
    """Keep a batch of a stream, each memory by itself; return what became of each, by its place in the stream.

    A batch that the server refuses as a whole is sent in halves, down to the memory that is meant.
    """
    try:
        kept: KeptMemories = yield routes.keep_many(bodies, atomic=False, key=key)
    except NotFound as error:
        if error.code != "note_not_found":
            raise
        # It was stored whole by an earlier run, and one of its memories was withdrawn since.
        return [Outcome(index=start + place, status="stored") for place in range(len(bodies))]
    except (Invalid, Conflict) as error:
        if error.code.startswith("HTTP_") or error.status not in (*_OF_THE_BODY, 409):
            raise
        if len(bodies) == 1 or isinstance(error, Conflict):
            return [Outcome(index=start + place, status="refused", error=error.message) for place in range(len(bodies))]
        half = len(bodies) // 2
        first = yield from import_batch(bodies[:half], f"{key}.0", start)
        second = yield from import_batch(bodies[half:], f"{key}.1", start + half)
        return [*first, *second]
    return [replace(one, index=start + one.index) for one in kept.outcomes]
