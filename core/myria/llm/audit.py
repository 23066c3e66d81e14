"""The audit of every request to a provider: who asked, under which mask, its texts, tools, tokens and cost."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from myria.db.clock import rfc3339_of
from myria.db.database import Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import MyriaError
from myria.llm.client import Attempt
from myria.llm.secrets import Redactor
from myria.log.ids import new_id

Json = dict[str, Any]
Workflow = Literal["build", "walk", "evaluate", "extract", "look"]
Detail = Literal["full", "hashed", "off"]

logger = logging.getLogger(__name__)

_MESSAGE_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The work that a call belongs to; `participants` and `scopes` are those of the masks in force."""

    workflow: Workflow
    participants: tuple[str, ...]
    scopes: tuple[int, ...]
    build_id: str | None = None
    scope_id: int | None = None
    unit: bytes | None = None
    request_id: str | None = None


@dataclass(slots=True, kw_only=True)
class _Call:
    call_id: str
    round: int
    attempt: Attempt
    prompt: str
    outcome: str
    message: str
    tools: list[Json] = field(default_factory=list)


class Recorder:
    """Collects the calls of one workflow until they are written; `detail` says how much of their text is stored."""

    def __init__(self, origin: Origin, *, model: str, structure: str, detail: Detail, redactor: Redactor) -> None:
        self._origin = origin
        self._model = model
        self._structure = structure
        self._detail: Detail = detail
        self._redactor = redactor
        self._calls: list[_Call] = []

    def call(self, round_: int, attempt: Attempt, new_messages: Sequence[Json]) -> None:
        """Record one request: its outcome, and the messages that are new since the previous request."""
        self._calls.append(
            _Call(
                call_id=new_id("call"),
                round=round_,
                attempt=attempt,
                prompt=orjson.dumps(list(new_messages)).decode(),
                outcome=attempt.outcome,
                message=attempt.message,
            )
        )

    def refused(self, kind: str, message: str) -> None:
        """Record that the latest reply could not be used."""
        if self._calls:
            self._calls[-1].outcome, self._calls[-1].message = kind, message

    def tool(self, name: str, arguments: str, *, size: int, statements: Sequence[str], outcome: str = "ok") -> None:
        """Record a tool that the latest reply called."""
        if not self._calls:
            return
        shown_arguments = {"arguments": self._safe_text(arguments)} if self._detail == "full" else {}
        if self._detail == "hashed":
            shown_arguments = {"arguments_sha256": hashlib.sha256(arguments.encode()).hexdigest()}
        self._calls[-1].tools.append(
            {
                "name": self._safe_text(name[:100]),
                **shown_arguments,
                "bytes": size,
                "sql": list(statements),
                "outcome": outcome,
            }
        )

    async def write(self, database: Database, tenant: str) -> None:
        """Write the collected calls and clear them. If that fails, the log says so; the workflow goes on."""
        calls, self._calls = self._calls, []
        if not calls:
            return
        try:
            async with database.write(tenant) as connection:
                await connection.execute(sql("llm.share_audit_lock"), lock_key("audit", tenant))
                await connection.executemany(sql("llm.write_call"), [self._row(tenant, call) for call in calls])
        except MyriaError as error:
            logger.warning(
                "%d calls to a model are missing in the audit: %s",
                len(calls),
                error.message,
                extra={"action": "audit_lost", "tenant": tenant},
            )

    def _row(self, tenant: str, call: _Call) -> tuple[Any, ...]:
        """Return the arguments of `llm.write_call`; prompt and reply each give text, digest and size."""
        origin, attempt = self._origin, call.attempt
        reply = attempt.reply.decode("utf-8", "replace")
        texts: list[Any] = []
        for text in (call.prompt, reply):
            raw = text.encode("utf-8", "replace")
            texts += [
                self._safe_text(text) if self._detail == "full" else None,
                hashlib.sha256(raw).digest() if self._detail != "off" else None,
                len(raw),
            ]
        return (
            tenant,
            call.call_id,
            origin.workflow,
            origin.build_id,
            origin.scope_id,
            origin.unit,
            origin.request_id,
            call.round,
            attempt.number,
            list(origin.participants),
            list(origin.scopes),
            self._model,
            self._structure,
            *texts,
            orjson.dumps(call.tools).decode(),
            attempt.input_tokens,
            attempt.output_tokens,
            attempt.cost,
            attempt.latency_ms,
            call.outcome,
            self._safe_text(call.message)[:_MESSAGE_CHARACTERS] or None,
        )

    def _safe_text(self, text: str) -> str:
        """Return text without secrets, and without characters that PostgreSQL cannot store."""
        return self._redactor.text(text).replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


class LateAudit:
    """Writes recorded calls in the background, so that answers do not wait for it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing: set[asyncio.Task[None]] = set()

    def write(self, recorder: Recorder, tenant: str) -> None:
        """Start writing the calls of a recorder."""
        task = asyncio.create_task(recorder.write(self._database, tenant))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def settle(self) -> None:
        """Wait until each call so far is in the audit, or could not be written."""
        while self._writing:
            await asyncio.gather(*self._writing, return_exceptions=True)


async def recorded_calls(
    database: Database, tenant: str, *, build_id: str | None, workflow: str | None, failed: bool, limit: int
) -> list[Json]:
    """Return the newest calls of a tenant for display; None for a build or workflow means any.

    Args:
        failed: only calls whose reply could not be used.
    """
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("llm.calls"), tenant, build_id, workflow, failed, limit)
    digests = ("unit", "prompt_sha256", "reply_sha256")
    return [
        {
            **dict(row),
            **{name: None if row[name] is None else row[name].hex() for name in digests},
            "mask": list(row["mask"]),
            "mask_scopes": list(row["mask_scopes"]),
            "tools": orjson.loads(row["tools"]),
            "created_at": rfc3339_of(row["created_at"]),
        }
        for row in rows
    ]


async def spent_by_build(database: Database, tenant: str, build_id: str) -> list[Json]:
    """Return what a build asked of models, as far as its calls are kept: by work and model, the most calls first.

    Each has its `calls`, how many of them `failed`, tokens, and `cost_microusd` (millionths of a dollar).
    """
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("llm.spent_by_build"), tenant, build_id)
    return [dict(row) for row in rows]
