"""The memories that a request gives, as the domain keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from myria.notes.memories.model import MemoryDraft
from myria_server.api.core import inputs
from myria_server.api.memtrace.schemas import MemoryInput

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
    return draft_of(inputs.read(MemoryInput, item))
