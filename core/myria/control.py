"""The control loop: builds of every tenant (`myria.builds.loop`), and the periodic jobs that run beside them.

`myria up` runs it with subprocesses as builders, the operator with Jobs. Like builds, every job may stop at any point,
start again in another process, and run in two processes at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from myria import errors
from myria.access import journal
from myria.access.vault import Secrets, opened_secrets
from myria.builds.collect import collect_garbage, tenants_with_garbage
from myria.builds.finish import free_numbers
from myria.builds.loop import BuildLoop, Launch
from myria.builds.snapshots import Registry
from myria.db.database import ALL_TENANTS, Database
from myria.db.queries import sql
from myria.erasure.carrying import ErasureCarrier, carry_on_apart
from myria.erasure.execution import WITHDRAWN_WITHIN_S
from myria.index.embeddings.choosing import kept_model
from myria.index.embeddings.keeping import VectorKeeper, remove_former
from myria.llm import waits
from myria.llm.waits import Work
from myria.log.event_log import EventLog
from myria.notes.commands import Notes
from myria.notes.consolidating import Consolidation
from myria.notes.folding import event_log
from myria.notes.holding import Holding
from myria.notes.turns.maintaining import TurnMaintenance
from myria.notes.turns.shadow import forget_shadows
from myria.settings import Settings

if TYPE_CHECKING:
    from myria.notes.evaluator import Evaluator
    from myria.notes.turns.extracting import Extractor

logger = logging.getLogger(__name__)

COLLECT_S = 600.0
"""Seconds between two collections of garbage."""


def _evaluator(log: EventLog, settings: Settings, secrets: Secrets) -> Evaluator | None:
    """Return the job that lets a model rate notes, None where `notes.evaluate` is off.

    Raises:
        ConfigurationError: there is no request template, or it cannot be used.
    """
    if not settings.notes.evaluate:
        return None
    from myria.llm.model import LanguageModel  # noqa: PLC0415
    from myria.notes.evaluator import Evaluator  # noqa: PLC0415 - only where a model is asked

    model = LanguageModel.configured(settings.llm, secrets=secrets)
    if model is None:
        raise errors.ConfigurationError(
            "notes.evaluate needs a language model: set llm.template, or switch it off.", field="notes.evaluate"
        )
    return Evaluator(log, model, most=settings.notes.evaluate_notes)


def _extractor(log: EventLog, settings: Settings, secrets: Secrets) -> Extractor | None:
    """Return the job that looks for facts in turns, None where the settings switch it off.

    Raises:
        ConfigurationError: the template of its requests cannot be used.
    """
    if not (settings.turns.enabled and settings.turns.heuristic_enabled):
        return None
    from myria.notes.turns.extracting import Extractor, configured  # noqa: PLC0415 - only where a model is asked

    notes = Notes(
        log,
        content_characters=settings.notes.content_characters,
        session_idle_s=settings.notes.session_idle_s,
        holding=Holding.configured(settings.review),
    )
    return Extractor(log, notes, configured(settings, secrets=secrets), settings.turns)


class ControlLoop(BuildLoop):
    """Runs the builds of every tenant of one database, and its upkeep: notes, turns, facts, vectors, erasures, garbage.

    Args:
        database: connects as a role that may name all tenants.
        settings: `builder` says when builds are due, `retention` what is kept.
        launch: runs a builder.
        max_builders: as of `BuildLoop`.
    """

    def __init__(self, database: Database, settings: Settings, launch: Launch, *, max_builders: int = 4) -> None:
        super().__init__(database, settings, launch, max_builders=max_builders)
        log = event_log(database, settings)
        self._consolidation = Consolidation(
            log, most=settings.notes.consolidate_notes, evaluates=settings.notes.evaluate
        )
        self._turn_maintenance = TurnMaintenance(
            database, self._consolidation, lock_timeout_ms=settings.turns.session_lock_timeout_ms
        )
        secrets = opened_secrets(settings.secrets)
        self._evaluator = _evaluator(log, settings, secrets)
        self._extractor = _extractor(log, settings, secrets)
        self._vectors = VectorKeeper.configured(database, settings, secrets)

    def _side_jobs(self) -> Sequence[Coroutine[Any, Any, Any]]:
        """Return the periodic jobs; an interval of 0 seconds switches a job off."""
        notes, turns = self._settings.notes, self._settings.turns
        evaluate_s = notes.evaluate_s if self._evaluator is not None else 0.0
        maintenance_s = turns.maintenance_s if turns.enabled else 0.0
        extract_s = turns.heuristic_s if self._extractor is not None else 0.0
        catch_up_s = self._settings.embeddings.catch_up_s if self._vectors is not None else 0.0
        return (
            self._repeat("garbage", COLLECT_S, self.collect),
            self._repeat("consolidation", notes.consolidate_s, self.consolidate),
            self._repeat("evaluation", evaluate_s, self.evaluate),
            self._repeat("maintenance", maintenance_s, self.maintain_turns),
            self._repeat("extraction", extract_s, self.extract),
            self._repeat("embedding", catch_up_s, self.embed),
            carry_on_apart(self._database, self._erasure_carrier),
        )

    def _erasure_carrier(self, database: Database) -> ErasureCarrier:
        """Return what carries out planned erasures over `database`."""
        settings = self._settings
        return ErasureCarrier(
            database,
            Registry(database, settings),
            event_log(database, settings, deadline=WITHDRAWN_WITHIN_S),
            settings.erasure,
            unproved=settings.auth.mode == "none",
        )

    async def close(self) -> None:
        """End the builders this loop launched, and the connections to a model."""
        for job in (self._evaluator, self._extractor, self._vectors):
            if job is not None:
                await job.close()
        await super().close()

    async def _repeat(self, job_name: str, every_s: float, run_job: Callable[[], Awaitable[object]]) -> None:
        """Run a job every `every_s` seconds, give or take a fifth; never where that is 0."""
        while every_s:
            await asyncio.sleep(every_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
            try:
                await run_job()
            except errors.MyriaError as error:
                logger.warning("%s waits: %s", job_name, error.message, extra={"action": f"{job_name}_waits"})
            except Exception:
                logger.exception("%s failed", job_name, extra={"action": f"{job_name}_failed"})

    async def consolidate(self) -> int:
        """Consolidate the notes of every tenant that has some due; return how many notes were looked at.

        Each tenant gets one bounded run, so that none keeps the others waiting; its next run takes the rest.
        """

        async def run(tenant: str) -> int:
            report = await self._consolidation.run(tenant)
            if report.counts["expiry"] or report.counts["deduplication"]:
                logger.info(
                    "withdrew %d expired notes and %d duplicates",
                    report.counts["expiry"],
                    report.counts["deduplication"],
                    extra={"action": "notes_consolidated", "tenant": tenant},
                )
            return report.looked_at

        return await self._run_for_tenants_due("consolidation", run, "consolidation.tenants_due")

    async def maintain_turns(self) -> int:
        """Maintain every tenant's sessions of turns that have facts due; return how many facts were looked at.

        Skips a session that another process maintains. The next call takes what one run leaves.
        """

        async def run(tenant: str) -> int:
            looked_at = 0
            for session in await self._turn_maintenance.due(tenant):
                with suppress(errors.TurnBusy):
                    looked_at += await self._turn_maintenance.maintain(tenant, session)
            return looked_at

        await forget_shadows(self._database, self._settings.turns.shadow_keep_s)
        return await self._run_for_tenants_due("maintenance", run, "consolidation.tenants_due")

    async def evaluate(self) -> int:
        """Let the model rate the waiting notes of every tenant, one bounded run each; return how many it rated."""
        if self._evaluator is None:
            return 0
        return await self._run_for_tenants_due("evaluation", self._evaluator.run, "evaluations.tenants_due")

    async def extract(self) -> int:
        """Let the model look for facts in the waiting turns of every tenant; return how many turns it read."""
        if self._extractor is None:
            return 0
        return await self._run_for_tenants_due("extraction", self._extractor.run, "turns.tenants_awaiting_facts")

    async def embed(self) -> int:
        """Compute missing vectors of every tenant's events, a bounded number each; return how many were looked at."""
        vectors = self._vectors
        if vectors is None:
            return 0

        async def run(tenant: str) -> int:
            try:
                return await vectors.run(tenant, self._settings.embeddings.catch_up_events)
            except errors.ModelFailed as failure:
                logger.warning("vectors wait: %s", failure.message, extra={"action": "vectors_wait", "tenant": tenant})
                return 0

        return await self._run_for_tenants_due("embedding", run, "vectors.tenants_due", vectors.model)

    async def _run_for_tenants_due(
        self, job_name: str, run: Callable[[str], Awaitable[int]], tenants_due: str, *arguments: str
    ) -> int:
        """Call `run` once for each tenant that is due and return the sum of its results.

        A tenant whose run fails does not stop the others, unless the database cannot be reached.

        Args:
            tenants_due: the name of the SQL statement that lists the tenants.
            arguments: the statement's arguments.
        """
        async with self._database.read(ALL_TENANTS) as connection:
            tenant_ids = [row["tenant_id"] for row in await connection.fetch(sql(tenants_due), *arguments)]
        total = 0
        for tenant in tenant_ids:
            try:
                total += await run(tenant)
            except errors.UnavailableError:
                raise
            except Exception:
                logger.exception("%s failed", job_name, extra={"action": f"{job_name}_failed", "tenant": tenant})
        return total

    async def collect(self) -> None:
        """Remove what nothing reads any more, and fold the totals of the triggers.

        That is, of every tenant: rows that no kept snapshot reaches; and vectors of former models, notes of waits for
        models that are switched off, and old entries of the journal.
        """
        for tenant in await tenants_with_garbage(self._database, self._settings.retention):
            await free_numbers(self._database, tenant)
            await collect_garbage(self._database, tenant, self._settings.retention)
        model = kept_model(self._settings, None if self._vectors is None else self._vectors.model)
        await remove_former(self._database, model, after_s=self._settings.embeddings.keep_former_s)
        jobs = {Work.VECTORS: self._vectors, Work.RATINGS: self._evaluator, Work.FACTS: self._extractor}
        await waits.forget(self._database, [work for work, job in jobs.items() if job is None])
        await journal.forget(self._database, self._settings.audit)
        async with self._database.write(ALL_TENANTS) as connection:
            await connection.execute(sql("triggers.fold_totals"))
