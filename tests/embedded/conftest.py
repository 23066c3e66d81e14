"""A place for a data directory, and what a server in it may have left behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from myria_embedded import EmbeddedPostgres
from myria_embedded.account import give, server_account
from myria_embedded.processes import cluster_tag, end_remains
from tests.support.place import throw_away_folder
from tests.support.postgres import LoopThread
from tests.support.processes import Guardian, Spawned, Spawner

HOLD = Path(__file__).with_name("hold.py")


@pytest.fixture(scope="session")
def pristine(guardian: Guardian) -> Iterator[Path]:
    """A data directory whose database was just created: copying it is quicker than creating another."""
    with throw_away_folder(guardian) as folder:

        async def create() -> None:
            async with EmbeddedPostgres(folder / "data", settings={"fsync": "off"}):
                pass

        thread = LoopThread()
        thread.run(create())
        thread.close()
        yield folder / "data"


@pytest.fixture
def data_dir(new_dir: Path, pristine: Path) -> Path:
    """A data directory with an empty database and no server, as if its last user had just left."""
    shutil.copytree(pristine, new_dir, ignore=shutil.ignore_patterns("*.lock"))
    (new_dir / "managed").unlink()
    account = server_account(pristine / "postgres")
    give(new_dir / "postgres", account)
    return new_dir


@pytest.fixture
def new_dir(guardian: Guardian) -> Iterator[Path]:
    """A data directory that does not exist yet, in a private folder; its server is ended with the test."""
    with throw_away_folder(guardian) as folder:
        path = folder / "data"
        yield path
        if (path / "postgres").is_dir():
            end_remains(path / "postgres")
            for sockets in Path(tempfile.gettempdir()).glob(f"{cluster_tag(path / 'postgres')}*"):
                shutil.rmtree(sockets)


@pytest.fixture
def hold(spawn: Spawner) -> Callable[..., Spawned]:
    """Start `hold.py` on a data directory, in a process of its own."""

    def start(data_dir: Path, *flags: str) -> Spawned:
        return spawn.python(HOLD, data_dir, "fast", *flags)

    return start
