"""However a test session ends, its server, its programs and its files end with it."""

from __future__ import annotations

import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from myria_embedded.processes import title
from tests.support.processes import Spawner, wait_until

pytestmark = pytest.mark.processes

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SESSION = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = {root!r}
from tests.conftest import *
from tests.clients.conftest import Outside

async def sleep_as_a_client(guardian, tell):
    here = Path.cwd()
    async with Outside(here, Path("/bin/sleep"), here, here, guardian).node_talking("300") as client:
        tell(client._process.pid)
        await asyncio.sleep(300)

def test_forever(guardian, databases, database, spawn, capfd):
    child = spawn("sleep", "300")
    def tell(client):
        with capfd.disabled():
            folders = (databases.folder, databases.server._socket_folder)
            print("running", databases.server.pid, child.pid, client, *folders, flush=True)
    asyncio.run(sleep_as_a_client(guardian, tell))
"""


def is_gone(pid: int) -> bool:
    """Whether the process has ended."""
    return title(pid) is None


def is_removed(folder: Path) -> bool:
    """Whether the folder is no longer there."""
    return not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_session(tmp_path: Path, spawn: Spawner, number: signal.Signals) -> None:
    """After Ctrl-C, and after kill -9, of pytest no process, folder or socket of the session is left."""
    file = tmp_path / "test_forever.py"
    file.write_text(SESSION.format(root=[str(CONFTEST.parents[1])]))
    paths = {"PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)}
    options = ("-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:schemathesis")
    session = spawn.python("-m", "pytest", *options, file, cwd=tmp_path, env=paths)
    found = session.wait_for(r"running (\d+) (\d+) (\d+) (\S+) (\S+)", 180)
    os.killpg(session.pid, number)
    session.wait(120)
    for pid in map(int, found.groups()[:3]):
        wait_until(partial(is_gone, pid), 120, f"the end of {pid}")
    for folder in (Path(found[4]), Path(found[5])):
        wait_until(partial(is_removed, folder), 120, f"the removal of {folder}")
    assert re.fullmatch(r"myria-tests-\w+", Path(found[4]).name)
