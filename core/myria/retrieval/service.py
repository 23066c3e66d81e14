"""Reads: mask, pin, rank both lanes together, assemble one rooted tree (§14-§16).

Each request runs in one REPEATABLE READ transaction: the pinned snapshot, the fresh tail and the events themselves
belong to one moment, whatever is published or rolled back meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt

from myria import errors
from myria.analysis import is_stopword, terms
from myria.contract.queries import EventNodesQuery, ReferencesQuery
from myria.events import TopicHint
from myria.index.block import BlockView
from myria.index.corpus import Corpus, Timeline
from myria.index.loose import LooseBlock
from myria.retrieval import cursors
from myria.retrieval.cache import ByteCache
from myria.retrieval.cursors import Cursor
from myria.retrieval.lanes import Lanes, LooseLane
from myria.retrieval.nodes import event_body, event_node, topic_node
from myria.retrieval.pinned import Pinned, VisibleScope, pin
from myria.retrieval.question import Question
from myria.retrieval.ranking import Filters, Hit, Key, Order, Ranking, rank
from myria.retrieval.tree import Assembled, Leafward, assemble
from myria.scopes import visible
from myria.settings import Settings
from myria.store.clock import to_microseconds, to_rfc3339
from myria.store.database import Connection, Database
from myria.store.queries import sql

Json = dict[str, Any]
Query = EventNodesQuery | ReferencesQuery

RANKED_IN_PLACE = 20_000
"""Events up to which ranking is quicker than a hop to a thread and back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """A ranking with everything that led to it."""

    pinned: Pinned
    scopes: tuple[VisibleScope, ...]
    corpora: tuple[Corpus, ...]
    hits: tuple[Hit, ...]
    more: bool
    looked_for: frozenset[str]
    digest: str
    issued_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaidOut:
    """A scope's documents in order of time, as long as its root and its tail are these."""

    root: bytes | None
    tail: LooseBlock | None
    timeline: Timeline


