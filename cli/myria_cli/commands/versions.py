"""`myria version`: what this program is. It imports little, since it is asked before everything else."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import typer

from myria.versions import PLANNER_VERSION, RANKING_VERSION, SEARCH_VERSION
from myria_cli import console
from myria_cli.options import Options, command
from myria_migrations import migrations

PANEL = "Keep it well"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""

    @command(app, "version", panel=PANEL, examples="myria version --json")
    async def version(options: Options) -> None:
        """Say which versions this is: program, schema, planner, search blocks, ranking, Python."""
        versions: dict[str, Any] = {
            "myria": metadata.version("myria"),
            "schema": migrations()[-1].version,
            "planner": PLANNER_VERSION,
            "search": SEARCH_VERSION,
            "ranking": RANKING_VERSION,
            "python": platform.python_version(),
        }
        if options.json:
            console.write_json(versions)
        else:
            console.out().print(f"myria {versions['myria']}")
            console.say(
                f"schema {versions['schema']}, planner {versions['planner']}, search {versions['search']}, "
                f"ranking {versions['ranking']}, Python {versions['python']}",
                "dim",
            )
