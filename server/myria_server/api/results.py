"""What calls answer, on their way from a tool to the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

Report = Callable[[int, int], Awaitable[None]]
"""Tells a client how far a call is: done, of how many."""

REPORT: ContextVar[Report | None] = ContextVar("report", default=None)
"""How the call that runs tells its progress; None where its client cannot be told."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call answered: the structured content as JSON text in UTF-8, and the text where that is another.

    `code` is the outcome's: `ok`, or that of an error. `text_for_all`: see `ShownAnswer`. `status` is that of a
    plain HTTP answer.
    """

    body: bytes
    is_error: bool = False
    code: str = "ok"
    text: str | None = None
    text_for_all: bool = True
    status: int = 200

    def text_for(self, *, structured: bool) -> str:
        """Return the text of the answer, for a client that reads structured content or one that knows only text."""
        if self.text is None or not (structured or self.text_for_all):
            return self.body.decode()
        return self.text
