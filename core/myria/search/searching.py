"""Searching: the snapshot view, what it holds as one corpus, and the ranking of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import asyncpg
import numpy as np

from myria import errors
from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import Ints, View
from myria.index.corpus import Corpus, Mask
from myria.index.documents import Doc
from myria.index.searchable import document
from myria.log.masks import Masks
from myria.search.cache import ByteCache
from myria.search.cursors import Cursor
from myria.search.explaining import Placed, Shares
from myria.search.plan import meaning
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.search.question import Question
from myria.search.ranking import Filters, Key, Ranking, rank
from myria.search.read_slots import ReadSlot
from myria.search.reasons import Filter
from myria.search.result import SearchResult
from myria.search.scopes import VisibleScope
from myria.search.second_look import SecondLook
from myria.search.snapshot_view import SnapshotView, open_snapshot
from myria.search.superseded import replaced_events
from myria.search.topics import NamedSubject, Path, TopicReader, renderings
from myria.search.unindexed import UnindexedReader
from myria.search.vectors import VectorReader
from myria.search.visible_blocks import BlockReader

T = TypeVar("T")
Query = EventNodesQuery | ReferencesQuery

RANKED_IN_PLACE = 20_000
"""With at most this many events, ranking is quicker than handing it to a thread."""


class Search:
    """Runs queries up to their ranked hits."""

    def __init__(
        self,
        cache: ByteCache,
        blocks: BlockReader,
        topics: TopicReader,
        *,
        threads: ThreadPoolExecutor,
        vectors: VectorReader | None = None,
        look: SecondLook | None = None,
    ) -> None:
        self._cache = cache
        self._blocks = blocks
        self._unindexed = UnindexedReader(cache)
        self._topics = topics
        self._threads = threads
        self._vectors = vectors
        self._look = look

    async def find(
        self,
        connection: Connection,
        tenant: str,
        query: Query,
        *,
        limit: int,
        cursor: Cursor | None,
        slot: ReadSlot,
        root: str | None = None,
        at: int | None = None,
    ) -> SearchResult:
        """Search: open the snapshot view, load what is visible, rank it, and return the best `limit` hits.

        Args:
            cursor: hits start after it, in the view of its first page.
            root: a topic or node; only events below it are searched.
            at: as in `open_snapshot`.

        Raises:
            TopicNotFound: `root` is not visible in this snapshot.
            CursorExpired: the cursor's snapshot is gone.
            HeavyRead: there is much to do, and this read has no slot.
            Awaited: the question's vector or a second look is to be waited for without a connection.
        """
        snapshot = await open_snapshot(
            connection,
            self._cache,
            tenant,
            query.masks,
            cursor,
            slot=slot,
            include_superseded=query.include_superseded,
            at=at,
        )
        version, root_subject, events_of_scope = None, None, 0
        if root is None:
            scopes = snapshot.scopes
            corpus, version = await self._corpus(connection, snapshot, query)
        else:
            scope, corpus, root_subject, events_of_scope = await self._subtree(connection, snapshot, root, slot)
            scopes = (scope,)
        events = await self._lay_out(snapshot, corpus, version, slot)
        is_large = events > RANKED_IN_PLACE
        replaced = None
        if query.query is not None and not query.include_superseded:
            replaced = await replaced_events(connection, self._cache, snapshot)
        question = Question(
            text=query.query,
            topic_hints=query.topic_hints,
            now=query.now,
            utc_offset=query.utc_offset,
            present=query.present,
        )
        has_text = bool((query.query or "").strip())
        is_by_relevance = query.order == "relevance" and has_text
        near = None
        if self._vectors is not None and is_by_relevance and (cursor is None or cursor.by_meaning):
            near = await self._vectors.near(
                connection,
                snapshot,
                meaning(question, corpus),
                scopes=snapshot.visible.ids if root is None else np.array([scopes[0].scope_id], dtype=np.int64),
                events=max(events, events_of_scope),  # below a root too, the vectors of its whole scope are read
                least=query.least_nearness,
                slot=slot,
            )
        expected_row, expected = await _read_expected(connection, snapshot, query)
        expected_seq = None if expected_row is None else expected_row["event_seq"]
        rank_all = partial(
            rank,
            question,
            corpus,
            filters=Filters.of(query),
            order=query.order,
            clock=snapshot.clock if cursor is None or cursor.newest is None else cursor.newest,
            replaced=replaced,
            near=near,
            explain=np.array([expected_seq or 0]) if query.explain else None,
        )

        async def rank_hits(hit_count: int, start: Key | None, late: Ints | None) -> Ranking:
            work = partial(rank_all, limit=hit_count, after=start, late=late)
            return await self._in_thread(work) if is_large else work()

        after = None if cursor is None else Key(*cursor.after)
        ranking, was_looked_at = None, False
        result = SearchResult(snapshot=snapshot, scopes=scopes, corpus=corpus, hits=(), more=False, under=root_subject)
        if self._look is not None and is_by_relevance and (cursor is None or cursor.looked):
            ranking = await self._look.ranking(
                connection, slot, result, query.query or "", ranked=rank_hits, limit=limit + 1, after=after
            )
            was_looked_at = ranking is not None
        if ranking is None:
            ranking = await rank_hits(limit + 1, after, snapshot.hidden.late)
        hits = ranking.hits[:limit]
        if expected_row is not None:
            expected = ranking.expected.get(
                expected_row["event_seq"], Placed(stage="filtered" if root else "not_visible")
            )
            if expected.stage == "filtered":
                filters = excluding(query, expected_row) or (("topic",) if root else ())
                expected = replace(expected, excluded_by=filters)
            # A second look moves hits after they were ranked, and one hit more is ranked than is shown.
            place = next((at for at, hit in enumerate(hits) if hit.event_seq == expected_seq), None)
            if place is not None:
                expected = Placed(stage="shown", place=place + 1, score=hits[place].score)
            elif expected.stage == "shown":
                expected = replace(expected, stage="no_room")
        return replace(
            result,
            hits=hits,
            shares=_with_second_look(ranking) if query.explain else {},
            expected=expected,
            expected_seq=expected_seq,
            more=len(ranking.hits) > limit,
            newest=ranking.newest if cursor is None else cursor.newest,
            changed=ranking.changed,
            by_meaning=near is not None,
            without_words=ranking.by_meaning,
            looked=was_looked_at,
        )

    async def everything(
        self, connection: Connection, tenant: str, masks: Masks, *, slot: ReadSlot
    ) -> tuple[SnapshotView, Corpus]:
        """Return the newest view of some masks, and all that a question without any filter searches in it.

        Raises:
            HeavyRead: there is much to do, and this read has no slot.
        """
        snapshot = await open_snapshot(connection, self._cache, tenant, masks, None, slot=slot)
        corpus, version = await self._corpus(connection, snapshot, EventNodesQuery(masks=masks))
        await self._lay_out(snapshot, corpus, version, slot)
        return snapshot, corpus

    async def _lay_out(
        self, snapshot: SnapshotView, corpus: Corpus, version: tuple[Hashable, ...] | None, slot: ReadSlot
    ) -> int:
        """Lay a corpus out in time, cache it under its version if it has one, and return how many events it holds.

        Raises:
            HeavyRead: they are many, and this read has no slot.
        """
        events = sum([len(view) for view, _ in corpus.parts])
        slot.weigh(events=events)
        timeline = await self._in_thread(lambda: corpus.laid_out) if events > RANKED_IN_PLACE else corpus.laid_out
        if version is not None:
            # Its blocks are counted by their own entries, which every use of it refreshes as well.
            self._cache.put(_corpus_key(snapshot), (version, corpus), timeline.nbytes + events)
        return events

    async def paths(self, connection: Connection, result: SearchResult) -> list[Path]:
        """Return the path of every hit, in order; empty for an event that no tree holds yet."""
        paths: list[Path] = []
        path_of_leaf: dict[tuple[int, int], Path] = {}
        for hit in result.hits:
            if not result.is_indexed(hit):
                paths.append(())
                continue
            block = result.corpus.blocks[hit.view]
            leaf = hit.view, int(block.leaf[hit.doc])
            path = path_of_leaf.get(leaf)
            if path is None:
                tenant, scope = result.snapshot.tenant, result.scope(hit)
                path = path_of_leaf[leaf] = await self._topics.of_document(connection, tenant, scope, block, hit.doc)
            paths.append(path)
        return paths

    async def _corpus(
        self, connection: Connection, snapshot: SnapshotView, query: Query
    ) -> tuple[Corpus, tuple[Hashable, ...] | None]:
        """Return everything visible as one corpus, taken from the cache if nothing has changed.

        Returns:
            the corpus, and the version under which to cache it; None if only this request may see it so.
        """
        visible = await self._blocks.visible(connection, snapshot)
        own_blocks = await self._blocks.of_scopes(connection, snapshot.tenant, visible.alone)
        tail = await self._unindexed.read(connection, snapshot, "tail")
        unplaced = await _read_unplaced(connection, snapshot, include_superseded=query.include_superseded)
        if unplaced:
            tail = tail.beside(unplaced)
        tail_mask = None if bool(tail.mask.all()) else tail.mask
        internal = None
        if query.include_internal:
            internal = await self._unindexed.read(connection, snapshot, "internal")
            internal = internal.without(
                await _read_withdrawn_internal(connection, snapshot, include_superseded=query.include_superseded)
            )
        hidden = snapshot.hidden
        version: tuple[Hashable, ...] | None = None
        if internal is None and hidden.key is not None:
            # An erasure takes events out of the blocks of a tree: their sizes tell before from after.
            version = (visible, tuple(map(len, own_blocks)), hidden.key)
            cached: tuple[tuple[Hashable, ...], Corpus] | None = self._cache.get(_corpus_key(snapshot))
            if cached is not None and cached[0] == version:
                corpus = cached[1]
                if corpus.tail is tail.block and _equal(corpus.tail_mask, tail_mask):
                    return corpus, version
        trees = [*visible.packs, *((view, None) for view in own_blocks)]
        corpus = Corpus(
            participants=snapshot.scopes[0].participants if len(snapshot.scopes) == 1 else (),
            table=visible.table,
            blocks=tuple([view for view, _ in trees]),
            block_masks=tuple([hidden.masked(view, mask) for view, mask in trees]),
            tail=tail.block,
            tail_mask=tail_mask,
            internal=None if internal is None else internal.block,
            internal_mask=None if internal is None else internal.mask,
        )
        return corpus, version

    async def _subtree(
        self, connection: Connection, snapshot: SnapshotView, root: str, slot: ReadSlot
    ) -> tuple[VisibleScope, Corpus, NamedSubject | None, int]:
        """Find a topic or node, and what lies below it.

        Returns:
            its scope; a corpus of only the events below it; the subject if it is one; how many events the trees of the
            whole scope hold.

        Raises:
            TopicNotFound: no such topic or node is visible in this snapshot.
            HeavyRead: it is a subject of very many events, and this read has no slot.
        """
        row = await _root_row(connection, snapshot.tenant, root)
        subject = None
        whole_blocks: frozenset[bytes] = frozenset()
        if row is not None and row["prefix"] is not None:
            subject = await self._topics.named_subject(connection, snapshot, row, root)
            if subject is None:
                raise no_topic(root)
            slot.weigh(events=subject.events)
            scope = subject.scope
            nodes = await self._topics.all_leaves(connection, snapshot, subject)
        else:
            root_scope = None if row is None else snapshot.scope(row["scope_id"])
            if row is None or root_scope is None or root_scope.root is None:
                raise no_topic(root)
            scope = root_scope
            path = await self._topics.locate(connection, snapshot.tenant, scope, row["anchor_seq"]) or ()
            nodes = frozenset(
                record["rendering_id"]
                for record in await renderings(connection, snapshot.tenant, path)
                if root in (record["topic_id"], record["node_id"].hex())
            )
            if not nodes:
                raise no_topic(root)
            above = await self._topics.above(connection, snapshot.tenant, root_scope.root, scope.blocks)
            whole_blocks = frozenset(block for block, path_above in above.items() if not nodes.isdisjoint(path_above))
        views: list[View] = []
        masks: list[Mask | None] = []
        blocks = await self._blocks.of_scopes(connection, snapshot.tenant, (scope,))
        for rendering_id, view in zip(scope.blocks, blocks, strict=True):
            mask = snapshot.hidden.masked(view, None if rendering_id in whole_blocks else _mask_below(view, nodes))
            if mask is None or bool(mask.any()):
                views.append(view)
                masks.append(mask)
        corpus = Corpus(participants=scope.participants, blocks=tuple(views), block_masks=tuple(masks))
        return scope, corpus, subject, sum(map(len, blocks))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _with_second_look(ranking: Ranking) -> Shares:
    """Return the shares of a ranking's documents; what a second look gave to a hit is the rest of its score."""
    shares = {seq: dict(of_signals) for seq, of_signals in ranking.shares.items()}
    score_of = {seq: placed.score for seq, placed in ranking.expected.items() if placed.place is not None}
    score_of |= {hit.event_seq: hit.score for hit in ranking.hits}
    for seq, score in score_of.items():
        of_signals = shares.setdefault(seq, {})
        if rest := score - sum(of_signals.values()):
            of_signals["second_look"] = rest
    return shares