class Retrieval:
    """The read path of one process: stateless but for caches of immutable things."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self.cache = ByteCache(settings.retrieval.cache_bytes)
        self._lanes = Lanes(self.cache)
        self._threads = ThreadPoolExecutor(settings.retrieval.ranking_threads, thread_name_prefix="rank")
        self._secret: bytes | None = None

    async def close(self) -> None:
        """End the ranking threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def query_event_nodes(self, tenant: str, query: EventNodesQuery) -> Json:
        """Return matching events under one root, best first.

        Raises:
            CursorInvalid, CursorExpired: ask again without the cursor.
            UnavailableError: retry.
        """
        async with self._database.read(tenant) as connection:
            searched = await self._search(connection, tenant, "query_event_nodes", query, limit=query.limit)
            rows = await _rows(connection, searched)
            hits = [
                Leafward(event=self._event(searched, hit, rows, as_reference=False, with_payload=True))
                for hit in searched.hits
            ]
            answer = assemble(
                hits,
                topics={},
                asked_by=query.participants,
                max_nodes=query.limit + 1,
                max_depth=None,
                max_tokens=query.max_tokens,
            )
            return await self._answer(connection, searched, answer, query)

    async def query_references(self, tenant: str, query: ReferencesQuery) -> Json:
        """Return topics with references to matching events, and matching fresh events, under one root.

        Raises:
            TopicNotFound: `root` names no topic or node visible in this snapshot.
            CursorInvalid, CursorExpired: ask again without the cursor.
            UnavailableError: retry.
        """
        async with self._database.read(tenant) as connection:
            searched = await self._search(
                connection, tenant, "query_references", query, limit=query.max_nodes, root=query.root
            )
            rows = await _rows(connection, searched)
            paths = [await self._path(connection, searched, hit) for hit in searched.hits]
            topics = await self._topics(connection, searched, paths)
            hits = [
                Leafward(
                    event=self._event(searched, hit, rows, as_reference=bool(path), with_payload=query.include_payload),
                    path=path,
                )
                for hit, path in zip(searched.hits, paths, strict=True)
            ]
            answer = assemble(
                hits,
                topics=topics,
                asked_by=query.participants,
                max_nodes=query.max_nodes,
                max_depth=query.max_depth,
                max_tokens=query.max_tokens,
            )
            return await self._answer(connection, searched, answer, query)

    async def get_event(
        self, tenant: str, event_id: str, participants: tuple[str, ...], *, include_internal: bool = False
    ) -> Json:
        """Return one event; absent and forbidden look alike (trap 6).

        Raises:
            EventNotFound: no such event for these participants, or it is internal and was not asked for as such.
        """
        async with self._database.read(tenant) as connection:
            pinned_row = await connection.fetchrow(sql("retrieval.pin"), tenant)
            row = await connection.fetchrow(sql("events.by_id"), tenant, event_id)
        if row is None or not visible(participants, row["participants"]) or (row["internal"] and not include_internal):
            raise errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)
        cutoff = (pinned_row and pinned_row["cutoff"]) or 0
        node = event_node(row, row["participants"], cutoff=cutoff, score=0, as_reference=False, with_payload=True)
        event = {
            **event_body(row, row["participants"], cutoff=cutoff),
            "topic_hints": node["topic_hints"],
            "payload": node["payload"],
            "ingested_at": to_rfc3339(to_microseconds(row["ingested_at"])),
        }
        return {"snapshot_id": pinned_row and pinned_row["snapshot_id"], "event": event}

    async def get_topic(self, tenant: str, topic_id: str, participants: tuple[str, ...]) -> Json:
        """Return one topic of the active snapshot, or where its events went when it is no more (archived).

        Raises:
            TopicNotFound: no such topic for these participants in the active snapshot.
        """
        async with self._database.read(tenant) as connection:
            pinned = await pin(connection, tenant, participants, None)
            row = await connection.fetchrow(sql("retrieval.topic"), tenant, topic_id)
            if row is None or not visible(participants, row["participants"]):
                raise _no_topic(topic_id)
            scope = _scope(pinned, row["scope_id"])
            path = None if scope is None else await self._locate(connection, pinned, scope, row["anchor_seq"])
            if scope is None or path is None:
                raise _no_topic(topic_id)
            renderings = {record["rendering_id"]: record for record in await _renderings(connection, tenant, path)}
            place = next((at for at, one in enumerate(path) if renderings[one]["topic_id"] == topic_id), None)
            merged_into = None
            if place is None:
                levels = [renderings[one]["level"] for one in path]
                place = next((at for at, level in enumerate(levels) if level <= row["level"]), len(path) - 1)
                merged_into = renderings[path[place]]["topic_id"]
            found = renderings[path[place]]
            children = await connection.fetch(sql("retrieval.children"), tenant, path[place])
            newest = await connection.fetchval(
                sql("retrieval.newest_moment"), tenant, [one.scope_id for one in pinned.scopes]
            )
        topic = topic_node(found, scope.participants)
        node_type = topic.pop("kind")
        topic["topic_id"] = topic_id
        topic["node_type"] = node_type
        topic["state"] = "archived" if merged_into else self._state(found["last_at"], newest)
        topic["parent_topic_id"] = renderings[path[place - 1]]["topic_id"] if place else None
        topic["children"] = [child["topic_id"] for child in children]
        topic["merged_into"] = merged_into
        return {"snapshot_id": pinned.snapshot_id, "topic": topic}

    async def _search(
        self,
        connection: Connection,
        tenant: str,
        tool: str,
        query: Query,
        *,
        limit: int,
        root: str | None = None,
    ) -> _Searched:
        digest = cursors.query_digest(tenant, tool, _arguments(query))
        cursor: Cursor | None = None
        if query.cursor is not None:
            cursor = cursors.decode(
                query.cursor,
                digest=digest,
                secret=await self._cursor_secret(connection),
                lifetime=self._settings.retrieval.cursor_lifetime_s,
            )
        pinned = await pin(connection, tenant, query.participants, cursor)
        blocks = await self._lanes.blocks(connection, pinned)
        if root is None:
            scopes = pinned.scopes
            tail = await self._lanes.loose(connection, pinned, "tail")
            internal = await self._lanes.loose(connection, pinned, "internal") if query.include_internal else {}
            corpora = tuple(
                self._corpus(tenant, scope, blocks, tail.get(scope.scope_id), internal.get(scope.scope_id))
                for scope in scopes
            )
        else:
            scope, corpus = await self._subtree(connection, pinned, blocks, root)
            scopes, corpora = (scope,), (corpus,)
        ranking = await self._rank(
            Question(text=query.query, topic_hints=query.topic_hints, now=query.now),
            corpora,
            filters=Filters(
                channel=query.channel,
                types=query.types,
                context_id=query.context_id,
                since=query.since,
                until=query.until,
            ),
            order=query.order,
            limit=limit + 1,
            after=None if cursor is None else _key(cursor.after),
        )
        return _Searched(
            pinned=pinned,
            scopes=scopes,
            corpora=corpora,
            hits=ranking.hits[:limit],
            more=len(ranking.hits) > limit,
            looked_for=frozenset(term for term in terms(query.query or "") if not is_stopword(term)),
            digest=digest,
            issued_at=int(time.time()) if cursor is None else cursor.issued_at,
        )

    def _corpus(
        self,
        tenant: str,
        scope: VisibleScope,
        blocks: Mapping[bytes, BlockView],
        tail: LooseLane | None,
        internal: LooseLane | None,
    ) -> Corpus:
        """Return what a scope holds, laid out in time where the same was laid out before."""
        corpus = Corpus(
            participants=scope.participants,
            blocks=tuple(blocks[rendering_id] for rendering_id in scope.blocks),
            tail=None if tail is None else tail.block,
            tail_mask=None if tail is None or bool(tail.mask.all()) else tail.mask,
            internal=None if internal is None else internal.block,
            internal_mask=None if internal is None else internal.mask,
        )
        if internal is not None or corpus.tail_mask is not None:
            return corpus
        key = (tenant, "timeline", scope.scope_id)
        kept: _LaidOut | None = self.cache.get(key)
        if kept is None or kept.root != scope.root or kept.tail is not corpus.tail:
            kept = _LaidOut(root=scope.root, tail=corpus.tail, timeline=Timeline.of(corpus))
            self.cache.put(key, kept, kept.timeline.nbytes)
        return replace(corpus, timeline=kept.timeline)

    async def _subtree(
        self, connection: Connection, pinned: Pinned, blocks: Mapping[bytes, BlockView], root: str
    ) -> tuple[VisibleScope, Corpus]:
        """Return the scope of a topic or node, and a corpus of the events below it alone.

        Raises:
            TopicNotFound: no such topic or node is visible in this snapshot.
        """
        row = await _root_row(connection, pinned.tenant, root)
        scope = None if row is None else _scope(pinned, row["scope_id"])
        path = None
        if row is not None and scope is not None:
            path = await self._locate(connection, pinned, scope, row["anchor_seq"])
        if scope is None or scope.root is None or path is None:
            raise _no_topic(root)
        chosen = next(
            (
                record["rendering_id"]
                for record in await _renderings(connection, pinned.tenant, path)
                if root in (record["topic_id"], record["node_id"].hex())
            ),
            None,
        )
        if chosen is None:
            raise _no_topic(root)
        above = await self._above(connection, pinned.tenant, scope.root, scope.blocks)
        views: list[BlockView] = []
        masks: list[npt.NDArray[np.bool_] | None] = []
        for rendering_id in scope.blocks:
            view = blocks[rendering_id]
            mask = None if chosen in above[rendering_id] else _below(view, chosen)
            if mask is None or bool(mask.any()):
                views.append(view)
                masks.append(mask)
        corpus = Corpus(participants=scope.participants, blocks=tuple(views), block_masks=tuple(masks))
        return scope, corpus

    async def _rank(
        self,
        question: Question,
        corpora: Sequence[Corpus],
        *,
        filters: Filters,
        order: Order,
        limit: int,
        after: Key | None,
    ) -> Ranking:
        ranked = partial(rank, question, corpora, filters=filters, order=order, limit=limit, after=after)
        if sum(len(view) for corpus in corpora for view, _ in corpus.parts()) <= RANKED_IN_PLACE:
            return ranked()
        return await asyncio.get_running_loop().run_in_executor(self._threads, ranked)

    def _event(
        self,
        searched: _Searched,
        hit: Hit,
        rows: Mapping[int, asyncpg.Record],
        *,
        as_reference: bool,
        with_payload: bool,
    ) -> Json:
        return event_node(
            rows[hit.event_seq],
            searched.scopes[hit.corpus].participants,
            cutoff=searched.pinned.cutoff,
            score=hit.score,
            as_reference=as_reference,
            with_payload=with_payload,
            looked_for=searched.looked_for,
        )

    async def _path(self, connection: Connection, searched: _Searched, hit: Hit) -> tuple[bytes, ...]:
        """Return the renderings from the scope's root down to the hit's leaf; empty for a fresh event."""
        scope, blocks = searched.scopes[hit.corpus], searched.corpora[hit.corpus].blocks
        if hit.view >= len(blocks):
            return ()
        view = blocks[hit.view]
        return await self._whole_path(connection, searched.pinned.tenant, scope, view, hit.doc)

    async def _whole_path(
        self, connection: Connection, tenant: str, scope: VisibleScope, view: BlockView, doc: int
    ) -> tuple[bytes, ...]:
        inside = view.path(doc)[::-1]
        if inside[0] == scope.root or scope.root is None:
            return inside
        above = await self._above(connection, tenant, scope.root, scope.blocks)
        return above[inside[0]] + inside

    async def _above(
        self, connection: Connection, tenant: str, root: bytes, blocks: tuple[bytes, ...]
    ) -> dict[bytes, tuple[bytes, ...]]:
        """Return, for each block's rendering, the renderings from the scope's root to just above it."""
        key = (tenant, "above", root)
        known: dict[bytes, tuple[bytes, ...]] | None = self.cache.get(key)
        if known is None:
            parents = {
                row["rendering_id"]: row["parent_id"]
                for row in await connection.fetch(sql("retrieval.above_blocks"), tenant, root, list(blocks))
            }
            known = {}
            for block in blocks:
                path: list[bytes] = []
                above = parents[block]
                while above is not None:
                    path.append(above)
                    above = parents[above]
                known[block] = tuple(reversed(path))
            self.cache.put(key, known, 200 + sum(200 + 80 * len(path) for path in known.values()))
        return known

    async def _topics(
        self, connection: Connection, searched: _Searched, paths: Sequence[tuple[bytes, ...]]
    ) -> dict[bytes, Json]:
        tenant = searched.pinned.tenant
        topics: dict[bytes, Json] = {}
        missing: dict[bytes, VisibleScope] = {}
        for path, hit in zip(paths, searched.hits, strict=True):
            for rendering_id in path:
                if rendering_id in topics or rendering_id in missing:
                    continue
                topic = self.cache.get((tenant, "topic", rendering_id))
                if topic is None:
                    missing[rendering_id] = searched.scopes[hit.corpus]
                else:
                    topics[rendering_id] = topic
        for row in await _renderings(connection, tenant, list(missing)):
            topic = topic_node(row, missing[row["rendering_id"]].participants)
            topics[row["rendering_id"]] = topic
            size = 1200 + 2 * (len(topic["summary"]) + len(topic["label"]))
            self.cache.put((tenant, "topic", row["rendering_id"]), topic, size)
        return topics

    async def _locate(
        self, connection: Connection, pinned: Pinned, scope: VisibleScope, event_seq: int
    ) -> tuple[bytes, ...] | None:
        """Return the renderings from the scope's root down to the leaf that holds an event, or None."""
        views = await self._lanes.blocks(connection, pinned)
        for rendering_id in scope.blocks:
            view = views[rendering_id]
            places = (view.seq == event_seq).nonzero()[0]
            if len(places):
                return await self._whole_path(connection, pinned.tenant, scope, view, int(places[0]))
        return None

    async def _answer(self, connection: Connection, searched: _Searched, answer: Assembled, query: Query) -> Json:
        pinned, hits = searched.pinned, searched.hits
        more = answer.placed < len(hits) or searched.more
        next_cursor = None
        if more and answer.placed:
            cursor = Cursor(
                snapshot_id=pinned.snapshot_id or "",
                visible=pinned.visibility.text,
                after=_cursor_key(hits[answer.placed - 1].key),
                issued_at=searched.issued_at,
            )
            next_cursor = cursors.encode(cursor, digest=searched.digest, secret=await self._cursor_secret(connection))
        shown = list(_events(answer.root))
        indexed = sum(event["indexed"] for event in shown)
        return {
            "snapshot_id": pinned.snapshot_id,
            "root": answer.root,
            "constraints": _constraints(query),
            "truncated": more or answer.cut_by_depth,
            "next_cursor": next_cursor,
            "degraded": False,
            "degraded_reason": None,
            "counts": {
                "nodes": answer.nodes,
                "events": len(shown),
                "topics": answer.nodes - 1 - len(shown),
                "indexed": indexed,
                "fresh": len(shown) - indexed,
            },
        }

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


