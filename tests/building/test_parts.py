"""One big scope is compiled by several workers: the same result, resumable, fenced (`myria.builds.parts`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from myria import errors
from myria.builds import Outcome, tasks
from myria.builds.capture import start_build
from myria.builds.compilation import compile_scope, plan_part
from myria.builds.finish import end_without_result
from myria.builds.model import RunningBuild, Task, TaskPart
from myria.builds.parts import Parts
from myria.builds.run import run_build
from myria.builds.verify import verify
from myria.builds.versions import fingerprint
from myria.db.database import Database as Pool
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.folding import event_log
from myria.topics.model import Unit
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

PLANNER = builds.DEFAULTS.planner
EVENTS = 600
PARTS = 10

Planned = Callable[..., Awaitable[list[Unit]]]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide a scope of a few hundred events."""
    monkeypatch.setattr("myria.builds.parts.SHARED_EVENTS", 300)
    monkeypatch.setattr("myria.builds.parts._PART_EVENTS", 64)


def replace_planning(monkeypatch: pytest.MonkeyPatch, *, own: Planned = plan_part, helped: Planned = plan_part) -> None:
    """Plan the parts of the worker that has the task, and those of helpers, otherwise."""
    monkeypatch.setattr("myria.builds.compilation.plan_part", own)
    monkeypatch.setattr("myria.builds.run.plan_part", helped)


def together(planned: list[int]) -> Planned:
    """Planning that notes each part, and of which two begin at the same time before either goes on."""
    meeting = asyncio.Barrier(2)

    async def plan(*arguments: Any, **named: Any) -> list[Unit]:
        planned.append(arguments[2].part)
        if len(planned) <= 2:
            await meeting.wait()
        return await plan_part(*arguments, **named)

    return plan


async def build_together(database: Database, build_id: str, workers: int = 2) -> list[Outcome]:
    """Work on a build with several workers until it has ended."""
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.gather(
            *(run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build_id) for _ in range(workers))
        )


async def assert_sound(database: Database) -> None:
    """Assert that every invariant holds, with the scope planned anew, and that no part is left."""
    async with Pool(database.dsn) as pool:
        report = await verify(pool, TENANT, PLANNER, deep=True)
    assert report.failed == 0, [check.failures for check in report.checks if check.failed]
    assert await builds.value(database, "SELECT count(*) FROM myria.build_parts") == 0


