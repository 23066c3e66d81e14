"""Searching: the pinned view, what it holds, and the ranking of both lanes together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import asyncpg
import numpy as np
import numpy.typing as npt

from myria import errors
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.block import BlockView, Doc, Ints, View
from myria.index.corpus import Corpus, Mask, Timeline
from myria.index.loose import LooseBlock
from myria.index.searchable import document
from myria.index.vectors import WHOLE
from myria.search.best import Key, Ranking
from myria.search.cache import ByteCache
from myria.search.cursors import Cursor
from myria.search.filters import Filters
from myria.search.gathering import Gatherer
from myria.search.lanes import Lanes, Loose, LooseLane
from myria.search.looks import SecondLooks
from myria.search.nearness import Near
from myria.search.paths import Path, Paths, renderings
from myria.search.pin import Pinned, pin
from myria.search.plan import meaning
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.search.question import Question
from myria.search.ranking import rank
from myria.search.read_slots import Turn
from myria.search.replaced import replaced_events
from myria.search.result import SearchResult
from myria.search.scopes import VisibleScope
from myria.search.subjects import NamedSubject, SubjectFinder
from myria.search.vectors import VectorLanes
from myria.search.withdrawn import masked

Query = EventNodesQuery | ReferencesQuery

RANKED_IN_PLACE = 20_000
"""With at most this many events, ranking is quicker than handing it to a thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _LaidOut:
    """A corpus's timeline; valid as long as its trees, its tail and what is hidden of that are these."""

    trees: object
    tail: LooseBlock | None
    tail_mask: Mask | None
    timeline: Timeline


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trees:
    """What the trees of a corpus are, and the key under which its timeline is kept."""

    key: Hashable
    identity: object


