"""Places at which a test may stop the operator: before and after each of its writes to the outside.

In production none is armed, and passing one costs a comparison.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

WRITES: Final = (
    "status",
    "make_job",
    "change_job",
    "stop_job",
    "delete_job",
    "make_rebuild",
    "delete_rebuild",
    "event",
    "ask",
    "suspend_request",
    "close_request",
    "take_up",
    "suspend_build",
    "note_job",
    "end_build",
    "abort",
    "publish",
    "roll_back",
    "give_up",
    "name_resource",
    "adopt",
)
"""Every write of the operator, by the name of its fail-points `before:NAME` and `after:NAME`."""

armed: Callable[[str], None] | None = None
"""Called with each fail-point that is passed; a test makes it raise."""


@asynccontextmanager
async def write(name: str) -> AsyncIterator[None]:
    """Surround one external write."""
    if armed is not None:
        armed(f"before:{name}")
    yield
    if armed is not None:
        armed(f"after:{name}")
