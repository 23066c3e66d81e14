"""What builds do and have done, and the acts that start and end them and move the active snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from myria.errors import BuildNotFound, InvalidArgument, PathNotFound
from myria.llm.audit import spent_by_build
from myria_server.console.builds import computes_vectors, phase_of, seconds_between
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.differences import Summary, summary
from myria_server.console.fields import id_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.live import LivePart, LiveParts
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.visitors import Visitor
from myria_server.paths import CONSOLE_PREFIX as PREFIX

_PAGE = 20


@dataclass(frozen=True, slots=True)
class _Act:
    """Something that a form can do: the tool, and what its page says.

    `about`: what the address names, if anything; `argument`: the tool's argument that names it; `statuses`: those of
    what it can be done to.
    """

    tool: str
    title: str
    effect: str
    button: str
    about: Literal["snapshot", "build"] | None = None
    argument: str = ""
    statuses: tuple[str, ...] = ()


ACTS: Mapping[str, _Act] = {
    "build": _Act(
        "trigger_build",
        "Build now",
        "New events are compiled into a new snapshot. Questions are answered meanwhile as they are now.",
        "Build",
    ),
    "abort": _Act(
        "abort_build",
        "Give up a build",
        "It ends without a snapshot, and what it has done is thrown away. The active snapshot stays. The events stay "
        "in the log and are found as now; the next build takes them: one that you ask for, or one that new "
        "events begin.",
        "Give up",
        about="build",
        argument="build_id",
        statuses=("waiting", "queued", "running", "held"),
    ),
    "publish": _Act(
        "publish_snapshot",
        "Publish a held snapshot",
        "Every question is answered from this snapshot from then on. The snapshot that is active now stays for a "
        "rollback. Automatic builds go on.",
        "Publish",
        about="snapshot",
        argument="snapshot_id",
        statuses=("held",),
    ),
    "discard": _Act(
        "discard_snapshot",
        "Discard a held snapshot",
        "It is never published, and the active snapshot stays. Its events stay in the log; the next build takes them: "
        "one that you ask for, or one that new events begin.",
        "Discard",
        about="snapshot",
        argument="snapshot_id",
        statuses=("held",),
    ),
    "rollback": _Act(
        "rollback",
        "Roll back",
        "From then on every question is answered from this earlier snapshot. Newer events are still found, and what "
        "was forgotten or erased does not come back. Automatic builds pause until you resume them on the page Changes.",
        "Roll back",
        about="snapshot",
        argument="to",
        statuses=("archived",),
    ),
    "resume": _Act(
        "resume_builds",
        "Resume automatic builds",
        "Builds start again by themselves when events wait. The next one takes in again what the rollback left out.",
        "Resume",
    ),
}
"""The acts, by the last part of their address."""


FIELDS: Fields = {"reason": ("reason", "Why")}
"""What a refusal of an act says of its form's fields (see `Fields`)."""

_OUTDATED = (
    "Since you opened this form the active snapshot has moved, or builds were paused or resumed: this form may have "
    "been sent before, or somebody else acted. Nothing was done now. Begin again from the page Changes."
)


def _act_of(request: Request) -> _Act:
    name = request.path_params["act"]
    if name not in ACTS:
        raise PathNotFound("There is no such page.")
    return ACTS[name]


def _named(act: _Act, values: Mapping[str, str]) -> str:
    """Return the id of what an act is about; empty where it is about nothing.

    Raises:
        InvalidArgument: none is named. A tool might choose one, and nobody has seen which.
    """
    if act.about is None:
        return ""
    if not (name := id_of(values.get(act.about, ""))):
        raise InvalidArgument(f"Choose a {act.about} on the page Changes first.", field=act.about)
    return name


def _is_done(name: str, snapshot_id: str, status: Json) -> bool:
    """Tell whether what an act is for holds already."""
    if name == "resume":
        return bool(status["paused_reason"] != "rollback")
    is_active = snapshot_id == status["active_snapshot_id"]
    # Whoever rolls back wants builds paused as well: that may have been taken back since.
    return bool(is_active and (name != "rollback" or status["paused_reason"] == "rollback"))


async def overview(desk: Desk, request: Request) -> Page:
    """Show what builds do now, and one page of what they did: who and why only to administrators."""
    before, tenant = id_of(request.query_params.get("before", "")) or None, desk.tenant
    await desk.call("get_snapshot_status")  # refuses whoever may not see what the page shows of builds
    requests = [] if before else await desk.memory.registry.waiting(tenant)
    builds = await desk.memory.registry.builds(tenant, limit=_PAGE + 1, before=before)
    actors = [actor for build in builds for actor in (build["asked_by"], *(move["actor"] for move in build["moves"]))]
    actors += [request["actor"] for request in requests]
    return "changes.html", {
        "key_names": await desk.key_names(actors),
        **await _look(desk),
        "requests": requests,
        "builds": builds[:_PAGE],
        "next_before": builds[_PAGE - 1]["build_id"] if len(builds) > _PAGE else None,
        "is_later": before is not None,
        "done": request.query_params.get("done", ""),
        "acts": ACTS,
    }