def _key(after: tuple[int, ...]) -> Key:
    score, timestamp, event_seq = after
    return Key(score=score, timestamp=timestamp, event_seq=event_seq)


def _cursor_key(key: Key) -> tuple[int, ...]:
    return (key.score, key.timestamp, key.event_seq)


def _below(view: BlockView, rendering_id: bytes) -> npt.NDArray[np.bool_]:
    """Return which documents of a block stand below one of its nodes."""
    inside = np.zeros(len(view.node_parent) + 1, dtype=np.bool_)
    for node, parent in enumerate(view.node_parent.tolist()):
        inside[node] = (parent >= 0 and inside[parent]) or view.rendering(node) == rendering_id
    return inside[view.leaf]


async def _root_row(connection: Connection, tenant: str, root: str) -> asyncpg.Record | None:
    if root.startswith("top_"):
        return await connection.fetchrow(sql("retrieval.topic"), tenant, root)
    try:
        node_id = bytes.fromhex(root)
    except ValueError:
        return None
    return await connection.fetchrow(sql("retrieval.node"), tenant, node_id)


async def _rows(connection: Connection, searched: _Searched) -> dict[int, asyncpg.Record]:
    hits = searched.hits
    if not hits:
        return {}
    scopes = [scope.scope_id for scope in searched.scopes]
    wanted = [hit.event_seq for hit in hits]
    visible_scopes = sorted({scopes[hit.corpus] for hit in hits})
    found = await connection.fetch(sql("events.by_seqs"), searched.pinned.tenant, wanted, visible_scopes)
    return {row["event_seq"]: row for row in found}


