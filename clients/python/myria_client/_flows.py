"""What takes several calls, written once for both clients: generators of calls that are sent what was answered."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from myria_client import _routes as routes
from myria_client._calls import Call
from myria_client._errors import Duplicate
from myria_client.records import Memory, NewMemory

T = TypeVar("T")
Flow = Generator[Call[Any], Any, T]
"""Yields a call, is sent its answer (or thrown its error), and returns a T at its end."""


def remember(memory: NewMemory, key: str | None) -> Flow[Memory]:
    """Keep a memory; where the same was kept a while ago, return that one."""
    try:
        kept: Memory = yield routes.keep(memory, key)
    except Duplicate:
        filters: routes.SearchFilters = {"content_contains": memory.content, "agent_id": memory.agent_id}
        if memory.event_type is not None:
            filters["event_types"] = [memory.event_type]
        page = yield routes.search_memories(filters, limit=1, cursor=None)
        if not page.memories or page.memories[0].content != memory.content:
            raise
        standing: Memory = page.memories[0]
        return standing
    return kept
