"""Choosing as whom to ask: the names that pages offer, and the page that asks before a page is read as somebody."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from myria.search.people import names_beginning, names_beside
from myria_server.console.desk import Desk
from myria_server.console.forms import Fields, Form, Page

PICKERS = frozenset(
    {"ask.html", "ask_as.html", "topics.html", "timeline.html", "people.html", "notes.html", "note_new.html"}
)
"""Templates of pages on which a visitor chooses as whom to ask."""

NAMES: Fields = dict.fromkeys(("participants", "as"), ("as", "Ask as"))
"""What a refusal of names says of the fields of these pages (see `Fields`)."""

_OFFERED = 100
_SCOPES = 500
"""Groups of people, the newest ones, whose names are offered."""
_NEWEST = 50
"""Events of a scope, and scopes of a name, among which one to be seen is looked for: an erased person has none."""


async def names_offered(desk: Desk) -> Sequence[str]:
    """Return names as which a visitor may ask beside its own, at most a hundred, by name.

    They are those with whom it shares something, or whose names its key allows; of a pattern with a star, those
    participants that match it.
    """
    principal = desk.principal
    async with desk.memory.database.read(desk.tenant) as connection:
        if principal.anyone:
            return await names_beginning(connection, desk.tenant, "", newest=_NEWEST, limit=_OFFERED)
        if not principal.may_ask:
            return ()
        names: set[str] = set()
        if principal.own:
            names |= set(
                await names_beside(
                    connection, desk.tenant, principal.own, scopes=_SCOPES, newest=_NEWEST, limit=_OFFERED
                )
            )
        else:
            for pattern in principal.may_ask:
                beginning = pattern.partition("*")[0]
                names |= set(await names_beginning(connection, desk.tenant, beginning, newest=_NEWEST, limit=_OFFERED))
    allowed = {name for name in names if principal.may_name(name) and name not in principal.own}
    literal = {pattern for pattern in principal.may_ask if "*" not in pattern}
    return sorted(allowed | literal)[:_OFFERED]


async def as_whom(desk: Desk, request: Request) -> Page:
    """Ask as whom a page is to be read; the form keeps what else its address says."""
    kept = [(field, value) for field, value in request.query_params.multi_items() if field != "as"]
    return "ask_as.html", {"patterns": desk.principal.may_ask, "kept": kept}


AS_WHOM = Form(as_whom, NAMES)
