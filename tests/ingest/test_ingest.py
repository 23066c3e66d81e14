"""Appending through the real database: idempotency, shared commits, atomic groups, outages."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg
import pytest

from myria import errors
from myria.db.database import Database as Pool
from myria.db.database import PoolOptions
from myria.db.locks import lock_key
from myria.log.event import NewEvent, parse_event
from myria.log.event_log import EventLog
from myria.log.limits import Limits
from myria.notes.folding import event_log
from tests.support.locks import somebody_waits
from tests.support.postgres import Database

ONE, TWO = (f"evt_{number:032x}" for number in (1, 2))


def event(
    key: str | None = None, *, text: str = "hello", who: tuple[str, ...] = ("ann", "bob"), **more: Any
) -> NewEvent:
    arguments: dict[str, Any] = {
        "timestamp": "2026-01-02T03:04:05Z",
        "channel": "chat",
        "participants": list(who),
        "payload": {"text": text},
        **more,
    }
    if key is not None:
        arguments["source_event_key"] = key
    return parse_event(arguments, Limits(), importing="event_id" in more)


async def stored(pool: Pool, tenant: str = "default") -> list[asyncpg.Record]:
    async with pool.read(tenant) as connection:
        return await connection.fetch("SELECT * FROM myria.events ORDER BY event_seq")


async def test_a_repeat_answers_the_first_event(database: Database) -> None:
    """The same (channel, source_event_key) is stored once, and a repeat by who may see the first event names it."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        (first,) = await ingest.append_events("default", [event("k")])
        (again,) = await ingest.append_events("default", [event("k")])
        (other,) = await ingest.append_events("default", [event("k", who=("ann",))])

        assert not first.deduplicated
        assert (again.event_id, again.deduplicated, again.payload_differs) == (first.event_id, True, False)
        assert (other.event_id, other.participants, other.payload_differs) == (first.event_id, ("ann", "bob"), True)
        assert len(await stored(pool)) == 1


async def test_a_repeat_by_others_learns_nothing_of_the_first_event(database: Database) -> None:
    """Who may not see the event of a key is refused in the same words whatever that event is; nothing is stored."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        firsts = [event("k1"), event("k2", text="a secret", type="note", internal=True), event("k3", who=("ann",))]
        acknowledged = await ingest.append_events("default", firsts)
        refusals = []
        for key, who in (("k1", ("carol",)), ("k2", ("ann", "carol")), ("k3", ("ann", "bob"))):
            for text in ("hello", "a secret"):
                with pytest.raises(errors.SourceEventKeyTaken) as caught:
                    await ingest.append_events("default", [event(key, who=who, text=text)])
                refusals.append(str(caught.value.to_json()))

        assert len(set(refusals)) == 1
        for told in (*(result.event_id for result in acknowledged), "bob", "secret", "k1"):
            assert told not in refusals[0]
        assert len(await stored(pool)) == 3


async def test_a_batch_with_a_key_of_others_stores_nothing(database: Database) -> None:
    """The refusal names the first such event by its index, and no event of the batch is kept."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        await ingest.append_events("default", [event("k")])
        mine = [event("a", who=("carol",)), event("k", who=("carol",)), event("b", who=("carol",))]
        with pytest.raises(errors.SourceEventKeyTaken) as caught:
            await ingest.append_events("default", mine)

        assert caught.value.details == {"field": "source_event_key", "index": 1}
        assert [row["source_event_key"] for row in await stored(pool)] == ["k"]


async def test_a_key_of_others_fails_its_own_caller_alone(database: Database) -> None:
    """Callers who shared a commit with a refused repeat are acknowledged, in few commits."""
    async with Pool(database.server_dsn) as pool:
        sizes: list[int] = []
        ingest = event_log(pool, writers=1, on_commit=lambda _tenant, events: sizes.append(events))
        await ingest.append_events("default", [event("k")])
        results = await asyncio.gather(
            *(ingest.append_events("default", [event(f"k{number}")]) for number in range(64)),
            ingest.append_events("default", [event("k", who=("carol",))]),
            return_exceptions=True,
        )

        assert isinstance(results[-1], errors.SourceEventKeyTaken)
        assert all(isinstance(result, list) for result in results[:-1])
        assert len(await stored(pool)) == 65
        assert len(sizes) < 16


