"""Opens one database to administer its builds and snapshots: request, publish, roll back, list.

The smallest part of the serving plane: a command that requests a build imports nothing of what answers questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

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
        # A pool of their own for appends, so that slow questions cannot make them wait.
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
        """The connection pools of this process by their purpose."""
        return {"reads": self.database, "appends": self.appending}

    async def ready(self) -> None:
        """Check that the database answers and has this program's schema.

        Raises:
            DatabaseUnavailable, SchemaOutdated, SchemaTooNew, ConfigurationError.
        """
        await schema.check(self.appending)
