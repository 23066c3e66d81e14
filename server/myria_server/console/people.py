"""The pages of people and agents: who there is, what is remembered of one, and erasing it, with a look before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from myria.errors import InvalidArgument
from myria.memory import Memory
from myria.search.people import people_beside
from myria_server.console.desk import Desk, ToolRefused
from myria_server.console.fields import number_of
from myria_server.console.visitors import PREFIX

_PAGE = 100
_NEWEST = 10


class PeoplePages:
    """The pages of people; the list needs more than tools answer."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def overview(self, desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
        """List the participants with whom the visitor shares something; without credentials, all."""
        principal, parameters = desk.principal, request.query_params
        principal.need_api("core")
        is_anybody = principal.anyone and not desk.names
        participants = () if is_anybody else principal.asking_as(desk.named)
        prefix = parameters.get("q", "").strip().replace("\0", "")
        async with self._memory.database.read(principal.tenant) as connection:
            people = await people_beside(
                connection,
                principal.tenant,
                participants,
                after=parameters.get("after", "").replace("\0", ""),
                prefix=prefix,
                limit=_PAGE + 1,
            )
        return "people.html", {
            "people": people[:_PAGE],
            "next_after": people[_PAGE - 1].name if len(people) > _PAGE else None,
            "prefix_asked": prefix,
        }


async def person(desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Show what is remembered of one participant: the newest of what it may see, asked as it and the visitor."""
    name = request.query_params.get("name", "")
    answer = await desk.call("query_event_nodes", participants=[*desk.names, name], order="newest", limit=_NEWEST)
    return "person.html", {"name": name, "answer": answer, "both": list(dict.fromkeys([*desk.names, name]))}


async def confirm_erasure(desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Show what erasing everything of a participant removes, and ask once."""
    name = request.query_params.get("name", "")
    shared = "remove" if request.query_params.get("shared") == "remove" else "keep"
    preview = await desk.call("preview_erasure", of_participants=[name], shared=shared)
    return "erase.html", {"name": name, "shared": shared, "preview": preview}


async def erase(desk: Desk, request: Request, form: Mapping[str, str]) -> str:
    """Begin the erasure that a form confirms: exactly the events that its page counted."""
    name = request.query_params.get("name", "")
    if form.get("confirmed", "").strip() != name:
        raise InvalidArgument("The name that you wrote is another one, so nothing was erased.", field="confirmed")
    answer = await desk.call(
        "erase",
        of_participants=[name],
        shared=form.get("shared"),
        expected_events=number_of(form.get("expected_events"), default=0),
        reason=form.get("reason"),
    )
    return f"{PREFIX}/erasures/{answer['erasure_id']}"


async def erasure(desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
    """Show how far an erasure is."""
    erasure_id = request.path_params["erasure_id"]
    found = (await desk.call("get_erasures", erasure_id=erasure_id))["erasures"]
    if not found:
        raise ToolRefused({"code": "erasure_not_found", "message": f"there is no erasure {erasure_id}"}, 404)
    return "erasure.html", {"erasure": found[0]}
