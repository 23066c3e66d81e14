"""The review of notes that a policy holds back: what waits, why, and what would change; and deciding about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request

from myria.errors import InvalidArgument
from myria.notes.kinds import policies
from myria_server.api.core.reviewing import MAX_DECIDED
from myria_server.console.desk import Desk, Json
from myria_server.console.done import done_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.rendering import query
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.wording import differences

_PAGE = 20
_DECIDED = 10
_PAGE_BYTES = 40_000
"""Of the notes of one list, as JSON."""

_COMPARED = 2_000
"""Characters of a note that are compared with what it would replace; the whole text stands above."""

_PICK = "pick_"
"""Before the id of a note, the name of its checkbox."""

FILTER: Fields = {"kind": ("kind", "Kind"), "participant": ("participant", "Person or agent")}
"""What a refusal of the filter says of its fields (see `Fields`)."""

DECIDED: Fields = {"note": ("note", "Notes"), "reason": ("reason", "Why")}
"""The same of the form that decides."""

DECISIONS: Mapping[str, str] = {"approve": "approved", "refuse": "refused", "hold": "taken back"}


async def form(desk: Desk, request: Request) -> Page:
    """Show the filter with what the address holds, and no notes."""
    policy = desk.settings.review
    return "review.html", {
        "holds": bool(policy.kinds or policy.sources or policy.confidence_below),
        "status": await desk.call("get_snapshot_status"),
        "search": _search(request),
        "place": {**_search(request), **_cursors(request)},
        "kinds": tuple(policies()),
        "notes": None,
        "next_cursor": None,
        "decided": [],
        "done": None,
    }


async def overview(desk: Desk, request: Request) -> Page:
    """Show the held snapshot, the notes that wait, with their evidence, and what was decided lately."""
    parameters, search, cursors = request.query_params, _search(request), _cursors(request)
    page = await _page(desk, limit=_PAGE, cursor=cursors["cursor"], **search)
    decided = await _page(desk, state="decided", limit=_DECIDED, cursor=cursors["before"], **search)
    return "review.html", {
        **(await form(desk, request))[1],
        "notes": [shown_held(desk, note) for note in page["under_review"]],
        "next_cursor": page["next_cursor"],
        "decided": [shown_held(desk, note) for note in decided["under_review"]],
        "key_names": await desk.key_names(note.get("decided_by") for note in decided["under_review"]),
        "next_before": decided["next_cursor"],
        "later": any(cursors.values()),
        "done": DECISIONS.get(done_of(request)),
        "is_undo": done_of(request) == "hold",
        "done_notes": [note for note in parameters.get("notes", "").split(",") if note][:MAX_DECIDED],
    }


async def decide(desk: Desk, request: Request, form: Mapping[str, str]) -> str | Page:
    """Decide about the notes that a form has chosen; show those about which nothing was decided, and why.

    The form sent again changes nothing more. Its address says on which page it stands, which is shown again where it is
    refused.

    Raises:
        InvalidArgument: no note is chosen, or there is no such decision.
    """
    decision = form.get("decision", "")
    note_ids = [name.removeprefix(_PICK) for name in form if name.startswith(_PICK)]
    if form.get("note"):
        note_ids = [form["note"]]
    if not note_ids:
        raise InvalidArgument("Choose a note first: tick the box before it.", field="note")
    answer = await desk.call(
        "decide_notes", note_ids=note_ids, decision=decision, reason=form.get("reason", "").strip()
    )
    refused = [note for note in answer["decided"] if note.get("error")]
    if refused:
        return "review_refused.html", {"refused": refused, "changed": answer["changed"], "did": DECISIONS[decision]}
    return query("/review", desk.names, **_search(request), done=decision, notes=",".join(note_ids))


def _search(request: Request) -> Json:
    """Return what the filter of the page asks for."""
    parameters = request.query_params
    return {"kind": parameters.get("kind", ""), "participant": parameters.get("participant", "").strip()}


def _cursors(request: Request) -> Json:
    """Return where the two lists of the page begin: the notes that wait, and those decided."""
    return {name: request.query_params.get(name, "") for name in ("cursor", "before")}


async def _page(desk: Desk, *, limit: int, **arguments: Any) -> Json:
    """Return a page of notes; fewer than `limit` where they are long, so that the page stays small."""
    page = await desk.call("list_held_notes", limit=limit, **arguments)
    size = 0
    for place, note in enumerate(page["under_review"]):
        size += len(orjson.dumps(note))
        if place and size > _PAGE_BYTES:
            return await desk.call("list_held_notes", limit=place, **arguments)
    return page


def shown_held(desk: Desk, note: Json) -> Json:
    """Return a note with its words against those that it replaces, and as whom its events may be opened."""
    text = note.get("text")
    for other in note["replaces"]:
        other["parts"] = None if text is None or "text" not in other else differences(other["text"], text[:_COMPARED])
    participants, may_read = note.get("participants"), "read" in desk.principal.roles
    return note | {"opened_as": desk.names_that_see(participants) if participants and may_read else None}


ROUTES: Routes = (
    PageRoute("/review", overview, ("admin",), Form(form, FILTER)),
    FormRoute("/review/decide", decide, Form(overview, DECIDED)),
)
