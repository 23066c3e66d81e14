"""How often automatic builds start: they coalesce, rest as long as their cost asks for, and hurry for a long tail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from myria.builds.due import Due, NewestBuild, Tail, TriggerState, due
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError
from myria.settings import BuilderSettings
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = BuilderSettings()


def state(*, took_s: float, ended_s: float) -> TriggerState:
    """A tenant whose last build ran so long, and ended so long ago."""
    newest = NewestBuild(
        build_id="bld_1",
        status="succeeded",
        cutoff=100,
        transient=False,
        created_at=NOW,
        finished_at=NOW,
        ended_s=ended_s,
        took_s=took_s,
    )
    return TriggerState(cutoff=100, attempted_cutoff=100, moved_at=NOW, paused=False, retry_in_s=None, newest=newest)


def tail(*, quiet_s: float = 0.0, is_long: bool = False, outgrows_tree: bool = False) -> Tail:
    """A tail that has reached the threshold."""
    return Tail(
        last_event_seq=10_000,
        last_ingested_at=NOW,
        quiet_s=quiet_s,
        reaches_threshold=True,
        is_long=is_long,
        outgrows_tree=outgrows_tree,
    )


def trigger(answer: Due | float | None) -> str | float | None:
    """Return the trigger that is due, or in how many seconds to look again."""
    return answer.trigger if isinstance(answer, Due) else answer


@pytest.mark.parametrize(
    ("took_s", "ended_s", "expected"),
    [
        (1.0, 0.0, 30.0),  # a quiet moment may come first
        (1.0, 45.0, 15.0),
        (1.0, 60.0, "tail_threshold"),
        (20.0, 60.0, 120.0),
        (20.0, 180.0, "tail_threshold"),
        (0.0, 59.0, 1.0),  # asked for by somebody: its cost does not count
        (20.0, -5.0, "tail_threshold"),  # the database's clock stepped back
    ],
)
def test_builds_rest_as_long_as_the_last_one_cost(took_s: float, ended_s: float, expected: str | float) -> None:
    """A tail over the threshold waits for the shortest interval, and for nine times what the last build took."""
    assert trigger(due(state(took_s=took_s, ended_s=ended_s), tail(), SETTINGS)) == expected


def test_nothing_is_due_while_a_build_has_not_ended() -> None:
    """A loop that looks just after another one queued the build does not ask for a second."""
    waiting = state(took_s=1.0, ended_s=1000.0)
    assert waiting.newest is not None
    queued = replace(
        waiting, newest=replace(waiting.newest, status="queued", cutoff=None, finished_at=None, ended_s=None)
    )
    assert due(waiting, tail(), SETTINGS) is not None
    assert due(queued, tail(), SETTINGS) is None


def test_a_young_memory_waits_for_its_cost_alone() -> None:
    """While the tail is as long as all that is in topics, the shortest interval does not hold."""
    young = tail(outgrows_tree=True)
    assert trigger(due(state(took_s=1.0, ended_s=8.0), young, SETTINGS)) == 1.0
    assert trigger(due(state(took_s=1.0, ended_s=9.0), young, SETTINGS)) == "tail_threshold"


def test_a_long_tail_hurries() -> None:
    """A tail that makes reads slow may have a quarter of the time instead of a tenth."""
    assert trigger(due(state(took_s=100.0, ended_s=300.0), tail(), SETTINGS)) == 600.0
    assert trigger(due(state(took_s=100.0, ended_s=300.0), tail(is_long=True), SETTINGS)) == "tail_threshold"
    assert trigger(due(state(took_s=100.0, ended_s=200.0), tail(is_long=True), SETTINGS)) == 100.0


def test_a_quiet_moment_need_not_wait_for_the_interval() -> None:
    """A quiet moment builds as soon as the last build's cost allows, inside the shortest interval too."""
    assert trigger(due(state(took_s=1.0, ended_s=40.0), tail(quiet_s=31.0), SETTINGS)) == "inactivity"
    assert trigger(due(state(took_s=10.0, ended_s=40.0), tail(quiet_s=31.0), SETTINGS)) == 50.0


@pytest.mark.parametrize("events_per_s", [1, 20, 200])
@pytest.mark.parametrize("ms_per_event", [0.2, 0.45])
def test_an_hour_of_sustained_appends(events_per_s: int, ms_per_event: float) -> None:
    """An hour of appends makes at most one build a minute, and builds run for at most a tenth of the time."""
    jobs, building_s, now, built_at = 0, 0.0, 0.0, 0.0
    last: tuple[float, float] | None = None
    while now < 3600:
        new = int((now - built_at) * events_per_s)
        waiting = Tail(
            last_event_seq=10_000,
            last_ingested_at=NOW,
            quiet_s=0.0,
            reaches_threshold=new >= SETTINGS.max_unindexed_events,
            is_long=new >= SETTINGS.long_tail_events,
            outgrows_tree=new >= int(built_at * events_per_s),
        )
        known = state(took_s=last[1], ended_s=now - last[0]) if last is not None else state(took_s=0, ended_s=1e9)
        if isinstance(due(known, waiting, SETTINGS), Due):
            took_s = 0.3 + new * ms_per_event / 1000
            jobs, building_s, built_at = jobs + 1, building_s + took_s, now
            now += took_s
            last = now, took_s
        now += 0.5

    assert jobs <= 60 + 12  # the young memory's builds, each of which doubled the tree
    assert building_s <= 360


