"""Pods without the start of a Python: their build runs in the test's own process, and their command is `true`."""

from __future__ import annotations

from myria.builds.run import run_build
from myria.settings import Settings
from tests.kubernetes.api import Json
from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation
from tests.support.counts import SOAK


def play_pods(installation: Installation, *, always: bool = False) -> None:
    """Let this process do what pods do, before they start; in soak runs pods do it, but for `always`."""
    if SOAK and not always:
        installation.node.rewrites = as_written
        return

    def build(_pod: Json, command: list[str]) -> list[str]:
        tenant, build_id = (command[command.index(option) + 1] for option in ("--tenant", "--build"))
        installation.databases.loop.run(run_build(Settings(), installation.database.builder_dsn, tenant, build_id))
        return ["/bin/true"]

    installation.node.rewrites = build
