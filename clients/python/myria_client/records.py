"""What is kept and what is answered: memories, agents, sessions. Plain values; times are datetimes with a zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from myria_client._calls import given

Json = dict[str, Any]
MemoryType = Literal["episodic", "session", "decision", "entity"]
Order = Literal["asc", "desc"]
Moment = str | datetime
"""A time: a datetime with a zone, or the text `24h`, `7d`, `30m` (so long ago), or ISO 8601."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A memory that is to be kept.

    Args:
        content: what is to be remembered.
        agent_id: who keeps it: a letter, then letters, digits, `_` and `-`, at most 128.
        session_id: in which session.
        memory_type: left out, episodic.
        event_type: what happened, in your own words: a letter, then letters, digits and `_`, at most 64.
        metadata: whatever belongs to it, as JSON.
        tags: letters, digits, `_`, `.` and `-`, 1 to 64 each.
        dedup_key: your own key of a repeat; left out, agent, event type and how the content begins.
        importance: from 0 to 1.
        parent_id: the memory that this one goes on from.
    """

    content: str
    agent_id: str
    session_id: str | None = None
    memory_type: MemoryType | None = None
    event_type: str | None = None
    metadata: Mapping[str, Any] | None = None
    tags: Sequence[str] = ()
    dedup_key: str | None = None
    importance: float | None = None
    parent_id: str | None = None

    def to_json(self) -> Json:
        """Return it as it is sent."""
        return given(
            agent_id=self.agent_id,
            content=self.content,
            session_id=self.session_id,
            memory_type=self.memory_type,
            event_type=self.event_type,
            metadata=None if self.metadata is None else dict(self.metadata),
            tags=list(self.tags) or None,
            dedup_key=self.dedup_key,
            importance=self.importance,
            parent_id=self.parent_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory as it stands. `version` is 1 until it is changed; `updated_at` says when it was.

    To a key without the role `read`, a call that keeps or changes one tells `id`, `time`, `org_id` and `version` alone:
    the rest is empty.
    """

    id: str
    time: datetime
    org_id: str
    agent_id: str
    memory_type: str
    event_type: str
    content: str
    session_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    tags: tuple[str, ...] = ()
    dedup_key: str | None = None
    importance: float | None = None
    parent_id: str | None = None
    version: int = 1
    updated_at: datetime | None = None

    @classmethod
    def from_json(cls, body: Json) -> Memory:
        """Return the memory of an answer."""
        return cls(
            id=body["id"],
            time=_time(body["time"]),
            org_id=body["org_id"],
            agent_id=body.get("agent_id", ""),
            memory_type=body.get("memory_type", ""),
            event_type=body.get("event_type", ""),
            content=body.get("content", ""),
            session_id=body.get("session_id"),
            metadata=body.get("metadata"),
            tags=tuple(body.get("tags") or ()),
            dedup_key=body.get("dedup_key"),
            importance=body.get("importance"),
            parent_id=body.get("parent_id"),
            version=body.get("version") or 1,
            updated_at=_maybe_time(body.get("updated_at")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one memory of several: stored under `id`, left out as a duplicate, or refused for `error`."""

    index: int
    status: Literal["stored", "duplicate", "refused"]
    id: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMemories:
    """What became of several memories: those that were stored, and an outcome of each, in the order given."""

    memories: tuple[Memory, ...]
    outcomes: tuple[Outcome, ...]

    @classmethod
    def from_json(cls, body: Json) -> KeptMemories:
        """Return what an answer says."""
        return cls(
            memories=tuple(map(Memory.from_json, body["memories"])),
            outcomes=tuple(
                Outcome(index=one["index"], status=one["status"], id=one.get("id"), error=one.get("error"))
                for one in body["results"]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPage:
    """Some memories, in order. `next_cursor` asks for those behind them, where there are.

    `scanned` says that only so many memories were looked at for a text: narrow the question down.
    """

    memories: tuple[Memory, ...]
    has_more: bool
    next_cursor: str | None = None
    scanned: int | None = None

    @classmethod
    def from_json(cls, body: Json) -> MemoryPage:
        """Return the page of an answer, of a list or of a search."""
        found = body["results"] if "results" in body else body["memories"]
        return cls(
            memories=tuple(map(Memory.from_json, found)),
            has_more=bool(body["has_more"]),
            next_cursor=body.get("next_cursor"),
            scanned=body.get("scanned"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A registered agent."""

    id: str
    org_id: str
    name: str
    created_at: datetime
    description: str | None = None
    config: Mapping[str, Any] | None = None
    last_active_at: datetime | None = None

    @classmethod
    def from_json(cls, body: Json) -> Agent:
        """Return the agent of an answer."""
        return cls(
            id=body["id"],
            org_id=body["org_id"],
            name=body.get("name", ""),
            created_at=_time(body["created_at"]),
            description=body.get("description"),
            config=body.get("config"),
            last_active_at=_maybe_time(body.get("last_active_at")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatistics:
    """What an agent kept, counted."""

    agent_id: str
    memory_count: int
    memories_24h: int
    errors_24h: int
    session_count: int
    active_sessions: int
    memory_types: Mapping[str, int]
    last_active_at: datetime | None = None

    @classmethod
    def from_json(cls, body: Json) -> AgentStatistics:
        """Return the counts of an answer."""
        return cls(
            agent_id=body["agent_id"],
            memory_count=body["memory_count"],
            memories_24h=body["memories_24h"],
            errors_24h=body["errors_24h"],
            session_count=body["session_count"],
            active_sessions=body["active_sessions"],
            memory_types=dict(body["memory_types"]),
            last_active_at=_maybe_time(body.get("last_active_at")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """A session of a registered agent: `active` until it is `closed`."""

    id: str
    org_id: str
    agent_id: str
    status: str
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, Any] | None = None
    closed_at: datetime | None = None

    @classmethod
    def from_json(cls, body: Json) -> AgentSession:
        """Return the session of an answer."""
        return cls(
            id=body["id"],
            org_id=body["org_id"],
            agent_id=body.get("agent_id", ""),
            status=body.get("status", ""),
            created_at=_time(body["created_at"]),
            updated_at=_time(body["updated_at"]),
            metadata=body.get("metadata"),
            closed_at=_maybe_time(body.get("closed_at")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """What was kept in a session, as markdown for a prompt; `memory_count` memories are in it."""

    session_id: str
    context: str
    memory_count: int

    @classmethod
    def from_json(cls, body: Json) -> SessionContext:
        """Return the context of an answer."""
        return cls(session_id=body["session_id"], context=body["context"], memory_count=body["memory_count"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the server is: `status` is `ok` or `ready` while all is well; else `reason` and `hint` may say why not."""

    status: str
    uptime_s: int
    reason: str | None = None
    hint: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether it answers as it should."""
        return self.status in ("ok", "ready")

    @classmethod
    def from_json(cls, body: Json) -> Health:
        """Return the health of an answer."""
        return cls(status=body["status"], uptime_s=body["uptime"], reason=body.get("reason"), hint=body.get("hint"))


def moment(value: Moment | None) -> str | None:
    """Return a time as it is sent.

    Raises:
        ValueError: a datetime without a zone: it names no moment.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a datetime must have a zone, e.g. datetime.now(UTC)")
        return value.isoformat()
    return value


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _maybe_time(text: str | None) -> datetime | None:
    return None if text is None else _time(text)