async def test_an_import_by_the_owner_still_knows_a_key_of_others(database: Database) -> None:
    """An import without event_id answers the first event of a key whoever took part, to say that it differs."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        (first,) = await ingest.append_events("default", [event("k")])
        (again,) = await ingest.import_events("default", [event("k")])
        (other,) = await ingest.import_events("default", [event("k", who=("carol",))])

        assert (again.event_id, again.deduplicated, again.payload_differs) == (first.event_id, True, False)
        assert (other.event_id, other.payload_differs) == (first.event_id, True)


async def test_a_batch_keeps_its_order_and_may_repeat_itself(database: Database) -> None:
    """Within a batch event_seq follows input order, and a key given twice is one event."""
    async with Pool(database.server_dsn) as pool:
        results = await event_log(pool).append_events("default", [event(key) for key in ("z", "a", "m", "a")])

        assert results[1].event_id == results[3].event_id
        assert results[3].deduplicated
        assert results[0].event_seq < results[1].event_seq < results[2].event_seq


async def test_events_without_a_key_are_always_new(database: Database) -> None:
    """Without a key, two equal appends are two events."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        await ingest.append_events("default", [event()])
        await ingest.append_events("default", [event()])

        assert len(await stored(pool)) == 2


async def test_concurrent_appends_share_commits_and_lose_nothing(database: Database) -> None:
    """Hundreds of concurrent appends with duplicates take few commits; every answer names a stored event."""
    async with Pool(database.server_dsn, PoolOptions(acquire_timeout=600)) as pool:
        sizes: list[int] = []
        ingest = event_log(pool, on_commit=lambda _tenant, events: sizes.append(events), deadline=600)
        keys = [f"k{number % 150}" for number in range(400)]
        random.Random(7).shuffle(keys)
        answers = await asyncio.gather(*(ingest.append_events("default", [event(key)]) for key in keys))

        rows = {row["source_event_key"]: row["event_id"] for row in await stored(pool)}
        assert len(rows) == 150
        assert all(answer[0].event_id == rows[key] for key, answer in zip(keys, answers, strict=True))
        assert sum(not answer[0].deduplicated for answer in answers) == 150
        assert len(sizes) < 100


async def test_a_refused_event_fails_alone(database: Database) -> None:
    """An event the database refuses fails its own caller; those who shared the commit succeed."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        refused = event("bad")._replace(payload_json=b'{"a":"\\u0000"}')
        results = await asyncio.gather(
            *(ingest.append_events("default", [event(f"k{number}")]) for number in range(5)),
            ingest.append_events("default", [event("partner"), refused]),
            return_exceptions=True,
        )

        assert isinstance(results[-1], errors.InvalidPayload)
        assert {row["source_event_key"] for row in await stored(pool)} == {f"k{number}" for number in range(5)}


async def test_an_append_waits_for_a_build_that_reads_its_cutoff(database: Database) -> None:
    """While the append lock is held exclusively no sequence number is allocated."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        await ingest.append_events("default", [event("warm")])
        holder = await asyncpg.connect(database.dsn)
        async with holder.transaction():
            await holder.execute("SELECT pg_advisory_xact_lock($1)", lock_key("append", "default"))
            appending = asyncio.create_task(ingest.append_events("default", [event("late")]))
            await asyncio.sleep(0.2)
            last = await holder.fetchval("SELECT last_value FROM myria.event_seq")
            assert not appending.done()
            assert last == 1
        (result,) = await appending
        await holder.close()

        assert result.event_seq == 2


async def test_appends_survive_killed_connections(database: Database) -> None:
    """Backends terminated at random cost retries, never a lost or doubled event, keyed or not."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool, deadline=600)
        await ingest.append_events("default", [event("warm")])
        stop = asyncio.Event()
        killer = asyncio.create_task(_terminate_backends(database.superuser_dsn, stop))
        answers = await asyncio.gather(
            *(_later(number, ingest, event(f"k{number}" if number % 2 else None)) for number in range(300))
        )
        stop.set()
        kills = await killer

        rows = [row["event_id"] for row in await stored(pool)]
        assert kills > 0
        assert len(rows) == 301
        assert {answer.event_id for answer in answers} < set(rows)


async def test_no_database_is_a_retryable_error_within_the_deadline() -> None:
    """Without a database an append fails as unavailable before its deadline, and says to retry."""
    async with Pool("postgresql://nobody@127.0.0.1:1/none") as pool:
        with pytest.raises(errors.UnavailableError) as caught:
            await event_log(pool, deadline=0.5).append_events("default", [event("k")])

        assert caught.value.retryable


async def test_an_import_keeps_ids_and_refuses_other_content(database: Database) -> None:
    """An import restores event_id, takes an identical repeat as done, and refuses the id with other content."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        original = event("k", event_id=ONE)
        (first,) = await ingest.import_events("default", [original])
        (again,) = await ingest.import_events("default", [original])

        assert first.event_id == ONE
        assert again.deduplicated
        for changed in (
            event("k", event_id=ONE, text="other"),
            event("k2", event_id=ONE),
            event("k", event_id=TWO),
            event("k", event_id=ONE, type="note"),
        ):
            with pytest.raises(errors.EventIdConflict):
                await ingest.import_events("default", [changed])


