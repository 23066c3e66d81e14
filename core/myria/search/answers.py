"""Answers of the two queries: the tree of the best hits within the bounds, and what stands around it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import asyncpg
import orjson

from myria.db.clock import to_rfc3339
from myria.db.database import Connection
from myria.db.queries import sql
from myria.llm.failures import advice
from myria.log.payloads import TopicHint, speaker_of, whole_text
from myria.search import cursors
from myria.search.cursors import Cursor
from myria.search.explaining import Placed
from myria.search.nodes import event_node
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.search.ranking import Hit
from myria.search.result import MOST_COMPARED, SearchResult, ToldHits
from myria.search.searching import Query, Search
from myria.search.superseded import successors
from myria.search.topics import NO_SUBJECTS, Path, TopicReader
from myria.search.tree import CHARACTERS_PER_TOKEN, Assembled, Assembly, Cost, Leafward, Room, assemble, cost_of
from myria.text.passages import sought_in

Json = dict[str, Any]

Within = Callable[[Json], bool]
"""Tells whether an answer keeps the caller's own bound; if not, the answer is cut to the first hits that do."""

_SHORT_PAYLOAD = 4_096
"""Bytes of a payload up to which it may be one of several that say the same."""

_NONE_ALIKE: Mapping[int, int] = {}

_ROWS_AT_ONCE = 32
"""Events of an answer that are read at once: bounds the memory of payloads that turn out to have no room in it."""

_NO_ARGUMENTS = frozenset({"cursor", "mode", "masks", "view", "format", "explain", "expected"})
"""Fields of a query that are left out of its arguments: a cursor must stay valid in every mode, view and format, and
whether or not the answer is explained; masks are added in a form of their own."""

_ANSWER_TOKENS = 190
"""Tokens for the rest of an answer: field names, ids, counts, the walk, and a cursor without its transactions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The tree of an answer with what it was made of: hits in the order of the ranking, their rows and paths."""

    result: SearchResult
    hits: Sequence[Leafward]
    rows: Mapping[int, asyncpg.Record]
    paths: Sequence[Path]
    topics: Mapping[bytes, Json]
    answer: Assembled
    room: Room


