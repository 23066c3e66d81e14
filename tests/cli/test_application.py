"""The command line imports what its command needs, and no more."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from myria_cli.app import MODULES
from myria_cli.options import Options, run

HEAVY = ("mcp", "numpy", "myria.memory", "myria_builder", "myria_operator")
"""What neither the help page nor `myria version` has a use for."""

_RUN = """
import sys
from myria_cli.main import main

sys.argv = ["myria", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, sep="\\n")
"""


@pytest.mark.parametrize("arguments", [("version", "--json"), ("--version",), ("--help",), ("build", "--help")])
def test_a_small_command_imports_little(arguments: tuple[str, ...]) -> None:
    """What most commands never use would be most of the time of a short one."""
    command = [sys.executable, "-c", _RUN, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert not set(HEAVY) & set(done.stdout.splitlines()[1:])


def test_up_leaves_the_server_to_its_child() -> None:
    """`myria up` starts the server as a process of its own: to import it here as well would be a third of its start."""
    program = "import sys, myria_cli.local; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert not {"mcp_types", "starlette", "myria.search.searching"} & set(done.stdout.splitlines())


def test_every_command_is_listed_with_its_module() -> None:
    """What a module defines can be called, and nothing else is promised."""
    for module, names in MODULES.items():
        defined = typer.main.get_group(import_module(f"myria_cli.commands.{module}").app)
        assert tuple(defined.commands) == names


def test_cycles_are_collected_again_once_a_command_waits() -> None:
    """The collector is off while a program imports; one that runs for weeks needs it."""

    async def work() -> int:
        await asyncio.sleep(0)
        return int(gc.isenabled())

    gc.disable()
    try:
        assert run(work, Options()) == 1
    finally:
        gc.enable()