async def test_an_import_may_repeat_a_line_but_not_change_it(database: Database) -> None:
    """Within one import the same event twice is one event, and one event_id with two contents is refused whole."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        one, again = await ingest.import_events("default", [event("k", event_id=ONE)] * 2)
        assert one.event_id == again.event_id == ONE
        with pytest.raises(errors.EventIdConflict):
            await ingest.import_events("default", [event("a", event_id=TWO), event("b", event_id=TWO, text="other")])

        assert [row["event_id"] for row in await stored(pool)] == [ONE]


async def test_tenants_do_not_see_each_other(database: Database) -> None:
    """The same key in two tenants is two events, and each tenant reads its own."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        (one,) = await ingest.append_events("one", [event("k")])
        (two,) = await ingest.append_events("two", [event("k")])

        assert one.event_id != two.event_id
        assert [row["event_id"] for row in await stored(pool, "one")] == [one.event_id]


async def test_the_serving_role_cannot_name_every_tenant(database: Database) -> None:
    """Row-level security refuses the control plane's '*' to the role that serves."""
    async with Pool(database.server_dsn) as pool:
        await event_log(pool).append_events("one", [event("k")])
        async with pool.read("*") as connection:
            assert await connection.fetchval("SELECT count(*) FROM myria.events") == 0


async def _later(number: int, ingest: EventLog, one: NewEvent) -> Any:
    await asyncio.sleep(number * 0.003)
    (result,) = await ingest.append_events("default", [one])
    return result


async def _terminate_backends(dsn: str, stop: asyncio.Event) -> int:
    connection = await asyncpg.connect(dsn)
    kills = 0
    while not stop.is_set():
        kills += await connection.fetchval(
            "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename = 'myria_server') killed"
        )
        await asyncio.sleep(0.25)
    await connection.close()
    return kills


async def test_callers_of_one_moment_share_a_commit(database: Database) -> None:
    """Who comes while others gather shares their commit; who comes while it is under way shares the next."""
    commits: list[int] = []
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool, writers=1, on_commit=lambda _, size: commits.append(size))
        await ingest.append_events("default", [event("first")])

        async def come_late(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await ingest.append_events("default", [event(f"late {turns}")])

        await asyncio.gather(*(come_late(turns) for turns in range(4)))
        await ingest.close()
    assert (commits[0], sum(commits)) == (1, 5)
    assert len(commits) <= 3


async def test_who_waits_behind_an_append_that_is_given_up_is_served(database: Database) -> None:
    """One writer, whose caller goes away while it waits for the lock of the tenant: both appends are made."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool, writers=1)
        await ingest.append_events("default", [event("first")])
        holder, watcher = [await asyncpg.connect(database.superuser_dsn) for _ in range(2)]
        async with holder.transaction():
            await holder.execute("SELECT pg_advisory_xact_lock($1)", lock_key("append", "default"))
            given_up = asyncio.create_task(ingest.append_events("default", [event("given up")]))
            await somebody_waits(watcher)
            behind = asyncio.create_task(ingest.append_events("default", [event("behind")]))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
        (result,) = await behind
        await holder.close()
        await watcher.close()
        await ingest.close()
        assert not result.deduplicated
        assert len(await stored(pool)) == 3


async def test_closing_waits_for_an_append_alone(database: Database) -> None:
    """Its caller gets its answer, which is true."""
    async with Pool(database.server_dsn) as pool:
        ingest = event_log(pool)
        holder, watcher = [await asyncpg.connect(database.superuser_dsn) for _ in range(2)]
        async with holder.transaction():
            await holder.execute("SELECT pg_advisory_xact_lock($1)", lock_key("append", "default"))
            alone = asyncio.create_task(ingest.append_events("default", [event("alone")]))
            await somebody_waits(watcher)
            closing = asyncio.create_task(ingest.close())
            await asyncio.sleep(0)
            assert not closing.done()
        await closing
        await alone
        await holder.close()
        await watcher.close()
        assert len(await stored(pool)) == 1
