"""What one request of the console works with: who asks, the tools as this visitor may use them, and the memory.

A tool is called on behalf of a visitor as by an MCP client: with the same roles, masks, limits and journal. What tools
do not answer, a page reads from the memory by itself, under `participants` or `masks`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from myria.access.administered import TenantKeys
from myria.access.limits import CredentialLimits
from myria.access.principal import ApiName, Principal
from myria.errors import FaceNotAllowed
from myria.log.masks import Masks
from myria.log.scopes import canonical_participants
from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.memento.calls import who_acts
from myria_server.api.tools import TOOLS
from myria_server.console.visitors import Visitor
from myria_server.mcp.toolbox import AddressOf, Toolbox

Json = dict[str, Any]

_APIS_OF: Mapping[str, tuple[ApiName, ...]] = {tool.name: tool.apis for tool in TOOLS}


class ToolRefused(Exception):
    """A tool refused a call: the `error` object of its answer."""

    def __init__(self, error: Json, http_status: int) -> None:
        super().__init__(error["message"])
        self.code: str = error["code"]
        self.message: str = error["message"]
        self.details: Json = error.get("details") or {}
        self.http_status = http_status


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """What one request works with.

    Attributes:
        names: those as whom the visitor asks beside itself, as the page's address says.
        limits: what credentials may use, for what reads on after its page began.
        check_session: raises an AccessError once the session has ended, for what goes on for long after its page began.
    """

    visitor: Visitor
    names: Sequence[str]
    memory: Memory
    settings: Settings
    toolboxes: Mapping[ApiName, Toolbox]
    limits: CredentialLimits
    address_of: AddressOf
    check_session: Callable[[], Awaitable[object]]

    @property
    def named(self) -> tuple[str, ...] | None:
        """The names as whom the visitor asks, in the form in which events hold them; None where it names nobody.

        Raises:
            InvalidParticipants: a name that no event can have.
        """
        return canonical_participants(list(self.names)) if self.names else None

    @property
    def participants(self) -> tuple[str, ...]:
        """The participants as whom the visitor asks.

        Raises:
            InvalidParticipants: a name that no event can have.
            ParticipantsNotAllowed: the visitor's key may not ask as these.
        """
        return self.principal.asking_as(self.named)

    @property
    def masks(self) -> Masks:
        """What the visitor sees as these participants; raises as `participants` does."""
        return self.principal.asking(self.named)

    @property
    def needs_name(self) -> bool:
        """Whether the visitor's key speaks for many, and the page's address does not say for whom."""
        return bool(self.principal.may_ask) and not self.names

    @property
    def agent(self) -> str | None:
        """The agent as which the visitor reads notes: the first that it names, as notes are read as one at a time.

        None for the notes that all agents of its key share; names of the key itself, and of everybody, mean these.

        Raises:
            InvalidParticipants: a name that no event can have.
        """
        shared = self.principal.own or self.principal.fallback
        return next((name for name in self.names if canonical_participants([name])[0] not in shared), None)

    @property
    def note_masks(self) -> Masks:
        """What the visitor sees of notes as this agent: less than of events, among which is each version of a note.

        Raises:
            InvalidArgument, InvalidParticipants, ParticipantsNotAllowed: as `acting`.
        """
        return who_acts(self.settings)(self.principal, self.agent).masks

    def names_that_see(self, participants: Sequence[str]) -> Sequence[str] | None:
        """Return as whom to ask, beside oneself, for what a group shares: as now, or as one of it; None if nobody."""
        principal = self.principal
        if not set(principal.own).issubset(participants):
            return None
        if (self.names or not (principal.may_ask or principal.anyone)) and set(self.names).issubset(participants):
            return self.names
        return next(([name] for name in participants if principal.may_name(name)), None)

    async def events_opened_as(self, event_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return as whom to ask for some events (`names_that_see`), by id; of those alone whose pages open so."""
        also_gone = self.is_admin or self.may("restore_events")  # they are told what became of it
        shared = await self.memory.withdrawals.participants(self.tenant, event_ids, also_gone=also_gone)
        named = {event_id: self.names_that_see(participants) for event_id, participants in shared.items()}
        return {event_id: names for event_id, names in named.items() if names is not None}

    @property
    def is_admin(self) -> bool:
        """Whether the visitor administers: only then a page shows what is about every group of people."""
        return "admin" in self.principal.roles and "admin" in self.principal.faces

    @property
    def principal(self) -> Principal:
        """The principal of the visitor."""
        return self.visitor.principal

    @property
    def tenant(self) -> str:
        """Whose memory the visitor looks at."""
        return self.visitor.principal.tenant

    def may(self, tool_name: str) -> bool:
        """Tell whether the visitor may call a tool, so that a page offers only what can be done."""
        api = self._api_of(tool_name)
        if api is None:
            return False
        return any(tool.name == tool_name for tool in self.toolboxes[api].offered_to(self.principal))

    async def call(self, tool_name: str, **arguments: Any) -> Json:
        """Call a tool and return its answer. An argument that is None, or empty, is left out.

        Raises:
            FaceNotAllowed: the visitor may use none of the tool's APIs.
            ToolRefused: the tool refuses.
        """
        return (await self.call_with_text(tool_name, **arguments))[0]

    async def call_with_text(self, tool_name: str, **arguments: Any) -> tuple[Json, str | None]:
        """Call a tool; return its answer, and the text for a model where it has one.

        Raises:
            FaceNotAllowed: the visitor may use none of the tool's APIs.
            ToolRefused: the tool refuses.
        """
        api = self._api_of(tool_name)
        given = {name: value for name, value in arguments.items() if value not in (None, "", [], ())}
        if api is None:
            apis = _APIS_OF[tool_name]
            raise FaceNotAllowed(f"this needs a key for the API {' or '.join(apis)}", face=apis[0])
        result = await self.toolboxes[api].call(tool_name, given, self.principal, self.address_of)
        content: Json = orjson.loads(result.body)
        if result.is_error:
            raise ToolRefused(
                content["error"] if isinstance(content.get("error"), dict) else _error_of(content), result.status
            )
        return content, result.text

    def _api_of(self, tool_name: str) -> ApiName | None:
        """Return an API by which the visitor may call a tool; None if there is none."""
        usable = (api for api in _APIS_OF[tool_name] if api in self.principal.faces and api in self.toolboxes)
        return next(usable, None)

    async def key_names(self, actors: Iterable[str | None]) -> Mapping[str, str]:
        """Return what the keys among some actors (`key:<id>`) are called, by their ids; none to who may not know."""
        ids = [actor.removeprefix("key:") for actor in actors if actor and actor.startswith("key:")]
        if not ids or not self.is_admin or self.principal.proof is None:
            return {}
        return await TenantKeys(self.memory.appending).key_names(self.principal.proof, ids)

    async def ask(self, tool_name: str, **arguments: Any) -> Json:
        """Call a tool that reads, as those whom the page's address names.

        Raises:
            FaceNotAllowed: the visitor may use none of the tool's APIs.
            ToolRefused: the tool refuses.
        """
        return await self.call(tool_name, participants=list(self.names), **arguments)


def _error_of(content: Json) -> Json:
    """Return the error of an answer in the form of the agents' contract."""
    code, message = str(content.get("code", "error")), str(content.get("error", "refused"))
    return {"code": code, "message": message, "details": content.get("details")}
