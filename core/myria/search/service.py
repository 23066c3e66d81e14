"""Reads: mask, pin, rank both lanes together, assemble one rooted tree.

Each request runs in one REPEATABLE READ transaction: the pinned snapshot, the fresh tail and the events themselves
belong to one moment, whatever is published or rolled back meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import orjson

from myria import errors
from myria.access.vault import opened_secrets
from myria.db.clock import rfc3339_of, to_datetime, to_microseconds, to_rfc3339
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.index.embeddings.asking import QuestionVectors
from myria.index.embeddings.choosing import configured
from myria.llm.failures import advice
from myria.log.masks import Masks
from myria.log.payloads import TopicHint, speaker_of, whole_text
from myria.search import cursors
from myria.search.best import Hit
from myria.search.cache import ByteCache
from myria.search.cursors import Cursor
from myria.search.found import EventFinder
from myria.search.gathering import Gatherer
from myria.search.handles import Handles
from myria.search.lanes import Lanes
from myria.search.looks import SecondLooks
from myria.search.nodes import event_body, event_node, shortened_event_node, topic_node
from myria.search.paths import Path, Paths, ShownTopics, renderings
from myria.search.pin import Pinned, pin
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.search.read_slots import Turn, Turns
from myria.search.result import SearchResult
from myria.search.searching import Query, Search, no_topic
from myria.search.second_look.looking import SecondLook
from myria.search.subjects import NO_SUBJECTS, NamedSubject, SubjectFinder
from myria.search.told import MOST as MOST_COMPARED
from myria.search.told import ToldHits
from myria.search.tree import CHARACTERS_PER_TOKEN, Assembled, Assembly, Cost, Leafward, Room, cost_of
from myria.search.vectors import VectorLanes
from myria.search.walking import Page, fits, room_of, start_of, with_additions
from myria.settings import Settings
from myria.text.passages import sought_in

if TYPE_CHECKING:
    from myria.llm.inspection import ShownEvent
    from myria.llm.walker import Start, Walked, Walker

Json = dict[str, Any]
T = TypeVar("T")

Within = Callable[[Json], bool]
"""Whether an answer keeps a bound of the caller's. Of an answer that does not, the best hits that do are given."""

_FURTHER = 40
"""Hits after those of an answer from which a model may choose."""

_SHORT_PAYLOAD = 4_096
"""Bytes of a payload up to which it may be one of several that say the same."""

_NONE_ALIKE: Mapping[int, int] = {}

_ROWS_AT_ONCE = 32
"""Events of an answer that are read at once: bounds the memory of payloads that turn out to have no room in it."""

_NO_ARGUMENTS = frozenset({"cursor", "mode", "masks", "view", "format"})
"""Fields that are no arguments to show: a cursor is valid in every mode and form, and the masks show themselves."""

_NAMES: dict[type[Query], tuple[str, ...]] = {
    kind: tuple(argument.name for argument in fields(kind) if argument.name not in _NO_ARGUMENTS)
    for kind in (EventNodesQuery, ReferencesQuery)
}
"""The arguments of each kind of query."""

_SUBJECT_LEAVES = 100
"""Leaves that a subject names as its children, the last ones."""

_ANSWER_TOKENS = 190
"""Tokens for the rest of an answer: field names, ids, counts, the walk, and a cursor without its transactions."""


