"""The page of one build: what it does or did, what failed, what it cost, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from myria.errors import SnapshotNotFound
from myria.index.embeddings.choosing import chosen
from myria.llm.audit import spent_by_build
from myria.memory import Memory
from myria_server.console.desk import Desk, Json
from myria_server.console.forms import Page
from myria_server.console.live import LivePart, LiveParts
from myria_server.console.routes import PageRoute, Routes

NEXT: Mapping[str, tuple[str, str | None]] = {
    "queued": ("Questions are answered from the active snapshot meanwhile.", "MyriaBuildsStuck"),
    "running": ("It goes on by itself. Questions are answered from the active snapshot meanwhile.", "MyriaBuildsStuck"),
    "succeeded": ("Its snapshot was published.", None),
    "held": ("Its snapshot waits for approval: look at what changed, then publish or discard it.", "MyriaBuildsPaused"),
    "nothing_to_do": ("Nothing was new, so the active snapshot stayed.", None),
    "superseded": ("Another snapshot became active meanwhile. The next build takes its events.", None),
    "failed": (
        "The active snapshot stays, and Myria tries again by itself, later after each failure. Mend the cause first.",
        "MyriaBuildsFailing",
    ),
    "aborted": (
        "It was given up. The next build takes its events: one that you ask for, or one that new events begin.",
        None,
    ),
}
"""What a build's status means for whoever looks at it, and the runbook to read."""

_RUNBOOK_OF_ERROR = {
    "build_invalid": "MyriaBuildValidationFailing",
    "database_unavailable": "MyriaDatabaseUnreachable",
}

_DONE_BY: Mapping[str, str] = {
    "build": "planning topics",
    "evaluate": "judging notes",
    "extract": "taking notes from turns",
    "walk": "walking the tree",
    "look": "a second look at answers",
}
"""What a person reads for the work for which models were asked."""


async def build(desk: Desk, request: Request) -> Page:
    """Show one build."""
    desk.principal.need_api("admin")
    return "build.html", await _look(desk, request.path_params["build_id"])


async def events(live: LiveParts, desk: Desk, request: Request) -> Response:
    """Stream what the page shows, until the build has ended."""
    desk.principal.need_api("admin")
    build_id = request.path_params["build_id"]
    await desk.memory.registry.build(desk.tenant, build_id)  # refuses one that there is not
    look = partial(_look, desk, build_id)
    return live.response(
        desk, request, LivePart(about=build_id, template="build_now.html", look=look, roles=("admin",))
    )


async def _look(desk: Desk, build_id: str) -> Json:
    """Return what the page shows. What is known only once the build has ended is not looked for before."""
    registry, tenant = desk.memory.registry, desk.tenant
    build = await registry.build(tenant, build_id)
    is_over = build["finished_at"] is not None
    advice, runbook = NEXT[build["status"]]
    if build["error"] is not None:
        runbook = _RUNBOOK_OF_ERROR.get(str(build["error"].get("code")), runbook)
    elif build["degraded"] is not None:
        runbook = "MyriaBuildsDegraded"
    asked = None if build["request_id"] is None else await registry.request(tenant, build["request_id"])
    return {
        "build": build,
        "is_over": is_over,
        "phase": "ended" if is_over else phase_of(build),
        "asked": asked,
        "key_names": await desk.key_names([asked["actor"] if asked else None, who_gave_up(build)]),
        "waited_s": seconds_between(build["created_at"], build["started_at"] or build["finished_at"]),
        "took_s": seconds_between(build["started_at"], build["finished_at"]),
        "failures": await registry.failed_scopes(tenant, build_id) if is_over else [],
        "spent": await spent_by_build(desk.memory.database, tenant, build_id) if is_over else [],
        "done_by": _DONE_BY,
        "snapshot": await _snapshot(desk, build["snapshot_id"]) if is_over else None,
        "computes_vectors": computes_vectors(desk.memory),
        "advice": advice,
        "runbook": runbook,
        "runbooks": desk.settings.console.runbooks_url,
    }


def who_gave_up(build: Json) -> str | None:
    """Return who gave a build up; None where nobody did, or where it is not known."""
    actor: str | None = ((build["error"] or {}).get("details") or {}).get("actor")
    return actor


async def _snapshot(desk: Desk, snapshot_id: str | None) -> Json | None:
    """Return the snapshot that a build made, None where it made none or it is no longer kept."""
    if snapshot_id is None:
        return None
    try:
        return await desk.memory.registry.snapshot(desk.tenant, snapshot_id)
    except SnapshotNotFound:
        return None


def phase_of(build: Json) -> str:
    """Return what a build that has not ended does now.

    waiting: for a builder; listing: which groups of people have something new; building: their topics; checking: what
    was built, to publish it.

    Args:
        build: with its `status`, `started_at` and `progress`.
    """
    if build["status"] == "queued":
        return "waiting" if build["started_at"] is None else "listing"
    return "checking" if build["progress"]["tasks_done"] >= build["progress"]["tasks"] else "building"


def computes_vectors(memory: Memory) -> bool:
    """Tell whether a build computes vectors of new events, once its topics are built."""
    return chosen(memory.settings).model is not None


def seconds_between(begin: str | None, end: str | None) -> float | None:
    """Return the seconds between two moments (RFC 3339), whole ones up to now without an end; None without a begin."""
    if begin is None:
        return None
    if end is None:
        return max(0, int((datetime.now(UTC) - datetime.fromisoformat(begin)).total_seconds()))
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds(), 1)


def routes(live: LiveParts) -> Routes:
    """Return the routes of a build."""
    return (
        PageRoute("/changes/builds/{build_id}", build, ("admin",)),
        PageRoute("/changes/builds/{build_id}/events", partial(events, live), ("admin",)),
    )
