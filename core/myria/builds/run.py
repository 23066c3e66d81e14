"""Drives one build from the queue to its end, in any number of processes, each of which takes the next step.

Every step reads the build's state from PostgreSQL and keeps nothing for the next one. So a process may die at any
point, another may go on, and processes that run at the same time share the tasks.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any

from myria import errors
from myria.access.vault import opened_secrets
from myria.builds import tasks
from myria.builds.capture import start_build
from myria.builds.compilation import compile_scope, plan_part
from myria.builds.finish import end_without_result, free_numbers, publish_or_hold, superseded, task_failure
from myria.builds.model import Outcome, RunningBuild, Task, TaskPart
from myria.builds.parts import Parts
from myria.builds.versions import fingerprint
from myria.db.database import Database, PoolOptions
from myria.db.options import build_options
from myria.db.queries import sql
from myria.index.embeddings.keeping import AT_ONCE, VectorKeeper, vector_keeper
from myria.settings import Settings

if TYPE_CHECKING:
    from myria.llm.builder import UnitPlanner
    from myria.llm.model import LanguageModel

logger = logging.getLogger(__name__)

_OUTAGE_S = 300.0
"""Seconds without PostgreSQL after which a process gives up."""

_IDLE_S = 0.2
"""Seconds between two looks for work while other workers have all tasks."""

_RENEWALS_PER_LEASE = 3


async def run_build(settings: Settings, dsn: str, tenant: str, build_id: str) -> Outcome:
    """Work on a build until it has ended, and return its outcome.

    Raises:
        BuildNotFound: no such build.
        DatabaseUnavailable: PostgreSQL was away for five minutes; the build waits for another process.
        MyriaError: this process cannot go on; the build waits for another one.
    """
    options = build_options(settings, size=4)
    away_since: float | None = None
    pause = 0.1
    async with (
        Database(dsn, options) as database,
        asked_model(settings) as model,
        vector_keeper(database, settings) as vectors,
    ):
        with (
            tasks.worker() as name,
            Heartbeat(dsn, replace(options, size=1), tenant, build_id, settings.builder.task_lease_s) as heartbeat,
        ):
            worker = _Worker(
                database, settings, tenant, build_id, name=name, heartbeat=heartbeat, model=model, vectors=vectors
            )
            while True:
                try:
                    return await worker.run()
                except errors.UnavailableError as error:
                    now = time.monotonic()
                    if away_since is None or worker.worked_at > away_since:
                        away_since, pause = now, 0.1
                    if now - away_since > _OUTAGE_S:
                        raise
                    logger.warning(
                        "the build waits: %s", error.message, extra={"action": "build_waits", "build_id": build_id}
                    )
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                    pause = min(pause * 2, 5.0)


@asynccontextmanager
async def asked_model(settings: Settings) -> AsyncIterator[LanguageModel | None]:
    """Open the configured model for the block; None where none is configured or `llm.build` is off.

    Raises:
        ConfigurationError: the request template cannot be used, or a secret cannot be opened.
    """
    secrets = opened_secrets(settings.secrets)
    if settings.llm.template is None or not settings.llm.build:
        yield None
        return
    from myria.llm.model import LanguageModel  # noqa: PLC0415 - most builders ask no model, and start faster without

    model = LanguageModel.configured(settings.llm, secrets=secrets)
    try:
        yield model
    finally:
        if model is not None:
            await model.close()


class Verdict(Enum):
    """Whether the build is still worth working on."""

    GO_ON = auto()
    ENDED = auto()
    SUPERSEDED = auto()


Renewal = Callable[[Database], Awaitable[bool]]
"""Renews a worker's leases, by a connection of the heartbeat; returns whether the worker still has them."""


