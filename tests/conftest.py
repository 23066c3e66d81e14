"""Fixtures of the whole suite: a real PostgreSQL, a database per test, and programs that are sure to end."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# Tests import `tests.support`; with import mode importlib nobody else puts the root on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from myria.index.embeddings import choosing
from tests.support import skips
from tests.support.counts import CHECK, SOAK, examples, left_out
from tests.support.patience import PATIENCE_S, be_patient, end_in_time
from tests.support.postgres import Database, Databases
from tests.support.processes import Guardian, Spawner

if TYPE_CHECKING:
    from myria.access.store import AccessStore
    from myria.memory import Memory
    from tests.kubernetes.control_plane import ControlPlane

# The tests start hundreds of processes. Where the environment forbids bytecode, each would compile all of Myria anew:
# half a second of CPU, and three in every worker for the tests themselves.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What is imported and collected stays until the end: garbage collections that look through it again and again took a
# fifth of all CPU. Collected once, it is exempted (`pytest_collection_finish`).
gc.disable()

# Where sniffio is not installed, httpcore looks for it through the whole path with every request.
if find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

be_patient()

# Tests run without vectors unless they ask for them, in this process and in the programs that it starts: they would
# cost every process a model, and events find one another by meaning at a time that nothing waits for.
os.environ["MYRIA_EMBEDDINGS_MODEL"] = "off"
pytest.MonkeyPatch().setattr(choosing, "installed_weights", lambda: None)

TOGETHER = (
    "tests/install/",
    "tests/kubernetes/",
    "tests/reads/test_plans.py",
    "tests/image/test_image.py",
    "tests/benchmarks/test_parts.py",
)
"""Tests that share something that takes ten seconds to a minute of CPU to make, and of a control plane to keep up."""

# No time limits for single examples: the machine is shared. The same examples each time, but for soak runs: a test
# that fails must fail again. In CI the parent is Hypothesis' own profile for it.
settings.register_profile(
    "myria",
    parent=settings(),
    deadline=None,
    derandomize=not SOAK,
    max_examples=examples(settings().max_examples),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("myria")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run three processes on two cores: many tests wait for servers, controllers and time-outs. A fourth has nothing
    more to wait for, and collects all tests and starts a PostgreSQL like the others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return cores + (cores + 1) // 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a test that waits for ever say where; those that start programs, or have a time-out of their own, may.

    Properties, and modules that do more in a soak run, belong to it: only there is all tried. Who names a test gets all
    of its cases, in `make check` as well.

    Workers steal from the end of what another has left. So what tests share is made by one of them, not by each, where
    these tests come first; and the longest, those on a control plane, begin at once.
    """
    items.sort(key=lambda item: next((at for at, name in enumerate(TOGETHER) if item.nodeid.startswith(name)), 99))
    if CHECK and not any("::" in argument for argument in config.args):
        others = left_out(items)
        config.hook.pytest_deselected(items=others)
        without = set(others)
        items[:] = [item for item in items if item not in without]
    for item in items:
        if SOAK and (is_hypothesis_test(getattr(item, "obj", None)) or _does_more(item)):
            item.add_marker("soak")
        if not any(item.get_closest_marker(name) for name in ("processes", "soak", "timeout")):
            end_in_time(item)


def _does_more(item: pytest.Item) -> bool:
    """Say whether a test's module asks how much runs."""
    module = item.getparent(pytest.Module)
    return module is not None and not {"SOAK", "share"}.isdisjoint(vars(module.obj))


def pytest_collection_finish() -> None:
    """Let garbage collections look at what the tests make alone."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped without need fails."""
    report = yield
    skips.refuse(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell aloud what was not tested: a green run shows nothing of it."""
    skips.tell(terminalreporter)


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """Take back the log handlers of a command that ran in this process: its standard error is gone."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    root.handlers[:] = before


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """A thread that goes on after its test would log into the tests that follow."""
    yield
    for thread in threading.enumerate():
        if thread.name == "erasures":
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the test leaves a thread that carries erasures on"


@pytest.fixture(scope="session")
def guardian() -> Iterator[Guardian]:
    """The process that cleans up should this one be killed."""
    one = Guardian()
    yield one
    one.close()


@pytest.fixture(scope="session")
def databases(guardian: Guardian) -> Iterator[Databases]:
    """The session's server (one per xdist worker): `create()`, `create_empty()`, `drop()`, `fresh()`."""
    one = Databases(guardian)
    yield one
    one.close()


@pytest.fixture(scope="session")
def control_plane(guardian: Guardian) -> Iterator[ControlPlane]:
    """The session's API server, with MyriaRebuild installed. Without one the test is skipped; in CI it fails."""
    from tests.kubernetes.control_plane import ControlPlane, NotBuilt

    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request would bury what a failed test shows
    try:
        one = ControlPlane(guardian)
    except NotBuilt as absent:
        skips.missing(f"no Kubernetes control plane (`make control-plane` builds one): {absent}")
    yield one
    one.close()


@pytest.fixture
def database(databases: Databases) -> Iterator[Database]:
    """A migrated, empty database for one test."""
    with databases.fresh() as one:
        yield one


@pytest.fixture
async def memory(database: Database) -> AsyncIterator[Memory]:
    """A memory with the default settings, as the serving role."""
    from myria.memory import Memory
    from myria.settings import Settings

    async with Memory(database.server_dsn, Settings()) as opened:
        yield opened


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """Where keys are made; there are the tenants `default` and `other`."""
    from tests.support.keys import access_store

    async with access_store(database, "other") as opened:
        yield opened


@pytest.fixture
def spawn(guardian: Guardian) -> Iterator[Spawner]:
    """Start programs: `spawn("psql", ...)` or `spawn.python("-m", ...)`; they end with the test."""
    one = Spawner(guardian)
    yield one
    one.end_all()
