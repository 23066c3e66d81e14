"""The page of one build: what it did, what failed, what it cost, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from starlette.requests import Request

from myria.errors import SnapshotNotFound
from myria.llm.audit import spent_by_build
from myria_server.console.desk import Desk, Json
from myria_server.console.forms import Page
from myria_server.console.routes import PageRoute, Routes

NEXT: Mapping[str, tuple[str, str | None]] = {
    "queued": ("It begins when a builder is free. Where it stays queued, no builder runs.", "MyriaBuildsStuck"),
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
    registry, tenant = desk.memory.registry, desk.tenant
    build = await registry.build(tenant, request.path_params["build_id"])
    build_id = build["build_id"]
    status = build["status"]
    advice, runbook = NEXT[status]
    if build["error"] is not None:
        runbook = _RUNBOOK_OF_ERROR.get(str(build["error"].get("code")), runbook)
    elif build["degraded"] is not None:
        runbook = "MyriaBuildsDegraded"
    asked = None if build["request_id"] is None else await registry.request(tenant, build["request_id"])
    return "build.html", {
        "build": build,
        "asked": asked,
        "key_names": await desk.key_names([] if asked is None else [asked["actor"]]),
        "waited_s": _seconds(build["created_at"], build["started_at"]),
        "took_s": _seconds(build["started_at"], build["finished_at"]),
        "failures": await registry.failed_scopes(tenant, build_id),
        "spent": await spent_by_build(desk.memory.database, tenant, build_id),
        "done_by": _DONE_BY,
        "snapshot": await _snapshot(desk, build["snapshot_id"]),
        "advice": advice,
        "runbook": runbook,
        "runbooks": desk.settings.console.runbooks_url,
    }


async def _snapshot(desk: Desk, snapshot_id: str | None) -> Json | None:
    """Return the snapshot that a build made, None where it made none or it is no longer kept."""
    if snapshot_id is None:
        return None
    try:
        return await desk.memory.registry.snapshot(desk.tenant, snapshot_id)
    except SnapshotNotFound:
        return None


def _seconds(begin: str | None, end: str | None) -> float | None:
    """Return the seconds between two moments (RFC 3339), None where one is missing."""
    if begin is None or end is None:
        return None
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds(), 1)


ROUTES: Routes = (PageRoute("/changes/builds/{build_id}", build, ("admin",)),)
