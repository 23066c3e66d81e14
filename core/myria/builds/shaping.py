"""Brings a language model into a build; without a model and stored plans, none of its code is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from myria.access.vault import opened_secrets
from myria.builds.model import RunningBuild, Task
from myria.db.database import Database
from myria.settings import Settings
from myria.settings.planner import PlannerSettings

if TYPE_CHECKING:
    from myria.llm.builder import UnitPlanner
    from myria.llm.model import LanguageModel
else:
    LanguageModel = UnitPlanner = object

__all__ = ["LanguageModel", "asked_model", "unit_planner"]


@asynccontextmanager
async def asked_model(settings: Settings) -> AsyncIterator[LanguageModel | None]:
    """Lend the configured model, None where none is configured or builds do not ask it.

    Raises:
        ConfigurationError: the request template cannot be used, or a secret cannot be opened.
    """
    secrets = opened_secrets(settings.secrets)
    if settings.llm.template is None or not settings.llm.build:
        yield None
        return
    from myria.llm.model import LanguageModel as Configured  # noqa: PLC0415 - only where a model is asked

    model = Configured.configured(settings.llm, secrets=secrets)
    try:
        yield model
    finally:
        if model is not None:
            await model.close()


def unit_planner(
    database: Database,
    build: RunningBuild,
    task: Task,
    settings: PlannerSettings,
    *,
    model: LanguageModel | None,
    counts: Counter[str],
) -> UnitPlanner | None:
    """Return what shapes the units of a task; None where there is neither a model nor one of its plans."""
    if model is None and not task.has_plans:
        return None
    from myria.llm.builder import ScopeTask, UnitPlanner  # noqa: PLC0415 - only where a model is asked

    job = ScopeTask(
        tenant=build.tenant,
        build_id=build.build_id,
        cutoff=build.cutoff,
        scope_id=task.scope_id,
        participants=task.participants,
        has_plans=task.has_plans,
    )
    return UnitPlanner(database, job, settings, model=model, counts=counts)