class Search:
    """Runs queries up to their ranked hits."""

    def __init__(
        self,
        cache: ByteCache,
        gatherer: Gatherer,
        lanes: Lanes,
        paths: Paths,
        subjects: SubjectFinder,
        *,
        threads: ThreadPoolExecutor,
        vectors: VectorLanes | None = None,
        looks: SecondLooks | None = None,
    ) -> None:
        self._cache = cache
        self._gatherer = gatherer
        self._lanes = lanes
        self._paths = paths
        self._subjects = subjects
        self._threads = threads
        self._vectors = vectors
        self._looks = looks

    async def find(
        self,
        connection: Connection,
        tenant: str,
        query: Query,
        *,
        limit: int,
        cursor: Cursor | None,
        turn: Turn,
        root: str | None = None,
        at: int | None = None,
    ) -> SearchResult:
        """Return the best `limit` hits of a query, after the cursor, and below `root` where it is given.

        Args:
            at: as in `pin`.

        Raises:
            TopicNotFound: `root` is not visible in this snapshot.
            CursorExpired: the cursor's snapshot is gone.
            HeavyRead: there is much to do, and this read has no turn.
            Awaited: the question's vector or a second look is to be waited for without a connection.
        """
        pinned = await pin(
            connection,
            self._cache,
            tenant,
            query.masks,
            cursor,
            turn=turn,
            include_superseded=query.include_superseded,
            at=at,
        )
        under = None
        if root is None:
            scopes = pinned.scopes
            owners, corpora, trees = await self._corpora(connection, pinned, query)
        else:
            scope, corpus, under = await self._subtree(connection, pinned, root, turn)
            scopes, owners, corpora, trees = (scope,), (scope,), (corpus,), ()
        events = sum([len(view) for corpus in corpora for view, _ in corpus.parts()])
        turn.weigh(events=events)
        clock = pinned.clock if cursor is None or cursor.newest is None else cursor.newest
        after = None if cursor is None else _key(cursor)
        replaced = None
        if query.query is not None and not query.include_superseded:
            replaced = await replaced_events(connection, self._cache, pinned)
        question = Question(
            text=query.query,
            topic_hints=query.topic_hints,
            now=query.now,
            utc_offset=query.utc_offset,
            present=query.present,
        )
        near = None
        if query.order == "relevance" and (cursor is None or cursor.by_meaning):
            near = await self._near(connection, pinned, question, corpora, owners, turn=turn, events=events)
            if near is not None and query.least_nearness is not None:
                near = replace(near, least=query.least_nearness * WHOLE // 1000)
        rank_all = partial(
            rank,
            question,
            corpora,
            filters=Filters.of(query),
            order=query.order,
            clock=clock,
            replaced=replaced,
            near=near,
        )

        async def ranked(most: int, begin: Key | None, late: Ints | None) -> Ranking:
            def ranked() -> Ranking:
                for corpus in corpora:
                    _ = corpus.laid_out
                return rank_all(limit=most, after=begin, late=late)

            return ranked() if events <= RANKED_IN_PLACE else await self._off_loop(ranked)

        late = pinned.hidden.late
        ranking, looked = None, False
        result = SearchResult(pinned=pinned, scopes=scopes, owners=owners, corpora=corpora, hits=(), more=False)
        may_look = query.order == "relevance" and query.query is not None and query.query.strip() != ""
        if self._looks is not None and may_look and (cursor is None or cursor.looked):
            ranking = await self._looks.ranking(
                connection, turn, result, query.query or "", ranked=ranked, limit=limit + 1, after=after
            )
            looked = ranking is not None
        if ranking is None:
            ranking = await ranked(limit + 1, after, late)
        self._keep_timelines(corpora, trees)
        return replace(
            result,
            hits=ranking.hits[:limit],
            more=len(ranking.hits) > limit,
            newest=ranking.newest if cursor is None else cursor.newest,
            changed=ranking.changed,
            by_meaning=near is not None,
            without_words=ranking.by_meaning,
            looked=looked,
            under=under,
        )

    async def _near(
        self,
        connection: Connection,
        pinned: Pinned,
        question: Question,
        corpora: Sequence[Corpus],
        owners: Sequence[VisibleScope | None],
        *,
        turn: Turn,
        events: int,
    ) -> Near | None:
        """Return what is compared by meaning; None where nothing is."""
        if self._vectors is None or not (question.text or "").strip() or not self._vectors.has_room_for(events):
            return None
        text = meaning(question, corpora)
        return await self._vectors.near(connection, pinned, corpora, owners, text, turn=turn)

    async def paths(self, connection: Connection, result: SearchResult) -> list[Path]:
        """Return the path of every hit; empty for a fresh event, which has no topic yet."""
        found: list[Path] = []
        known: dict[tuple[int, int, int], Path] = {}
        for hit in result.hits:
            if not result.is_indexed(hit):
                found.append(())
                continue
            block = result.corpora[hit.corpus].blocks[hit.view]
            leaf = hit.corpus, hit.view, int(block.leaf[hit.doc])
            path = known.get(leaf)
            if path is None:
                tenant, scope = result.pinned.tenant, result.scope(hit)
                path = known[leaf] = await self._paths.of_document(connection, tenant, scope, block, hit.doc)
            found.append(path)
        return found

    async def _corpora(
        self, connection: Connection, pinned: Pinned, query: Query
    ) -> tuple[tuple[VisibleScope | None, ...], tuple[Corpus, ...], tuple[_Trees, ...]]:
        """Return everything visible as corpora, the scope of each, and what its trees are."""
        gathered = await self._gatherer.gather(connection, pinned)
        blocks = await self._gatherer.blocks(connection, pinned.tenant, gathered.alone)
        tail = await self._lanes.loose(connection, pinned, gathered, "tail")
        beside = await _beside_trees(connection, pinned, include_superseded=query.include_superseded)
        if beside:
            tail = tail.beside(beside, gathered)
        internal = Loose(shared=None, alone={})
        if query.include_internal:
            internal = await self._lanes.loose(connection, pinned, gathered, "internal")
            internal = internal.without(
                await _withdrawn_internal(connection, pinned, include_superseded=query.include_superseded)
            )
        hidden = pinned.hidden
        version = object() if hidden.key is None else hidden.key
        owners: list[VisibleScope | None] = []
        corpora: list[Corpus] = []
        trees: list[_Trees] = []
        if gathered.table is not None:
            owners.append(None)
            trees.append(_Trees(key=(pinned.memory, "laid out", pinned.masks), identity=(gathered, version)))
            corpus = Corpus(
                table=gathered.table,
                blocks=tuple([view for view, _ in gathered.packs]),
                block_masks=tuple([masked(self._cache, hidden, view, mask) for view, mask in gathered.packs]),
            )
            corpora.append(self._with_timeline(_corpus(corpus, tail.shared, internal.shared), trees[-1]))
        for scope in gathered.alone:
            owners.append(scope)
            views = blocks[scope.scope_id]
            # An erasure takes events out of the blocks of a root: their sizes tell before from after.
            identity = (scope.root, tuple(map(len, views)), version)
            trees.append(_Trees(key=(pinned.memory, "timeline", scope.scope_id), identity=identity))
            corpus = _corpus(
                Corpus(
                    participants=scope.participants,
                    blocks=views,
                    block_masks=tuple([masked(self._cache, hidden, view, None) for view in views]),
                ),
                tail.alone.get(scope.scope_id),
                internal.alone.get(scope.scope_id),
            )
            corpora.append(self._with_timeline(corpus, trees[-1]))
        return tuple(owners), tuple(corpora), tuple(trees)

    def _with_timeline(self, corpus: Corpus, trees: _Trees) -> Corpus:
        """Return a corpus with its timeline where the cache has it: its trees and tail are unchanged."""
        if not _may_keep(corpus):
            return corpus
        earlier: _LaidOut | None = self._cache.get(trees.key)
        if earlier is None or earlier.trees != trees.identity or earlier.tail is not corpus.tail:
            return corpus
        if not _equal(earlier.tail_mask, corpus.tail_mask):
            return corpus
        return replace(corpus, timeline=earlier.timeline)

    def _keep_timelines(self, corpora: Sequence[Corpus], trees: Sequence[_Trees]) -> None:
        """Keep the timelines that ranking made."""
        for corpus, of in zip(corpora, trees, strict=False):
            if corpus.timeline is None and _may_keep(corpus):
                mask = corpus.tail_mask
                made = _LaidOut(trees=of.identity, tail=corpus.tail, tail_mask=mask, timeline=corpus.laid_out)
                self._cache.put(of.key, made, made.timeline.nbytes + (0 if mask is None else len(mask)))

    async def _subtree(
        self, connection: Connection, pinned: Pinned, root: str, turn: Turn
    ) -> tuple[VisibleScope, Corpus, NamedSubject | None]:
        """Return the scope of a topic or node, a corpus of the events below it alone, and the subject that it is.

        Raises:
            TopicNotFound: no such topic or node is visible in this snapshot.
            HeavyRead: it is a subject of very many events, and this read has no turn.
        """
        row = await _root_row(connection, pinned.tenant, root)
        if row is not None and row["prefix"] is not None:
            subject = await self._subjects.named(connection, pinned, row, root)
            if subject is None:
                raise no_topic(root)
            turn.weigh(events=subject.events)
            return subject.scope, await self._beneath(connection, pinned, subject), subject
        scope = None if row is None else pinned.scope(row["scope_id"])
        path = None
        if row is not None and scope is not None:
            path = await self._paths.locate(connection, pinned.tenant, scope, row["anchor_seq"])
        if scope is None or scope.root is None or path is None:
            raise no_topic(root)
        chosen = next(
            (
                record["rendering_id"]
                for record in await renderings(connection, pinned.tenant, path)
                if root in (record["topic_id"], record["node_id"].hex())
            ),
            None,
        )
        if chosen is None:
            raise no_topic(root)
        above = await self._paths.above(connection, pinned.tenant, scope.root, scope.blocks)
        views: list[View] = []
        masks: list[npt.NDArray[np.bool_] | None] = []
        blocks = await self._gatherer.views(connection, pinned.tenant, scope)
        for rendering_id, view in zip(scope.blocks, blocks, strict=True):
            mask = None if chosen in above[rendering_id] else _below(view, chosen)
            mask = masked(self._cache, pinned.hidden, view, mask)
            if mask is None or bool(mask.any()):
                views.append(view)
                masks.append(mask)
        corpus = Corpus(participants=scope.participants, blocks=tuple(views), block_masks=tuple(masks))
        return scope, corpus, None

    async def _beneath(self, connection: Connection, pinned: Pinned, subject: NamedSubject) -> Corpus:
        """Return a corpus of the events of a subject's leaves."""
        leaves = await self._subjects.all_leaves(connection, pinned, subject)
        views: list[View] = []
        masks: list[npt.NDArray[np.bool_] | None] = []
        for view in await self._gatherer.views(connection, pinned.tenant, subject.scope):
            mask = masked(self._cache, pinned.hidden, view, _of_leaves(view, leaves))
            if mask is None or bool(mask.any()):
                views.append(view)
                masks.append(mask)
        return Corpus(participants=subject.scope.participants, blocks=tuple(views), block_masks=tuple(masks))

    async def _off_loop(self, ranked: Callable[[], Ranking]) -> Ranking:
        return await asyncio.get_running_loop().run_in_executor(self._threads, ranked)


def no_topic(topic_id: str) -> errors.TopicNotFound:
    """Return the error for a topic that is absent or forbidden."""
    return errors.TopicNotFound(
        f"no topic {topic_id} is visible to these participants in the active snapshot", topic_id=topic_id
    )


def _corpus(trees: Corpus, tail: LooseLane | None, internal: LooseLane | None) -> Corpus:
    """Return a corpus of trees with loose lanes beside them."""
    return replace(
        trees,
        tail=None if tail is None else tail.block,
        tail_mask=None if tail is None or bool(tail.mask.all()) else tail.mask,
        internal=None if internal is None else internal.block,
        internal_mask=None if internal is None else internal.mask,
    )


def _may_keep(corpus: Corpus) -> bool:
    """Tell whether another request may see the same documents: the internal ones are one request's."""
    return corpus.internal is None


def _equal(one: Mask | None, other: Mask | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _key(cursor: Cursor) -> Key:
    score, timestamp, event_seq = cursor.after
    return Key(score=score, timestamp=timestamp, event_seq=event_seq)


def _below(view: BlockView, rendering_id: bytes) -> npt.NDArray[np.bool_]:
    """Return which documents of a block stand below one of its nodes."""
    inside = np.zeros(len(view.node_parent) + 1, dtype=np.bool_)
    for node, parent in enumerate(view.node_parent.tolist()):
        inside[node] = (parent >= 0 and inside[parent]) or view.rendering(node) == rendering_id
    return inside[view.leaf]


def _of_leaves(view: BlockView, leaves: Collection[bytes]) -> npt.NDArray[np.bool_]:
    """Return which documents of a block are of some leaves."""
    inside = np.zeros(len(view.node_parent) + 1, dtype=np.bool_)
    # Looked for by their first eight bytes, and those that are found compared whole.
    heads = np.frombuffer(view.node_rendering.tobytes(), dtype="<u8")[::4]
    wanted = np.frombuffer(b"".join([leaf[:8] for leaf in leaves]), dtype="<u8")
    for node in np.flatnonzero(np.isin(heads, wanted)).tolist():
        inside[node] = view.rendering(node) in leaves
    return inside[view.leaf]


async def _beside_trees(connection: Connection, pinned: Pinned, *, include_superseded: bool) -> list[Doc]:
    """Return the events up to the cutoff that this request may show and no tree of its snapshot holds."""
    wanted = pinned.hidden.returned.tolist()
    visible = pinned.visible.ids.tolist()
    if include_superseded:
        rows = await connection.fetch(sql("retrieval.superseded"), pinned.tenant, visible, pinned.floor)
        wanted += [row["event_seq"] for row in rows]
    if not wanted:
        return []
    rows = await connection.fetch(sql("events.by_seqs"), pinned.tenant, wanted, visible)
    return [document(row, scope_id=row["scope_id"]) for row in rows if not row["internal"]]


async def _withdrawn_internal(connection: Connection, pinned: Pinned, *, include_superseded: bool) -> Ints:
    """Return the internal events of the visible scopes that this request must not show."""
    shown = ["restored", "superseded"] if include_superseded else ["restored"]
    visible = pinned.visible.ids.tolist()
    rows = await connection.fetch(sql("retrieval.withdrawn_internal"), pinned.tenant, visible, shown)
    return np.array([row["event_seq"] for row in rows], dtype=np.int64)


async def _root_row(connection: Connection, tenant: str, root: str) -> asyncpg.Record | None:
    if root.startswith("top_"):
        return await connection.fetchrow(sql("retrieval.topic"), tenant, root)
    try:
        node_id = bytes.fromhex(root)
    except ValueError:
        return None
    return await connection.fetchrow(sql("retrieval.node"), tenant, node_id)
