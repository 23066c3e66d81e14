"""The form of a memory: as its writer gives it, as a note in the log, and as it is read. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

import orjson

from myria.db.clock import to_microseconds, to_rfc3339
from myria.log.payloads import speaker_of, whole_text
from myria.notes.drafting import NoteText
from myria.notes.kinds import policies, policy_of
from myria.notes.model import texts_of

MemoryType = Literal["episodic", "session", "decision", "entity"]

MEMORY_TYPES: tuple[MemoryType, ...] = get_args(MemoryType)
DEFAULT_EVENT_TYPE = "general"

_DIGESTED_BYTES = 200
_KEY_DIGITS = 32

NOBODY = "default"
"""The agent that is shown for notes without a speaker: those of a pool (Memento's contract)."""

EVENT = "event"
"""The `kind` of a raw event that is shown as a memory."""

_TYPE_OF_KIND: Mapping[str, MemoryType] = {
    "episodic": "episodic",
    "episode": "episodic",
    "error": "episodic",
    "session": "session",
    "decision": "decision",
}
Json = dict[str, Any]


class MemoryDraft(NamedTuple):
    """A memory as its writer gives it."""

    agent_id: str
    content: str
    session_id: str | None = None
    memory_type: str = "episodic"
    event_type: str = DEFAULT_EVENT_TYPE
    metadata: Mapping[str, Any] | None = None
    dedup_key: str | None = None
    importance: float | None = None
    parent_id: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key by which a repeat is recognised: the writer's own, else the one that the contract computes."""
        return self.dedup_key or dedup_key(self.agent_id, self.event_type, self.content)


def rekeyed(changed: MemoryDraft, before: MemoryDraft) -> MemoryDraft:
    """Return a changed memory with its key: a writer's own key stays, a computed one is computed from the new text."""
    if before.dedup_key is None or before.dedup_key != before._replace(dedup_key=None).key:
        return changed
    return changed._replace(dedup_key=changed._replace(dedup_key=None).key)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryChanges:
    """The fields that an amendment changes; None leaves a field as it is, an empty object or list clears it."""

    content: str | None = None
    event_type: str | None = None
    metadata: Mapping[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    importance: float | None = None

    def of(self, draft: MemoryDraft) -> MemoryDraft:
        """Return the memory with the changes; `rekeyed` gives it its key."""
        changed = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in changed.items() if value is not None}
        return draft._replace(**given | ({"metadata": None} if self.metadata == {} else {}))


class StoredMemory(NamedTuple):
    """The current version of a memory; times in microseconds since 1970 UTC. `number` orders memories of the same time.

    `kind` is that of a note kept over another API (or `EVENT`), None for a memory kept over REST. With `held`, what was
    said last waits for a review.
    """

    memory_id: str
    draft: MemoryDraft
    dedup_key: str | None
    at: int
    updated_at: int
    version: int
    number: int = 0
    kind: str | None = None
    held: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """The memory's place among others by time."""
        return self.at, self.number

    def to_json(self, tenant: str) -> Json:
        """Return the memory in the contract's form, without fields that it lacks."""
        draft = self.draft
        body: Json = {
            "id": self.memory_id,
            "time": to_rfc3339(self.at),
            "org_id": tenant,
            "agent_id": draft.agent_id,
            "memory_type": draft.memory_type,
            "event_type": draft.event_type,
            "content": draft.content,
        }
        further: Json = {
            "session_id": draft.session_id,
            "metadata": draft.metadata or None,
            "tags": list(draft.tags) or None,
            "dedup_key": self.dedup_key,
            "importance": draft.importance,
            "parent_id": draft.parent_id,
        }
        body |= {name: value for name, value in further.items() if value is not None}
        if self.version > 1:
            body |= {"version": self.version, "updated_at": to_rfc3339(self.updated_at)}
        if self.held:
            body["held"] = True
        return body


def dedup_key(agent_id: str, event_type: str, content: str) -> str:
    """Return the contract's key: 32 hexadecimal digits, hashed of agent, event type and 200 bytes of content."""
    said = f"{agent_id}|{event_type}|".encode() + content[:_DIGESTED_BYTES].encode()[:_DIGESTED_BYTES]
    return hashlib.sha256(said).hexdigest()[:_KEY_DIGITS]


def note_of_memory(draft: MemoryDraft, *, dedup_key: str | None, shared_with: str, within_s: int) -> NoteText:
    """Return the note that keeps a memory.

    Args:
        dedup_key: the key by which repeats are recognised; None where the memory has no repeats.
        shared_with: the participant with whom an organisation shares all memories, among which repeats are looked for.
        within_s: seconds within which another memory with the same key is a repeat; 0: none is.
    """
    memory: Json = {"agent_id": draft.agent_id, "event_type": draft.event_type, "tags": list(draft.tags)}
    if dedup_key is not None:
        memory |= {"dedup_key": dedup_key, "dedup_within_s": within_s, "shared_with": shared_with}
    for name in ("metadata", "importance", "parent_id"):
        if (value := getattr(draft, name)) is not None:
            memory[name] = value
    policy = policy_of(draft.memory_type, "memtrace")
    return NoteText(
        content=draft.content,
        kind=draft.memory_type,
        topic=draft.event_type if draft.event_type != DEFAULT_EVENT_TYPE else draft.agent_id,
        keywords=tuple(dict.fromkeys(tag.lower() for tag in draft.tags)),
        importance=policy.importance if draft.importance is None else draft.importance,
        source=None,
        lifetime="permanent",
        anchor=False,
        session_id=draft.session_id,
        memory=memory,
    )


def memory_of(row: Any) -> StoredMemory:
    """Return a memory of REST, or a note of another API, of a row of `memories.listed` or `memories.by_ids`."""
    payload = orjson.loads(row["payload"])
    note = payload["note"]
    about = _kept_over_rest(note)
    context_id = row["context_id"]
    return StoredMemory(
        memory_id=row["note_id"],
        draft=_of_other_api(payload, context_id) if about is None else _kept_here(payload, about, context_id),
        dedup_key=None if about is None else about.get("dedup_key"),
        at=to_microseconds(row["created_at"]),
        updated_at=to_microseconds(row["changed_at"]),
        version=row["version"],
        number=row["first_seq"],
        kind=None if about is not None else note["kind"],
    )


def memory_of_event(
    event_id: str, payload: Json, *, at: int, number: int, event_type: str | None, context_id: str | None
) -> StoredMemory:
    """Return how a raw event is shown, which nobody kept as a statement; `at` in microseconds since 1970 UTC."""
    draft = MemoryDraft(
        agent_id=speaker_of(payload) or NOBODY,
        content=whole_text(payload),
        session_id=context_id,
        event_type=event_type or DEFAULT_EVENT_TYPE,
    )
    return StoredMemory(
        memory_id=event_id, draft=draft, dedup_key=None, at=at, updated_at=at, version=1, number=number, kind=EVENT
    )


def memory_type_of(kind: str) -> MemoryType:
    """Return as which of the contract's types notes of a kind are shown."""
    return _TYPE_OF_KIND.get(kind, "entity")


def kinds_of_types(types: Collection[str]) -> tuple[str, ...]:
    """Return the kinds of notes that are shown as one of these types."""
    return tuple(kind for kind in policies() if memory_type_of(kind) in types)


def _kept_over_rest(note: Json) -> Json | None:
    """Return what a note keeps of a memory of REST; None of any other note.

    An import may bring a note whose `memory` has another form. It is shown as a note of another API, and the view
    note_versions folds it so, too.
    """
    about = note.get("memory")
    if (
        isinstance(about, dict)
        and isinstance(about.get("agent_id"), str)
        and isinstance(about.get("event_type"), str)
        and isinstance(about.get("tags"), list)
        and type(about.get("importance", 0)) in (int, float)
    ):
        return about
    return None


def _kept_here(payload: Json, about: Json, context_id: str | None) -> MemoryDraft:
    return MemoryDraft(
        agent_id=about["agent_id"],
        content=payload["text"],
        session_id=context_id,
        memory_type=memory_type_of(payload["note"]["kind"]),
        event_type=about["event_type"],
        metadata=about.get("metadata"),
        tags=texts_of(about["tags"]),
        dedup_key=about.get("dedup_key"),
        importance=about.get("importance"),
        parent_id=about.get("parent_id"),
    )


def _of_other_api(payload: Json, context_id: str | None) -> MemoryDraft:
    note = payload["note"]
    return MemoryDraft(
        agent_id=payload.get("speaker") or NOBODY,
        content=payload["text"],
        session_id=context_id,
        memory_type=memory_type_of(note["kind"]),
        event_type=note["kind"],
        metadata={"topic": note["topic"]},
        tags=texts_of(note.get("keywords")),
        importance=note["importance"],
    )
