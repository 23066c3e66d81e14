"""What builds do and have done, and the acts that start and end them and move the active snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from myria.access import journal
from myria.errors import BuildNotFound, InvalidArgument, PathNotFound
from myria.llm.audit import spent_by_build
from myria_server.console.builds import computes_vectors, phase_of, seconds_between, who_gave_up
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.differences import Summary, summary
from myria_server.console.done import done_of
from myria_server.console.fields import id_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.live import LivePart, LiveParts
from myria_server.console.rendering import plain_moment
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.visitors import Visitor
from myria_server.paths import CONSOLE_PREFIX as PREFIX

_PAGE = 20

_MOVES = 100
"""Moves of the active snapshot, and resumptions, that the history knows: the newest."""

_COMPARED = 100
"""Snapshots of which two can be chosen to be compared."""

_IDLE = "nothing_to_do"
"""The status of a build that made no snapshot, as nothing was new."""


@dataclass(frozen=True, slots=True)
class _Act:
    """Something that a form can do: the tool, and what its page says.

    `done`: what the page Changes says then; `only`: what it can be done to, for whoever asks for something else.
    `about`: what the address names, if anything; `argument`: the tool's argument that names it; `statuses`: those of
    what it can be done to.
    """

    tool: str
    title: str
    effect: str
    button: str
    done: str
    only: str = ""
    about: Literal["snapshot", "build"] | None = None
    argument: str = ""
    statuses: tuple[str, ...] = ()


ACTS: Mapping[str, _Act] = {
    "build": _Act(
        "trigger_build",
        "Build now",
        "New events are compiled into a new snapshot. Questions are answered meanwhile as they are now.",
        "Build",
        "A build was requested.",
    ),
    "abort": _Act(
        "abort_build",
        "Give up a build",
        "It ends without a snapshot, and what it has done is thrown away. The active snapshot stays. The events stay "
        "in the log and are found as now; the next build takes them: one that you ask for, or one that new "
        "events begin.",
        "Give up",
        "The build was given up.",
        "Only a build that has not ended, or is held, can be given up.",
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
        "The snapshot was published. Questions are answered from it now.",
        "Only a held snapshot can be published.",
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
        "The snapshot was discarded.",
        "Only a held snapshot can be discarded.",
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
        "Rolled back. Automatic builds are paused until you resume them.",
        "You can only roll back to a previous snapshot.",
        about="snapshot",
        argument="to",
        statuses=("archived",),
    ),
    "resume": _Act(
        "resume_builds",
        "Resume automatic builds",
        "Builds start again by themselves when events wait. The next one takes in again what the rollback left out.",
        "Resume",
        "Automatic builds are on again.",
    ),
}
"""The acts, by the last part of their address."""


FIELDS: Fields = {"reason": ("reason", "Why")}
"""What a refusal of an act says of its form's fields (see `Fields`)."""

_DONE_ALREADY = "It was done already by {who}, on {at}{why}. Your reason is not kept."
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
    upto = None if before is None else (await desk.memory.registry.build(tenant, before))["created_at"]
    since = builds[_PAGE - 1]["created_at"] if len(builds) > _PAGE else None
    snapshots = await _kept_snapshots(desk)
    of_builds = [(build["snapshot_id"], build["snapshot"]) for build in builds]
    between = await _acts_between(desk, since, upto)
    actors = [actor for build in builds for actor in (build["asked_by"], *(move["actor"] for move in build["moves"]))]
    actors += [one["actor"] for one in (*requests, *between)]
    actors += [who_gave_up(build) for build in builds]
    return "changes.html", {
        "key_names": await desk.key_names(actors),
        **await _look(desk),
        "requests": requests,
        "builds": builds[:_PAGE],
        "rows": _rows(builds[:_PAGE], between),
        "snapshots": snapshots,
        "numbers": {name: one["number"] for name, one in (*of_builds, *snapshots.items()) if one is not None},
        "next_before": builds[_PAGE - 1]["build_id"] if len(builds) > _PAGE else None,
        "is_later": before is not None,
        "done": done_of(request),
        "acts": ACTS,
    }


