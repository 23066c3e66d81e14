"""What `myria export` writes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from myria.db.database import Database
from myria.errors import InvalidArgument
from myria.log import transfer
from myria.settings.files import written_whole
from myria_cli import console


async def write_export(database: Database, tenant: str, file: str, *, withdrawn: bool = False) -> int:
    """Write every event of a tenant as JSON lines to a file, or - for standard output; return how many.

    Args:
        withdrawn: also what was withdrawn, and the withdrawals.

    Raises:
        InvalidArgument: the file cannot be written.
    """
    bound = await transfer.export_bound(database, tenant)
    total = await transfer.count_events(database, tenant, bound, withdrawn=withdrawn)
    written = 0
    with _output(file) as target, console.meter("exporting events", total, quiet=file == "-") as progress:
        async for page in transfer.export_pages(database, tenant, bound, withdrawn=withdrawn):
            await asyncio.to_thread(target.write, page.text)
            written += page.events
            progress.advance(written)
        target.flush()
    return written


@contextmanager
def _output(file: str) -> Iterator[IO[bytes]]:
    """Open an export's target for the block; a regular file gets its name only once it is complete."""
    if file == "-":
        yield sys.stdout.buffer
        return
    target = Path(file).resolve()
    try:
        with target.open("wb") if target.exists() and not target.is_file() else written_whole(target) as stream:
            yield stream
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be written: {error.strerror}", field="file") from error
