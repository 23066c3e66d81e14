"""What a server needs from the domain, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from myria.contract.event import NewEvent
from myria.contract.queries import EventNodesQuery, ReferencesQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """The acknowledgement of one event, given after its commit.

    `deduplicated`: (channel, source_event_key) was there before, and these are the first event's id and number;
    `payload_differs`: and its payload, participants or timestamp are not what was sent now. Only those who may see the
    first event are answered so; others are refused (`SourceEventKeyTaken`).
    """

    event_id: str
    event_seq: int
    participants: tuple[str, ...]
    deduplicated: bool = False
    payload_differs: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the answer of append_event."""
        return {
            "event_id": self.event_id,
            "event_seq": self.event_seq,
            "participants": list(self.participants),
            "deduplicated": self.deduplicated,
            "payload_differs": self.payload_differs,
        }


class MemoryApi(Protocol):
    """One memory of many tenants. Answers are JSON-ready; every refusal is a `MyriaError`."""

    async def append_events(self, tenant: str, events: Sequence[NewEvent]) -> list[AppendResult]:
        """Store events atomically; return acknowledgements in input order, after the commit."""
        ...

    async def query_event_nodes(self, tenant: str, query: EventNodesQuery) -> dict[str, Any]:
        """Return a rooted tree of events (§14.1)."""
        ...

    async def query_references(self, tenant: str, query: ReferencesQuery) -> dict[str, Any]:
        """Return a rooted tree of topics, references and fresh events (§14.2)."""
        ...

    async def get_event(
        self, tenant: str, event_id: str, participants: tuple[str, ...], *, include_internal: bool = False
    ) -> dict[str, Any]:
        """Return one event that these participants may see."""
        ...

    async def get_topic(self, tenant: str, topic_id: str, participants: tuple[str, ...]) -> dict[str, Any]:
        """Return one topic of the active snapshot that these participants may see."""
        ...

    async def get_active_snapshot(self, tenant: str) -> dict[str, Any]:
        """Return the active snapshot's metadata, or null."""
        ...

    async def list_snapshots(self, tenant: str, *, limit: int, cursor: str | None) -> dict[str, Any]:
        """Return snapshots, newest first."""
        ...

    async def get_snapshot_status(self, tenant: str) -> dict[str, Any]:
        """Return tail, builds and triggers."""
        ...

    async def trigger_build(
        self, tenant: str, *, full: bool, hold: bool, force: bool, reason: str | None
    ) -> dict[str, Any]:
        """Ask for a build."""
        ...

    async def publish_snapshot(
        self, tenant: str, snapshot_id: str, *, actor: str, reason: str | None
    ) -> dict[str, Any]:
        """Make a held snapshot the active one."""
        ...

    async def rollback(self, tenant: str, to: str | None, *, actor: str, reason: str | None) -> dict[str, Any]:
        """Make an earlier snapshot the active one; without `to`, the last one that differs."""
        ...

    async def resume_builds(self, tenant: str) -> dict[str, Any]:
        """Let automatic builds start again after a rollback."""
        ...

    async def ready(self) -> None:
        """Return when the database answers and has this program's schema version.

        Raises:
            DatabaseUnavailable, SchemaOutdated, SchemaTooNew.
        """
        ...
