"""Reads of one process: each runs in one REPEATABLE READ transaction.

So the snapshot, the fresh tail and the events themselves belong to one moment, whatever is published or rolled back
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from myria.access.vault import opened_secrets
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.index.embeddings.choosing import configured
from myria.log.masks import Masks
from myria.search.answers import Handler, Page, Within, degraded
from myria.search.cache import ByteCache
from myria.search.found import EventFinder
from myria.search.handles import Handles
from myria.search.later import LaterState, later_states
from myria.search.lookups import event_answer, topic_answer
from myria.search.overview import Overview
from myria.search.provenance import event_provenance, older_states
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.search.read_slots import ReadSlot, ReadSlots
from myria.search.searching import Search
from myria.search.second_look import SecondLook
from myria.search.snapshot_view import open_snapshot
from myria.search.topics import TopicReader
from myria.search.vectors import QuestionVectors, VectorReader
from myria.search.visible_blocks import BlockReader
from myria.search.walking import room_of, start_of, walked_answer
from myria.settings import Settings
from myria.text.passages import sought_in

if TYPE_CHECKING:
    from myria.llm.walker import Start, Walker

Json = dict[str, Any]
T = TypeVar("T")

_FURTHER = 40
"""Hits after those of an answer from which a model may choose."""


class Retrieval:
    """The read path of one process: stateless but for caches of immutable things."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self.walker = _walker(database, settings)
        self.cache = ByteCache(settings.retrieval.cache_bytes)
        self._threads = ThreadPoolExecutor(settings.retrieval.ranking_threads, thread_name_prefix="rank")
        blocks = BlockReader(self.cache, self._threads)
        self._topics = TopicReader(self.cache, blocks)
        embedding = configured(settings)
        within_s = settings.embeddings.question_deadline_s
        self.questions = None if embedding is None else QuestionVectors(embedding, within_s=within_s)
        vectors = None
        if self.questions is not None:
            vectors = VectorReader(self.cache, self.questions, most=settings.embeddings.visible_events)
        self.look = _second_look(database, settings, self.walker)
        self._search = Search(
            self.cache,
            blocks,
            self._topics,
            threads=self._threads,
            vectors=vectors,
            look=self.look,
        )
        self._answering = Handler(
            self._search,
            self._topics,
            answer_bytes=settings.retrieval.answer_bytes,
            cursor_lifetime_s=settings.retrieval.cursor_lifetime_s,
        )
        self.slots = ReadSlots(database, at_once=settings.retrieval.heavy_reads)
        self._secret: bytes | None = None

    async def close(self) -> None:
        """End the ranking threads, the walker, what embeds questions and what looks twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self.look is not None:
            await self.look.close()
        if self.walker is not None:
            await self.walker.close()
        if self.questions is not None:
            await self.questions.close()

    def forget(self, tenant: str) -> None:
        """Drop everything that is cached for a tenant; it is read again when it is needed."""
        # Keys begin with the tenant, or with it and its generation.
        self.cache.drop(lambda key: isinstance(key, tuple) and _tenant_of_key(key) == tenant)

    async def handles(self, tenant: str) -> Handles:
        """Return the handles of a tenant's events."""
        return Handles(await self.secret(tenant), tenant)

    async def secret(self, tenant: str) -> bytes:
        """Return the installation's secret for signing cursors (`myria.search.cursors`), read as a tenant."""
        if self._secret is None:
            async with self._database.read(tenant) as connection:
                return await self._cursor_secret(connection)
        return self._secret

    async def read(self, tenant: str, masks: Masks, work: Callable[[EventFinder], Awaitable[T]]) -> T:
        """Run `work` in one transaction and return its result; it may be started more than once.

        Raises:
            UnavailableError: retry.
        """

        async def reading(connection: Connection, slot: ReadSlot) -> T:
            reader = EventFinder(
                self._search,
                self._topics,
                connection=connection,
                slot=slot,
                tenant=tenant,
                secret=await self._cursor_secret(connection),
                cursor_lifetime_s=self._settings.retrieval.cursor_lifetime_s,
            )
            return await work(reader)

        return await self.slots.read((tenant, masks), reading)

    async def query_event_nodes(self, tenant: str, query: EventNodesQuery, *, within: Within | None = None) -> Json:
        """Return matching events under one root, best first.

        Raises:
            CursorInvalid, CursorExpired: ask again without the cursor.
            UnavailableError: retry.
        """
        return await self.slots.read((tenant, query.masks), partial(self._event_nodes, tenant, query, within))

    async def _event_nodes(
        self, tenant: str, query: EventNodesQuery, within: Within | None, connection: Connection, slot: ReadSlot
    ) -> Json:
        """Search and answer a query for event nodes within one transaction."""
        secret = await self._cursor_secret(connection)
        cursor = self._answering.cursor(tenant, query, secret)
        result = await self._search.find(connection, tenant, query, limit=query.limit, cursor=cursor, slot=slot)
        answer, _ = await self._answering.answer(
            connection, query, result, cursor=cursor, secret=secret, within=within, keeps_places=False
        )
        return answer

    async def query_references(self, tenant: str, query: ReferencesQuery, *, within: Within | None = None) -> Json:
        """Return topics with references to matching events, and matching fresh events, under one root.

        Raises:
            TopicNotFound: `root` names no topic or node visible in this snapshot.
            CursorInvalid, CursorExpired: ask again without the cursor.
            UnavailableError: retry.
        """
        answer, page, walk = await self.slots.read(
            (tenant, query.masks), partial(self._references, tenant, query, within)
        )
        if walk is not None and self.walker is not None:
            wider, start = walk
            walked = await self.walker.walk(start)
            return await walked_answer(
                self._database, self._topics, query, answer, within, page=page, wider=wider, walked=walked
            )
        if query.mode == "llm" and self.walker is None:
            return {**answer, **degraded("not_configured")}
        return answer

    async def _references(
        self, tenant: str, query: ReferencesQuery, within: Within | None, connection: Connection, slot: ReadSlot
    ) -> tuple[Json, Page, tuple[Page, Start] | None]:
        """Return the deterministic answer with its page and, where a model looks further, what it starts from."""
        secret = await self._cursor_secret(connection)
        cursor = self._answering.cursor(tenant, query, secret)
        find = partial(self._search.find, connection, tenant, query, slot=slot, root=query.root)
        result = await find(limit=query.max_nodes, cursor=cursor)
        walks = self._walks(query)
        answer, page = await self._answering.answer(
            connection,
            query,
            result,
            cursor=cursor,
            secret=secret,
            within=within,
            keeps_places=walks,  # a model looks at all hits, by their places
        )
        if not walks:
            return answer, page, None
        wider_result = await find(limit=query.max_nodes + _FURTHER, cursor=None)
        wider = await self._answering.page(connection, query, wider_result, whole=True)
        return answer, page, (wider, start_of(tenant, query, page, wider, sought_in(query.query)))

    def _walks(self, query: ReferencesQuery) -> bool:
        """Tell whether a model looks further; not without a text or room, nor on later pages, which only continue."""
        if self.walker is None or query.cursor is not None or query.query is None or room_of(query) < 1:
            return False
        return query.mode == "llm" or (query.mode == "auto" and self._settings.llm.walk)

    async def get_event(
        self,
        tenant: str,
        event_id: str,
        masks: Masks,
        *,
        include_internal: bool = False,
        include_superseded: bool = False,
    ) -> Json:
        """Return one event; absent, forbidden and withdrawn look alike.

        Raises:
            EventNotFound: these masks see no such event, it was withdrawn, or it is internal and was not asked
                for as such. Of a superseded one the error names what replaced it, where they see it.
        """
        async with self._database.read(tenant) as connection:
            return await event_answer(
                connection,
                tenant,
                event_id,
                masks,
                include_internal=include_internal,
                include_superseded=include_superseded,
            )

    async def event_provenance(self, tenant: str, event_id: str, masks: Masks) -> Json | None:
        """Return what an event replaced and the topics that hold it; see `myria.search.provenance`.

        The caller has read the event before (`get_event`), which tells whether it may be shown at all.
        """

        async def reading(connection: Connection, slot: ReadSlot) -> Json | None:
            snapshot = await open_snapshot(
                connection, self.cache, tenant, masks, None, slot=slot, include_superseded=True
            )
            return await event_provenance(connection, snapshot, event_id, self._topics)

        return await self.slots.read((tenant, masks), reading)

    async def older_states(self, tenant: str, event_seqs: Sequence[int], masks: Masks) -> Mapping[int, list[Json]]:
        """Return, by event, what it replaced, directly and in turn; see `myria.search.provenance`."""

        async def reading(connection: Connection, slot: ReadSlot) -> Mapping[int, list[Json]]:
            snapshot = await open_snapshot(connection, self.cache, tenant, masks, None, slot=slot)
            return await older_states(connection, snapshot, event_seqs)

        return await self.slots.read((tenant, masks), reading)

    async def later_states(self, tenant: str, texts: Mapping[int, str], masks: Masks) -> Mapping[int, list[LaterState]]:
        """Return, by event, what was said later of its subjects, given what it says; see `myria.search.later`."""

        async def reading(connection: Connection, slot: ReadSlot) -> Mapping[int, list[LaterState]]:
            snapshot = await open_snapshot(connection, self.cache, tenant, masks, None, slot=slot)
            return await later_states(connection, snapshot, texts, self._topics)

        return await self.slots.read((tenant, masks), reading)

    async def overview(self, tenant: str, masks: Masks, work: Callable[[Overview], T]) -> T:
        """Return what `work` counts of everything that masks see, as a question without filters would search it.

        Raises:
            UnavailableError: retry.
        """

        async def reading(connection: Connection, slot: ReadSlot) -> Overview:
            snapshot, corpus = await self._search.everything(connection, tenant, masks, slot=slot)
            return Overview(corpus, snapshot.hidden.late)

        everything = await self.slots.read((tenant, masks), reading)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, everything)

    async def get_topic(self, tenant: str, topic_id: str, masks: Masks) -> Json:
        """Return one topic of the active snapshot, or where its events went when it is no more (archived).

        Raises:
            TopicNotFound: these masks see no such topic in the active snapshot.
        """

        async def reading(connection: Connection, slot: ReadSlot) -> Json:
            snapshot = await open_snapshot(connection, self.cache, tenant, masks, None, slot=slot)
            return await topic_answer(connection, snapshot, topic_id, self._topics, settings=self._settings.topics)

        return await self.slots.read((tenant, masks), reading)

    async def _cursor_secret(self, connection: Connection) -> bytes:
        if self._secret is None:
            secret: bytes = await connection.fetchval(sql("retrieval.cursor_secret"))
            self._secret = secret
        return self._secret


