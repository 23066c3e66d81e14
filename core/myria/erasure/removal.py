"""Emptying the places where words of erased events are, in bounded transactions that may each be repeated.

The order matters where a process may be killed between any two of them: what is found through the words of the log
(remarks that quote, digests for the receipt) comes before the log rows; renderings and search blocks are found by the
numbers of events, which stay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import numpy as np
import orjson

from myria import errors
from myria.db.database import Connection, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.erasure.pace import Pace
from myria.erasure.words import PhraseDigests, holds_name, phrases, strings, telling
from myria.index import BlockNode, Piece, decode, splice
from myria.topics.model import ERASED_LABEL, ERASED_SUMMARY
from myria.versions import SEARCH_VERSION

ROWS_AT_ONCE = 500
"""Rows that one transaction empties."""

_GATHERED_EVENTS = 10_000
_BUILT_S = 0.5
"""How often an erasure looks whether a build has left a scope."""

_SCOPES_AT_ONCE = 100
_BLOCKS_AT_ONCE = 1

_REMARKS = {
    "builds": "erasure.erase_remarks_builds",
    "build_tasks": "erasure.erase_remarks_build_tasks",
    "build_units": "erasure.erase_remarks_build_units",
    "snapshots": "erasure.erase_remarks_snapshots",
    "rebuild_requests": "erasure.erase_remarks_rebuild_requests",
    "pointer_moves": "erasure.erase_remarks_pointer_moves",
    "tenants": "erasure.erase_remarks_tenants",
    "access_log": "erasure.erase_remarks_access_log",
    "call_log": "erasure.erase_remarks_call_log",
    "erasures": "erasure.erase_remarks_erasures",
}
"""The statement that empties remarks, by the place that `erasure.remarks` names."""

Progress = Callable[[Mapping[str, int]], None]
"""Told how many rows went where so far, after each transaction."""


class Removal:
    """One erasure's work on the database. `counts` says how many rows were emptied or removed, by place."""

    def __init__(
        self,
        database: Database,
        tenant: str,
        erasure_id: str,
        *,
        key: bytes,
        counts: Counter[str],
        at_once: int = ROWS_AT_ONCE,
        progress: Progress = lambda _: None,
        pace: Pace,
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._erasure_id = erasure_id
        self._key = key
        self.counts = counts
        self._at_once = at_once
        self._progress = progress
        self._pace = pace

    async def run(self) -> None:
        """Empty every place that holds words of the erased events. Safe to rerun; resumes where the last run stopped.

        Renderings and subjects can wait until the log is empty: they are found by event numbers and scopes, which stay.
        What is found through words of the log (`_erase_next_events`) cannot.
        """
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("erasure.scopes"), self._tenant, self._erasure_id)
        scopes = [row["scope_id"] for row in rows]
        for at in range(0, len(scopes), _SCOPES_AT_ONCE):
            await self._empty_model_records(scopes[at : at + _SCOPES_AT_ONCE])
        while await self._erase_next_events():
            pass
        for at in range(0, len(scopes), _SCOPES_AT_ONCE):
            async with self._database.write(self._tenant) as connection:
                await connection.execute(
                    sql("erasure.list_renderings"),
                    self._tenant,
                    self._erasure_id,
                    scopes[at : at + _SCOPES_AT_ONCE],
                )
        while await self._empty_next_renderings():
            pass
        for scope_id in scopes:
            await self._forget_subjects(scope_id)

    async def _forget_subjects(self, scope_id: int) -> None:
        """Delete all subjects of a scope: any of them may quote an erased event.

        Waits while a build works on the scope, since that build would write the subjects again.
        """
        while True:
            async with self._step() as (connection, removed):
                if not await connection.fetchval(sql("subjects.any"), self._tenant, [scope_id]):
                    return
                await connection.execute(sql("builds.own_build_lock"), lock_key("build", self._tenant))
                is_built = await connection.fetchval(sql("collect.being_built"), self._tenant, scope_id)
                if not is_built:
                    status = await connection.execute(sql("subjects.forget"), self._tenant, scope_id)
                    removed["subject_nodes"] = _changed_rows(status)
                    return
            await asyncio.sleep(_BUILT_S)

    async def _empty_model_records(self, scopes: Sequence[int]) -> None:
        """Delete models' plans that name erased events, and empty audited model calls that could see these scopes."""
        for place, statement, statement_arguments in (
            ("unit_plans", "erasure.erase_plans", (self._erasure_id, scopes)),
            ("llm_calls", "erasure.erase_calls", (scopes,)),
        ):
            while True:
                async with self._step() as (connection, removed):
                    status = await connection.execute(sql(statement), self._tenant, *statement_arguments, self._at_once)
                    removed[place] = _changed_rows(status)
                if removed[place] < self._at_once:
                    break

    async def _erase_next_events(self) -> bool:
        """Erase the next events (up to `_GATHERED_EVENTS`) and the remarks that quote them.

        Returns whether there were any; False means that the whole log is done.
        """
        # The receipt will prove the absence of `phrases_found`; `telltales` recognise remarks that quote an event.
        after, phrases_found, telltales, keys, pages = 0, set[str](), set[str](), list[bytes](), list[list[int]]()
        while sum(map(len, pages)) < _GATHERED_EVENTS:
            async with self._database.read(self._tenant) as connection:
                rows = await connection.fetch(
                    sql("erasure.open_page"), self._tenant, self._erasure_id, after, self._at_once
                )
            if not rows:
                break
            pages.append([row["event_seq"] for row in rows])
            after = rows[-1]["event_seq"]
            keys += [row["dedupe_key"] for row in rows if row["dedupe_key"] is not None]
            for row in rows:
                for text in _texts(row):
                    phrases_found.update(phrases(text))
                    telltales.update(telling(text))
            await self._pace.rest()
        if not pages:
            return False
        # First refuse the source keys of these events, then empty the rows: in the other order, an append of the same
        # event in between would find neither the row nor the refusal, and store the event again.
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("erasure.refuse_keys"), self._tenant, keys)
        phrase_digests = PhraseDigests(self._key)
        digests = sorted((phrase_digests.digest(phrase), phrase_digests.sieve(phrase)) for phrase in phrases_found)
        for at in range(0, len(digests), 10 * self._at_once):
            batch = digests[at : at + 10 * self._at_once]
            async with self._database.write(self._tenant) as connection:
                await connection.execute(
                    sql("erasure.keep_words"),
                    self._tenant,
                    self._erasure_id,
                    [digest for digest, _ in batch],
                    [sieve for _, sieve in batch],
                )
            await self._pace.rest()
        await self._empty_remarks(telltales)
        for event_seqs in pages:
            await self._erase_log_rows(event_seqs)
        return True

    async def _empty_remarks(self, telltales: set[str]) -> None:
        """Empty remarks (what people and programs wrote beside the log) that quote an erased event.

        The reason of an erasure stays, as its author was told, unless it names somebody who took part in an event.
        """
        keys_by_place: dict[str, list[str]] = {}
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("erasure.people"), self._tenant, self._erasure_id)
            people = [row["participant"] for row in rows]
            async for row in connection.cursor(sql("erasure.remarks"), self._tenant, prefetch=self._at_once):
                text = row["text"] or ""
                if row["place"] == "erasures":
                    is_quoting = holds_name(text, people)
                else:
                    is_quoting = not telltales.isdisjoint(telling(text))
                if is_quoting:
                    keys_by_place.setdefault(row["place"], []).append(row["key"])
        for place, keys in keys_by_place.items():
            for at in range(0, len(keys), self._at_once):
                async with self._step() as (connection, removed):
                    status = await connection.execute(sql(_REMARKS[place]), self._tenant, keys[at : at + self._at_once])
                    removed[place] = _changed_rows(status)

    async def _erase_log_rows(self, event_seqs: Sequence[int]) -> None:
        """Erase some events of the log, and rows derived from them, in one transaction.

        Sessions are dropped and folded again from the events that are left.
        """
        async with self._step() as (connection, removed):
            sessions = await connection.fetch(sql("erasure.sessions_of"), self._tenant, event_seqs)
            locks = {lock_key("session", self._tenant, row["scope_id"], row["context_id"]) for row in sessions}
            await connection.execute(sql("sessions.lock"), sorted(locks))
            turns = await connection.fetch(sql("erasure.turns_of"), self._tenant, event_seqs)
            locks = {lock_key("turns", self._tenant, row["owner"], row["context_id"]) for row in turns}
            await connection.execute(sql("turns.lock"), sorted(locks))
            # After this lock, nobody adds a vector of these events: who held it has ended; who comes later sees them
            # erased.
            await connection.execute(sql("vectors.lock"), lock_key("vectors", self._tenant))
            removed["event_vectors"] = await connection.fetchval(sql("erasure.erase_vectors"), self._tenant, event_seqs)
            status = await connection.execute(sql("erasure.forget_successors"), self._tenant, event_seqs)
            removed["withdrawals"] = _changed_rows(status)
            status = await connection.execute(sql("erasure.forget_reasons"), self._tenant, event_seqs)
            removed["withdrawals"] += _changed_rows(status)
            await connection.execute(sql("erasure.forget_digests"), self._tenant, event_seqs)
            removed["notes"] = await connection.fetchval(sql("erasure.erase_notes"), self._tenant, event_seqs)
            entries = await connection.fetch(sql("erasure.drop_registrations"), self._tenant, event_seqs)
            removed["registrations"] = len(entries)
            for place, statement in (
                ("note_relations", "erasure.erase_relations"),
                ("tool_feedback", "erasure.erase_feedback"),
                ("turns", "erasure.erase_turns"),
                ("events", "erasure.erase_events"),
            ):
                removed[place] = _changed_rows(await connection.execute(sql(statement), self._tenant, event_seqs))
            for row in sessions:
                await connection.execute(sql("erasure.drop_session"), self._tenant, row["scope_id"], row["context_id"])
                await connection.execute(sql("erasure.fold_session"), self._tenant, row["scope_id"], row["context_id"])
            removed["sessions"] = len(sessions)
            kinds, ids = [row["kind"] for row in entries], [row["id"] for row in entries]
            await connection.execute(sql("erasure.fold_registrations"), self._tenant, kinds, ids)
            for row in turns:
                session = (self._tenant, row["owner"], row["context_id"], row["scope_id"])
                await connection.execute(sql("erasure.drop_turn_session"), *session)
                await connection.execute(sql("erasure.fold_turn_session"), *session)
            await connection.execute(sql("erasure.note_erased"), self._tenant, event_seqs)

    async def _empty_next_renderings(self) -> bool:
        """Empty the next renderings, and take the erased events out of their search blocks.

        Returns whether there were any; False means that all renderings are done.
        """
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("erasure.open_renderings"), self._tenant, self._erasure_id, self._at_once)
        ids = [row["rendering_id"] for row in rows]
        with_blocks = [row["rendering_id"] for row in rows if row["has_block"]]
        for at in range(0, len(with_blocks), _BLOCKS_AT_ONCE):
            await self._rewrite_blocks(with_blocks[at : at + _BLOCKS_AT_ONCE])
        if not ids:
            return False
        async with self._step() as (connection, removed):
            status = await connection.execute(
                sql("erasure.erase_renderings"), self._tenant, ids, ERASED_LABEL, ERASED_SUMMARY
            )
            await connection.execute(sql("erasure.note_renderings"), self._tenant, ids)
            removed["renderings"] = _changed_rows(status)
        return True

    async def _rewrite_blocks(self, renderings: Sequence[bytes]) -> None:
        """Take erased events out of the search blocks of these renderings."""
        async with self._step() as (connection, removed):
            for row in await connection.fetch(sql("erasure.blocks"), self._tenant, renderings):
                place = (self._tenant, row["rendering_id"], row["analyzer_version"])
                if row["analyzer_version"] != SEARCH_VERSION:
                    # This code cannot rewrite a block of another version. Deleting it is safe: readers make their own
                    # until the next build writes it.
                    await connection.execute(sql("erasure.drop_block"), *place)
                    removed["search_blocks"] += 1
                    continue
                rewritten = await self._without_erased(connection, row["block"])
                if rewritten is not None:
                    await connection.execute(sql("erasure.rewrite_block"), *place, rewritten)
                    removed["search_blocks"] += 1

    async def _without_erased(self, connection: Connection, block: bytes) -> bytes | None:
        """Rebuild a search block without its erased events; None if it holds none of them, so needs no rewrite.

        The tree and all other events stay as they were: no text is analysed again.
        """
        view = decode(block)
        rows = await connection.fetch(sql("erasure.erased_among"), self._tenant, view.seq.tolist())
        erased = np.array([row["event_seq"] for row in rows], dtype=np.int64)
        kept = ~np.isin(view.seq, erased)
        if bool(kept.all()):
            return None
        nodes = [
            BlockNode(rendering_id=view.rendering(node_index), parent=parent, level=level)
            for node_index, (parent, level) in enumerate(
                zip(view.node_parent.tolist(), view.node_level.tolist(), strict=True)
            )
        ]
        leaf_of = dict(zip(view.seq.tolist(), view.leaf.tolist(), strict=True))
        return splice([Piece(view=view, docs=np.flatnonzero(kept))], nodes=nodes, leaf_of=leaf_of)

    @asynccontextmanager
    async def _step(self) -> AsyncIterator[tuple[Connection, Counter[str]]]:
        """Run the block in one transaction, which also stores how many rows it removed by place; then report and rest.

        So a killed process loses no count.
        """
        removed: Counter[str] = Counter()
        async with self._database.write(self._tenant) as connection:
            yield connection, removed
            if +removed:  # unary plus drops zero counts
                counts = orjson.dumps(dict(self.counts + removed)).decode()
                await connection.execute(sql("erasure.reach"), self._tenant, self._erasure_id, "erasing", counts)
        self.counts += removed
        self._progress(self.counts)
        await self._pace.rest()


def _texts(row: asyncpg.Record) -> list[str]:
    """Return every text of a row of `erasure.open_page`."""
    parts: list[Any] = [orjson.loads(row["payload"]), orjson.loads(row["topic_hints"])]
    texts = [text for part in parts for text in strings(part)]
    # Channels and types are left out: they are no words of people. What a client called its context may be.
    return [*texts, *(row[name] for name in ("context_id", "source_event_key") if row[name] is not None)]


def _changed_rows(status: str) -> int:
    """Return how many rows a statement changed; `status` is PostgreSQL's answer such as `UPDATE 3`."""
    try:
        return int(status.rpartition(" ")[2])
    except ValueError as error:
        raise errors.InternalError(f"a statement answered {status!r}") from error
