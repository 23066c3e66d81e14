"""The memories that a request gives, as the domain keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

from myria.notes.memories.model import MemoryDraft
from myria_server.api.core import inputs
from myria_server.api.memtrace.schemas import MemoryInput, plain_memories, plain_memory

_DEFAULTS = tuple((name, MemoryDraft._field_defaults.get(name)) for name in MemoryDraft._fields)
_GIVEN = itemgetter(*MemoryDraft._fields[:-1])
"""Reads the fields of a draft, tags aside, from those of a request, which have the same names."""


def draft_of(request: MemoryInput) -> MemoryDraft:
    """Return the memory that a request gives."""
    given: tuple[Any, ...] = _GIVEN(request.__dict__)
    return MemoryDraft._make((*given, request.tags or ()))


def read_draft(item: Mapping[str, Any]) -> MemoryDraft:
    """Return the memory that a decoded object gives.

    Raises:
        as `inputs.read` of `MemoryInput`.
    """
    plain = plain_memory(item)
    return draft_of(inputs.read(MemoryInput, item)) if plain is None else MemoryDraft(**plain)


def read_drafts(items: Sequence[Any]) -> list[MemoryDraft] | None:
    """Return the memories that some decoded objects give, as `read_draft` does, at a third of its cost.

    Returns:
        None where they differ in their fields, or one is more than texts, or refused: read them one by one.
    """
    given = plain_memories(items)
    if given is None:
        return None
    columns = (given.get(name) or repeat(default) for name, default in _DEFAULTS)
    return list(map(MemoryDraft._make, zip(*columns, strict=False)))
