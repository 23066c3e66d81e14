"""What every tool of the agent's API (Memento's contract) shares: as whom a call acts, and the forms of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from myria.access.agents import Acting, acting, reserved_names
from myria.access.principal import Principal
from myria.errors import MyriaError, NoteNotFound
from myria.memory import Memory
from myria.notes.answertext import ShownAnswer
from myria.notes.finding import note_absent
from myria.notes.memories.sharing import shared_participant
from myria.notes.model import NOTE_CHANNEL
from myria.settings import Settings
from myria_server.api.api_call import ApiCall, Handler, Json, Runner
from myria_server.api.memento.input_schemas import AgentInput

Answered = tuple[Json, str]
"""What a tool answers as structured content, and the same in words."""


def refused(error: MyriaError) -> Json:
    """Return an error in the contract's form."""
    return {
        "success": False,
        "error": error.message,
        "code": error.code,
        "retryable": error.retryable,
        "details": dict(error.details),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentCall(ApiCall):
    """A call, as whom it acts, and by which names its caller gave notes (`given`, by their ids).

    `is_use`: whether a note that is found counts as used.
    """

    who: Acting
    is_use: bool
    given: dict[str, str] = field(default_factory=dict)

    async def note_id(self, name: str) -> str:
        """Return the id of the note that the caller names by id or handle."""
        note_id = await self.memory.note_id(self.tenant, name)
        self.given.setdefault(note_id, name)
        return note_id

    async def note_ids(self, names: Iterable[str] | None) -> list[str]:
        """Return the ids of the notes that the caller names, without repeats."""
        return list(dict.fromkeys([await self.note_id(name) for name in names or ()]))

    def as_named(self, error: MyriaError) -> MyriaError:
        """Return the error with the caller's name for the note: its id is shown only to those who may see the note."""
        note_id = error.details.get("note_id") if isinstance(error, NoteNotFound) else None
        return note_absent(self.given[note_id]) if note_id in self.given else error


WhoActs = Callable[[Principal, str | None], Acting]
"""Returns whose memory a principal's call uses that names an agent, or none; raises as `acting` does."""


def who_acts(settings: Settings) -> WhoActs:
    """Return the rule of this server's settings for whose memory a call uses."""
    shared = shared_participant(settings.rest) if settings.rest.enabled else None
    return partial(
        acting, pooled=settings.agent.pool, shared=shared, reserved=reserved_names(settings.auth, settings.rest)
    )


def runner(memory: Memory, settings: Settings, *, is_use: bool) -> Runner:
    """Return what runs the tools of this API; one that changes notes needs the right to append to their channel."""
    who_of = who_acts(settings)

    async def run(handler: Handler, principal: Principal, request: AgentInput, *, changes: bool) -> ShownAnswer:
        if changes:
            principal.need_channel(NOTE_CHANNEL)
        who = who_of(principal, request.agentId)
        call = AgentCall(memory=memory, settings=settings, principal=principal, who=who, is_use=is_use)
        try:
            content, text = await handler(call, request)
        except NoteNotFound as error:
            raise call.as_named(error) from None
        as_json = (request.format or principal.text_format or settings.agent.text) == "json"
        return ShownAnswer(content=content, text=None if as_json else text, text_for_all=request.format is not None)

    return run
