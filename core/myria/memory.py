"""All that the serving plane does with one database: its log, retrieval, notes, turns and registrations together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from myria import errors
from myria.access.principal import Principal
from myria.builds.administration import Administration
from myria.db.queries import sql
from myria.erasure.commands import Asker, Erasures
from myria.erasure.execution import WITHDRAWN_WITHIN_S
from myria.erasure.forgetting import Forgetting
from myria.index.embeddings.choosing import chosen
from myria.log.quotas import TenantQuotas
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.answertext import AnswerText, ShownAnswer
from myria.notes.commands import Notes
from myria.notes.consolidating import Consolidation
from myria.notes.folding import event_log
from myria.notes.holding import Holding
from myria.notes.links import NoteLinks
from myria.notes.memories.commands import Memories
from myria.notes.memories.reading import MemoryReader
from myria.notes.recalling import Recall
from myria.notes.registrations.commands import Registrations
from myria.notes.reviewing import Review
from myria.notes.sessions.opening import Openings
from myria.notes.shown import ShownNotes
from myria.notes.surroundings import Surroundings
from myria.notes.turns.maintaining import TurnMaintenance
from myria.notes.turns.preparing import Preparing
from myria.notes.turns.shadow import ShadowLog
from myria.notes.turns.storing import TurnStore
from myria.notes.usage import NoteUsage
from myria.search.handles import EVENT_PREFIX, NOTE_PREFIX
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.search.service import Retrieval
from myria.search.spellings import other_spellings
from myria.search.tree import lean_answer
from myria.settings import Settings
from myria.text.model_tokens import token_counter
from myria.text.passages import sought_in

T = TypeVar("T")

_MAX_EVENT_SEQ = (1 << 63) - 1
"""PostgreSQL's largest bigint: a long handle may stand for a number beyond it, which no event has."""


