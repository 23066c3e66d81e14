"""The pages of people and agents: who there is, and erasing what is remembered of one, with a look before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response

from myria.db.clock import to_rfc3339
from myria.errors import InvalidArgument, ParticipantsNotAllowed
from myria.log.masks import MAX_MASKS, Mask, Masks
from myria.log.payloads import whole_text
from myria.log.scopes import canonical_participants
from myria.search.overview import Activity, Overview
from myria.search.people import names_beginning, people_beside
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.fields import number_of, text_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.rendering import saved_as
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.visitors import Visitor
from myria_server.paths import CONSOLE_PREFIX as PREFIX

_PAGE = 100
_PAGE_OF_ANYBODY = 24
"""People on a page of everybody: they share nobody who asks, so what each sees is counted, eight at a time."""

_READ = 10
"""Events of an erasure that are shown before it."""

_ERASURES = 20
"""Erasures that are listed, the newest."""

_AGENTS = frozenset({"agent", "assistant", "bot"})
"""Words of a name by which it is an agent's."""

_WORDS = re.compile(r"[a-z]+")


async def overview(desk: Desk, request: Request) -> Page:
    """List the participants with whom the visitor shares something; without credentials, all."""
    principal, parameters = desk.principal, request.query_params
    principal.need_api("core")
    is_anybody = principal.anyone and not desk.names
    participants = () if is_anybody else desk.participants
    most = _PAGE_OF_ANYBODY if is_anybody else _PAGE
    prefix, after = text_of(parameters.get("q")), parameters.get("after", "").replace("\0", "")
    async with desk.memory.database.read(desk.tenant) as connection:
        if is_anybody:
            names = await names_beginning(connection, desk.tenant, prefix, after=after, limit=most + 1)
        else:
            names = await people_beside(
                connection, desk.tenant, participants, after=after, prefix=prefix, limit=most + 1
            )
    activities = await _activities(desk, participants, names[:most])
    return "people.html", {
        "people": [
            {
                "name": one.name,
                "groups": one.scopes,
                "events": one.events,
                "last_at": None if one.last_at is None else to_rfc3339(one.last_at),
                "is_agent": is_agent(one.name),
            }
            for one in activities
            if one.events
        ],
        "next_after": names[most - 1] if len(names) > most else None,
        "prefix_asked": prefix,
    }


async def _activities(desk: Desk, participants: Sequence[str], names: Sequence[str]) -> list[Activity]:
    """Return how much the visitor may see of each of these names: what it would see asked as that name, too.

    Args:
        participants: as whom the visitor asks; empty for one who may ask as anybody, and names nobody.
    """
    retrieval, tenant = desk.memory.retrieval, desk.tenant
    if participants:
        counting = partial(Overview.of_people, names=names)
        return await retrieval.overview(tenant, Masks.containing(participants), counting)
    activities: list[Activity] = []
    for start in range(0, len(names), MAX_MASKS):
        some = names[start : start + MAX_MASKS]
        masks = Masks.of(Mask((name,)) for name in some)
        activities += await retrieval.overview(tenant, masks, partial(Overview.of_people, names=some))
    return activities


def is_agent(name: str) -> bool:
    """Tell whether a participant's name says that it is an agent's: agent_7, support-bot."""
    return not _AGENTS.isdisjoint(_WORDS.findall(name.casefold()))


WHOM: Fields = {"of_participants": ("name", "Name")}
"""What a refusal says of the field that asks whose events to erase (see `Fields`)."""

CONFIRMED: Fields = {
    "confirmed": ("confirmed", "To confirm, write the name once more"),
    "reason": ("reason", "Why"),
}
"""The same of the form that erases."""


async def whom(desk: Desk, request: Request) -> Page:
    """Ask whose events are to be erased, and list what was erased: it is where receipts are found again."""
    erasures = (await desk.call("get_erasures", limit=_ERASURES))["erasures"] if desk.may("get_erasures") else []
    return "erase_whom.html", {
        "name": request.query_params.get("name", ""),
        "erasures": erasures,
        "key_names": await desk.key_names(one["by"] for one in erasures),
    }