async def _acts_between(desk: Desk, since: str | None, upto: str | None) -> list[Json]:
    """Return the rollbacks and resumptions from one moment to another, newest first: `kind`, `at`, `actor`, `reason`.

    Nothing but the audit knows of resumptions, so only an administrator with a key is told of them.
    """
    moves = await desk.memory.registry.moves(desk.tenant, limit=_MOVES)
    acts = [{**move, "at": move["moved_at"]} for move in moves if move["kind"] == "rollback"]
    if desk.is_admin and desk.principal.proof is not None:
        sought = journal.Sought(actions=(ACTS["resume"].tool,), outcome="ok")
        found, _ = await journal.entries_for(
            desk.memory.appending, desk.principal.proof, sought, before=None, limit=_MOVES
        )
        acts += [{**entry, "kind": "resume", "reason": entry["details"].get("reason")} for entry in found]
    within = [
        one
        for one in acts
        if (since is None or _at(one["at"]) >= _at(since)) and (upto is None or _at(one["at"]) < _at(upto))
    ]
    return sorted(within, key=lambda one: _at(one["at"]), reverse=True)


def _rows(builds: Sequence[Json], between: Sequence[Json]) -> list[Json]:
    """Return the rows of the history, newest first: builds, and what was done to the active snapshot between them.

    Successive builds that had nothing to do are one row: the newest, with the others as its `alike`.
    """
    rows = [{"kind": "build", "at": build["created_at"], "build": build, "alike": []} for build in builds]
    rows = sorted([*rows, *between], key=lambda row: _at(row["at"]), reverse=True)
    folded: list[Json] = []
    for row in rows:
        if folded and all(one["kind"] == "build" and one["build"]["status"] == _IDLE for one in (folded[-1], row)):
            folded[-1]["alike"].append(row["build"])
        else:
            folded.append(row)
    return folded


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def _kept_snapshots(desk: Desk) -> Mapping[str, Json]:
    """Return the snapshots that can be compared, by id, newest first: none to who may not compare them."""
    if not desk.is_admin:
        return {}
    listed = await desk.memory.registry.list_snapshots(desk.tenant, limit=_COMPARED)
    return {one["snapshot_id"]: one for one in listed["snapshots"] if one["status"] in ("active", "held", "archived")}


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
                await _need_own(desk, name, about, arguments["reason"])
                return done
            raise ToolRefused({"code": "form_outdated", "message": _OUTDATED}, 409)
    else:
        await _need_own(desk, name, about, arguments["reason"])
    await desk.call(chosen.tool, **arguments)
    return done


async def _need_own(desk: Desk, name: str, about: str, reason: str) -> None:
    """Check that an act that is done already was asked for by the same form, which was sent twice.

    Raises:
        ToolRefused: somebody else did it, or another form did; the message says who, when and why.
    """
    act = await _done_before(desk, name, about)
    # Without keys nobody knows of a resumption, and all act as one.
    if act is None or (act["actor"], act["reason"] or "") == (desk.principal.actor, reason):
        return
    key_name = (await desk.key_names([act["actor"]])).get(act["actor"].removeprefix("key:"))
    message = _DONE_ALREADY.format(
        who=f"{key_name} ({act['actor']})" if key_name else act["actor"],
        at=plain_moment(act["at"]),
        why=f": {act['reason']}" if act["reason"] else "",
    )
    raise ToolRefused({"code": "form_outdated", "message": message}, 409)


async def _done_before(desk: Desk, name: str, about: str) -> Json | None:
    """Return who did an act that is done, when and why (`actor`, `at`, `reason`); None where that is not known."""
    registry, tenant = desk.memory.registry, desk.tenant
    if name in ("abort", "discard"):
        if name == "discard":
            build = await registry.build(tenant, (await registry.snapshot(tenant, about))["build_id"])
        else:
            build = await _build_or_request(desk, about)
        if build["status"] != "aborted":
            return None
        return {**build["error"]["details"], "at": build["finished_at"]}
    if name == "publish":
        acts = [{**move, "at": move["moved_at"]} for move in await registry.moves(tenant, limit=1)]
    else:
        acts = await _acts_between(desk, None, None)
    return acts[0] if acts and acts[0]["kind"] == name else None


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
