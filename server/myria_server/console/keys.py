"""The keys and grants of the visitor's tenant: who may do what, and making, replacing and ending them.

A new key's secret is in the one answer that follows its form, and nowhere else: in no address, journal or log.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from starlette.requests import Request

from myria.access.administered import TenantKeys
from myria.access.principal import API_NAMES, ROLES, ApiName, Proof, Role
from myria.access.secrets import key_id_of, make_key
from myria.access.store import NewKey
from myria.errors import CredentialMissing, InvalidArgument, KeyNotFound
from myria_server.console.desk import Desk, Json
from myria_server.console.done import done_of
from myria_server.console.fields import text_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.visitors import asked_as
from myria_server.paths import CONSOLE_PREFIX as PREFIX

_PAGE = 50
_DAY_S = 86_400.0
LIFETIMES: Mapping[str, float | None] = {
    "a day": _DAY_S,
    "a week": 7 * _DAY_S,
    "30 days": 30 * _DAY_S,
    "90 days": 90 * _DAY_S,
    "a year": 365 * _DAY_S,
    "never": None,
}
"""After how long a new key ends, in seconds."""

OVERLAPS: Mapping[str, float] = {"at once": 0.0, "in an hour": 3600.0, "in a day": _DAY_S, "in a week": 7 * _DAY_S}
"""When a key that is replaced ends, in seconds."""

ABOUT_ROLES: Mapping[Role, str] = {
    "append": "adds events and notes, forgets and restores",
    "read": "sees what is remembered",
    "admin": "steers builds, reviews notes, makes keys",
    "erase": "removes for good what is remembered of somebody",
}

ABOUT_APIS: Mapping[ApiName, str] = {
    "core": "events and questions, and this console",
    "agent": "notes of agents",
    "turns": "memory before and after each turn",
    "rest": "memories over REST",
    "admin": "for the roles admin and erase",
}

FIELDS: Fields = {
    "name": ("name", "Name"),
    "role": ("roles", "Role"),
    "role_required": ("roles", "Role"),
    "face": ("apis", "API"),
    "face_not_allowed": ("apis", "API"),
    "as": ("own", "Asks as"),
    "participants_not_allowed": ("own", "Asks as"),
    "may_ask": ("may_ask", "May ask as others, too"),
    "lifetime": ("lifetime", "Ends after"),
    "expires": ("lifetime", "Ends after"),
    "reason": ("reason", "Why"),
}
"""What a refusal of a new key says of the form's fields (see `Fields`)."""

ACT: Fields = {"overlap": ("overlap", "The old key ends"), "reason": ("reason", "Why")}
"""The same of the forms that replace or revoke a key, or end a grant."""


def _keys(desk: Desk) -> TenantKeys:
    return TenantKeys(desk.memory.appending)


async def overview(desk: Desk, request: Request) -> Page:
    """List the keys of the tenant, newest first."""
    desk.principal.need_administrator(what="this page")
    proof, before = desk.principal.proof, text_of(request.query_params.get("before")) or None
    found = [] if proof is None else await _keys(desk).keys(proof, before=before, limit=_PAGE + 1)
    return "keys.html", {
        "has_proof": proof is not None,
        "keys": found[:_PAGE],
        "key_names": await desk.key_names(key["created_by"] for key in found),
        "next_before": found[_PAGE - 1]["key_id"] if len(found) > _PAGE else None,
        "done": done_of(request),
    }


async def form(desk: Desk, _request: Request) -> Page:
    """Ask what a new key may do: nothing is offered that the visitor's own key may not."""
    _proof(desk)
    return "key_new.html", {
        "roles": [role for role in ROLES if role in desk.principal.roles],
        "apis": [api for api in API_NAMES if api in desk.principal.faces],
        "about_roles": ABOUT_ROLES,
        "about_apis": ABOUT_APIS,
        "lifetimes": [*LIFETIMES],
    }


async def create(desk: Desk, _request: Request, form: Mapping[str, str]) -> Page:
    """Make the key that a form asks for, and show it this once. The form sent again makes no other."""
    proof = _proof(desk)
    new = NewKey(
        name=form.get("name", "").strip(),
        tenant=desk.tenant,
        roles=cast("Any", [role for role in ROLES if f"role_{role}" in form]),
        faces=cast("Any", [api for api in API_NAMES if f"api_{api}" in form]),
        own=asked_as(form.get("own", "").splitlines()),
        may_ask=asked_as(form.get("may_ask", "").splitlines()),
        expires_s=_chosen(LIFETIMES, form, "lifetime"),
    )
    made = make_key(key_id_of(form["form_token"]))
    await _keys(desk).create_key(proof, new, made, reason=form.get("reason", ""), address=desk.address_of())
    return "key_made.html", {"text": made.text, "key": await _keys(desk).key(proof, made.key_id), "replaced": None}