async def confirm_erasure(desk: Desk, request: Request) -> Page:
    """Show what erasing everything of a participant removes, and ask once; without a name, ask for one."""
    name = request.query_params.get("name", "")
    if not name.strip():
        return await whom(desk, request)
    shared = _shared(request)
    preview = await desk.call("preview_erasure", of_participants=[name], shared=shared)
    return "erase.html", {
        "name": name,
        "shared": shared,
        "preview": preview,
        "hidden": await _hidden(desk, name, shared, preview["counts"]["events"]),
        "first": [await _with_words(desk, event) for event in preview["events"][:_READ]],
    }


def _shared(request: Request) -> str:
    """Return what becomes of events that others share: the address says so, of the page and of its form alike."""
    return "remove" if request.query_params.get("shared") == "remove" else "keep"


async def _hidden(desk: Desk, name: str, shared: str, events: int) -> int:
    """Return how many of the events to erase are in no answer to the visitor; 0 where the visitor may not ask.

    They are internal, replaced or forgotten, or of groups that the visitor's key may not read.
    """
    principal = desk.principal
    if not desk.may("query_event_nodes"):
        return 0
    canonical = canonical_participants([name])
    try:
        seeing = {*principal.asking_as(canonical if principal.may_name(canonical[0]) else None), *canonical}
    except ParticipantsNotAllowed:
        return 0
    if shared == "keep" and len(seeing) > 1:
        return events
    masks = Masks.exactly(seeing) if shared == "keep" else Masks.containing(seeing)
    visible = await desk.memory.retrieval.overview(desk.tenant, masks, lambda overview: overview.events)
    return max(0, events - visible)


async def _with_words(desk: Desk, planned: Json) -> Json:
    """Return an event that would be erased with what it says, where the visitor may see that: the tool never tells."""
    names = desk.names_that_see(planned["participants"])
    if names is None or not desk.may("get_event"):
        return planned
    try:
        found = await desk.call("get_event", event_id=planned["event_id"], participants=list(names))
    except ToolRefused:
        return planned  # replaced or internal, or gone meanwhile
    return {**planned, "text": whole_text(found["event"]["payload"]), "names": names}


async def erase(desk: Desk, request: Request, form: Mapping[str, str]) -> str:
    """Begin the erasure that a form confirms: exactly the events that its page counted."""
    name = request.query_params.get("name", "")
    if form.get("confirmed", "").strip() != name:
        raise InvalidArgument("The name that you wrote is another one, so nothing was erased.", field="confirmed")
    answer = await desk.call(
        "erase",
        of_participants=[name],
        shared=_shared(request),
        expected_events=number_of(form.get("expected_events"), default=0),
        reason=form.get("reason"),
        idempotency_key=Visitor.form_id(form["form_token"]),
    )
    return f"{PREFIX}/erasures/{answer['erasure_id']}"


async def erasure(desk: Desk, request: Request) -> Page:
    """Show how far an erasure is."""
    erasure_id = request.path_params["erasure_id"]
    found = (await desk.call("get_erasures", erasure_id=erasure_id))["erasures"]
    if not found:
        raise ToolRefused({"code": "erasure_not_found", "message": f"there is no erasure {erasure_id}"}, 404)
    return "erasure.html", {"erasure": found[0], "key_names": await desk.key_names([found[0]["by"]])}


async def receipt(desk: Desk, request: Request, _form: Mapping[str, str]) -> Response:
    """Send the receipt of an erasure that is done, for `myria verify --receipt`.

    A form asks for it: the key in it is forgotten soon after it was shown, so no link may lead here.
    """
    content = await desk.call("get_erasure_receipt", erasure_id=request.path_params["erasure_id"])
    headers = saved_as("erasure-receipt", "json", request.path_params["erasure_id"])
    return Response(orjson.dumps(content), media_type="application/json", headers=headers)


ROUTES: Routes = (
    PageRoute("/people", overview, is_as_somebody=True),
    PageRoute("/people/erase", confirm_erasure, ("erase",), Form(whom, WHOM)),
    FormRoute("/people/erase", erase, Form(confirm_erasure, CONFIRMED)),
    PageRoute("/erasures/{erasure_id}", erasure, ("erase",)),
    FormRoute("/erasures/{erasure_id}/receipt", receipt),
)