class Retrieval:
    """The read path of one process: stateless but for caches of immutable things."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self.walker = _walker(database, settings)
        self.cache = ByteCache(settings.retrieval.cache_bytes)
        self._threads = ThreadPoolExecutor(settings.retrieval.ranking_threads, thread_name_prefix="rank")
        gatherer = Gatherer(self.cache, self._threads)
        self._paths = Paths(self.cache, gatherer)
        self._subjects = SubjectFinder(self.cache)
        embedding = configured(settings)
        within_s = settings.embeddings.question_deadline_s
        self.questions = None if embedding is None else QuestionVectors(embedding, within_s=within_s)
        vectors = None
        if self.questions is not None:
            vectors = VectorLanes(self.cache, self.questions, most=settings.embeddings.visible_events)
        self.look = _second_look(database, settings, self.walker)
        self._search = Search(
            self.cache,
            gatherer,
            Lanes(self.cache),
            self._paths,
            self._subjects,
            threads=self._threads,
            vectors=vectors,
            looks=None if self.look is None else SecondLooks(self.look),
        )
        self.turns = Turns(database, at_once=settings.retrieval.heavy_reads)
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
        """Forget what is kept between requests of a tenant; what is wanted again is read again."""
        # Keys begin with the tenant, or with it and its generation; what begins with "shown" holds blocks of any.
        self.cache.drop(lambda key: isinstance(key, tuple) and _named_first(key) in (tenant, "shown"))

    async def handles(self, tenant: str) -> Handles:
        """Return the handles of a tenant's events."""
        return Handles(await self.secret(tenant), tenant)

    async def secret(self, tenant: str) -> bytes:
        """Return what the installation signs with (`myria.search.signing`), read on behalf of a tenant."""
        if self._secret is None:
            async with self._database.read(tenant) as connection:
                return await self._cursor_secret(connection)
        return self._secret

    async def read(self, tenant: str, masks: Masks, work: Callable[[EventFinder], Awaitable[T]]) -> T:
        """Return what `work` finds in one transaction; it may be begun twice.

        Raises:
            UnavailableError: retry.
        """

        async def reading(connection: Connection, turn: Turn) -> T:
            reader = EventFinder(
                self._search,
                self._paths,
                self._subjects,
                connection=connection,
                turn=turn,
                tenant=tenant,
                secret=await self._cursor_secret(connection),
                cursor_lifetime_s=self._settings.retrieval.cursor_lifetime_s,
            )
            return await work(reader)

        return await self.turns.read((tenant, masks), reading)

    async def query_event_nodes(self, tenant: str, query: EventNodesQuery, *, within: Within | None = None) -> Json:
        """Return matching events under one root, best first.

        Raises:
            CursorInvalid, CursorExpired: ask again without the cursor.
            UnavailableError: retry.
        """
        return await self.turns.read((tenant, query.masks), partial(self._event_nodes, tenant, query, within))

    async def _event_nodes(
        self, tenant: str, query: EventNodesQuery, within: Within | None, connection: Connection, turn: Turn
    ) -> Json:
        cursor = await self._cursor(connection, tenant, query)
        result = await self._search.find(connection, tenant, query, limit=query.limit, cursor=cursor, turn=turn)
        told = await self._told(connection, query, result)
        while True:
            page = _Events(replace(result, hits=told.shown), query, with_payload=True, alike=told.alike)
            assembly = Assembly(self._room(result, query), topics={}, asked_by=query.masks.participants)
            taken = await _taken(assembly, page.read(connection), page.leafward)
            respond = partial(self._answer, connection, tenant, query, result=result, told=told, cursor=cursor)
            answer, assembled = await _fitting(assembly, taken, respond, within)
            fitting = told.within(assembled.taken)
            if fitting is told:
                return answer
            told = fitting

    async def _told(self, connection: Connection, query: Query, result: SearchResult) -> ToldHits:
        """Return the hits as they are told: where tokens are bounded, a fact once."""
        said: dict[int, tuple[Hashable, str]] = {}
        hits = result.hits[:MOST_COMPARED]
        is_ranked = isinstance(query, ReferencesQuery) or query.order == "relevance"
        is_bounded = query.max_tokens is not None and query.query is not None
        if hits and is_bounded and is_ranked and not query.include_superseded:
            scopes = sorted({result.scope(hit).scope_id for hit in hits})
            wanted = [hit.event_seq for hit in hits]
            rows = await connection.fetch(
                sql("events.short_payloads"), result.pinned.tenant, wanted, scopes, _SHORT_PAYLOAD
            )
            for row in rows:
                payload = orjson.loads(row["payload"])
                said[row["event_seq"]] = speaker_of(payload), whole_text(payload)
        return ToldHits.of(result.hits, said)

    async def query_references(self, tenant: str, query: ReferencesQuery, *, within: Within | None = None) -> Json:
        """Return topics with references to matching events, and matching fresh events, under one root.

        Raises:
            TopicNotFound: `root` names no topic or node visible in this snapshot.
            CursorInvalid, CursorExpired: ask again without the cursor.
            UnavailableError: retry.
        """
        answer, page, wider, start = await self.turns.read(
            (tenant, query.masks), partial(self._references, tenant, query, within)
        )
        if start is not None and wider is not None and self.walker is not None:
            walked = await self.walker.walk(start)
            return await self._walked(tenant, query, answer, within, page=page, wider=wider, walked=walked)
        if query.mode == "llm" and self.walker is None:
            return {**answer, **_degraded("not_configured")}
        return answer

    async def _references(
        self, tenant: str, query: ReferencesQuery, within: Within | None, connection: Connection, turn: Turn
    ) -> tuple[Json, Page, Page | None, Start | None]:
        """Return the deterministic answer with its page and, where a model looks further, what it starts from."""
        cursor = await self._cursor(connection, tenant, query)
        find = partial(self._search.find, connection, tenant, query, turn=turn, root=query.root)
        result = await find(limit=query.max_nodes, cursor=cursor)
        # A model looks at all hits, by their places.
        told = ToldHits.of(result.hits, {}) if self._walks(query) else await self._told(connection, query, result)
        while True:
            page = await self._page(connection, tenant, query, replace(result, hits=told.shown), alike=told.alike)
            respond = partial(self._answer, connection, tenant, query, result=result, told=told, cursor=cursor)
            assembly = Assembly(page.room, topics=page.topics, asked_by=query.masks.participants)
            answer, assembled = await _fitting(assembly, page.hits[: page.answer.taken], respond, within, page.answer)
            page = replace(page, answer=assembled)
            fitting = told.within(assembled.taken)
            if fitting is told:
                break
            told = fitting
        if not self._walks(query):
            return answer, page, None, None
        wider_result = await find(limit=query.max_nodes + _FURTHER, cursor=None)
        wider = await self._page(connection, tenant, query, wider_result, whole=True)
        return answer, page, wider, start_of(tenant, query, page, wider, sought_in(query.query))

    def _walks(self, query: ReferencesQuery) -> bool:
        """Tell whether a model looks further: that needs a text and room; a cursor only continues the ranking."""
        if self.walker is None or query.cursor is not None or query.query is None or room_of(query) < 1:
            return False
        return query.mode == "llm" or (query.mode == "auto" and self._settings.llm.walk)

    async def _page(
        self,
        connection: Connection,
        tenant: str,
        query: ReferencesQuery,
        result: SearchResult,
        *,
        alike: Mapping[int, int] = _NONE_ALIKE,
        whole: bool = False,
    ) -> Page:
        """Return the deterministic answer of the best hits; `whole` reads those without room too.

        Args:
            alike: for how many others a hit stands, by event_seq.
        """
        paths = await self._search.paths(connection, result)
        by_path = dict(zip(paths, result.hits, strict=True))
        found = [(result.scope(hit), path) for path, hit in by_path.items() if path]
        known = await self._paths.found(connection, tenant, found)
        topics = ShownTopics(result.pinned.hidden)
        topics.add(known)
        subjects, under = NO_SUBJECTS, result.under
        if query.root is None:
            subjects = await self._subjects.of_hits(connection, result.pinned, found, known)
        elif under is not None:
            topics.add({under.rendering_id: under.topic})
        else:
            paths = [_downward(path, topics.bodies, query.root) for path in paths]
        events = _Events(result, query, with_payload=query.include_payload, keeps=whole, alike=alike)
        room = self._room(result, query)
        assembly = Assembly(room, topics=topics.bodies, asked_by=query.masks.participants, known=topics.costs)
        hits: list[Leafward] = []
        unmade: Iterator[Hit] = iter(())
        is_open = True
        async for some in events.read(connection):
            unmade = iter(some)
            for hit in unmade:
                hits.append(events.leafward(hit, paths[len(hits)]))
                is_open = is_open and assembly.take(hits[-1])
                if not is_open and not whole:
                    break
            if not is_open and not whole:
                break
        if under is None:
            places = subjects.places([path[-1] for path in paths[: assembly.taken] if path])
            topics.add({subject: subjects.topics[subject] for subject in places.values()})
        else:
            places = {path[-1]: under.rendering_id for path in paths}
        if places:
            # Subjects take fewer nodes than paths do, so some hits more may find room.
            hits = [_under_subject(hit, places) for hit in hits]
            further = zip(unmade, paths[len(hits) :], strict=False)
            more = (_under_subject(events.leafward(hit, path), places) for hit, path in further)
            answer = assembly.again(_kept(hits, more))
        else:
            answer = assembly.finish()
        return Page(
            result=result,
            hits=hits,
            rows=events.rows,
            paths=paths,
            topics=topics.bodies,
            answer=answer,
            room=room,
        )

    async def _walked(
        self,
        tenant: str,
        query: ReferencesQuery,
        answer: Json,
        within: Within | None,
        *,
        page: Page,
        wider: Page,
        walked: Walked,
    ) -> Json:
        """Return the deterministic answer with what a walk has added to it, as far as the bound allows."""
        ranked = {hit.event_seq: leafward for hit, leafward in zip(wider.result.hits, wider.hits, strict=True)}
        placed = {hit.event_seq for hit in page.result.hits[: page.answer.taken]}
        chosen = [event for event in walked.additions if event.event_seq not in placed]
        unranked = [event for event in chosen if event.event_seq not in ranked]
        topics = {**wider.topics, **page.topics}
        if unranked:
            async with self._database.read(tenant) as connection:
                more, below = await self._unranked(connection, query, page, unranked)
            ranked |= more
            topics |= below
        additions = [ranked[event.event_seq] for event in chosen if event.event_seq in ranked]
        while True:
            tree = with_additions(query, page, additions, topics) if additions else page.answer
            longer = {
                **answer,
                "root": tree.root,
                **_degraded(walked.reason),
                "counts": _counts(tree),
                "walk": {"rounds": walked.rounds, "calls": walked.calls, "tokens": walked.tokens},
            }
            if within is None or not additions or within(longer):
                return longer
            additions = additions[:-1]

    async def _unranked(
        self, connection: Connection, query: ReferencesQuery, page: Page, chosen: Sequence[ShownEvent]
    ) -> tuple[dict[int, Leafward], dict[bytes, Json]]:
        """Return the events that the model found in topics and that pass the filters, and the topics above them."""
        pinned = page.result.pinned
        scopes = {scope.scope_id: scope for scope in page.result.scopes}
        wanted = [event.event_seq for event in chosen]
        rows = await connection.fetch(sql("events.by_seqs"), pinned.tenant, wanted, list(scopes))
        withdrawn = {row["event_seq"] for row in await connection.fetch(sql("events.withdrawn"), pinned.tenant, wanted)}
        rows_by_seq = {
            row["event_seq"]: row
            for row in rows
            if fits(query, row) and row["event_seq"] <= pinned.cutoff and row["event_seq"] not in withdrawn
        }
        inside = [event for event in chosen if event.event_seq in rows_by_seq]
        topics = await self._paths.topics(
            connection,
            pinned.tenant,
            [(scopes[event.scope_id], event.path) for event in inside],
            hidden=pinned.hidden,
        )
        sought = sought_in(query.query)
        hits = {
            event.event_seq: Leafward(
                event=event_node(
                    rows_by_seq[event.event_seq],
                    scopes[event.scope_id].participants,
                    indexed=not rows_by_seq[event.event_seq]["internal"],
                    score=0,
                    as_reference=True,
                    with_payload=query.include_payload,
                    sought=sought,
                ),
                path=event.path,
            )
            for event in inside
        }
        return hits, topics

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
            pinned_row = await connection.fetchrow(sql("retrieval.pin"), tenant, None, [])
            row = await connection.fetchrow(sql("events.by_id"), tenant, event_id)
        if row is None or not masks.sees(row["participants"]) or (row["internal"] and not include_internal):
            raise _no_event(event_id)
        is_superseded = row["reason"] == "superseded"
        successor = None
        if is_superseded and row["successor_id"] is not None and masks.sees(row["successor_participants"]):
            successor = row["successor_id"]
        if row["reason"] not in (None, "restored") and not (is_superseded and include_superseded):
            raise _no_event(event_id, successor)
        cutoff = (pinned_row and pinned_row["cutoff"]) or 0
        indexed = not row["internal"] and row["event_seq"] <= cutoff and not row["withdrawn_at_floor"]
        node = event_node(row, row["participants"], indexed=indexed, score=0, as_reference=False, with_payload=True)
        event = {
            **event_body(row, row["participants"], indexed=indexed),
            "topic_hints": node["topic_hints"],
            "payload": node["payload"],
            "ingested_at": rfc3339_of(row["ingested_at"]),
        }
        if is_superseded:
            event |= {"superseded": True, "superseded_by": successor}
        return {"snapshot_id": pinned_row and pinned_row["snapshot_id"], "event": event}

    async def get_topic(self, tenant: str, topic_id: str, masks: Masks) -> Json:
        """Return one topic of the active snapshot, or where its events went when it is no more (archived).

        Raises:
            TopicNotFound: these masks see no such topic in the active snapshot.
        """
        return await self.turns.read((tenant, masks), partial(self._topic, tenant, topic_id, masks))

    async def _topic(self, tenant: str, topic_id: str, masks: Masks, connection: Connection, turn: Turn) -> Json:
        pinned = await pin(connection, self.cache, tenant, masks, None, turn=turn)
        row = await connection.fetchrow(sql("retrieval.topic"), tenant, topic_id)
        if row is not None and row["prefix"] is not None:
            subject = await self._subjects.named(connection, pinned, row, topic_id)
            if subject is None:
                raise no_topic(topic_id)
            return await self._subject(connection, pinned, subject)
        if row is None or not masks.sees(row["participants"]):
            raise no_topic(topic_id)
        scope = pinned.scope(row["scope_id"])
        path = None if scope is None else await self._paths.locate(connection, tenant, scope, row["anchor_seq"])
        if scope is None or path is None:
            raise no_topic(topic_id)
        on_path = {record["rendering_id"]: record for record in await renderings(connection, tenant, path)}
        place = next(
            (at for at, rendering_id in enumerate(path) if on_path[rendering_id]["topic_id"] == topic_id), None
        )
        merged_into = None
        if place is None:
            levels = [on_path[rendering_id]["level"] for rendering_id in path]
            place = next((at for at, level in enumerate(levels) if level <= row["level"]), len(path) - 1)
            merged_into = on_path[path[place]]["topic_id"]
        topic_row = on_path[path[place]]
        children = await connection.fetch(sql("retrieval.children"), tenant, path[place])
        newest = await connection.fetchval(sql("retrieval.newest_moment"), tenant, pinned.visible.ids.tolist())
        first_at, last_at = to_microseconds(topic_row["first_at"]), to_microseconds(topic_row["last_at"])
        topic = pinned.hidden.topic(topic_node(topic_row, scope.participants), scope.scope_id, first_at, last_at)
        node_type = topic.pop("kind")
        topic["topic_id"] = topic_id
        topic["node_type"] = node_type
        topic["context_id"] = await connection.fetchval(sql("retrieval.shared_context"), tenant, [path[place]])
        topic["state"] = "archived" if merged_into else self._state(topic_row["last_at"], newest)
        topic["parent_topic_id"] = on_path[path[place - 1]]["topic_id"] if place else None
        topic["children"] = [child["topic_id"] for child in children]
        topic["merged_into"] = merged_into
        return {"snapshot_id": pinned.snapshot_id, "topic": topic}

    async def _subject(self, connection: Connection, pinned: Pinned, subject: NamedSubject) -> Json:
        """Return a subject as a topic: its children are the last of its leaves, in the order of time."""
        newest = await connection.fetchval(sql("retrieval.newest_moment"), pinned.tenant, pinned.visible.ids.tolist())
        leaves = await self._subjects.leaves(connection, pinned, subject.rendering_id, most=_SUBJECT_LEAVES)
        topic = {**subject.topic.shown(pinned.hidden)}
        topic["node_type"] = topic.pop("kind")
        every = list(await self._subjects.all_leaves(connection, pinned, subject))
        topic["context_id"] = await connection.fetchval(sql("retrieval.shared_context"), pinned.tenant, every)
        topic["state"] = self._state(to_datetime(subject.topic.last_at), newest)
        topic["parent_topic_id"] = None
        topic["children"] = [topic_id for _, topic_id in leaves]
        topic["merged_into"] = None
        return {"snapshot_id": pinned.snapshot_id, "topic": topic}

    async def _cursor(self, connection: Connection, tenant: str, query: Query) -> Cursor | None:
        if query.cursor is None:
            return None
        return cursors.decode(
            query.cursor,
            digest=_digest(tenant, query, _arguments(query)),
            secret=await self._cursor_secret(connection),
            lifetime=self._settings.retrieval.cursor_lifetime_s,
        )

    async def _answer(
        self,
        connection: Connection,
        tenant: str,
        query: Query,
        answer: Assembled,
        *,
        result: SearchResult,
        told: ToldHits,
        cursor: Cursor | None,
    ) -> Json:
        covered = told.covered(answer.taken)
        more = covered < len(result.hits) or result.more
        arguments = _arguments(query)
        next_cursor = None
        if more and answer.taken:
            last = result.hits[covered - 1].key
            following = Cursor(
                snapshot_id=result.pinned.snapshot_id or "",
                visible=result.pinned.visibility.text,
                after=(last.score, last.timestamp, last.event_seq),
                period_end=cursors.period_end(self._settings.retrieval.cursor_lifetime_s)
                if cursor is None
                else cursor.period_end,
                newest=result.newest,
                by_meaning=result.by_meaning,
                looked=result.looked,
            )
            secret = await self._cursor_secret(connection)
            next_cursor = cursors.encode(following, digest=_digest(tenant, query, arguments), secret=secret)
        body = {
            "snapshot_id": result.pinned.snapshot_id,
            "root": answer.root,
            "constraints": _constraints(query, arguments),
            "truncated": more or answer.cut_by_depth or bool(answer.skipped),
            "next_cursor": next_cursor,
            **_degraded(None),
            "counts": _counts(answer),
        }
        if answer.skipped:
            body["skipped"] = {"count": len(answer.skipped), "event_ids": list(answer.skipped)}
        return body

    def _room(self, result: SearchResult, query: Query) -> Room:
        """Return the bounds of an answer; around its tree there are the query and a cursor as long as it may get."""
        is_lean = query.view == "lean"
        constraints = {} if is_lean else _constraints(query, _arguments(query))
        query_cost = cost_of([constraints, result.pinned.visibility.text * 2], nodes=0)
        if isinstance(query, ReferencesQuery):
            nodes, depth = query.max_nodes, query.max_depth
        else:
            nodes, depth = query.limit + 1, None
        return Room(
            nodes=nodes,
            depth=depth,
            tokens=query.max_tokens,
            size=self._settings.retrieval.answer_bytes,
            around=query_cost + Cost(0, _ANSWER_TOKENS, _ANSWER_TOKENS * CHARACTERS_PER_TOKEN),
            lean=is_lean,
        )

    def _state(self, last_at: Any, newest: Any) -> str:
        silence = (newest - last_at).total_seconds() if newest is not None else 0.0
        if silence > self._settings.topics.archived_after_s:
            return "archived"
        return "dormant" if silence > self._settings.topics.dormant_after_s else "active"

    async def _cursor_secret(self, connection: Connection) -> bytes:
        if self._secret is None:
            secret: bytes = await connection.fetchval(sql("retrieval.cursor_secret"))
            self._secret = secret
        return self._secret