class Handler:
    """Makes answers of what searches find.

    Args:
        answer_bytes: the size of an answer as JSON, at most.
        cursor_lifetime_s: how long cursors work for certain, in seconds.
    """

    def __init__(self, search: Search, topics: TopicReader, *, answer_bytes: int, cursor_lifetime_s: float) -> None:
        self._search = search
        self._topics = topics
        self._answer_bytes = answer_bytes
        self._lifetime = cursor_lifetime_s

    def cursor(self, tenant: str, query: Query, secret: bytes) -> Cursor | None:
        """Decode a query's cursor; None if it has none.

        Raises:
            CursorInvalid, CursorExpired: ask again without it.
        """
        if query.cursor is None:
            return None
        digest = _digest(tenant, query, _arguments(query))
        return cursors.decode(query.cursor, digest=digest, secret=secret, lifetime=self._lifetime)

    async def answer(
        self,
        connection: Connection,
        query: Query,
        result: SearchResult,
        *,
        cursor: Cursor | None,
        secret: bytes,
        within: Within | None,
        keeps_places: bool,
    ) -> tuple[Json, Page]:
        """Assemble the answer from as many of the best hits as fit; return it, and the page it was made of.

        Args:
            cursor: that of the query, None for a first page.
            secret: signs the next cursor.
            within: the caller's own bound.
            keeps_places: show hits that say the same one by one, so that hits keep their places in the ranking.
        """
        grouped = ToldHits.of(result.hits, {}) if keeps_places else await _group_alike(connection, query, result)
        while True:
            shown_result = replace(result, hits=grouped.shown)
            page = await self.page(connection, query, shown_result, alike=grouped.alike)
            respond = partial(self._with_frame, query, result=result, grouped=grouped, cursor=cursor, secret=secret)
            answer, assembled = _longest_fitting(page, respond, within)
            fitting = grouped.within(assembled.taken)
            if fitting is grouped:
                return answer, replace(page, answer=assembled)
            # A hit stands for others that come after what has room: they are for the next page.
            grouped = fitting

    async def page(
        self,
        connection: Connection,
        query: Query,
        result: SearchResult,
        *,
        alike: Mapping[int, int] = _NONE_ALIKE,
        whole: bool = False,
    ) -> Page:
        """Build the tree of the best hits.

        Args:
            alike: by event_seq, how many others a hit stands for.
            whole: also read the hits that have no room in the tree.
        """
        tenant = result.snapshot.tenant
        is_tree = isinstance(query, ReferencesQuery)
        root = query.root if isinstance(query, ReferencesQuery) else None
        paths = await self._search.paths(connection, result) if is_tree else [()] * len(result.hits)
        by_path = dict(zip(paths, result.hits, strict=True))
        placed_paths = [(result.scope(hit), path) for path, hit in by_path.items() if path]
        all_topics = await self._topics.found(connection, tenant, placed_paths)
        hidden = result.snapshot.hidden
        topics = {rendering_id: topic.shown(hidden) for rendering_id, topic in all_topics.items()}
        subjects, root_subject = NO_SUBJECTS, result.under
        if root is None:
            subjects = await self._topics.subjects_of(connection, result.snapshot, placed_paths, all_topics)
        elif root_subject is not None:
            topics[root_subject.rendering_id] = root_subject.topic.shown(hidden)
        else:
            paths = [_path_from(path, topics, root) for path in paths]
        events = _EventRows(result, query, keeps_all=whole, alike=alike)
        room = self._room(result, query)
        asked_by = query.masks.participants
        assembly = Assembly(room, topics=topics, asked_by=asked_by)
        hits: list[Leafward] = []
        hits_left: Iterator[Hit] = iter(())  # of those that were read last, the ones that no node was made of
        is_open = True
        async for batch in events.read(connection):
            hits_left = iter(batch)
            for hit in hits_left:
                hits.append(events.leafward(hit, paths[len(hits)]))
                is_open = is_open and assembly.take(hits[-1])
                if not is_open and not whole:
                    break
            if not is_open and not whole:
                break
        if root_subject is None:
            places = subjects.places([path[-1] for path in paths[: assembly.taken] if path])
            topics |= {subject: subjects.topics[subject].shown(hidden) for subject in places.values()}
        else:
            places = {path[-1]: root_subject.rendering_id for path in paths}
        if places:
            # Subjects take fewer nodes than paths do, so some hits more may find room.
            hits = [_under_subject(hit, places) for hit in hits]
            hits_and_paths = zip(hits_left, paths[len(hits) :], strict=False)
            further_hits = (_under_subject(events.leafward(hit, path), places) for hit, path in hits_and_paths)
            answer = assemble(_chain_further(hits, further_hits), room, topics=topics, asked_by=asked_by)
        else:
            answer = assembly.finish()
        return Page(
            result=result,
            hits=hits,
            rows=events.rows,
            paths=paths,
            topics=topics,
            answer=answer,
            room=room,
        )

    def _with_frame(
        self,
        query: Query,
        answer: Assembled,
        *,
        result: SearchResult,
        grouped: ToldHits,
        cursor: Cursor | None,
        secret: bytes,
    ) -> Json:
        """Return the JSON of an answer: its tree, the query as understood, counts, and the next page's cursor."""
        hits_covered = grouped.covered(answer.taken)
        has_more = hits_covered < len(result.hits) or result.more
        arguments = _arguments(query)
        next_cursor = None
        if has_more and answer.taken:
            end = cursors.period_end(self._lifetime) if cursor is None else cursor.period_end
            next_place = result.cursor_after(result.hits[hits_covered - 1], period_end=end)
            digest = _digest(result.snapshot.tenant, query, arguments)
            next_cursor = cursors.encode(next_place, digest=digest, secret=secret)
        body = {
            "snapshot_id": result.snapshot.snapshot_id,
            "root": answer.root,
            "constraints": _constraints(query, arguments),
            "truncated": has_more or answer.cut_by_depth or bool(answer.skipped),
            "next_cursor": next_cursor,
            **degraded(None),
            "counts": counts(answer),
        }
        if result.expected is not None:
            covered = frozenset(hit.event_seq for hit in grouped.hits[:hits_covered])
            body["expected"] = _expected(query, answer, result, covered)
        if answer.skipped:
            body["skipped"] = {"count": len(answer.skipped), "event_ids": list(answer.skipped)}
        return body

    def _room(self, result: SearchResult, query: Query) -> Room:
        """Return the bounds of an answer; around its tree there are the query and a cursor as long as it may get."""
        is_lean = query.view == "lean"
        constraints = {} if is_lean else _constraints(query, _arguments(query))
        query_cost = cost_of([constraints, result.snapshot.visibility.text * 2], nodes=0)
        if isinstance(query, ReferencesQuery):
            nodes, depth = query.max_nodes, query.max_depth
        else:
            nodes, depth = query.limit + 1, None
        return Room(
            nodes=nodes,
            depth=depth,
            tokens=query.max_tokens,
            size=self._answer_bytes,
            around=query_cost + Cost(0, _ANSWER_TOKENS, _ANSWER_TOKENS * CHARACTERS_PER_TOKEN),
            lean=is_lean,
            as_text=query.format == "text",
        )


