"""The names that a page offers where a visitor chooses as whom to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from myria.access.principal import Principal
from myria.memory import Memory
from myria.search.people import names_beginning, names_beside

PICKERS = frozenset({"ask.html", "ask_as.html", "topics.html", "timeline.html", "people.html", "notes.html"})
"""Templates of pages on which a visitor chooses as whom to ask."""

NAMES: Mapping[str, tuple[str, str]] = dict.fromkeys(("participants", "as"), ("as", "Ask as"))
"""What a refusal of names says of the fields of these pages (see `Form.fields`)."""

_OFFERED = 100
_SCOPES = 500
"""Groups of people, the newest ones, whose names are offered."""


async def names_offered(memory: Memory, principal: Principal) -> Sequence[str]:
    """Return names as which a visitor may ask beside its own, at most a hundred, by name.

    They are those with whom it shares something, or whose names its key allows; of a pattern with a star, those
    participants that match it.
    """
    async with memory.database.read(principal.tenant) as connection:
        if principal.anyone:
            return await names_beginning(connection, principal.tenant, "", limit=_OFFERED)
        if not principal.may_ask:
            return ()
        names: set[str] = set()
        if principal.own:
            names |= set(
                await names_beside(connection, principal.tenant, principal.own, scopes=_SCOPES, limit=_OFFERED)
            )
        else:
            for pattern in principal.may_ask:
                beginning = pattern.partition("*")[0]
                names |= set(await names_beginning(connection, principal.tenant, beginning, limit=_OFFERED))
    allowed = {name for name in names if principal.may_name(name) and name not in principal.own}
    literal = {pattern for pattern in principal.may_ask if "*" not in pattern}
    return sorted(allowed | literal)[:_OFFERED]
