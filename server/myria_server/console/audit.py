"""The pages of the journal: who administered what, and which attempts were refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from myria.access import journal
from myria.errors import InvalidArgument, ParticipantsNotAllowed
from myria_server.api.tools import TOOLS
from myria_server.console.desk import Desk, Json
from myria_server.console.fields import text_of, time_of, whole_number_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.rendering import saved_as
from myria_server.console.routes import PageRoute, Routes

_PAGE = 50
_EXPORTED_AT_ONCE = 500
_LONGEST = 200


FIELDS: Fields = {"since": ("since", "From"), "until": ("until", "Until")}
"""What a refusal of filters says of the form's fields (see `Fields`)."""

_DID: Mapping[str, str] = {
    "console.sign_in": "signed in to the console",
    "console.sign_out": "signed out of the console",
    "decide_notes.approve": "approved the note",
    "decide_notes.refuse": "refused the note",
    "decide_notes.hold": "took back the decision about the note",
    "erase.plan": "looked what an erasure would take",
    "erase.start": "began the erasure",
    "erase.done": "finished the erasure",
    "erase.admit": "let erased events be appended again",
    "grant.issue": "gave a grant to",
    "grant.exchange": "took up its grant",
    "grant.refresh": "renewed the tokens of its grant",
    "grant.revoke": "ended the grant of",
    "grant.misuse": "showed a secret of its grant that was not its own or used up, and lost it",
    "memory.forgotten": "forgot",
    "memory.expired": "marked as expired",
    "memory.superseded": "marked as replaced",
    "memory.restored": "restored",
    "key.create": "made the key",
    "key.rotate": "replaced the key",
    "key.revoke": "revoked the key",
    "tenant.create": "made the tenant",
    "tenant.set": "set what the tenant may use:",
    "tenant.redact": "set what is removed from new events of the tenant",
    "tenant.turns": "set how turns are served to the tenant",
    "tenant.suspend": "suspended the tenant",
    "tenant.resume": "resumed the tenant",
    "tenant.delete": "began to delete the tenant",
    "tenant.deleted": "deleted the tenant",
}
"""What a person reads for an action that was done, before its target; of a decision, for each that there is."""

_TITLES: Mapping[str, str] = {tool.name: tool.title for tool in TOOLS}

_WORDS: Mapping[str, str] = {
    **{name: f"asked to {title}\ntried to {title}".lower() for name, title in _TITLES.items()},
    **_DID,
}
"""By action, in the form of `journal.Sought`: what a person reads, in lower case."""


async def form(desk: Desk, request: Request) -> Page:
    """Show the form with what the address holds, and no entries."""
    return "audit.html", _page(desk, request)


async def overview(desk: Desk, request: Request) -> Page:
    """Show one page of the entries that are sought."""
    desk.principal.need_api("admin")
    before = whole_number_of(request.query_params.get("before")) or None
    sought = _sought(request)
    entries, next_before = await _entries(desk, sought, before, limit=_PAGE)
    named = [entry["actor"] for entry in entries]
    named += [f"key:{entry['target']}" for entry in entries if entry["action"].startswith("key.")]
    found = {
        "entries": [entry | {"did": did(entry)} for entry in entries],
        "key_names": await desk.key_names(named),
        "opened_as": await _opened_as(desk, entries),
        "is_filtered": sought != journal.Sought(),
        "next_before": next_before,
    }
    return "audit.html", {**_page(desk, request), **found}


async def export(desk: Desk, request: Request) -> Response:
    """Send all entries that are sought as JSON lines, newest first."""
    desk.principal.need_api("admin")
    sought = _sought(request)

    first = await _entries(desk, sought, None, limit=_EXPORTED_AT_ONCE)  # refused here, the answer is a page

    async def lines() -> AsyncIterator[bytes]:
        entries, before = first
        while True:
            yield b"".join(orjson.dumps(entry, default=str) + b"\n" for entry in entries)
            if before is None:
                return
            entries, before = await _entries(desk, sought, before, limit=_EXPORTED_AT_ONCE)

    headers = saved_as("audit", "jsonl")
    return StreamingResponse(lines(), media_type="application/jsonl", headers=headers)


async def _entries(
    desk: Desk, sought: journal.Sought, before: int | None, *, limit: int
) -> tuple[list[Json], int | None]:
    if desk.principal.proof is None:
        return [], None
    return await journal.entries_for(desk.memory.appending, desk.principal.proof, sought, before=before, limit=limit)


async def _opened_as(desk: Desk, entries: Sequence[Json]) -> Mapping[str, Sequence[str]]:
    """Return, by event or note that somebody withdrew or restored, as whom to ask for its page, where that opens.

    Whoever may not see it is told nothing, as by the page itself: neither what it is nor whether it is there.
    """
    ids = {entry["target"] for entry in entries if entry["action"].startswith("memory.") and entry["target"]}
    notes = {one for one in ids if one.startswith("note_")}
    opened_as = {**await desk.events_opened_as(ids - notes)} if ids > notes else {}
    if "agent" in desk.principal.faces and notes:
        with suppress(InvalidArgument, ParticipantsNotAllowed):  # notes are not read as this name
            may_see = desk.note_masks.sees
            visible = await desk.memory.notes.visible(desk.tenant, notes, may_see=may_see)
            opened_as |= dict.fromkeys(visible, desk.names)
    return opened_as


def did(entry: Json) -> str:
    """Return what an entry says that somebody did, or tried to, in the words of a sentence."""
    action, decision, is_done = entry["action"], entry["details"].get("decision"), entry["outcome"] == "ok"
    told = _DID.get(f"{action}.{decision}" if decision else action)
    if told and (is_done or action == "grant.misuse"):
        return told
    # An API that refuses a call itself is asked for, and the tool is what was wanted of it.
    if title := _TITLES.get(action) or _TITLES.get(entry["target"] or ""):
        return f"{'asked to' if is_done else 'tried to'} {title[0].lower()}{title[1:]}"
    return f"asked for {action}"


def _page(desk: Desk, request: Request) -> Mapping[str, Any]:
    """Return the values of the page before any entries are looked for."""
    return {
        "entries": None,
        "filters": {name: request.query_params.get(name, "") for name in _FILTERS},
        "next_before": None,
        "has_proof": desk.principal.proof is not None,
    }


_FILTERS = ("q", "actor", "action", "outcome", "since", "until")


def _sought(request: Request) -> journal.Sought:
    """Return what the fields of the form say.

    Raises:
        InvalidTimestamp: a moment is none.
    """
    texts = {name: text_of(request.query_params.get(name))[:_LONGEST] for name in _FILTERS}
    return journal.Sought(
        text=texts["q"],
        text_actions=_actions_told_as(texts["q"]),
        actor=texts["actor"],
        actions=_actions_of(texts["action"]),
        outcome=texts["outcome"],
        since=time_of(texts["since"], "since"),
        until=time_of(texts["until"], "until"),
    )


def _actions_of(text: str) -> tuple[str, ...]:
    """Return the action of this name, else those that have it in their words; none for an empty text."""
    if not text:
        return ()
    return (text,) if text in _WORDS else (text, *_actions_told_as(text))


def _actions_told_as(text: str) -> tuple[str, ...]:
    """Return the actions of whose words a text is a part; none for an empty one."""
    return tuple(action for action, words in _WORDS.items() if text and text.lower() in words)


ROUTES: Routes = (
    PageRoute("/audit", overview, ("admin",), Form(form, FIELDS)),
    PageRoute("/audit.jsonl", export, ("admin",), Form(form, FIELDS)),
)