async def _fitting(
    assembly: Assembly,
    hits: Sequence[Leafward],
    respond: Callable[[Assembled], Awaitable[Json]],
    within: Within | None,
    assembled: Assembled | None = None,
) -> tuple[Json, Assembled]:
    """Return the answer of as many of some hits, in order, as keep the caller's bound, and what it was made of.

    A first hit that breaks it alone is skipped: it fits on no page.

    Args:
        assembly: where the hits are placed.
        assembled: what came of all of them; None where they are in the assembly already.
    """
    whole = assembled or assembly.finish()
    answer = await respond(whole)
    if within is None or not hits or within(answer):
        return answer, whole
    best: tuple[Json, Assembled] | None = None
    fitting, beyond = 0, len(hits)
    while fitting + 1 < beyond:
        middle = (fitting + beyond) // 2
        part = assembly.again(hits[:middle])
        shorter = await respond(part)
        if within(shorter):
            best, fitting = (shorter, part), middle
        else:
            beyond = middle
    if best is None:
        part = assembly.without(hits[0])
        best = await respond(part), part
    return best


async def _taken(
    assembly: Assembly, pages: AsyncIterator[Sequence[Hit]], leafward: Callable[[Hit], Leafward]
) -> list[Leafward]:
    """Place hits until one has no room, and return those that are placed; what has no room is not decoded."""
    taken: list[Leafward] = []
    async for hits in pages:
        for hit in hits:
            placed = leafward(hit)
            if not assembly.take(placed):
                return taken
            taken.append(placed)
    return taken


