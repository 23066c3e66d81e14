"""What every tool of the agent's face shares: whose memory it is, and the two forms of an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from myria.access.agents import Acting, acting, reserved_names
from myria.access.principal import Principal
from myria.errors import MyriaError, NoteNotFound
from myria.memory import Memory
from myria.notes.answertext import ShownAnswer
from myria.notes.commands import note_absent
from myria.notes.memories.sharing import shared_participant
from myria.notes.model import NOTE_CHANNEL
from myria.settings import Settings
from myria_server.api.memento.schemas import AgentInput

Json = dict[str, Any]
Handler = Callable[[Principal, Any], Awaitable[Json | ShownAnswer]]


def refused(error: MyriaError) -> Json:
    """Return an error in the contract's form."""
    return {
        "success": False,
        "error": error.message,
        "code": error.code,
        "retryable": error.retryable,
        "details": dict(error.details),
    }


class AgentTools:
    """Base of a group of tools over one memory."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self.memory = memory
        self.settings = settings
        self._shared = shared_participant(settings.rest) if settings.rest.enabled else None
        self._reserved = reserved_names(settings.auth, settings.rest)

    def acting(self, principal: Principal, request: AgentInput) -> Acting:
        """Return as whom a call acts; see `myria.access.agents`."""
        return acting(
            principal,
            request.agentId,
            pooled=self.settings.agent.pool,
            shared=self._shared,
            reserved=self._reserved,
        )

    def writing(self, principal: Principal, request: AgentInput) -> Acting:
        """Return as whom a call acts that changes notes.

        Raises:
            ChannelNotAllowed: the principal may not append to the channel of notes.
        """
        principal.need_channel(NOTE_CHANNEL)
        return self.acting(principal, request)

    async def note_id(self, principal: Principal, name: str) -> str:
        """Return the id of the note that a caller names by id or handle."""
        return await self.memory.note_id(principal.tenant, name)

    @contextmanager
    def as_named(self, ids: Mapping[str, str]) -> Iterator[None]:
        """Let a refusal name a note as its caller did: what a handle stands for is for those who may see it.

        Args:
            ids: the ids of notes by what the caller called them.
        """
        try:
            yield
        except NoteNotFound as error:
            given = next((name for name, note_id in ids.items() if note_id == error.details.get("note_id")), None)
            if given is None:
                raise
            raise note_absent(given) from None

    def answered(self, principal: Principal, request: AgentInput, content: Json, text: str) -> ShownAnswer:
        """Return an answer whose text is what the call chose, or else its key, or else the settings."""
        as_json = (request.format or principal.text_format or self.settings.agent.text) == "json"
        return ShownAnswer(content=content, text=None if as_json else text, text_for_all=request.format is not None)
