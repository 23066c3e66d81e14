"""The contract of REST, `/api/v1` (Memtrace's, and more): the models of what is answered, and its refusals.

What is empty is left out, as in the contract. Refusals are `{"error": text}`, with more beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from myria.errors import (
    AgentExists,
    CredentialInvalid,
    CredentialMissing,
    DatabaseUnavailable,
    DuplicateMemory,
    MyriaError,
    StorageQuotaExceeded,
    TenantSuspended,
    UnavailableError,
)
from myria.notes.memories.model import MemoryType
from myria_server.api.answers import Answer, OpenAnswer
from myria_server.api.fields import Json
from myria_server.paths import REST_PREFIX

_NOTED = "There where nothing fits: says that nothing is remembered of it"


class MemoryLink(Answer):
    """A link between two memories; what goes on from another is `part_of` it."""

    from_: str = Field(alias="from")
    to: str
    relation_type: str


class MemoryBody(Answer):
    """A memory."""

    OPEN = frozenset({"id", "time", "org_id", "version", "updated_at", "held"})

    id: str
    time: str = Field(description="When it was kept: RFC 3339 in UTC")
    org_id: str
    agent_id: str
    session_id: str | None = None
    memory_type: MemoryType
    event_type: str
    content: str
    metadata: Json | None = None
    tags: list[str] | None = None
    dedup_key: str | None = None
    importance: float | None = None
    parent_id: str | None = None
    version: int | None = Field(default=None, description="Of one that was amended")
    updated_at: str | None = None
    links: list[MemoryLink] | None = Field(default=None, description="With others; told where it is read by its id")
    held: bool | None = Field(default=None, description="What was said waits for a review; nobody finds it before")


class KeptBody(OpenAnswer):
    """What became of one memory of several."""

    index: int
    status: Literal["stored", "duplicate", "refused"]
    id: str | None = None
    error: str | None = None


class MemoriesBody(OpenAnswer):
    """What was kept of several memories."""

    memories: list[MemoryBody]
    count: int
    results: list[KeptBody]


class MemoryListBody(Answer):
    """Memories in order."""

    memories: list[MemoryBody]
    count: int
    has_more: bool
    next_cursor: str | None = None
    note: str | None = Field(default=None, description=_NOTED)


class SearchBody(Answer):
    """What was found."""

    results: list[MemoryBody]
    count: int
    query_time_ms: int
    has_more: bool
    next_cursor: str | None = None
    note: str | None = Field(default=None, description=_NOTED)
    scanned: int | None = Field(
        default=None, description="So many of those that match otherwise were looked at for the content; narrow down"
    )


class AgentBody(Answer):
    """An agent."""

    OPEN = frozenset({"id", "org_id", "created_at"})

    id: str
    org_id: str
    name: str
    description: str | None = None
    config: Json | None = None
    created_at: str
    last_active_at: str | None = None


class AgentsBody(Answer):
    """Agents, newest first."""

    agents: list[AgentBody]
    count: int
    has_more: bool = Field(description="Whether there are more: ask again with offset")


class StatisticsBody(Answer):
    """What an agent kept."""

    agent_id: str
    memory_count: int
    memories_24h: int
    errors_24h: int
    session_count: int
    active_sessions: int
    last_active_at: str | None = None
    memory_types: dict[str, int]


class SessionBody(Answer):
    """A session."""

    OPEN = frozenset({"id", "org_id", "created_at", "updated_at", "closed_at"})

    id: str
    org_id: str
    agent_id: str
    status: str
    metadata: Json | None = None
    created_at: str
    updated_at: str
    closed_at: str | None = None


class SessionsBody(Answer):
    """Sessions, newest first."""

    sessions: list[SessionBody]
    count: int
    has_more: bool = Field(description="Whether there are more: ask again with offset")


class ContextBody(Answer):
    """The context of a session."""

    session_id: str
    context: str
    memory_count: int
    note: str | None = Field(default=None, description=_NOTED)


class RestRefusal(Answer):
    """What a refused request answers."""

    error: str
    code: str = Field(description="Stable; see errors.md")
    retryable: bool
    hint: str | None = Field(default=None, description="What to do")
    field: str | None = None
    index: int | None = None
    id: str | None = Field(default=None, description="Of a duplicate: the memory that stands")


_CONTRACT_TEXTS = {
    CredentialMissing: "missing API key",
    CredentialInvalid: "invalid API key",
    DuplicateMemory: "duplicate memory",
    AgentExists: "agent already exists",
}
"""What the contract says, where its clients or their users may look for it."""


_NEXT_STEP: Mapping[type[MyriaError], str] = {
    TenantSuspended: "an administrator ends it by `myria tenant resume`; until then nothing is read or kept",
    StorageQuotaExceeded: "erase what is no longer needed, or let an administrator give the tenant more room by "
    "`myria tenant set <tenant> bytes_stored=...`; reading goes on meanwhile",
    DatabaseUnavailable: f"retry after a moment, with an Idempotency-Key where something is kept; {REST_PREFIX}/ready "
    "says when the database is there again",
}
"""What to do about an organisation that cannot be served."""


def status_of(error: MyriaError) -> int:
    """Return the HTTP status of an error; 503 for those of `_NEXT_STEP`: a tenant that is not served."""
    return UnavailableError.http_status if type(error) in _NEXT_STEP else error.http_status


def refused(error: MyriaError) -> Json:
    """Return an error as Memtrace's clients expect it: its words where they test them, and ours as a hint."""
    contract_text = _CONTRACT_TEXTS.get(type(error))
    body: Json = {"error": contract_text or error.message, "code": error.code, "retryable": error.retryable}
    if contract_text is not None and contract_text != error.message:
        body["hint"] = error.message
    elif (next_step := _NEXT_STEP.get(type(error))) is not None:
        body["hint"] = next_step
    elif isinstance(error, UnavailableError):
        body["hint"] = "retry after a moment"
    for name, value_type in (("field", str), ("index", int), ("id", str)):
        if isinstance(value := error.details.get(name), value_type):
            body[name] = value
    return body
