"""`myria build`: the build plane, a process of its own for each build; so it imports no more than that."""

from __future__ import annotations

from typing import Annotated

import typer

from myria.db.database import Database
from myria.db.options import build_options
from myria.db.waiting import until_current
from myria_builder import build as work_on
from myria_cli import console, logs
from myria_cli.children import WithParent, stop_with_parent
from myria_cli.options import Options, command
from myria_cli.place import opened

PANEL = "Run"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""

    @command(
        app,
        "build",
        panel=PANEL,
        examples="myria build --tenant default --build bld_0193c1… --processes 2",
    )
    async def build(
        options: Options,
        *,
        build: Annotated[str, typer.Option(metavar="ID", help="The build to work on.")],
        processes: Annotated[
            int | None, typer.Option("--processes", "--workers", min=1, max=64, help="Default: builder.processes.")
        ] = None,
        with_parent: WithParent = False,
    ) -> int:
        """Work on one queued or running build until it has ended: the program of the build plane.

        Any number of these may work on one build, and any may be killed. Exit 0: published, held or
        nothing to do; 4: superseded or aborted; 7: failed.
        """
        if with_parent:
            stop_with_parent()
        settings = options.settings()
        logs.configure(settings.service, "builder", settings.log)
        async with opened(options, settings) as place:
            if settings.migrate.wait_s:
                async with Database(place.building, build_options(settings, size=1)) as database:
                    await until_current(database, settings.migrate.wait_s)
            outcome = await work_on(
                settings, place.building, options.tenant, build, processes=processes or settings.builder.processes
            )
        if options.json:
            console.write_json({"build_id": build, "status": outcome.value})
        return outcome.exit_status