async def _read_expected(
    connection: Connection, snapshot: SnapshotView, query: Query
) -> tuple[asyncpg.Record | None, Placed | None]:
    """Return the row of the event that a query expects, to be looked for in the ranking; or why it is in none.

    Only on a first page: later ones do not know what stood before them.
    """
    if not query.explain or query.expected is None or query.cursor is not None:
        return None, None
    row = await connection.fetchrow(sql("retrieval.expected"), snapshot.tenant, query.expected)
    if row is None or snapshot.scope(row["scope_id"]) is None:
        return None, Placed(stage="not_visible")
    if row["reason"] == "superseded" and not query.include_superseded:
        return None, Placed(stage="replaced")
    if row["reason"] not in (None, "restored", "superseded"):
        return None, Placed(stage="not_visible")
    if row["internal"] and not query.include_internal:
        return None, Placed(stage="internal")
    return row, None


def excluding(query: Query, row: asyncpg.Record) -> tuple[Filter, ...]:
    """Return the filters of a query that an event does not pass, of which its row has the facts."""
    return Filters.of(query).excluding(
        channel=row["channel"],
        type=row["type"],
        context_id=row["context_id"],
        timestamp=to_microseconds(row["occurred_at"]),
    )


def no_topic(topic_id: str) -> errors.TopicNotFound:
    """Return the error for a topic that is absent or forbidden."""
    return errors.TopicNotFound(
        f"no topic {topic_id} is visible to these participants in the active snapshot", topic_id=topic_id
    )


