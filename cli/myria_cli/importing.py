"""What `myria import` does with events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from myria.db.database import Database
from myria.db.queries import sql
from myria.log import transfer
from myria.log.limits import Limits
from myria.log.redaction.redactor import PayloadRedactor
from myria.notes.folding import event_log
from myria.settings import Settings
from myria.settings.redaction_kinds import Kind
from myria_cli import console
from myria_cli.options import Options
from myria_cli.refusals import Refusals


async def import_events(
    options: Options,
    settings: Settings,
    database: Database,
    source: IO[bytes],
    *,
    size: int | None,
    limits: Limits,
    ignore: tuple[str, ...],
    dry_run: bool,
    refused: Refusals,
) -> transfer.ImportCount:
    """Append the events of JSON lines."""
    ingest = event_log(database, deadline=settings.mcp.append_deadline_s)
    with console.meter("importing bytes", size, quiet=options.json) as progress:
        try:
            return await transfer.import_lines(
                ingest,
                options.tenant,
                transfer.read_lines(source.readline, transfer.longest_line(limits)),
                limits,
                ignore=ignore,
                redactor=await redactor_of(settings, database, options.tenant),
                dry_run=dry_run,
                on_refused=refused,
                on_progress=lambda count: progress.advance(
                    count.bytes_read, what=f"{count.imported:,} events imported"
                ),
            )
        finally:
            await ingest.close()


async def redactor_of(
    settings: Settings, database: Database, tenant: str, *, beside: Sequence[Kind] = ()
) -> PayloadRedactor:
    """Return what takes out of an import's lines what the tenant, or else the settings, do not want kept."""
    async with database.read(tenant) as connection:
        kinds = await connection.fetchval(sql("access.redaction"), tenant)
    chosen = settings.redaction.kinds if kinds is None else kinds
    return PayloadRedactor({*chosen, *beside}, settings.redaction.phone_regions)