def _tenant_of_key(key: tuple[Any, ...]) -> Any:
    """Return the tenant with which a cache key begins, alone or in a pair with its generation."""
    return key[0][0] if isinstance(key[0], tuple) else key[0]


def _walker(database: Database, settings: Settings) -> Walker | None:
    """Return the walker, None where no model is configured.

    Raises:
        ConfigurationError: the request template cannot be used, or a secret cannot be opened.
    """
    secrets = opened_secrets(settings.secrets)
    if settings.llm.template is None:
        return None
    from myria.llm.model import LanguageModel  # noqa: PLC0415 - only where a model is asked
    from myria.llm.walker import Walker as Configured  # noqa: PLC0415

    model = LanguageModel.configured(settings.llm, secrets=secrets)
    return None if model is None else Configured(database, model)


def _second_look(database: Database, settings: Settings, walker: Walker | None) -> SecondLook | None:
    """Return what looks twice, None where nothing does; a chat model is the one that walks, with its limits.

    Raises:
        ConfigurationError: the request template cannot be used, a secret cannot be opened, or there is no chat model.
    """
    if settings.second_look.model == "off":
        return None
    from myria.search.rerankers import ChatModel, relevance_source  # noqa: PLC0415 - only where a model is asked

    chat = None if walker is None else ChatModel(database, walker.model)
    return SecondLook(relevance_source(settings, chat), settings.second_look)