def _expected(query: Query, answer: Assembled, result: SearchResult, covered: frozenset[int]) -> Json:
    """Return what became of the event that a query expected, as JSON.

    Args:
        covered: the event_seqs of all hits that this page accounts for, shown or not.
    """
    placed = result.expected or Placed(stage="not_visible")
    stage = placed.stage
    if stage == "shown" and all(hit.event["event_id"] != query.expected for hit in answer.placed):
        if query.expected in answer.skipped:
            stage = "too_large"
        else:
            stage = "said_again" if result.expected_seq in covered else "no_room"
    return {
        "event_id": query.expected,
        "stage": stage,
        "place": placed.place,
        "score": placed.score,
        "signals": dict(result.shares.get(result.expected_seq or 0, {})),
        **({"excluded_by": list(placed.excluded_by)} if placed.excluded_by else {}),
    }


async def _group_alike(connection: Connection, query: Query, result: SearchResult) -> ToldHits:
    """Group hits that say the same: if tokens are bounded, each fact is shown only once."""
    statements: dict[int, tuple[Hashable, str]] = {}
    hits = result.hits[:MOST_COMPARED]
    is_ranked = isinstance(query, ReferencesQuery) or query.order == "relevance"
    is_bounded = query.max_tokens is not None and query.query is not None
    if hits and is_bounded and is_ranked and not query.include_superseded:
        scopes = sorted({result.scope(hit).scope_id for hit in hits})
        event_seqs = [hit.event_seq for hit in hits]
        rows = await connection.fetch(
            sql("events.short_payloads"), result.snapshot.tenant, event_seqs, scopes, _SHORT_PAYLOAD
        )
        for row in rows:
            payload = orjson.loads(row["payload"])
            statements[row["event_seq"]] = speaker_of(payload), whole_text(payload)
    return ToldHits.of(result.hits, statements)


def _longest_fitting(page: Page, respond: Callable[[Assembled], Json], within: Within | None) -> tuple[Json, Assembled]:
    """Find, by bisection, the answer of the most hits of a page, in order, that keeps the caller's bound.

    If even the first hit alone breaks the bound it is skipped: it fits on no page.

    Returns:
        the answer, and its tree.
    """
    answer = respond(page.answer)
    hits = page.hits[: page.answer.taken]
    if within is None or not hits or within(answer):
        return answer, page.answer
    asked_by = page.result.snapshot.masks.participants
    best: tuple[Json, Assembled] | None = None
    fitting_count, too_many = 0, len(hits)
    while fitting_count + 1 < too_many:
        middle = (fitting_count + too_many) // 2
        tree = assemble(hits[:middle], page.room, topics=page.topics, asked_by=asked_by)
        shorter = respond(tree)
        if within(shorter):
            best, fitting_count = (shorter, tree), middle
        else:
            too_many = middle
    if best is None:
        assembly = Assembly(page.room, topics=page.topics, asked_by=asked_by)
        assembly.skip(hits[0].event["event_id"])
        tree = assembly.finish()
        best = respond(tree), tree
    return best


def degraded(reason: str | None) -> Json:
    """Return the fields by which an answer says whether a model failed to help, and why (None: it did not fail)."""
    if reason is None:
        return {"degraded": False, "degraded_reason": None}
    return {"degraded": True, "degraded_reason": reason, "degraded_note": advice(reason)}


def counts(answer: Assembled) -> Json:
    """Count the nodes, events, topics, indexed and fresh events that an answer shows."""
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