async def confirm(desk: Desk, request: Request) -> Page:
    """Show what an act will change, and ask once.

    Raises:
        RoleRequired, FaceNotAllowed: the visitor does not administer, so the form would be refused.
    """
    act, tenant = _act_of(request), desk.tenant
    desk.principal.need_administrator(what="this form")
    about, registry = _named(act, request.query_params), desk.memory.registry
    status = await desk.call("get_snapshot_status")
    found: Json | None = None
    if act.about == "snapshot":
        found = await registry.snapshot(tenant, about)
    elif act.about == "build":
        found = await _build_or_request(desk, about)
    moves = await registry.moves(tenant, limit=1)
    return "confirm.html", {
        "act": act,
        "name": request.path_params["act"],
        "about": about,
        "found": found,
        "active": (await registry.active_snapshot(tenant))["snapshot"],
        "waiting_after": status["queued"] - int(found is not None and found["status"] in ("waiting", "queued")),
        "rollback": next((move for move in moves if move["kind"] == "rollback"), None),
        "key_names": await desk.key_names([*(move["actor"] for move in moves), (found or {}).get("asked_by")]),
        "status": status,
        "situation": await _situation(desk, status),
        "changes": await _changes(desk, about, status) if act.about == "snapshot" else None,
    }


async def _changes(desk: Desk, snapshot_id: str, status: Json) -> Summary | None:
    """Return how much differs between the active snapshot and another one; None where none is active."""
    active_id = status["active_snapshot_id"]
    return None if active_id is None else await summary(desk, active_id, snapshot_id)


async def _build_or_request(desk: Desk, name: str) -> Json:
    """Return a request that no build has taken up, with the status `waiting`; or the build that did, or is named.

    Raises:
        BuildNotFound: no such build or request.
    """
    try:
        request = await desk.memory.registry.request(desk.tenant, name)
    except BuildNotFound:
        return await _build(desk, name)
    if request["build_id"] is not None:
        return await _build(desk, request["build_id"])
    ended = {"status": "closed" if request["closed_at"] else "waiting", "finished_at": request["closed_at"]}
    return {**request, **ended, "asked_by": request["actor"]}


async def _build(desk: Desk, build_id: str) -> Json:
    """Return a build, its progress, who asked for it, and what it asked of models."""
    registry, tenant = desk.memory.registry, desk.tenant
    build = await registry.build(tenant, build_id)
    spent = await spent_by_build(desk.memory.database, tenant, build_id)
    sums = {name: sum(one[name] for one in spent) for name in ("calls", "cost_microusd")}
    asked = None if build["request_id"] is None else await registry.request(tenant, build["request_id"])
    return {**build, **sums, "asked_by": None if asked is None else asked["actor"]}


async def act(desk: Desk, request: Request, form: Mapping[str, str]) -> str:
    """Carry out an act that a form asks for, once however often the form is sent.

    Raises:
        RoleRequired, FaceNotAllowed: the visitor does not administer.
        ToolRefused: the tool refuses; or the snapshots are no longer as the form's page showed them.
    """
    chosen, name = _act_of(request), request.path_params["act"]
    # Before the status, which a reader may read: nobody else is told that the act is done.
    desk.principal.need_administrator(what="this form")
    about = _named(chosen, form)
    done = f"{PREFIX}/changes?done={name}"
    arguments = {"reason": form.get("reason", "").strip()}
    if chosen.about is not None:
        arguments[chosen.argument] = about
    if name == "build":
        arguments["idempotency_key"] = Visitor.form_id(form["form_token"])
    elif name in ("publish", "rollback", "resume"):
        status = await desk.call("get_snapshot_status")
        if form.get("situation", "") != await _situation(desk, status):
            if _is_done(name, about, status):
                return done
            raise ToolRefused({"code": "form_outdated", "message": _OUTDATED}, 409)
    await desk.call(chosen.tool, **arguments)
    return done


async def _situation(desk: Desk, status: Json) -> str:
    """Return a text that changes with every move of the active snapshot, and when builds pause or resume.

    A form that holds it is good for one act, and not for a situation that its sender has not seen.
    """
    moves = await desk.memory.registry.moves(desk.tenant, limit=1)
    seen = (*(move["moved_at"] for move in moves), status["active_snapshot_id"], status["paused_since"])
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


async def events(live: LiveParts, desk: Desk, request: Request) -> Response:
    """Stream what builds do now for as long as the page is open."""
    await desk.call("get_snapshot_status")
    look = partial(_look, desk)
    part = LivePart(about="builds", template="changes_now.html", look=look, roles=("read", "admin"))
    return live.response(desk, request, part)


async def _look(desk: Desk) -> Json:
    """Return what builds do now, for the part of the page that changes by itself."""
    registry, tenant = desk.memory.registry, desk.tenant
    status = await registry.status(tenant)
    newest = status["last_build"]
    now: Json = {"phase": "idle", "build": None, "seconds": None}
    if newest is not None and newest["finished_at"] is None:
        build = await registry.build(tenant, newest["build_id"])
        phase = phase_of(build) if build["finished_at"] is None else "idle"
        now = {"phase": phase, "build": build, "seconds": seconds_between(build["started_at"], build["finished_at"])}
    return {"status": status, **now, "computes_vectors": computes_vectors(desk.memory)}


def routes(live: LiveParts) -> Routes:
    """Return the routes of these pages."""
    return (
        PageRoute("/changes", overview, ("read", "admin")),
        PageRoute("/changes/events", partial(events, live), ("read", "admin")),
        PageRoute("/changes/{act}", confirm, ("admin",)),
        FormRoute("/changes/{act}", act, Form(confirm, FIELDS)),
    )