def _named_first(key: tuple[Any, ...]) -> Any:
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
    if settings.second_look.model != "llm" or walker is None:
        return SecondLook.configured(settings)
    from myria.search.second_look.chat import ChatModel  # noqa: PLC0415 - only where a model is asked

    return SecondLook.configured(settings, chat=ChatModel(database, walker.model))


def _no_event(event_id: str, successor_id: str | None = None) -> errors.EventNotFound:
    """Return the refusal of an event that is absent, forbidden or withdrawn, or that another replaced."""
    if successor_id is None:
        return errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)
    return errors.EventNotFound(
        f"event {event_id} was superseded by {successor_id}; look that up, or include superseded events",
        event_id=event_id,
        superseded_by=successor_id,
    )


def _degraded(reason: str | None) -> Json:
    """Return what an answer says of a model that was asked in vain, for this reason, or of none."""
    if reason is None:
        return {"degraded": False, "degraded_reason": None}
    return {"degraded": True, "degraded_reason": reason, "degraded_note": advice(reason)}


def _counts(answer: Assembled) -> Json:
    """Return how much an answer shows."""
    events = indexed = 0
    topics = [answer.root]
    while topics:
        for child in topics.pop()["children"]:
            if "children" in child:
                topics.append(child)
            else:
                events += 1
                indexed += child["indexed"]
    return {
        "nodes": answer.nodes,
        "events": events,
        "topics": answer.nodes - 1 - events,
        "indexed": indexed,
        "fresh": events - indexed,
    }


