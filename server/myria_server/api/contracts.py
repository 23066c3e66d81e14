"""What runs the tools of each API, and how each says that a call is refused."""

from __future__ import annotations

from typing import Any

from myria.access.principal import Face, Principal
from myria.errors import MyriaError
from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.api_call import ApiCall, Handler, Json, Runner
from myria_server.api.memento import calls as memento
from myria_server.api.memtrace import handlers as memtrace
from myria_server.api.turns import handlers as turns


def runner_of(api: Face, memory: Memory, settings: Settings, counters: turns.TurnCounters) -> Runner:
    """Return what runs the tools of an API."""
    match api:
        case "agent":
            return memento.runner(memory, settings)
        case "turns":
            return turns.runner(memory, settings, counters)
        case "rest":
            return memtrace.runner(memory, settings)
        case "core" | "admin":

            def run(handler: Handler, principal: Principal, request: Any, *, changes: bool) -> Any:
                return handler(ApiCall(memory=memory, settings=settings, principal=principal), request)

            return run


def refusal_of(api: Face, error: MyriaError) -> tuple[Json, int]:
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
