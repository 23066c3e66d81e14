"""A call of a tool or a route: what it may use, and what it answers on its way to the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from myria.access.principal import Principal
from myria.memory import Memory
from myria.notes.answertext import ShownAnswer
from myria.settings import Settings

Json = dict[str, Any]
Handler = Callable[[Any, Any], Awaitable[Any]]
"""Answers the calls of a tool or a route: takes the `ApiCall` of its API, and the arguments read as their model."""

Runner = Callable[..., Awaitable[Json | ShownAnswer]]
"""Runs a tool of one API: takes its `Handler`, the principal, its arguments, and whether it `changes` something."""

Report = Callable[[int, int], Awaitable[None]]
"""Tells a client how far a call is: done, of how many."""

REPORT: ContextVar[Report | None] = ContextVar("report", default=None)
"""How the call that runs tells its progress; None where its client cannot be told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiCall:
    """One call: the memory, the settings, and who calls. An API whose calls know more has a class of its own."""

    memory: Memory
    settings: Settings
    principal: Principal

    @property
    def tenant(self) -> str:
        """The caller's tenant."""
        return self.principal.tenant


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
