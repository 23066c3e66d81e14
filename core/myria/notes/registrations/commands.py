"""Registering agents and opening sessions, changing and finding them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from myria.db.pages import ROWS_TOGETHER, PageRoom
from myria.db.queries import sql
from myria.errors import (
    AgentNotFound,
    IdempotencyKeyReused,
    InvalidArgument,
    Overloaded,
    SessionMoved,
    SessionNotFound,
)
from myria.log.canonical import digest
from myria.log.event_log import EventLog
from myria.log.scopes import scope_key
from myria.notes.registrations.model import (
    CLOSED,
    DELETED,
    REGISTRY_CHANNEL,
    Entry,
    EntryKind,
    entry_of,
    new_entry_id,
    registration_event,
)

_ATTEMPTS = 50
_PAUSE_S = 0.01

Json = dict[str, Any]


class Registrations:
    """Registers agents and sessions; an organisation's are all visible to its one `shared` participant.

    Args:
        log: where registrations are appended and looked up.
        page_bytes: about how many bytes of JSON a list may hold.
    """

    def __init__(self, log: EventLog, *, page_bytes: int) -> None:
        self._database = log.database
        self._log = log
        self._page_bytes = page_bytes

    async def register_agent(
        self,
        tenant: str,
        shared: str,
        *,
        name: str,
        description: str | None,
        config: Json | None,
        key: str | None = None,
        now: int | None = None,
    ) -> Entry:
        """Register an agent.

        Args:
            key: the caller's own name for this call: a repeat of the call returns the first call's agent.
            now: in microseconds since 1970 UTC; left out, this machine's clock.

        Raises:
            AgentExists: another has this name.
            IdempotencyKeyReused: an earlier call registered another agent with this key.
        """
        texts: Json = {"description": description, "config": config}
        redacted, _ = await self._log.clean(tenant, texts)
        entry = Entry(kind="agent", entry_id=_entry_id(tenant, "agent", key), name=name, **redacted)
        return await self._create(tenant, shared, entry, key=key, now=now)

    async def open_session(
        self,
        tenant: str,
        shared: str,
        *,
        agent: str,
        metadata: Json | None,
        key: str | None = None,
        now: int | None = None,
    ) -> Entry:
        """Open a session of a registered agent, given by its id or name.

        Raises:
            InvalidArgument: no such agent is registered.
        """
        registered = await self.find_agent(tenant, shared, agent)
        if registered is None:
            raise InvalidArgument("agent_id names no registered agent; register it by POST /agents", field="agent_id")
        redacted_metadata, _ = await self._log.clean(tenant, metadata)
        entry_id = _entry_id(tenant, "session", key)
        entry = Entry(kind="session", entry_id=entry_id, agent_id=registered.entry_id, metadata=redacted_metadata)
        return await self._create(tenant, shared, entry, key=key, now=now)

    async def change_session(
        self,
        tenant: str,
        shared: str,
        session_id: str,
        *,
        status: str | None,
        metadata: Json | None,
        now: int | None = None,
    ) -> Entry:
        """Change the status of a session, or replace its metadata; None leaves either as it is.

        Raises:
            SessionNotFound: absent, or of others.
            Overloaded: other calls kept changing the session; retry.
        """
        if metadata is not None:
            metadata, _ = await self._log.clean(tenant, metadata)

        def changed(entry: Entry, at: int) -> Entry:
            closed_at = entry.closed_at  # closing a closed session again keeps its time
            if status is not None:
                closed_at = None if status != CLOSED else at if entry.status != CLOSED else closed_at
            return replace(
                entry,
                status=status or entry.status,
                metadata=entry.metadata if metadata is None else metadata or None,
                closed_at=closed_at,
            )

        return await self._change(tenant, shared, "session", session_id, changed, now=now)

    async def delete_agent(
        self, tenant: str, shared: str, agent_id: str, *, key: str | None = None, now: int | None = None
    ) -> None:
        """Remove an agent from the registry; its memories stay.

        Args:
            key: the caller's own name for this call: a repeat changes nothing.

        Raises:
            AgentNotFound: absent, of others, or deleted by another call.
        """

        def deleted(entry: Entry, _at: int) -> Entry:
            return replace(entry, status=DELETED)

        source_key = None if key is None else f"registration:{digest([DELETED, shared, agent_id, key]).hex()}"
        try:
            await self._change(tenant, shared, "agent", agent_id, deleted, now=now, key=source_key)
        except AgentNotFound:
            # A repeat of the call that deleted it finds that call's event, and has nothing left to do.
            if source_key is None or not await self._log.stored_keys(tenant, REGISTRY_CHANNEL, [source_key]):
                raise

    async def find_agent(self, tenant: str, shared: str, named: str) -> Entry | None:
        """Return the agent with an id, else the one with a name, or None."""
        entry = await self._find(tenant, shared, "agent", named)
        if entry is not None:
            return entry
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("registrations.agent_named"), tenant, scope_key((shared,)), named)
        return None if row is None else entry_of("agent", row)

    async def names_of(self, tenant: str, shared: str, named: str) -> list[str]:
        """Return all names under which an agent may keep memories: its id, its name, and the one given here.

        A name that no registered agent has stands for itself.
        """
        entry = await self.find_agent(tenant, shared, named)
        return [named] if entry is None else list(dict.fromkeys([named, entry.entry_id, entry.name or named]))

    async def get(self, tenant: str, shared: str, kind: EntryKind, named: str) -> Entry:
        """Return a session by its id, or an agent by its id or name.

        Raises:
            AgentNotFound, SessionNotFound: absent, or of others.
        """
        find = self.find_agent(tenant, shared, named) if kind == "agent" else self._find(tenant, shared, kind, named)
        entry = await find
        if entry is None:
            raise _absent(kind)
        return entry

    async def newest(
        self,
        tenant: str,
        shared: str,
        kind: EntryKind,
        *,
        agents: Sequence[str] | None = None,
        limit: int,
        offset: int = 0,
    ) -> tuple[list[Entry], bool]:
        """Return agents or sessions, newest first, and whether there are more.

        Args:
            agents: all names of the one agent whose sessions are wanted; None for the sessions of all agents.
        """
        room = PageRoom(limit=limit, most_bytes=self._page_bytes)
        entries: list[Entry] = []
        async with self._database.read(tenant) as connection:
            rows = connection.cursor(
                sql("registrations.newest"),
                tenant,
                scope_key((shared,)),
                kind,
                agents,
                limit + 1,
                offset,
                prefetch=ROWS_TOGETHER,
            )
            async for row in rows:
                if not room.take(row["payload"]):
                    return entries, True
                entries.append(entry_of(kind, row))
        return entries, False

    async def sessions_of(self, tenant: str, shared: str, agents: Sequence[str]) -> tuple[int, int]:
        """Return how many sessions an agent has under its names, and how many of them are active."""
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("registrations.sessions_of"), tenant, scope_key((shared,)), agents)
        if row is None:
            raise AssertionError("a count always answers")
        return row["sessions"], row["active"]

    async def _find(self, tenant: str, shared: str, kind: EntryKind, entry_id: str) -> Entry | None:
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("registrations.by_id"), tenant, kind, entry_id)
        return None if row is None or shared not in row["participants"] else entry_of(kind, row)

    async def _create(self, tenant: str, shared: str, entry: Entry, *, key: str | None, now: int | None) -> Entry:
        """Store a new entry; for a repeat of a call with a key, return the entry of the first call."""
        at = time.time_ns() // 1000 if now is None else now
        entry = replace(entry, created_at=at, updated_at=at)
        source_key = None if key is None else f"registration:{digest([tenant, entry.kind, shared, key]).hex()}"
        try:
            await self._store(tenant, shared, entry, at, key=source_key)
        except SessionMoved:
            # An entry with this id is stored. Only a key gives an id twice, so an earlier call with the key stored it.
            stored = await self._find(tenant, shared, entry.kind, entry.entry_id)
            comparable = (entry.name, entry.agent_id, entry.description, entry.config, entry.metadata)
            if stored is None or comparable[:2] != (stored.name, stored.agent_id):
                raise IdempotencyKeyReused(
                    "this Idempotency-Key was used before, for something else; nothing was stored: use a new one"
                ) from None
            return stored
        return entry

    async def _change(
        self,
        tenant: str,
        shared: str,
        kind: EntryKind,
        entry_id: str,
        changed: Callable[[Entry, int], Entry],
        *,
        now: int | None,
        key: str | None = None,
    ) -> Entry:
        """Store the next version of an entry, as `changed` makes it; retry where another call stored one meanwhile."""
        for _ in range(_ATTEMPTS):
            entry = await self._find(tenant, shared, kind, entry_id)
            if entry is None:
                raise _absent(kind)
            at = time.time_ns() // 1000 if now is None else now
            after = changed(entry, at)
            if after == entry:
                return entry
            after = replace(after, version=entry.version + 1, updated_at=at)
            try:
                await self._store(tenant, shared, after, at, key=key)
            except SessionMoved:
                await asyncio.sleep(_PAUSE_S * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                continue
            return after
        raise Overloaded("it is being changed again and again; retry")

    async def _store(self, tenant: str, shared: str, entry: Entry, at: int, *, key: str | None = None) -> None:
        await self._log.check_names(tenant, {"name": entry.name, "status": entry.status})
        event = registration_event(entry, (shared,), at=at, key=key)
        self._log.check_size(event)
        await self._log.append_events(tenant, [event])


def _absent(kind: EntryKind) -> AgentNotFound | SessionNotFound:
    return AgentNotFound("agent not found") if kind == "agent" else SessionNotFound("session not found")


def _entry_id(tenant: str, kind: EntryKind, key: str | None) -> str:
    """Return a new id; with the caller's key, an id computed from it, so that a repeat finds the first call's entry.

    The id depends on the tenant too: ids that are equal in two tenants would tell one what the other keeps.
    """
    random_id = new_entry_id(kind)
    if key is None:
        return random_id
    prefix, digits = random_id.split("_")
    return f"{prefix}_{digest([tenant, kind, key]).hex()[: len(digits)]}"
