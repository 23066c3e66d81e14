"""The pages for who runs a memory: how it does, its settings in force, and who administered what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from myria.access import journal
from myria.db.clock import rfc3339_of
from myria.db.queries import sql
from myria.errors import MyriaError
from myria.memory import Memory
from myria.settings import Settings
from myria_server.console.desk import Desk, Json
from myria_server.console.fields import number_of

_PAGE = 50
_EXPORTED_AT_ONCE = 500
_SECRET_SETTINGS = ("postgres.dsn",)
"""Settings whose values may hold a password, so that no page shows them."""


class OperationsPages:
    """The pages, for administrators alone."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self._memory = memory
        self._settings = settings

    async def overview(self, desk: Desk, _request: Request) -> tuple[str, Mapping[str, Any]]:
        """Show how the parts do, what the tenant uses, and the settings in force."""
        desk.principal.need_api("admin")
        memory, tenant = self._memory, desk.principal.tenant
        problem: MyriaError | None = None
        try:
            await memory.ready()
        except MyriaError as error:
            problem = error
        status: Json | None = None
        tenant_uses: Json | None = None
        if problem is None:
            status = await desk.call("get_snapshot_status")
            async with memory.database.read(tenant) as connection:
                row = await connection.fetchrow(sql("access.tenant_in_use"), tenant)
            tenant_uses = None if row is None else self._with_defaults(dict(row))
        return "operations.html", {
            "version": version("myria"),
            "problem": problem,
            "status": status,
            "tenant": tenant_uses,
            "embeddings": memory.embeddings,
            "settings": self._settings_in_force(),
        }

    async def audit(self, desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
        """Show who administered what, and which attempts were refused."""
        desk.principal.need_api("admin")
        sought = request.query_params.get("q", "").strip().replace("\0", "")
        before = number_of(request.query_params.get("before"), default=0)
        entries = await self._entries(desk, sought, before if type(before) is int and before else None, _PAGE + 1)
        return "audit.html", {
            "entries": entries[:_PAGE],
            "sought": sought,
            "next_before": entries[_PAGE - 1]["entry_id"] if len(entries) > _PAGE else None,
            "has_proof": desk.principal.proof is not None,
        }

    async def export(self, desk: Desk, request: Request) -> Response:
        """Send all entries that hold a text, as JSON lines, newest first."""
        desk.principal.need_api("admin")
        sought = request.query_params.get("q", "").strip().replace("\0", "")

        async def lines() -> AsyncIterator[bytes]:
            before: int | None = None
            while entries := await self._entries(desk, sought, before, _EXPORTED_AT_ONCE):
                for entry in entries:
                    yield orjson.dumps(entry, default=str) + b"\n"
                before = entries[-1]["entry_id"]

        headers = {"content-disposition": 'attachment; filename="audit.jsonl"'}
        return StreamingResponse(lines(), media_type="application/jsonl", headers=headers)

    async def _entries(self, desk: Desk, sought: str, before: int | None, limit: int) -> list[Json]:
        if desk.principal.proof is None:
            return []
        return await journal.entries_for(
            self._memory.appending, desk.principal.proof, sought=sought, before=before, limit=limit
        )

    def _with_defaults(self, tenant: Json) -> Json:
        """Return what a tenant uses and may: where its row does not say, the settings do."""
        defaults = {
            "events_per_s": self._settings.auth.tenant_events_per_s,
            "bytes_stored": self._settings.auth.tenant_bytes_stored,
            "model_tokens_per_day": self._settings.llm.tenant_tokens_per_day,
        }
        limits = {name: default if tenant[name] is None else tenant[name] for name, default in defaults.items()}
        return {**tenant, **limits, "created_at": rfc3339_of(tenant["created_at"])}

    def _settings_in_force(self) -> list[Json]:
        """Return every setting with its value, and whether that is the default; those that were changed come first."""
        shown = []
        for setting in Settings.describe():
            value = self._settings.get(setting.key)
            is_secret = setting.key in _SECRET_SETTINGS
            shown.append(
                {
                    "key": setting.key,
                    "variable": setting.variable,
                    "value": "(not shown)" if is_secret and value else value,
                    "is_default": value == setting.default,
                    "doc": setting.doc,
                }
            )
        return sorted(shown, key=lambda setting: setting["is_default"])
