"""Waiting at the start for a schema that another process brings up to date."""

from __future__ import annotations

import asyncio
import logging
import time

from myria import errors
from myria.db import schema
from myria.db.database import Database

logger = logging.getLogger(__name__)

_POLL_S = 1.0
_TELL_S = 10.0


async def until_current(database: Database, wait_s: float) -> None:
    """Return once the database has this program's schema; only look, never migrate.

    Whatever is missing meanwhile (the database, the schema, the role or its rights) may be on its way and is waited
    for, with a log line every ten seconds.

    Args:
        wait_s: how long, in seconds; 0 looks once.

    Raises:
        SchemaTooNew: at once: this program is older than the database, and waiting would not help.
        SchemaOutdated, DatabaseUnavailable, ConfigurationError: after the wait, what was wrong last.
    """
    began = time.monotonic()
    told_at = float("-inf")
    while True:
        try:
            await schema.check(database)
        except errors.SchemaTooNew:
            raise
        except (errors.UnavailableError, errors.OperationalError) as error:
            now = time.monotonic()
            left = began + wait_s - now
            if left <= 0:
                raise
            if now - told_at >= _TELL_S:
                told_at = now
                logger.info(
                    "waiting up to %.0f s for the database's schema: %s",
                    left,
                    error.message,
                    extra={"action": "schema_awaited", "code": error.code},
                )
            await asyncio.sleep(min(_POLL_S, left))
        else:
            if told_at > float("-inf"):
                logger.info("the database's schema is current", extra={"action": "schema_current"})
            return
