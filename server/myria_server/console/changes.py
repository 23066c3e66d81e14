"""Snapshots and builds: what changed, what is held for approval, and the acts that move the active snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from myria.errors import InvalidArgument, PathNotFound, SnapshotNotFound
from myria.memory import Memory
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.live import LiveBuilds
from myria_server.console.visitors import PREFIX, Visitor

_PAGE = 20
_BUILDS = 5


@dataclass(frozen=True, slots=True)
class _Act:
    """Something that a form can do: the tool, its argument that names a snapshot, and what its page says."""

    tool: str
    argument: str | None
    title: str
    effect: str
    button: str
    takes_reason: bool = True


ACTS: Mapping[str, _Act] = {
    "build": _Act(
        "trigger_build",
        None,
        "Build now",
        "New events are compiled into a new snapshot. Questions are answered meanwhile as they are now.",
        "Build",
    ),
    "publish": _Act(
        "publish_snapshot",
        "snapshot_id",
        "Publish a held snapshot",
        "Every question is answered from this snapshot from then on. The snapshot that is active now stays for a "
        "rollback.",
        "Publish",
    ),
    "discard": _Act(
        "discard_snapshot",
        "snapshot_id",
        "Discard a held snapshot",
        "It is never published. Its events stay in the log, and the next build takes them.",
        "Discard",
    ),
    "rollback": _Act(
        "rollback",
        "to",
        "Roll back",
        "From then on every question is answered from this earlier snapshot. Newer events are still found, and what "
        "was forgotten or erased does not come back. Automatic builds pause until you resume them on the page Changes.",
        "Roll back",
    ),
    "resume": _Act(
        "resume_builds",
        None,
        "Resume automatic builds",
        "Builds start again by themselves when events wait.",
        "Resume",
        takes_reason=False,
    ),
}
"""The acts, by the last part of their address."""


_OUTDATED = (
    "Since you opened this form the active snapshot has moved, or builds were paused or resumed: this form may have "
    "been sent before, or somebody else acted. Nothing was done now. Begin again from the page Changes."
)


def _act_of(request: Request) -> _Act:
    name = request.path_params["act"]
    if name not in ACTS:
        raise PathNotFound("There is no such page.")
    return ACTS[name]


def _need_snapshot(act: _Act, snapshot_id: str) -> None:
    """Refuse an act that names no snapshot: the tools would choose one, and nobody has seen which."""
    if act.argument is not None and not snapshot_id:
        raise InvalidArgument("Choose a snapshot on the page Changes first.", field="snapshot")


def _is_done(name: str, snapshot_id: str, status: Json) -> bool:
    """Tell whether what an act is for holds already."""
    if name == "resume":
        return bool(status["paused_reason"] != "rollback")
    return bool(snapshot_id == status["active_snapshot_id"])


class ChangePages:
    """The pages that show more than tools answer: who changed what and why, and what differs between two snapshots.

    Only administrators see that, since it is about every scope.
    """

    def __init__(self, memory: Memory, live: LiveBuilds) -> None:
        self._memory = memory
        self._live = live

    async def overview(self, desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
        """Show what builds do now, the snapshots that are kept and, to administrators, who moved the active one."""
        cursor, tenant = request.query_params.get("cursor"), desk.principal.tenant
        await desk.call("get_snapshot_status")  # refuses whoever may not see what the page shows of builds
        status = await self._live.status(tenant)
        listed = await desk.call("list_snapshots", limit=_PAGE, cursor=cursor)
        is_admin = desk.is_admin and not cursor
        return "changes.html", {
            "status": status,
            "snapshots": listed["snapshots"],
            "next_cursor": listed["next_cursor"],
            "moves": await self._memory.registry.moves(tenant, limit=_PAGE) if is_admin else [],
            "builds": await self._memory.registry.builds(tenant, limit=_BUILDS) if is_admin else [],
            "done": request.query_params.get("done", ""),
            "acts": ACTS,
        }

    async def confirm(self, desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
        """Show what an act will change, and ask once."""
        act = _act_of(request)
        snapshot_id = request.query_params.get("snapshot", "")
        _need_snapshot(act, snapshot_id)
        status = await desk.call("get_snapshot_status")
        return "confirm.html", {
            "act": act,
            "name": request.path_params["act"],
            "snapshot_id": snapshot_id,
            "wanted": await self._kept(desk.principal.tenant, snapshot_id),
            "active": await self._kept(desk.principal.tenant, status["active_snapshot_id"]),
            "status": status,
            "situation": await self._situation(desk.principal.tenant, status),
        }

    async def _kept(self, tenant: str, snapshot_id: str | None) -> Json | None:
        """Return a snapshot by its id, None where none is named or kept."""
        try:
            return await self._memory.registry.snapshot(tenant, snapshot_id) if snapshot_id else None
        except SnapshotNotFound:
            return None

    async def act(self, desk: Desk, request: Request, form: Mapping[str, str]) -> str:
        """Carry out an act that a form asks for, once however often the form is sent.

        Raises:
            RoleRequired, FaceNotAllowed: the visitor does not administer.
            ToolRefused: the tool refuses; or the snapshots are no longer as the form's page showed them.
        """
        chosen, name, snapshot_id = _act_of(request), request.path_params["act"], form.get("snapshot", "")
        # Before the status, which a reader may read: nobody else is told that the act is done.
        desk.principal.need(("admin",), what="this form")
        desk.principal.need_api("admin")
        done = f"{PREFIX}/changes?done={name}"
        arguments: dict[str, Any] = {"reason": form.get("reason", "").strip()} if chosen.takes_reason else {}
        if chosen.argument is not None:
            _need_snapshot(chosen, snapshot_id)
            arguments[chosen.argument] = snapshot_id
        if name == "build":
            arguments["idempotency_key"] = Visitor.form_id(form["form_token"])
        elif name in ("publish", "rollback", "resume"):
            status = await desk.call("get_snapshot_status")
            if form.get("situation", "") != await self._situation(desk.principal.tenant, status):
                if _is_done(name, snapshot_id, status):
                    return done
                raise ToolRefused({"code": "form_outdated", "message": _OUTDATED}, 409)
        await desk.call(chosen.tool, **arguments)
        return done

    async def _situation(self, tenant: str, status: Json) -> str:
        """Return a text that changes with every move of the active snapshot, and when builds pause or resume.

        A form that holds it is good for one act, and not for a situation that its sender has not seen.
        """
        moves = await self._memory.registry.moves(tenant, limit=1)
        seen = (*(move["moved_at"] for move in moves), status["active_snapshot_id"], status["paused_since"])
        return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]

    async def events(self, desk: Desk, request: Request) -> Response:
        """Stream what builds do now for as long as the page is open."""
        await desk.call("get_snapshot_status")
        return self._live.response(desk.visitor, request)