class _Events:
    """The events of the hits of one answer, read some at a time: payloads may be large, and not all are shown.

    `rows` are those read last, or with `keeps` all.
    """

    def __init__(
        self,
        result: SearchResult,
        query: Query,
        *,
        with_payload: bool,
        keeps: bool = False,
        alike: Mapping[int, int] = _NONE_ALIKE,
    ) -> None:
        self.rows: dict[int, asyncpg.Record] = {}
        self._marks: dict[int, Json] = {}
        self._query = query
        self._keeps = keeps
        self._alike = alike
        self._result = result
        self._sought = sought_in(query.query)
        self._with_payload = with_payload

    async def read(self, connection: Connection) -> AsyncIterator[Sequence[Hit]]:
        """Yield the hits in order, those whose rows have been read."""
        result = self._result
        for start in range(0, len(result.hits), _ROWS_AT_ONCE):
            hits = result.hits[start : start + _ROWS_AT_ONCE]
            scopes = sorted({result.scope(hit).scope_id for hit in hits})
            wanted = [hit.event_seq for hit in hits]
            rows = await connection.fetch(sql("events.by_seqs"), result.pinned.tenant, wanted, scopes)
            if not self._keeps:
                self.rows.clear()
            self.rows.update((row["event_seq"], row) for row in rows)
            if self._query.include_superseded:
                await self._mark(connection, wanted)
            yield hits

    async def _mark(self, connection: Connection, wanted: list[int]) -> None:
        """Note which events are superseded, and by what where that may be seen."""
        masks = self._query.masks
        self._marks.clear()
        for row in await connection.fetch(sql("retrieval.successors"), self._result.pinned.tenant, wanted):
            shown = row["participants"] is not None and masks.sees(row["participants"])
            mark = {"superseded": True, "superseded_by": row["event_id"] if shown else None}
            self._marks[row["event_seq"]] = mark

    def leafward(self, hit: Hit, path: Path = ()) -> Leafward:
        """Return a hit as it is placed below the last rendering of its path."""
        row, participants = self.rows[hit.event_seq], self._result.scope(hit).participants
        indexed = self._result.is_indexed(hit)
        mark = self._marks.get(hit.event_seq, {})
        change = self._result.change_of(hit)
        if change is not None:
            mark = {**mark, "change": change}
        if hit.event_seq in self._alike:
            mark = {**mark, "alike": self._alike[hit.event_seq]}
        event = event_node(
            row,
            participants,
            indexed=indexed,
            score=hit.score,
            as_reference=bool(path),
            with_payload=self._with_payload,
            sought=self._sought,
        )
        if mark:
            event |= mark
        if not self._with_payload:
            return Leafward(event=event, path=path)
        shortened = partial(
            shortened_event_node,
            row,
            participants,
            indexed=indexed,
            score=hit.score,
            as_reference=bool(path),
            sought=self._sought,
        )
        return Leafward(event=event, path=path, shortened=(lambda: shortened() | mark) if mark else shortened)