def test_the_hurry_must_not_slow_builds_down() -> None:
    """A long tail's share of the time below the ordinary one is a mistake that is named."""
    with pytest.raises(ConfigurationError, match="long_tail_time_share"):
        builds.settings(builder={"time_share": 0.5})


@pytest.fixture
async def asked(database: Database) -> AsyncIterator[Callable[..., ControlLoop]]:
    """Control loops that are asked what is due, with settings of one's own."""
    async with Pool(database.operator_dsn) as pool:

        async def never(_: str, __: str) -> int:
            raise AssertionError("nothing is launched here")

        yield lambda **changes: ControlLoop(pool, builds.settings(builder=changes), never)


async def last_build(database: Database, *, took_s: float, ended_s: float) -> None:
    """Let the newest build have taken so long, and ended so long ago."""
    async with Pool(database.superuser_dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute(
            "UPDATE myria.builds SET finished_at = clock_timestamp() - make_interval(secs => $1), "
            "started_at = clock_timestamp() - make_interval(secs => $1 + $2)",
            ended_s,
            took_s,
        )


async def test_appends_right_after_a_build_wait(database: Database, asked: Callable[..., ControlLoop]) -> None:
    """A hundred events after a build start no further one within the minute; after it they do, all at once."""
    await append(database.server_dsn, conversation(150))
    await builds.build(database, trigger="tail_threshold")
    await append(database.server_dsn, conversation(110, seed=2, start=900_000))
    loop = asked()

    await last_build(database, took_s=2.0, ended_s=20.0)
    assert await loop.due(TENANT) is None
    await last_build(database, took_s=2.0, ended_s=61.0)
    found = await loop.due(TENANT)
    assert found is not None
    assert found.trigger == "tail_threshold"


async def test_a_status_says_until_when_builds_rest(database: Database) -> None:
    """In proportion to what the newest build took, from its end on; else, or if somebody asked for it, null."""
    await append(database.server_dsn, conversation(20))
    await builds.build(database, trigger="inactivity")
    async with Pool(database.server_dsn) as pool:
        registry = Registry(pool, builds.settings())
        for took_s, ended_s, is_resting in ((100.0, 300.0, True), (100.0, 901.0, False), (1_000.0, 901.0, True)):
            await last_build(database, took_s=took_s, ended_s=ended_s)
            status = await registry.status(TENANT)
            assert (status["resting_until"] is not None) == is_resting
            if is_resting:
                rest = datetime.fromisoformat(status["resting_until"]) - datetime.fromisoformat(
                    status["last_build"]["finished_at"]
                )
                assert rest.total_seconds() == pytest.approx(9 * took_s, abs=1)
        await builds.build(database)
        await last_build(database, took_s=100.0, ended_s=300.0)
        assert (await registry.status(TENANT))["resting_until"] is None


async def test_what_the_database_counts(database: Database, asked: Callable[..., ControlLoop]) -> None:
    """A tail as long as the tree, and one of long_tail_events, are told from the log; internal events do not count."""
    await append(database.server_dsn, conversation(20))
    await builds.build(database, trigger="inactivity")
    await append(database.server_dsn, conversation(19, seed=2, start=900_000, internal_share=0.0))
    await append(database.server_dsn, conversation(5, seed=3, start=950_000, internal_share=1.0))
    young = asked(max_unindexed_events=10)
    await last_build(database, took_s=1.0, ended_s=10.0)
    assert await young.due(TENANT) is None
    await append(database.server_dsn, conversation(1, seed=4, start=990_000))
    assert await young.due(TENANT) is not None

    await last_build(database, took_s=10.0, ended_s=65.0)
    assert await asked(max_unindexed_events=10, long_tail_events=21).due(TENANT) is None
    assert await asked(max_unindexed_events=10, long_tail_events=20).due(TENANT) is not None


async def test_what_people_ask_for_does_not_slow_triggers_down(
    database: Database, asked: Callable[..., ControlLoop]
) -> None:
    """A long build that somebody asked for makes the next automatic one wait for the shortest interval alone."""
    await append(database.server_dsn, conversation(120))
    await builds.build(database)
    await append(database.server_dsn, conversation(110, seed=2, start=900_000))
    await last_build(database, took_s=1000.0, ended_s=61.0)

    assert await asked().due(TENANT) is not None
