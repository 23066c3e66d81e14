"""The configured model of one process: its provider and its limits."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from myria.access.vault import Secrets
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import ModelFailed
from myria.llm.audit import Origin, Recorder
from myria.llm.budget import Budget, Meter
from myria.llm.client import Provider
from myria.llm.conversation import Conversation, ModelTool
from myria.llm.template import RequestTemplate
from myria.llm.wire import CHAT_COMPLETIONS, Dialect
from myria.settings import LlmSettings

_MILLION = 1_000_000
_LONGEST_RUN_S = 3600.0


class LanguageModel:
    """The language model that all workflows of a process use."""

    def __init__(self, template: RequestTemplate, settings: LlmSettings, dialect: Dialect = CHAT_COMPLETIONS) -> None:
        self.settings = settings
        self.provider = Provider(template, settings, dialect)

    @classmethod
    def configured(
        cls, settings: LlmSettings, environ: Mapping[str, str] | None = None, *, secrets: Secrets | None = None
    ) -> LanguageModel | None:
        """Return the model that the settings configure; None if they name no template.

        Args:
            secrets: the secrets that the template may refer to; None for none.

        Raises:
            ConfigurationError: the template cannot be used.
        """
        if settings.template is None:
            return None
        environ = os.environ if environ is None else environ
        return cls(RequestTemplate.load(settings.template, environ, secrets=secrets), settings)

    @property
    def name(self) -> str:
        """The model's name in the template."""
        return self.provider.template.model

    async def close(self) -> None:
        """Close the connections."""
        await self.provider.close()

    def task_meter(self, *, most_s: float = math.inf) -> Meter:
        """Return the meter of one build task."""
        settings = self.settings
        return Meter(
            Budget(
                rounds=None,
                calls=settings.task_calls,
                tokens=settings.task_tokens,
                bytes=settings.task_bytes,
                seconds=min(settings.task_deadline_s, most_s),
                cost=round(settings.task_usd * _MILLION),
            )
        )

    def background_meter(self) -> Meter:
        """Return the meter of background work of a tenant: a build task's, but limited to an hour.

        The hour keeps a run within the audit's reach: it withholds what was withdrawn up to two hours before a call was
        written down.
        """
        return self.task_meter(most_s=_LONGEST_RUN_S)

    def walk_meter(self, *, rounds: int | None = None, seconds: float | None = None) -> Meter:
        """Return the meter of one walk, or of what has a walk's budget but its own rounds and seconds."""
        settings = self.settings
        rounds = settings.walk_rounds if rounds is None else rounds
        return Meter(
            Budget(
                rounds=rounds,
                calls=rounds * (1 + settings.retries),
                tokens=settings.walk_tokens,
                bytes=settings.walk_bytes,
                seconds=settings.walk_deadline_s if seconds is None else seconds,
                cost=round(settings.walk_usd * _MILLION),
            )
        )

    async def refusal(self, database: Database, tenant: str, meter: Meter) -> ModelFailed | None:
        """Return why a tenant's workflow may not ask now; None if it may. Sets the meter's limit for the tenant.

        Requests under way, here or elsewhere, are not counted yet.

        Raises:
            DatabaseUnavailable: it is unknown how many tokens the tenant has used today.
        """
        tokens_allowed = self.settings.tenant_tokens_per_day
        async with database.read(tenant) as connection:
            row = await connection.fetchrow(sql("access.model_tokens"), tenant)
        if row is not None:
            tokens_allowed = tokens_allowed if row["most"] is None else row["most"]
            tokens_allowed = None if tokens_allowed is None else max(0, tokens_allowed - row["used"])
        meter.allow(tokens_allowed)
        return meter.used_up() or self.provider.refusal

    def recorder(self, origin: Origin) -> Recorder:
        """Return a recorder that keeps the calls of one workflow for the audit."""
        return Recorder(
            origin,
            model=self.name,
            structure=self.settings.structure,
            detail=self.settings.audit,
            redactor=self.provider.redactor,
        )

    def conversation(
        self,
        *,
        instructions: str,
        tools: Sequence[ModelTool],
        meter: Meter,
        recorder: Recorder,
        repairs: int | None = None,
    ) -> Conversation:
        """Return a new conversation, without any request sent yet; `repairs` are those of the settings by default."""
        return Conversation(
            self.provider,
            structure=self.settings.structure,
            instructions=instructions,
            tools=tools,
            repairs=self.settings.repairs if repairs is None else repairs,
            meter=meter,
            recorder=recorder,
        )