def _corpus_key(snapshot: SnapshotView) -> Hashable:
    return (snapshot.memory, "corpus", snapshot.masks)


def _equal(one: Mask | None, other: Mask | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _mask_below(view: View, nodes: frozenset[bytes]) -> Mask:
    """Return a mask of a block's documents that stand below any of some nodes."""
    # One more than there are nodes: what has no parent or no leaf (-1) reads the last value, which stays False.
    inside = np.zeros(len(view.node_parent) + 1, dtype=np.bool_)
    # Few nodes share the first 8 of an id's 32 bytes: only those are compared as a whole.
    heads, wanted = view.node_rendering.view("<i8")[::4], np.frombuffer(b"".join(nodes), "<i8")[::4]
    for node in np.flatnonzero(np.isin(heads, wanted)).tolist():
        inside[node] = view.rendering(node) in nodes
    # Each round reaches a level further down.
    while not np.array_equal(reached := inside[:-1] | inside[view.node_parent], inside[:-1]):
        inside[:-1] = reached
    below: Mask = inside[view.leaf]
    return below


async def _read_unplaced(connection: Connection, snapshot: SnapshotView, *, include_superseded: bool) -> list[Doc]:
    """Read events up to the cutoff that this request may show although no tree of its snapshot holds them.

    They were restored since, or are superseded and asked for.
    """
    event_seqs = snapshot.hidden.returned.tolist()
    visible = snapshot.visible.ids.tolist()
    if include_superseded:
        rows = await connection.fetch(sql("retrieval.superseded"), snapshot.tenant, visible, snapshot.cutoff)
        event_seqs += [row["event_seq"] for row in rows]
    if not event_seqs:
        return []
    rows = await connection.fetch(sql("events.by_seqs"), snapshot.tenant, event_seqs, visible)
    return [document(row, scope_id=row["scope_id"]) for row in rows if not row["internal"]]


async def _read_withdrawn_internal(connection: Connection, snapshot: SnapshotView, *, include_superseded: bool) -> Ints:
    """Read the event_seqs of withdrawn internal events of the visible scopes, which this request must not show."""
    visible_reasons = ["restored", "superseded"] if include_superseded else ["restored"]
    visible = snapshot.visible.ids.tolist()
    rows = await connection.fetch(sql("retrieval.withdrawn_internal"), snapshot.tenant, visible, visible_reasons)
    return np.array([row["event_seq"] for row in rows], dtype=np.int64)


async def _root_row(connection: Connection, tenant: str, root: str) -> asyncpg.Record | None:
    """Read the row of a topic (by topic_id, which begins with `top_`) or of a node (by node_id, in hexadecimal)."""
    if root.startswith("top_"):
        return await connection.fetchrow(sql("retrieval.topic"), tenant, root)
    try:
        node_id = bytes.fromhex(root)
    except ValueError:
        return None
    return await connection.fetchrow(sql("retrieval.node"), tenant, node_id)
