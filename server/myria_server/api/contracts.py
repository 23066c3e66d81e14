"""What runs the tools of each API, and how each says that a call is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from myria.access.principal import Face, Principal
from myria.errors import MyriaError
from myria.memory import Memory
from myria.notes.answertext import ShownAnswer
from myria.settings import Settings
from myria_server.api import memento
from myria_server.api.core import handlers
from myria_server.api.memtrace import handlers as memtrace
from myria_server.api.turns import handlers as turns

Handler = Callable[[Principal, Any], Awaitable[dict[str, Any] | ShownAnswer]]
"""Runs a tool for a principal, with its arguments as they came."""


def handlers_of(api: Face, memory: Memory, settings: Settings, counters: turns.TurnCounters) -> Mapping[str, Handler]:
    """Return what runs the tools of an API, by their names."""
    match api:
        case "agent":
            return memento.handlers(memory, settings)
        case "turns":
            return turns.handlers(memory, settings, counters)
        case "rest":
            return memtrace.handlers(memtrace.MemtraceApi(memory, settings))
        case "core" | "admin":
            return handlers.handlers(memory, settings)


def refusal_of(api: Face, error: MyriaError) -> tuple[dict[str, Any], int]:
    """Return what a call is answered that is refused, and the status of that over plain HTTP."""
    match api:
        case "agent":
            return memento.refused(error), error.http_status
        case "turns":
            return turns.refused(error), error.http_status
        case "rest":
            return memtrace.refused(error), memtrace.status_of(error)
        case "core" | "admin":
            return {"error": error.to_json()}, error.http_status
