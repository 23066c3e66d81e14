"""The pages of notes: what agents keep on purpose, its versions and links; and forgetting it, with a look before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from myria_server.api.memento.input_schemas import KINDS
from myria_server.console.desk import Desk, Json
from myria_server.console.visitors import PREFIX

_PAGE = 30
_TOKENS = 20_000


def _agent(desk: Desk) -> str | None:
    """Return the agent as which the visitor asks: the agent's API knows one at a time."""
    return desk.names[0] if desk.names else None


async def overview(desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Show the notes that fit a search, newest first where nothing is searched for, and how many there are."""
    parameters = request.query_params
    search = {
        "text": parameters.get("q", "").strip(),
        "type": parameters.get("kind", ""),
        "topic": parameters.get("topic", "").strip(),
        "includeSuperseded": parameters.get("superseded") == "on" or None,
    }
    answer = await desk.call(
        "recall",
        agentId=_agent(desk),
        pageSize=_PAGE,
        tokenBudget=_TOKENS,
        cursor=parameters.get("cursor"),
        includeKeywords=True,
        **search,
    )
    stats = await desk.call("memory_stats", agentId=_agent(desk))
    return "notes.html", {
        "search": search,
        "kinds": KINDS,
        "notes": answer["fragments"],
        "next_cursor": answer.get("nextCursor"),
        "stats": stats["stats"],
        "topics": stats["topics"][:_PAGE],
        "done": parameters.get("done", ""),
    }


async def note(desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Show a note with its versions and links."""
    note_id = request.path_params["note_id"]
    history = await desk.call("fragment_history", agentId=_agent(desk), id=note_id)
    graph = await desk.call("graph_explore", agentId=_agent(desk), startId=note_id)
    linked: list[Json] = [node for node in graph["nodes"] if node["depth"]]
    return "note.html", {
        "note": history["current"],
        "versions": history["versions"],
        "superseded_by": history["superseded_by"],
        "linked": linked,
    }


async def confirm_forgetting(desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Show what forgetting a note takes away, and ask once."""
    note_id = request.path_params["note_id"]
    preview = await desk.call("forget", agentId=_agent(desk), id=note_id, dryRun=True)
    return "forget.html", {"note_id": note_id, "preview": preview}


async def forget(desk: Desk, request: Request, form: Mapping[str, str]) -> str:
    """Forget a note; one that is protected only where the form says so."""
    note_id = request.path_params["note_id"]
    await desk.call("forget", agentId=_agent(desk), id=note_id, force=form.get("force") == "on" or None)
    return f"{PREFIX}/notes?done=forgotten"
