"""The pages of the journal: who administered what, and which attempts were refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from myria.access import journal
from myria_server.console.desk import Desk, Json
from myria_server.console.fields import text_of, time_of, whole_number_of
from myria_server.console.forms import Form, Page
from myria_server.console.routes import PageRoute, Routes

_PAGE = 50
_EXPORTED_AT_ONCE = 500
_LONGEST = 200


FIELDS: Mapping[str, tuple[str, str]] = {"since": ("since", "From"), "until": ("until", "Until")}
"""What a refusal of filters says of the form's fields (see `Form.fields`)."""


async def form(desk: Desk, request: Request) -> Page:
    """Show the form with what the address holds, and no entries."""
    return "audit.html", _page(desk, request)


async def overview(desk: Desk, request: Request) -> Page:
    """Show one page of the entries that are sought."""
    desk.principal.need_api("admin")
    before = whole_number_of(request.query_params.get("before")) or None
    sought = _sought(request)
    entries, next_before = await _entries(desk, sought, before, limit=_PAGE)
    found = {"entries": entries, "is_filtered": sought != journal.Sought(), "next_before": next_before}
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

    headers = {"content-disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(lines(), media_type="application/jsonl", headers=headers)


async def _entries(
    desk: Desk, sought: journal.Sought, before: int | None, *, limit: int
) -> tuple[list[Json], int | None]:
    if desk.principal.proof is None:
        return [], None
    return await journal.entries_for(desk.memory.appending, desk.principal.proof, sought, before=before, limit=limit)


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
        actor=texts["actor"],
        action=texts["action"],
        outcome=texts["outcome"],
        since=time_of(texts["since"], "since"),
        until=time_of(texts["until"], "until"),
    )


ROUTES: Routes = (
    PageRoute("/audit", overview, ("admin",), Form(form, FIELDS)),
    PageRoute("/audit.jsonl", export, ("admin",), Form(form, FIELDS)),
)
