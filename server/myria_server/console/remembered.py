"""The page of what is remembered of one participant, and all of it as a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from myria.db.clock import to_rfc3339
from myria.errors import MyriaError, RateLimited
from myria.log.masks import Masks
from myria.log.scopes import canonical_participants
from myria.search.overview import Overview
from myria.search.queries import EventNodesQuery
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.forms import Page
from myria_server.console.people import is_agent
from myria_server.console.rendering import saved_as
from myria_server.console.routes import PageRoute, Routes
from myria_server.console.topics import trees_of

_NEWEST = 10
_NOTES = 10
_ABOUT = 50
"""Notes about somebody that are counted."""

_ABOUT_TOKENS = 100_000
_TOKENS = 20_000
_TREES = 3

_EXPORTED_AT_ONCE = 200
"""Events of one read of an export."""

_LONGEST_WAIT_S = 60.0
"""Seconds for which an export waits at most for the rate of its key; then it ends and says so."""

_NOT_EXPORTED = ("kind", "score", "signals", "indexed")
"""Fields of an answer that tell of the answer, not of the event."""


async def person(desk: Desk, request: Request) -> Page:
    """Show what is remembered of one participant: of what the visitor may see, all that this one was part of."""
    desk.principal.need_api("core")
    who = _named(desk, request)
    answer = await _nodes(desk, who, order="newest", limit=_NEWEST)
    activity = await desk.memory.retrieval.overview(
        desk.tenant, Masks.containing(who.participants), partial(_activity_of, name=who.name)
    )
    trees, _ = await trees_of(desk, who.participants, view="subject", after=0, most=_TREES)
    return "person.html", {
        "name": who.name,
        "both": who.participants,
        "may_ask": who.may_ask,
        "asked": who.participants if who.may_ask else desk.names,
        "is_agent": is_agent(who.name),
        "answer": answer,
        **activity,
        "trees": trees,
        "notes": await _notes_of(desk, who.name) if who.may_ask else None,
        "about": await _notes_about(desk, who.name),
    }


async def export(desk: Desk, request: Request) -> Response:
    """Send all that a person's page counts, and internal and replaced events, as JSON lines, oldest first.

    The last line says whether the file is whole.
    """
    desk.principal.need_api("core")
    who = _named(desk, request)
    everything = {
        "order": "oldest",
        "limit": _EXPORTED_AT_ONCE,
        "include_internal": True,
        "include_superseded": True,
    }
    first = await _nodes(desk, who, **everything)  # refused here, the answer is a page and no file

    async def lines() -> AsyncIterator[bytes]:
        page, events = first, 0
        try:
            while True:
                for event in page["root"]["children"]:
                    yield _line({field: value for field, value in event.items() if field not in _NOT_EXPORTED})
                    events += 1
                if page["next_cursor"] is None:
                    break
                await _take_turn(desk)
                await desk.check_session()
                page = await _nodes(desk, who, **everything, cursor=page["next_cursor"])
        except (ToolRefused, MyriaError) as refused:
            yield _line({"complete": False, "events": events, "error": refused.code})
            return
        yield _line({"complete": True, "events": events, "name": who.name})

    headers = saved_as("remembered", "jsonl", who.name)
    return StreamingResponse(lines(), media_type="application/jsonl", headers=headers)


async def _nodes(desk: Desk, who: _Who, **arguments: Any) -> Json:
    """Return events of a participant: by the tool where the key may ask as it."""
    if who.may_ask:
        return await desk.call("query_event_nodes", participants=list(who.participants), **arguments)
    query = EventNodesQuery(masks=Masks.containing(who.participants), **arguments)
    return await desk.memory.retrieval.query_event_nodes(desk.tenant, query)


async def _take_turn(desk: Desk) -> None:
    """Count a further request of the visitor's key, once its rate allows for it.

    Raises:
        RateLimited: it does not for a long time.
    """
    usage = desk.limits.of(desk.principal)
    waited_s = 0.0
    while usage is not None:
        try:
            usage.more(1)
        except RateLimited as refused:
            wait_s = float(refused.details.get("retry_after_s", 1.0))
            waited_s += wait_s
            if waited_s > _LONGEST_WAIT_S:
                raise
            await asyncio.sleep(wait_s)
        else:
            return


@dataclass(frozen=True, kw_only=True, slots=True)
class _Who:
    """Whom a page is about, and the participants whose common events it shows; `may_ask`: the key may ask as all."""

    name: str
    participants: tuple[str, ...]
    may_ask: bool


def _named(desk: Desk, request: Request) -> _Who:
    """Return whom a page is about: of what the visitor sees as those whom it names, the part with this one.

    A key that may not ask as this one still sees what its own participants share with it.

    Raises:
        InvalidParticipants: a name that nobody can have.
        ParticipantsNotAllowed: as whom the visitor asks is not allowed.
    """
    principal = desk.principal
    (name,) = canonical_participants([request.query_params.get("name", "")], field="name")
    if principal.may_name(name):
        asked = canonical_participants([*desk.names, name])
        return _Who(name=name, participants=principal.asking_as(asked), may_ask=True)
    participants = desk.participants
    return _Who(
        name=name,
        participants=canonical_participants([*participants, name]),
        may_ask=name in participants,
    )


def _line(value: Json) -> bytes:
    return orjson.dumps(value) + b"\n"


def _activity_of(overview: Overview, *, name: str) -> Json:
    """Return how many events there are of a participant, and when the first and last one were."""
    [activity] = overview.of_people([name])
    return {
        "events": activity.events,
        "first_at": None if activity.first_at is None else to_rfc3339(activity.first_at),
        "last_at": None if activity.last_at is None else to_rfc3339(activity.last_at),
    }


async def _notes_of(desk: Desk, name: str) -> Json | None:
    """Return the newest notes of an agent or person, and how many there are; None if the visitor may not read them."""
    if not desk.may("recall"):
        return None
    try:
        found = await desk.call(
            "recall", agentId=name, pageSize=_NOTES, tokenBudget=_TOKENS, minImportance=0.0, includeLinks=False
        )
        stats = await desk.call("memory_stats", agentId=name)
    except ToolRefused:
        return None  # a name that is everybody's, or as which this key keeps no notes
    return {"newest": found["fragments"], "total": stats["stats"]["total"]}


async def _notes_about(desk: Desk, name: str) -> Json:
    """Return the notes whose subject somebody is, of those that the visitor reads: newest first, and how many.

    `is_more`: there are more than are counted. A visitor who reads as this one has them among its notes.
    """
    found: Json = {"fragments": []}
    if desk.may("recall") and desk.agent != name:
        with suppress(ToolRefused):  # the visitor reads no notes as these names
            found = await desk.call(
                "recall",
                agentId=desk.agent,
                topic=name,
                pageSize=_ABOUT,
                tokenBudget=_ABOUT_TOKENS,
                minImportance=0.0,
                includeLinks=False,
                fields=["id", "content", "type", "created_at"],
            )
    notes = found["fragments"]
    return {"newest": notes[:_NOTES], "total": len(notes), "is_more": "nextCursor" in found}


ROUTES: Routes = (
    PageRoute("/people/one", person),
    PageRoute("/people/export", export),
)