@pytest.mark.parametrize("workers", [2, 3])
async def test_workers_share_one_scope(database: Database, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """Several workers plan the parts of one scope, each once; one alone then finds nothing to do otherwise."""
    await append(database.server_dsn, conversation(EVENTS))
    planned: list[int] = []
    shared = together(planned)
    replace_planning(monkeypatch, own=shared, helped=shared)
    build_id = await builds.queue(database, full=True)

    outcomes = await build_together(database, build_id, workers)

    assert outcomes == [Outcome.SUCCEEDED] * workers
    assert sorted(planned) == list(range(PARTS))
    ended = await builds.ended(database, build_id, Outcome.SUCCEEDED)
    assert ended.counts["events"] == ended.counts["events_new"] == EVENTS
    await assert_sound(database)
    monkeypatch.undo()
    alone = await builds.build(database, full=True, force=True)
    assert alone.counts["scopes_changed"] == 0
    for table in ("nodes", "renderings", "topics", "search_blocks", "subjects"):
        assert ended.counts[f"rows_{table}"] > 0
        assert alone.counts.get(f"rows_{table}", 0) == 0


async def test_parts_of_equal_times_and_withdrawn_events(database: Database) -> None:
    """Where a part begins among withdrawn events, or many of one microsecond, units are as without parts."""
    said = conversation(300)
    crowd = [event(said[100].timestamp // 1_000_000, f"all at once {number}") for number in range(200)]
    appended = await append(database.server_dsn, [*said, *crowd])
    async with Pool(database.server_dsn) as pool:
        withdrawals = Withdrawals(event_log(pool))
        gone = [result.event_id for result in (*appended[:3], *appended[60:70], *appended[190:280], *appended[-9:])]
        await withdrawals.withdraw(TENANT, gone, "forgotten", may_see=lambda _: True)

    await build_together(database, await builds.queue(database, full=True))

    await assert_sound(database)
    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.roots(database) == await builds.planned(database, cutoff)


async def test_a_stopped_worker_loses_no_part(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes a scope over goes on with the parts that are done; each is planned once, but for the one at work."""
    await append(database.server_dsn, conversation(EVENTS))
    planned: list[int] = []
    third = asyncio.Event()

    async def stopping(*arguments: Any, **named: Any) -> list[Unit]:
        planned.append(arguments[2].part)
        if len(planned) == 3:
            third.set()
            await asyncio.Event().wait()
        return await plan_part(*arguments, **named)

    replace_planning(monkeypatch, own=stopping)
    build_id = await builds.queue(database, full=True)
    first = asyncio.create_task(run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build_id))
    async with asyncio.timeout(PATIENCE_S):
        await third.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    assert await build_together(database, build_id, 1) == [Outcome.SUCCEEDED]

    assert Counter(planned) == {part: 2 if part == 2 else 1 for part in range(PARTS)}
    assert (await builds.ended(database, build_id, Outcome.SUCCEEDED)).counts["events"] == EVENTS
    await assert_sound(database)


async def test_what_a_helper_fails_at_is_done_by_who_has_the_task(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper's failure costs the build nothing: its part is left to the worker that has the scope's task."""
    await append(database.server_dsn, conversation(EVENTS))
    planned: list[int] = []
    meeting = together(planned)
    failed: list[int] = []

    async def failing(*arguments: Any, **named: Any) -> list[Unit]:
        await meeting(*arguments, **named)
        failed.append(arguments[2].part)
        raise RuntimeError("a helper's own trouble")

    replace_planning(monkeypatch, own=meeting, helped=failing)
    build_id = await builds.queue(database, full=True)

    assert await build_together(database, build_id) == [Outcome.SUCCEEDED] * 2

    assert failed
    assert max(Counter(failed).values()) == 1
    await assert_sound(database)


async def test_a_part_that_breaks_a_rule_fails_the_build(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a helper finds invalid is found by the worker that has the task, too, and fails the build with its rule."""
    await append(database.server_dsn, conversation(EVENTS))

    async def invalid(*_: Any, **__: Any) -> list[Unit]:
        raise errors.BuildInvalid("a rule is broken", violations=[{"rule": "no_dust", "message": "a rule is broken"}])

    replace_planning(monkeypatch, own=invalid, helped=invalid)
    build_id = await builds.queue(database, full=True)

    assert await build_together(database, build_id) == [Outcome.FAILED] * 2

    error = (await builds.ended(database, build_id, Outcome.FAILED)).error
    assert error is not None
    assert "a rule is broken" in error["message"]


async def _divided(database: Database, pool: Pool) -> tuple[RunningBuild, Task, Parts]:
    """A captured build of one scope, whose task is claimed and divided."""
    await append(database.server_dsn, conversation(EVENTS))
    build = await start_build(pool, TENANT, await builds.queue(database), fingerprint(PLANNER))
    assert isinstance(build, RunningBuild)
    task = await tasks.claim(pool, build, "owner", 3600.0)
    assert task is not None
    shared = Parts(pool, build, "owner", 3600.0)
    assert await shared.divide(task.scope_id, EVENTS)
    return build, task, shared


async def test_a_part_belongs_to_its_newest_lease(database: Database) -> None:
    """While a lease runs nobody else gets the part; who lost it can finish it no more; once it is done nobody can."""
    async with Pool(database.builder_dsn) as pool:
        build, _, shared = await _divided(database, pool)
        lost = await Parts(pool, build, "one", 0.0).claim()
        kept = await Parts(pool, build, "two", 3600.0).claim()
        other = await Parts(pool, build, "three", 3600.0).claim()
        assert lost is not None
        assert kept is not None
        assert other is not None
        assert (lost.part, kept.part, other.part) == (0, 0, 1)

        assert not await shared.finish(lost, [], Counter())
        assert await shared.finish(kept, [], Counter())
        assert not await shared.finish(kept, [], Counter())
        assert await Parts(pool, build, "three", 3600.0).renew(pool)
        assert not await Parts(pool, build, "two", 3600.0).renew(pool)


async def test_helpers_leave_a_part_that_ended_them(database: Database) -> None:
    """A part whose helpers end without a word is left, after a few of them, to the worker that has the task."""
    async with Pool(database.builder_dsn) as pool:
        build, task, shared = await _divided(database, pool)
        taken: list[TaskPart | None] = [
            await Parts(pool, build, f"helper {number}", 0.0).claim() for number in range(4)
        ]

        assert [part.part for part in taken if part is not None] == [0, 0, 0, 1]
        again = await shared.claim(task.scope_id)
        assert again is not None
        assert again.part == 0


async def test_nothing_of_a_part_is_written_once_its_build_has_ended(database: Database) -> None:
    """A helper whose build was aborted meanwhile writes nothing more."""
    async with Pool(database.builder_dsn) as pool:
        build, _, shared = await _divided(database, pool)
        part = await Parts(pool, build, "helper", 3600.0).claim()
        assert part is not None
        await end_without_result(
            pool,
            TENANT,
            build.build_id,
            Outcome.ABORTED,
            error=errors.InternalError("asked to"),
            settings=builds.DEFAULTS.builder,
        )

        with pytest.raises(errors.LeaseLost):
            await plan_part(pool, build, part, PLANNER, Counter())
        with pytest.raises(errors.LeaseLost):
            await shared.finish(part, [], Counter())


async def test_progress_counts_the_parts_of_helpers(database: Database) -> None:
    """What helpers have done shows in the counts of the scope's task while it is at work."""
    async with Pool(database.builder_dsn) as pool:
        build, task, shared = await _divided(database, pool)
        part = await Parts(pool, build, "helper", 3600.0).claim()
        assert part is not None
        counts: Counter[str] = Counter()
        units = await plan_part(pool, build, part, PLANNER, counts)
        await shared.finish(part, [unit.top.rendering_id for unit in units], counts)

        assert (await shared.counted(task.scope_id))[0]["events"] == counts["events"] > 0
        total: Counter[str] = Counter()
        compiled = await compile_scope(pool, build, task, PLANNER, total, parts=shared)
        assert total["events"] == EVENTS
        await tasks.finish(pool, build, task, compiled, total)
    assert await builds.value(database, "SELECT count(*) FROM myria.build_parts") == 0