class Heartbeat:
    """Renews the leases of a build and of the current task, three times per lease; use as a context manager.

    It runs in a thread of its own, because planning may keep the event loop busy for long. It also notices when the
    work has become useless: the task went to another worker, the build ended, or the pointer moved.
    """

    def __init__(self, dsn: str, options: PoolOptions, tenant: str, build_id: str, lease_s: float) -> None:
        self._dsn = dsn
        self._options = options
        self._tenant = tenant
        self._build_id = build_id
        self._lease_s = lease_s
        self._watched: tuple[Renewal, asyncio.Task[None]] | None = None
        self._cancelled_work: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.verdict = Verdict.GO_ON

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def watch(self, renew: Renewal, work: asyncio.Task[None]) -> None:
        """Renew a lease while `work` runs, and cancel `work` when the lease is lost."""
        self._watched = (renew, work)

    def forget(self, work: asyncio.Task[None]) -> None:
        """Stop renewing a task's lease."""
        if self._watched is not None and self._watched[1] is work:
            self._watched = None

    def dropped(self, work: asyncio.Task[None]) -> bool:
        """Tell whether it was this heartbeat that cancelled `work`."""
        return self._cancelled_work is work

    def _run(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        async with Database(self._dsn, self._options) as database:
            while not self._stop.is_set():
                try:
                    await self._renew(database)
                except errors.MyriaError as error:
                    logger.warning(
                        "a lease was not renewed: %s",
                        error.message,
                        extra={"action": "lease_not_renewed", "build_id": self._build_id},
                    )
                await asyncio.to_thread(self._stop.wait, self._lease_s / _RENEWALS_PER_LEASE)

    async def _renew(self, database: Database) -> None:
        """Renew the leases once, and cancel the watched work where it has become useless."""
        async with database.write(self._tenant) as connection:
            row = await connection.fetchrow(sql("builds.renew_lease"), self._tenant, self._build_id, self._lease_s)
        if row is None:
            self.verdict = Verdict.ENDED
        elif row["status"] == "running" and row["parent_snapshot_id"] != row["active_snapshot_id"]:
            self.verdict = Verdict.SUPERSEDED
        watched = self._watched
        if watched is None:
            return
        renew, work = watched
        if self.verdict is Verdict.GO_ON and await renew(database):
            return
        # Unless the work has ended meanwhile. It belongs to another thread's event loop.
        if self._watched is watched:
            self._cancelled_work = work
            work.get_loop().call_soon_threadsafe(work.cancel)


class _Worker:
    """One process's work on one build; `worked_at` is when it last looked for a task, on the monotonic clock."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        tenant: str,
        build_id: str,
        *,
        name: str,
        heartbeat: Heartbeat,
        model: LanguageModel | None,
        vectors: VectorKeeper | None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._tenant = tenant
        self._build_id = build_id
        self._heartbeat = heartbeat
        self._planner = settings.planner
        self._name = name
        self._model = model
        self._vectors = vectors
        self.worked_at = time.monotonic()

    async def run(self) -> Outcome:
        """Take the next step, again and again, until the build has ended; return its outcome.

        A step is a task, a part of another worker's task, or the end of the build when no task is left.
        """
        try:
            build = await start_build(self._database, self._tenant, self._build_id, fingerprint(self._planner))
        except errors.LogBusy as error:
            return await self._without_result(Outcome.FAILED, error)
        if isinstance(build, Outcome):
            return build
        await tasks.drop_leases_of_the_dead(self._database, build, self._name)
        parts = Parts(self._database, build, self._name, self._settings.builder.task_lease_s)
        while True:
            verdict = self._heartbeat.verdict
            if verdict is Verdict.SUPERSEDED:
                return await self._without_result(Outcome.SUPERSEDED, superseded(build))
            task = None
            if verdict is Verdict.GO_ON:
                task = await tasks.claim(self._database, build, self._name, self._settings.builder.task_lease_s)
            self.worked_at = time.monotonic()
            part = None
            if task is None and verdict is Verdict.GO_ON:
                part = await parts.claim()
            if part is not None:
                await self._plan_part(build, parts, part)
            elif task is None:
                outcome = await self._end(build)
                if outcome is not None:
                    return outcome
                await asyncio.sleep(_IDLE_S)
            elif task.attempt > self._settings.builder.max_task_attempts:
                await tasks.give_up(self._database, build, task)
            else:
                await self._do_task(build, parts, task)

    async def _do_task(self, build: RunningBuild, parts: Parts, task: Task) -> None:
        """Compile a task's scope under its lease; give the task back where that fails."""
        counts: Counter[str] = Counter()
        lease_s = self._settings.builder.task_lease_s

        async def renew(database: Database) -> bool:
            await parts.renew(database)
            return await tasks.renew(database, build, task, counts, lease_s)

        try:
            await self._run_under_lease(build, self._compile(build, parts, task, counts), renew)
        except errors.DatabaseUnavailable:
            raise
        except Exception as error:
            await parts.let_go()
            logger.exception(
                "the task of scope %d failed",
                task.scope_id,
                extra={"action": "task_failed", "tenant": build.tenant, "build_id": build.build_id},
            )
            await tasks.give_back(self._database, build, task, error)
            if isinstance(error, errors.UnavailableError):
                raise

    async def _plan_part(self, build: RunningBuild, parts: Parts, part: TaskPart) -> None:
        """Plan a part of a scope whose task another worker has."""

        async def plan() -> None:
            counts: Counter[str] = Counter()
            units = await plan_part(self._database, build, part, self._planner, counts)
            await parts.finish(part, [unit.top.rendering_id for unit in units], counts)

        try:
            await self._run_under_lease(build, plan(), parts.renew)
        except errors.UnavailableError:
            raise
        except Exception:
            # The worker that has the task repeats the part, and reports what is wrong.
            await parts.leave(part)
            logger.exception(
                "a part of the task of scope %d failed",
                part.task.scope_id,
                extra={"action": "part_failed", "tenant": build.tenant, "build_id": build.build_id},
            )

    async def _run_under_lease(self, build: RunningBuild, job: Coroutine[Any, Any, None], renew: Renewal) -> None:
        """Run a job under a lease that the heartbeat renews; return early, without an error, when the lease is lost."""
        work = asyncio.create_task(job)
        self._heartbeat.watch(renew, work)
        try:
            await work
        except asyncio.CancelledError:
            if self._heartbeat.dropped(work):
                return
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            # This process must stop: give the task back, so that the next process need not wait for the lease to end.
            await asyncio.shield(tasks.let_go(self._database, build, self._name))
            raise
        except errors.LeaseLost as error:
            logger.info("%s", error.message, extra={"action": "lease_lost", "build_id": build.build_id})
        finally:
            self._heartbeat.forget(work)

    async def _compile(self, build: RunningBuild, parts: Parts, task: Task, counts: Counter[str]) -> None:
        """Compile a task's scope and commit the result."""
        shaper = self._shaper(build, task, counts)
        compiled = await compile_scope(self._database, build, task, self._planner, counts, shaper=shaper, parts=parts)
        degraded_reason = None
        if shaper is not None:
            await shaper.flush()
            degraded_reason = shaper.degraded_reason
        await tasks.finish(self._database, build, task, compiled, counts, degraded_reason=degraded_reason)
        logger.debug(
            "the task of scope %d is done",
            task.scope_id,
            extra={"action": "task_done", "tenant": build.tenant, "build_id": build.build_id, "counts": dict(counts)},
        )

    def _shaper(self, build: RunningBuild, task: Task, counts: Counter[str]) -> UnitPlanner | None:
        """Return what divides a task's units by a model or its stored plans; None where there is neither."""
        if self._model is None and not task.has_plans:
            return None
        from myria.llm.builder import ScopeTask, UnitPlanner  # noqa: PLC0415 - as above

        job = ScopeTask(
            tenant=build.tenant,
            build_id=build.build_id,
            cutoff=build.cutoff,
            scope_id=task.scope_id,
            participants=task.participants,
            has_plans=task.has_plans,
        )
        return UnitPlanner(self._database, job, self._planner, model=self._model, counts=counts)

    async def _end(self, build: RunningBuild) -> Outcome | None:
        """End the build when no task is left and return its outcome; None while other workers are busy."""
        async with self._database.read(self._tenant) as connection:
            row = await connection.fetchrow(sql("builds.get"), self._tenant, self._build_id)
            open_tasks = await connection.fetchrow(sql("builds.open_tasks"), self._tenant, self._build_id)
        if row is None or open_tasks is None:
            raise errors.BuildNotFound(f"there is no build {self._build_id}", build_id=self._build_id)
        if row["finished_at"] is not None:
            await free_numbers(self._database, self._tenant)
            return Outcome(row["status"])
        if open_tasks["failed"]:
            error = await task_failure(self._database, build)
            return await self._without_result(Outcome.FAILED, error)
        if open_tasks["pending"]:
            return None
        remark = await self._embed()
        return await publish_or_hold(self._database, build, self._settings.builder, remark=remark)

    async def _without_result(self, outcome: Outcome, error: errors.MyriaError) -> Outcome:
        return await end_without_result(
            self._database, self._tenant, self._build_id, outcome, error=error, settings=self._settings.builder
        )

    async def _embed(self) -> errors.ModelFailed | None:
        """Compute vectors of a bounded number of events, newest first; return the model's failure, None without one.

        The control plane computes the rest later.
        """
        events_left = 0 if self._vectors is None else self._settings.embeddings.build_events
        while events_left > 0 and self._vectors is not None and self._heartbeat.verdict is Verdict.GO_ON:
            try:
                looked_at = await self._vectors.run(self._tenant, min(events_left, AT_ONCE), newest_first=True)
            except errors.ModelFailed as failure:
                logger.warning("vectors wait: %s", failure.message, extra={"action": "vectors_wait"})
                return errors.ModelFailed(f"vectors wait: {failure.message}", **failure.details)
            self.worked_at = time.monotonic()
            # Fewer than asked for: no more events lack a vector.
            events_left = events_left - looked_at if looked_at == AT_ONCE else 0
        return None