async def confirm(desk: Desk, request: Request) -> Page:
    """Show what revoking or replacing a key will end, and ask once.

    A key that this one replaced may go on for a while, so whoever revokes one that leaked is told.
    """
    proof = _proof(desk)
    key = await _keys(desk).key(proof, request.path_params["key_id"])
    replaced: Json | None = None
    if key["replaces"] is not None:
        with suppress(KeyNotFound):
            replaced = await _keys(desk).key(proof, key["replaces"])
    act = request.url.path.rpartition("/")[2]
    return "key_act.html", {"key": key, "replaced": replaced, "act": act, "overlaps": [*OVERLAPS]}


async def revoke(desk: Desk, request: Request, form: Mapping[str, str]) -> str:
    """Revoke a key: its sessions, and what programs were allowed with it, end with it."""
    key_id = request.path_params["key_id"]
    await _keys(desk).revoke_key(_proof(desk), key_id, reason=form.get("reason", ""), address=desk.address_of())
    return f"{PREFIX}/keys?done=revoked"


async def rotate(desk: Desk, request: Request, form: Mapping[str, str]) -> Page:
    """Replace a key by one that may the same, and show that this once."""
    proof, key_id = _proof(desk), request.path_params["key_id"]
    overlap_s = _chosen(OVERLAPS, form, "overlap")
    made = make_key(key_id_of(form["form_token"]))
    # Before the change: a session of a key that ends at once proves nothing afterwards.
    old = await _keys(desk).key(proof, key_id)
    await _keys(desk).rotate_key(
        proof,
        key_id,
        made,
        overlap_s=overlap_s or 0.0,
        reason=form.get("reason", ""),
        address=desk.address_of(),
    )
    return "key_made.html", {
        "text": made.text,
        "key": {**old, "key_id": made.key_id},
        "replaced": old,
        "overlap": form["overlap"],
    }


async def grants(desk: Desk, request: Request) -> Page:
    """List what programs were allowed with keys of the tenant (OAuth), newest first."""
    desk.principal.need_administrator(what="this page")
    proof, before = desk.principal.proof, request.query_params.get("before") or None
    found = [] if proof is None else await _keys(desk).grants(proof, before=before, limit=_PAGE + 1)
    return "grants.html", {
        "has_proof": proof is not None,
        "grants": found[:_PAGE],
        "next_before": found[_PAGE - 1]["grant_id"] if len(found) > _PAGE else None,
        "done": done_of(request),
    }


async def confirm_ending(desk: Desk, request: Request) -> Page:
    """Show what a program may do, and ask once whether that should end."""
    return "grant_end.html", {"grant": await _keys(desk).grant(_proof(desk), request.path_params["grant_id"])}


async def end_grant(desk: Desk, request: Request, form: Mapping[str, str]) -> str:
    """End what a program was allowed, with all its tokens."""
    grant_id = request.path_params["grant_id"]
    await _keys(desk).end_grant(_proof(desk), grant_id, reason=form.get("reason", ""), address=desk.address_of())
    return f"{PREFIX}/keys/grants?done=ended"


def _proof(desk: Desk) -> Proof:
    """Return what proves to the database who the visitor is.

    Raises:
        RoleRequired, FaceNotAllowed: the visitor is no administrator.
        CredentialMissing: it is one without a key.
    """
    desk.principal.need_administrator(what="this page")
    if desk.principal.proof is None:
        raise CredentialMissing("Only an administrator who signed in with a key changes keys and grants here.")
    return desk.principal.proof


def _chosen(choices: Mapping[str, Any], form: Mapping[str, str], field: str) -> Any:
    """Return the value of the choice that a field names.

    Raises:
        InvalidArgument: it names none.
    """
    name = form.get(field, "")
    if name not in choices:
        raise InvalidArgument(f"Choose one of these: {', '.join(choices)}.", field=field)
    return choices[name]


ROUTES: Routes = (
    PageRoute("/keys", overview, ("admin",)),
    PageRoute("/keys/new", form, ("admin",)),
    FormRoute("/keys/new", create, Form(form, FIELDS)),
    PageRoute("/keys/grants", grants, ("admin",)),
    PageRoute("/keys/grants/{grant_id}", confirm_ending, ("admin",)),
    FormRoute("/keys/grants/{grant_id}", end_grant, Form(confirm_ending, ACT)),
    PageRoute("/keys/{key_id}/revoke", confirm, ("admin",)),
    FormRoute("/keys/{key_id}/revoke", revoke, Form(confirm, ACT)),
    PageRoute("/keys/{key_id}/rotate", confirm, ("admin",)),
    FormRoute("/keys/{key_id}/rotate", rotate, Form(confirm, ACT)),
)