class Memory(Administration):
    """The memory of every tenant of one database; opened and closed as `Administration` is."""

    def __init__(
        self,
        dsn: str,
        settings: Settings,
        *,
        on_commit: Callable[[str, int], None] | None = None,
        on_redacted: Callable[[str, int], None] | None = None,
    ) -> None:
        super().__init__(dsn, settings)
        self.retrieval = Retrieval(self.database, settings)
        self.quotas = TenantQuotas(self.appending, settings.auth.tenant_events_per_s, settings.auth.tenant_bytes_stored)

        def count_commit(tenant: str, events: int) -> None:
            self.retrieval.slots.count_other()
            if on_commit is not None:
                on_commit(tenant, events)

        self.log = event_log(
            self.appending,
            settings,
            quotas=self.quotas,
            on_redacted=on_redacted,
            events_per_commit=settings.ingest.group_commit_events,
            writers=settings.ingest.group_commit_writers,
            deadline=settings.mcp.append_deadline_s,
            on_commit=count_commit,
            evaluates=settings.notes.evaluate,
            zone=settings.service.zone,
        )
        self.withdrawals = Withdrawals(self.log)
        self.links = NoteLinks(self.log)
        self.surroundings = Surroundings(
            self.appending, self.links, self.retrieval.handles, linked_limit=settings.recall.linked_limit
        )
        self.recall = Recall(self.retrieval.read, settings.recall, has_vectors=self.vectors is not None)
        self.openings = Openings(self.database, settings.service.zone)
        self.consolidation = Consolidation(
            self.log,
            most=settings.notes.consolidate_notes,
            evaluates=settings.notes.evaluate,
            vectors=self.vectors,
        )
        self.notes = Notes(
            self.log,
            content_characters=settings.notes.content_characters,
            redaction_kinds=settings.agent.redaction_kinds,
            session_idle_s=settings.notes.session_idle_s,
            holding=Holding.configured(settings.review),
        )
        self.review = Review(self.log, page_bytes=settings.retrieval.answer_bytes)
        self.turns = TurnStore(self.log, self.notes, settings.turns)
        self.turn_maintenance = TurnMaintenance(
            self.appending,
            self.consolidation,
            lock_timeout_ms=settings.turns.session_lock_timeout_ms,
        )
        self.before_turns = Preparing(self.retrieval.read, settings.turns)
        self.shadows = ShadowLog(self.appending)
        self.memories = Memories(self.log, self.notes, window_s=settings.rest.dedup_window_s)
        page_bytes = settings.retrieval.answer_bytes
        self.memory_reader = MemoryReader(
            self.database, self.retrieval.read, scanned=settings.rest.scanned_memories, page_bytes=page_bytes
        )
        self.registrations = Registrations(self.log, page_bytes=page_bytes)
        self.usage = NoteUsage(self.database)
        self.shown = ShownNotes(self.appending)
        self.forgetting = Forgetting(self.appending, self.forget, again_s=settings.mcp.request_deadline_s + 1.0)

    async def close(self) -> None:
        """Finish the commits under way and close the connections."""
        await self.log.close()
        await self.usage.close()
        await self.shadows.close()
        await self.retrieval.close()
        await super().close()

    @property
    def vectors(self) -> str | None:
        """The name of the model whose vectors are stored and compared; None where no model is configured."""
        return None if self.retrieval.questions is None else self.retrieval.questions.model

    @property
    def embeddings(self) -> str:
        """A sentence that says whether vectors are compared, and why or why not."""
        return chosen(self.settings).why

    async def show(
        self,
        tenant: str,
        query: EventNodesQuery | ReferencesQuery,
        *,
        may_name: Callable[[str], bool] = lambda _: False,
    ) -> ShownAnswer:
        """Answer a query of either kind in the view and format that it asks for.

        An empty answer lists other spellings of the query's names under which something is visible.

        Args:
            may_name: tells whether the caller may use a name, so that another spelling can be shown to it.
        """
        named = query.expected
        if named is not None:
            expected = await self.expected_event_id(tenant, named)
            query = replace(query, expected=expected)
        writer = None
        if query.format == "text":
            counter = await asyncio.to_thread(token_counter)
            handles = await self.retrieval.handles(tenant)
            full = query.view == "full"
            is_ranked = query.order == "relevance" and (query.query or "").strip()
            writer = AnswerText(
                handles=handles,
                counter=counter,
                budget=query.max_tokens,
                first="best" if is_ranked else "oldest" if query.order == "oldest" else "newest",
                full=full,
                sought=sought_in(query.query),
            )
        fits = None if writer is None or writer.budget is None else writer.fits
        if isinstance(query, EventNodesQuery):
            answer = await self.retrieval.query_event_nodes(tenant, query, within=fits)
        else:
            answer = await self.retrieval.query_references(tenant, query, within=fits)
        if "expected" in answer and answer["expected"]["stage"] == "not_visible":
            # The id behind a handle is only for those who may see the event.
            answer["expected"]["event_id"] = named
        if not answer["root"]["children"] and query.cursor is None:
            async with self.database.read(tenant) as connection:
                spellings = await other_spellings(connection, tenant, query.masks, may_name)
            if spellings:
                answer["other_spellings"] = spellings
        text = None if writer is None else writer.text(answer)
        return ShownAnswer(content=lean_answer(answer) if query.view == "lean" else answer, text=text)

    async def event_ids(self, tenant: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return event ids for names that are ids or handles (`e:481920375`); a handle of no event stays as it is.

        Raises:
            InvalidArgument: a name begins as a handle, but is none.
        """
        if not any(name.startswith(EVENT_PREFIX) for name in names):
            return tuple(names)
        handles = await self.retrieval.handles(tenant)
        seq_by_handle = {
            name: handles.event_seq(name.removeprefix(EVENT_PREFIX)) for name in names if name.startswith(EVENT_PREFIX)
        }
        async with self.database.read(tenant) as connection:
            event_seqs = [event_seq for event_seq in seq_by_handle.values() if event_seq <= _MAX_EVENT_SEQ]
            rows = await connection.fetch(sql("events.ids"), tenant, event_seqs)
        id_by_seq = {row["event_seq"]: row["event_id"] for row in rows}
        return tuple(id_by_seq.get(seq_by_handle[name], name) if name in seq_by_handle else name for name in names)

    async def expected_event_id(self, tenant: str, named: str) -> str:
        """Return the id of an event that a caller misses in an answer: by its id or handle, or those of a note.

        A note stands for the event of its current version. What names nothing is returned as it is. Does not check
        permissions: the search does, and an answer may show the id only where the event is visible.

        Raises:
            InvalidArgument: it is neither an id nor a handle.
        """
        name = named.strip().strip("[]")
        if not name.startswith((EVENT_PREFIX, NOTE_PREFIX, "evt_", "note_")):
            raise errors.InvalidArgument(
                "expected must be the id of an event or a note (evt_… or note_…), or a handle such as e:481920375",
                field="expected",
            )
        if name.startswith((EVENT_PREFIX, NOTE_PREFIX)):
            try:
                (await self.retrieval.handles(tenant)).event_seq(name[len(EVENT_PREFIX) :])
            except errors.InvalidArgument as error:
                message = (
                    f"expected is cut off or misspelt: nine digits or more follow {name[:2]}, as in {name[:2]}481920375"
                )
                raise errors.InvalidArgument(message, field="expected") from error
        if name.startswith((EVENT_PREFIX, "evt_")):
            return (await self.event_ids(tenant, [name]))[0]
        note_id = await self.note_id(tenant, name)
        async with self.database.read(tenant) as connection:
            event_id: str | None = await connection.fetchval(sql("notes.event_id"), tenant, note_id)
        return event_id or name

    @asynccontextmanager
    async def events_named(self, tenant: str, names: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
        """Yield the ids of events that a caller names by id or handle.

        An `EventNotFound` in the block names the event as the caller did: the id behind a handle is only for those who
        may see the event.

        Raises:
            InvalidArgument: as `event_ids`.
        """
        event_ids = await self.event_ids(tenant, names)
        try:
            yield event_ids
        except errors.EventNotFound as error:
            event_id: str = error.details["event_id"]
            caller_name: str = dict(zip(event_ids, names, strict=True)).get(event_id, event_id)
            raise errors.EventNotFound(
                error.message.replace(event_id, caller_name), **{**error.details, "event_id": caller_name}
            ) from None

    async def note_id(self, tenant: str, named: str) -> str:
        """Return the id of a note that is named by its id or its handle (`n:481920375`, in brackets or not).

        A name of no note is returned as it is. Does not check permissions: the caller must check who may see the note.
        """
        name = named.strip().strip("[]")
        if not name.startswith(NOTE_PREFIX):
            return name
        try:
            first_seq = (await self.retrieval.handles(tenant)).event_seq(name.removeprefix(NOTE_PREFIX))
        except errors.InvalidArgument:
            return name
        if first_seq > _MAX_EVENT_SEQ:
            return name
        async with self.database.read(tenant) as connection:
            note_id: str | None = await connection.fetchval(sql("notes.id_of_event"), tenant, first_seq)
        return note_id or name

    def erasures(self, principal: Principal) -> Erasures:
        """Return the commands that plan and begin erasures in a principal's tenant; the control plane executes them."""
        return Erasures(
            self.database,
            self.registry,
            # A log of its own: no quota may stand in the way of taking events out of answers, and for very many events
            # at one moment the commit may take longer than an append may.
            event_log(self.appending, self.settings, deadline=WITHDRAWN_WITHIN_S),
            principal.tenant,
            actor=principal.actor,
            asker=Asker(proof=principal.proof),
        )

    def forget(self, tenant: str) -> None:
        """Drop this process's caches of a tenant, because something of it was erased."""
        self.retrieval.forget(tenant)