class _EventRows:
    """Reads the events of an answer's hits, some at a time: payloads may be large, and not all are shown.

    `rows` are the rows of the last batch, with `keeps_all` those of all batches.
    """

    def __init__(
        self,
        result: SearchResult,
        query: Query,
        *,
        keeps_all: bool = False,
        alike: Mapping[int, int] = _NONE_ALIKE,
    ) -> None:
        self.rows: dict[int, asyncpg.Record] = {}
        self._marks: dict[int, Json] = {}
        self._query = query
        self._keeps_all = keeps_all
        self._alike = alike
        self._result = result
        self._sought = sought_in(query.query)
        self._with_payload = isinstance(query, EventNodesQuery) or query.include_payload

    async def read(self, connection: Connection) -> AsyncIterator[Sequence[Hit]]:
        """Read rows batch by batch, and yield the hits of each batch once its rows are in `rows`."""
        result = self._result
        for start in range(0, len(result.hits), _ROWS_AT_ONCE):
            hits = result.hits[start : start + _ROWS_AT_ONCE]
            scopes = sorted({result.scope(hit).scope_id for hit in hits})
            event_seqs = [hit.event_seq for hit in hits]
            rows = await connection.fetch(sql("events.by_seqs"), result.snapshot.tenant, event_seqs, scopes)
            if not self._keeps_all:
                self.rows.clear()
            self.rows.update((row["event_seq"], row) for row in rows)
            if self._query.include_superseded:
                successor_of = await successors(connection, result.snapshot.tenant, event_seqs, self._query.masks)
                self._marks = {
                    seq: {"superseded": True, "superseded_by": None if successor is None else successor["event_id"]}
                    for seq, successor in successor_of.items()
                }
            yield hits

    def leafward(self, hit: Hit, path: Path = ()) -> Leafward:
        """Return a hit with its JSON, ready to be placed at the end of its path."""
        row = self.rows[hit.event_seq]
        mark = self._marks.get(hit.event_seq, {})
        change = self._result.change_of(hit)
        if change is not None:
            mark = {**mark, "change": change}
        if hit.event_seq in self._alike:
            mark = {**mark, "alike": self._alike[hit.event_seq]}
        if self._query.explain:
            mark = {**mark, "signals": dict(self._result.shares.get(hit.event_seq, {}))}
        node = partial(
            event_node,
            row,
            self._result.scope(hit).participants,
            indexed=self._result.is_indexed(hit),
            score=hit.score,
            as_reference=bool(path),
            sought=self._sought,
        )
        if not self._with_payload:
            return Leafward(event=node(with_payload=False) | mark, path=path)

        def shortened() -> Json:
            """Return a node for an event whose payload has no room: a snippet, and the size of the whole payload."""
            size = len(orjson.dumps(orjson.loads(row["payload"])))
            return node(with_payload=False) | {"truncated": True, "payload_bytes": size} | mark

        return Leafward(event=node(with_payload=True) | mark, path=path, shortened=shortened)


def _chain_further(hits: list[Leafward], further: Iterator[Leafward]) -> Iterator[Leafward]:
    """Yield all hits, then further ones, adding each of these to `hits` as it is taken."""
    yield from tuple(hits)  # a copy: `hits` grows while this goes on
    for hit in further:
        hits.append(hit)
        yield hit


def _path_from(path: Path, topics: Mapping[bytes, Json], root: str) -> Path:
    """Return the part of a path from the topic or node `root` on: what stands above is not part of its subtree."""
    root_place = next(
        place
        for place, rendering_id in enumerate(path)
        if root in (topics[rendering_id]["topic_id"], topics[rendering_id]["node_id"])
    )
    return path[root_place:]


def _under_subject(hit: Leafward, places: Mapping[bytes, bytes]) -> Leafward:
    """Return a hit with its path replaced by (subject, leaf) if its leaf stands under a subject in this answer."""
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
    """Return all arguments of a query as JSON: they are shown in the answer, and a cursor is bound to them."""
    names = [argument.name for argument in fields(query) if argument.name not in _NO_ARGUMENTS]
    arguments = {name: _plain(getattr(query, name)) for name in names}
    if not query.include_superseded:
        # Cursors that were made before there was this argument stay valid.
        del arguments["include_superseded"]
    return {**query.masks.to_json(), **arguments}


def _plain(value: Any) -> Any:
    if isinstance(value, TopicHint):
        return {"hint": value.hint, "confidence": value.confidence}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