async def _renderings(connection: Connection, tenant: str, rendering_ids: Sequence[bytes]) -> Sequence[asyncpg.Record]:
    if not rendering_ids:
        return ()
    return await connection.fetch(sql("retrieval.renderings"), tenant, list(rendering_ids))


def _scope(pinned: Pinned, scope_id: int) -> VisibleScope | None:
    return next((scope for scope in pinned.scopes if scope.scope_id == scope_id), None)


def _no_topic(topic_id: str) -> errors.TopicNotFound:
    return errors.TopicNotFound(
        f"no topic {topic_id} is visible to these participants in the active snapshot", topic_id=topic_id
    )


def _events(node: Json) -> Any:
    for child in node["children"]:
        if child["kind"] in ("event", "event_ref"):
            yield child
        else:
            yield from _events(child)


def _arguments(query: Query) -> Json:
    return {one.name: _plain(getattr(query, one.name)) for one in fields(query) if one.name != "cursor"}


def _constraints(query: Query) -> Json:
    """Return the query as it was understood, without what was not asked for."""
    said = {name: value for name, value in _arguments(query).items() if value not in (None, [], False)}
    for name in ("since", "until", "now"):
        if name in said:
            said[name] = to_rfc3339(said[name])
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, TopicHint):
        return {"hint": value.hint, "confidence": value.confidence}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
