"""What is done with the builds and snapshots of one database: asked for, published, moved back, looked at.

The smallest part of the serving plane: a command that asks for a build imports nothing of what answers questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from myria import errors
from myria.builds.snapshots import Registry
from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria.settings import Settings


class Administration:
    """The builds and snapshots of every tenant of one database.

    Use as an async context manager. Opening never waits for the database: what cannot be reached yet answers
    `database_unavailable` until it can.
    """

    def __init__(self, dsn: str, settings: Settings) -> None:
        self.settings = settings
        reading = pool_options(settings, at_once=settings.retrieval.reads_at_once)
        self.database = Database(dsn, reading, check=schema.check_connection)
        # Readers cannot take these: a slow question must not make appends wait.
        appending = pool_options(settings, size=settings.postgres.append_pool_size)
        self.appending = Database(dsn, appending, check=schema.check_connection)
        self.registry = Registry(self.database, settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.database.close()
        await self.appending.close()

    @property
    def pools(self) -> Mapping[str, Database]:
        """The pools of this process by what they are for."""
        return {"reads": self.database, "appends": self.appending}

    async def ready(self) -> None:
        """Return when the database answers and has this program's schema.

        Raises:
            DatabaseUnavailable, SchemaOutdated, SchemaTooNew, ConfigurationError.
        """
        await schema.check(self.appending)

    async def get_active_snapshot(self, tenant: str) -> dict[str, Any]:
        """Answer the active snapshot's metadata, or null."""
        return await self.registry.active_snapshot(tenant)

    async def list_snapshots(self, tenant: str, *, limit: int, cursor: str | None) -> dict[str, Any]:
        """Answer snapshots, newest first."""
        return await self.registry.list_snapshots(tenant, limit=limit, cursor=cursor)

    async def get_snapshot_status(self, tenant: str) -> dict[str, Any]:
        """Answer how fresh the memory is and what builds are doing."""
        return await self.registry.status(tenant)

    async def trigger_build(
        self,
        tenant: str,
        *,
        full: bool = False,
        hold: bool = False,
        force: bool = False,
        reason: str | None = None,
        actor: str = "mcp",
    ) -> dict[str, Any]:
        """Ask for a build.

        Raises:
            ManualTriggerDisabled: builder.allow_manual_trigger is false.
        """
        if not self.settings.builder.allow_manual_trigger:
            raise errors.ManualTriggerDisabled("manual builds are switched off by builder.allow_manual_trigger")
        return await self.registry.request_build(tenant, full=full, hold=hold, force=force, reason=reason, actor=actor)

    async def publish_snapshot(
        self, tenant: str, snapshot_id: str, *, actor: str = "mcp", reason: str | None = None
    ) -> dict[str, Any]:
        """Publish a held snapshot; see `Registry.publish`."""
        return await self.registry.publish(tenant, snapshot_id, actor=actor, reason=reason)

    async def discard_snapshot(
        self, tenant: str, snapshot_id: str, *, actor: str = "mcp", reason: str | None = None
    ) -> dict[str, Any]:
        """Give up a held snapshot; see `Registry.discard`."""
        return await self.registry.discard(tenant, snapshot_id, actor=actor, reason=reason)

    async def rollback(
        self, tenant: str, to: str | None = None, *, actor: str = "mcp", reason: str | None = None
    ) -> dict[str, Any]:
        """Move the pointer back; see `Registry.rollback`."""
        return await self.registry.rollback(tenant, to, actor=actor, reason=reason)

    async def resume_builds(self, tenant: str) -> dict[str, Any]:
        """End the pause after a rollback; see `Registry.resume`."""
        return await self.registry.resume(tenant)
