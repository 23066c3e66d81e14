"""The page of one event: what it says, who may see it and why, where it stands, and what was said around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response

from myria.errors import EventNotFound
from myria.log.payloads import speaker_of, whole_text
from myria.log.withdrawal.commands import WithdrawalAct
from myria.log.withdrawal.model import WITHHELD
from myria.notes.model import NOTE_TYPE
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.done import done_of
from myria_server.console.forms import Page
from myria_server.console.rendering import query
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.tool_calls import paired, tool_uses

_AROUND = 5
"""Events that are shown before and after."""

_OF_ALL_KINDS = {"include_internal": True, "include_superseded": True}


async def event(desk: Desk, request: Request) -> Page:
    """Show an event; to those who may bring it back also that it is gone, and to an administrator by whom."""
    event_id = request.path_params["event_id"]
    try:
        answer = await desk.ask("get_event", event_id=event_id, **_OF_ALL_KINDS)
    except ToolRefused as refused:
        if refused.code != EventNotFound.code:
            raise
        acts = await acts_told(desk, "event", event_id)
        if not acts["gone"]:
            raise
        return "gone.html", {"what": "event", "id": event_id, **acts}
    event = answer["event"]
    asked_as = desk.participants
    stands = await desk.memory.retrieval.event_provenance(desk.tenant, event["event_id"], desk.masks)
    payload = event["payload"]
    text = whole_text(payload)
    later = await desk.memory.retrieval.later_states(desk.tenant, {event["event_seq"]: text}, desk.masks)
    around = await _around(desk, event)
    return "event.html", {
        "done": done_of(request),
        "event": event,
        "text": text,
        "speaker": speaker_of(payload),
        "snapshot_id": answer["snapshot_id"],
        "made": await desk.memory.registry.freshness(desk.tenant, answer["snapshot_id"]),
        "asked_as": asked_as,
        "later": later.get(event["event_seq"], ()),
        "stands": stands or {"replaces": [], "path": [], "subjects": []},
        "note": await _note_of(desk, event),
        **await acts_told(desk, "event", event["event_id"]),
        "tools": tool_uses(event),
        "pairs": paired([event, *around["before"], *around["after"]]),
        **around,
    }


async def acts_told(desk: Desk, what: Literal["event", "note"], thing_id: str) -> Json:
    """Return what pages tell of who withdrew and restored something: `acts`, and names of their keys.

    `gone` says how it went (a `Reason`) where the visitor may bring it back, or administers. Only administrators are
    told who acted; whoever may neither bring it back nor administers is told nothing.
    """
    if what == "note":
        masks, tool = desk.note_masks, "restore"
    else:
        masks, tool = desk.masks, "restore_events"
    acts: Sequence[WithdrawalAct] = ()
    if desk.is_admin or desk.may(tool):
        things = desk.memory.notes if what == "note" else desk.memory.withdrawals
        acts = await things.acts(desk.tenant, thing_id, may_see=masks.sees)
    newest = acts[0].reason if acts else None
    is_held = what == "event" and newest in WITHHELD and desk.is_admin  # a held note has a page of its own
    gone = newest if newest in ("forgotten", "expired") or is_held else None
    if not desk.is_admin:
        acts = [replace(acts[0], by=None, why=None)] if gone else ()
    return {"acts": acts, "gone": gone, "key_names": await desk.key_names(act.by for act in acts)}


async def save_payload(desk: Desk, request: Request) -> Response:
    """Send the whole payload of an event: its page shows how a long one begins."""
    event = (await desk.ask("get_event", event_id=request.path_params["event_id"], **_OF_ALL_KINDS))["event"]
    headers = {"content-disposition": f'attachment; filename="{event["event_id"]}.json"'}
    return Response(orjson.dumps(event["payload"]), media_type="application/json", headers=headers)


async def confirm_forgetting(desk: Desk, request: Request) -> Page:
    """Show the event that would be forgotten, and ask once; or say that it is, and offer to undo that."""
    event_id = request.path_params["event_id"]
    try:
        event = (await desk.ask("get_event", event_id=event_id, **_OF_ALL_KINDS))["event"]
    except ToolRefused as refused:
        if refused.code != EventNotFound.code:
            raise
        acts = await desk.memory.withdrawals.acts(desk.tenant, event_id, may_see=desk.masks.sees)
        if not acts or acts[0].reason != "forgotten":
            raise
        return "forget_event.html", {"event_id": event_id, "text": None}
    return "forget_event.html", {"event_id": event["event_id"], "text": whole_text(event["payload"])}


async def forget(desk: Desk, request: Request, _form: Mapping[str, str]) -> str:
    """Take an event out of every answer."""
    event_id = request.path_params["event_id"]
    await desk.ask("withdraw_events", event_ids=[event_id])
    return query(f"/events/{event_id}/forget", desk.names)


async def restore(desk: Desk, request: Request, _form: Mapping[str, str]) -> str:
    """Bring a forgotten event back."""
    event_id = request.path_params["event_id"]
    await desk.ask("restore_events", event_ids=[event_id])
    return query(f"/events/{event_id}", desk.names, done="restored")


async def _around(desk: Desk, event: Json) -> Json:
    """Return the events `before` and `after` an event in its conversation, or in its channel where it names none.

    `place` holds the parameters by which Ask lists the same conversation.
    """
    context_id = event.get("context_id")
    place = {"context_id": context_id} if context_id else {"channel": event["channel"]}

    async def asked(count: int, **bounds: Any) -> list[Json]:
        found = await desk.ask("query_event_nodes", limit=count, include_superseded=True, **place, **bounds)
        nodes: list[Json] = found["root"]["children"]
        return [node for node in nodes if node["event_id"] != event["event_id"]]

    before = await asked(_AROUND, until=event["timestamp"], order="newest")
    after = await asked(_AROUND + 1, since=event["timestamp"], order="oldest")  # the event itself is among them
    return {
        "before": before[::-1],
        "after": after[:_AROUND],
        "place": {"context": context_id} if context_id else {"channel": event["channel"]},
    }


async def _note_of(desk: Desk, event: Json) -> Json | None:
    """Return the note of which an event is a version, None of any other event.

    `is_open` says whether the visitor's key and the name as whom it asks also open the note's page.
    """
    fields = event["payload"].get("note")
    if event.get("type") != NOTE_TYPE or not isinstance(fields, dict) or not isinstance(fields.get("id"), str):
        return None
    note: Json = {"id": fields["id"], "version": fields.get("version"), "is_open": False}
    if desk.may("fragment_history"):
        try:
            history = await desk.call("fragment_history", agentId=desk.agent, id=fields["id"], format="json")
        except ToolRefused:
            return note
        note |= {"is_open": True, "current": history["current"]["version"]}
    return note


ROUTES: Routes = (
    PageRoute("/events/{event_id}", event, is_as_somebody=True),
    PageRoute("/events/{event_id}/payload.json", save_payload, is_as_somebody=True),
    PageRoute("/events/{event_id}/forget", confirm_forgetting, ("append",), is_as_somebody=True),
    FormRoute("/events/{event_id}/forget", forget),
    FormRoute("/events/{event_id}/restore", restore),
)
