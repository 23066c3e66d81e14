"""The control loop: builds of every tenant (`myria.builds.loop`), and what is done beside them again and again.

`myria up` runs it with subprocesses as builders, the operator with Jobs. Like builds, all that it does may stop at any
point, start anew elsewhere, and run twice at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

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
from myria.erasure.commands import WITHDRAWN_WITHIN_S
from myria.index.embeddings.choosing import kept_model
from myria.index.embeddings.keeping import VectorKeeper, remove_former
from myria.llm import waits
from myria.llm.waits import Work
from myria.log.event_log import EventLog
from myria.notes.consolidating import Consolidation
from myria.notes.folding import event_log
from myria.notes.turns.maintaining import TurnMaintenance
from myria.notes.turns.shadow import forget_shadows
from myria.settings import Settings

logger = logging.getLogger(__name__)

COLLECT_S = 600.0
"""Seconds between two collections of garbage."""


class _AsksModel(Protocol):
    """What asks a model that nothing waits for: `notes.evaluator` and `notes.turns.extracting` have one each."""

    async def run(self, tenant: str) -> int: ...

    async def close(self) -> None: ...


def _evaluator(log: EventLog, settings: Settings, secrets: Secrets) -> _AsksModel | None:
    """Return what rates notes, None where nothing does.

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


def _extractor(log: EventLog, settings: Settings, secrets: Secrets) -> _AsksModel | None:
    """Return what looks for facts in turns, None where nothing does.

    Raises:
        ConfigurationError: the template of its requests cannot be used.
    """
    if not (settings.turns.enabled and settings.turns.heuristic_enabled):
        return None
    from myria.notes.turns.extracting import Extractor, configured  # noqa: PLC0415 - only where a model is asked

    return Extractor(log, configured(settings, secrets=secrets), settings.turns)


class ControlLoop(BuildLoop):
    """Builds of every tenant of one database, and its upkeep: notes, turns, facts, vectors, erasures and garbage.

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

    def _beside(self) -> Sequence[Coroutine[Any, Any, Any]]:
        notes, turns = self._settings.notes, self._settings.turns
        evaluate_s = notes.evaluate_s if self._evaluator is not None else 0.0
        maintenance_s = turns.maintenance_s if turns.enabled else 0.0
        extract_s = turns.heuristic_s if self._extractor is not None else 0.0
        catch_up_s = self._settings.embeddings.catch_up_s if self._vectors is not None else 0.0
        return (
            self._again_and_again("garbage", COLLECT_S, self.collect),
            self._again_and_again("consolidation", notes.consolidate_s, self.consolidate),
            self._again_and_again("evaluation", evaluate_s, self.evaluate),
            self._again_and_again("maintenance", maintenance_s, self.maintain_turns),
            self._again_and_again("extraction", extract_s, self.extract),
            self._again_and_again("embedding", catch_up_s, self.embed),
            carry_on_apart(self._database, self._erasure_carrier),
        )

    def _erasure_carrier(self, database: Database) -> ErasureCarrier:
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
        for asking in (self._evaluator, self._extractor, self._vectors):
            if asking is not None:
                await asking.close()
        await super().close()

    async def _again_and_again(self, what: str, every_s: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do some work every so many seconds; not at all where they are 0."""
        while every_s:
            await asyncio.sleep(every_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
            try:
                await work()
            except errors.MyriaError as error:
                logger.warning("%s waits: %s", what, error.message, extra={"action": f"{what}_waits"})
            except Exception:
                logger.exception("%s failed", what, extra={"action": f"{what}_failed"})

    async def consolidate(self) -> int:
        """Consolidate the notes of every tenant that has some due, one run each; return how many were looked at.

        What a run leaves comes with the next: no tenant keeps others waiting for longer than one run.
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

        return await self._each_due("consolidation", run, "consolidation.tenants_due")

    async def maintain_turns(self) -> int:
        """Maintain the sessions of turns that have facts due, of every tenant; return how many facts were looked at.

        A session that somebody else maintains is left to them; what one look leaves comes with the next.
        """

        async def run(tenant: str) -> int:
            looked_at = 0
            for session in await self._turn_maintenance.due(tenant):
                with suppress(errors.TurnBusy):
                    looked_at += await self._turn_maintenance.maintain(tenant, session)
            return looked_at

        await forget_shadows(self._database, self._settings.turns.shadow_keep_s)
        return await self._each_due("maintenance", run, "consolidation.tenants_due")

    async def evaluate(self) -> int:
        """Let the model rate notes of every tenant that has some waiting, one run each; return how many it rated."""
        if self._evaluator is None:
            return 0
        return await self._each_due("evaluation", self._evaluator.run, "evaluations.tenants_due")

    async def extract(self) -> int:
        """Let the model look for facts in turns of every tenant that has some waiting; return in how many it looked."""
        if self._extractor is None:
            return 0
        return await self._each_due("extraction", self._extractor.run, "turns.tenants_awaiting_facts")

    async def embed(self) -> int:
        """Give events of every tenant their vectors, a bounded number each; return how many were looked at."""
        vectors = self._vectors
        if vectors is None:
            return 0

        async def run(tenant: str) -> int:
            try:
                return await vectors.run(tenant, self._settings.embeddings.catch_up_events)
            except errors.ModelFailed as failure:
                logger.warning("vectors wait: %s", failure.message, extra={"action": "vectors_wait", "tenant": tenant})
                return 0

        return await self._each_due("embedding", run, "vectors.tenants_due", vectors.model)

    async def _each_due(
        self, what: str, run: Callable[[str], Awaitable[int]], tenants_due: str, *arguments: str
    ) -> int:
        """Have one run of each tenant that is due; return what they come to. What fails of one tenant waits alone."""
        async with self._database.read(ALL_TENANTS) as connection:
            tenants = [row["tenant_id"] for row in await connection.fetch(sql(tenants_due), *arguments)]
        done = 0
        for tenant in tenants:
            try:
                done += await run(tenant)
            except errors.UnavailableError:
                raise
            except Exception:
                logger.exception("%s failed", what, extra={"action": f"{what}_failed", "tenant": tenant})
        return done

    async def collect(self) -> None:
        """Remove what no kept snapshot reads, of every tenant that has such, and fold the totals."""
        for tenant in await tenants_with_garbage(self._database, self._settings.retention):
            await free_numbers(self._database, tenant)
            await collect_garbage(self._database, tenant, self._settings.retention)
        model = kept_model(self._settings, None if self._vectors is None else self._vectors.model)
        await remove_former(self._database, model, after_s=self._settings.embeddings.keep_former_s)
        works = {Work.VECTORS: self._vectors, Work.RATINGS: self._evaluator, Work.FACTS: self._extractor}
        await waits.forget(self._database, [work for work, who in works.items() if who is None])
        await journal.forget(self._database, self._settings.audit)
        async with self._database.write(ALL_TENANTS) as connection:
            await connection.execute(sql("triggers.fold_totals"))