def _kept(hits: list[Leafward], more: Iterator[Leafward]) -> Iterator[Leafward]:
    """Yield hits and then more, which are added to them as they are taken."""
    yield from tuple(hits)
    for hit in more:
        hits.append(hit)
        yield hit


def _downward(path: Path, topics: Mapping[bytes, Json], root: str) -> Path:
    """Return a path from the chosen topic on: what stands above it is not part of its subtree."""
    at = next(
        i
        for i, rendering_id in enumerate(path)
        if root in (topics[rendering_id]["topic_id"], topics[rendering_id]["node_id"])
    )
    return path[at:]


def _under_subject(hit: Leafward, places: Mapping[bytes, bytes]) -> Leafward:
    """Return a hit as it is placed under the subject of its leaf, where it has one in this answer."""
    subject = places.get(hit.path[-1]) if hit.path else None
    if subject is None:
        return hit
    return Leafward(event=hit.event, path=(subject, hit.path[-1]), shortened=hit.shortened)


def _digest(tenant: str, query: Query, arguments: Json) -> str:
    return cursors.query_digest(tenant, type(query).__name__, arguments)


def _constraints(query: Query, arguments: Json) -> Json:
    """Return the query as it was understood, without arguments that were not given."""
    constraints = {name: value for name, value in arguments.items() if value not in (None, [], False)}
    if isinstance(query, ReferencesQuery) and query.mode != "auto":
        constraints["mode"] = query.mode
    utc_offset = constraints.pop("utc_offset", 0)
    for name in ("since", "until", "now"):
        if name in constraints:
            constraints[name] = to_rfc3339(constraints[name], utc_offset if name == "now" else 0)
    return constraints


def _arguments(query: Query) -> Json:
    given = {name: _plain(getattr(query, name)) for name in _NAMES[type(query)]}
    if not query.include_superseded:
        # Cursors that were made before there was this argument stay valid.
        del given["include_superseded"]
    return {**query.masks.to_json(), **given}


def _plain(value: Any) -> Any:
    if isinstance(value, TopicHint):
        return {"hint": value.hint, "confidence": value.confidence}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
