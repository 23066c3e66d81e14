"""The page of one event: what it holds, who may see it, and what came before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from myria_server.console.desk import Desk


async def event(desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Show an event."""
    event_id = request.path_params["event_id"]
    answer = await desk.ask("get_event", event_id=event_id, include_internal=True, include_superseded=True)
    found = answer["event"]
    around = await desk.ask(
        "query_event_nodes",
        context_id=found.get("context_id"),
        channel=None if found.get("context_id") else found["channel"],
        until=found["timestamp"],
        order="newest",
        limit=5,
    )
    before = [node for node in around["root"]["children"] if node["event_id"] != event_id]
    return "event.html", {"event": found, "snapshot_id": answer["snapshot_id"], "before": before[::-1]}
