"""Fixtures of releases on a real API server, and a node that runs their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.install.isolation import IsolatedNode
from tests.install.network import NotAllowed, check_allowed
from tests.install.releases import Release, chart_at
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.place import Place
from tests.monitoring.conftest import prometheus
from tests.support.processes import Guardian
from tests.support.skips import not_here

__all__ = ["prometheus"]


@pytest.fixture(scope="session")
def isolation() -> None:
    """Pods can have networks and mounts of their own. Where this machine lets nobody have them the test is skipped."""
    try:
        check_allowed()
    except NotAllowed as absent:
        not_here(f"pods cannot be isolated: {absent}")


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as the tests' API server takes it."""
    return chart_at(tmp_path_factory.mktemp("chart"))


@pytest.fixture
def make_place(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[[], Place]]:
    """Make empty namespaces."""
    made: list[Place] = []

    def make() -> Place:
        made.append(Place(control_plane, tmp_path, accounts=False))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def place(make_place: Callable[[], Place]) -> Place:
    """An empty namespace."""
    return make_place()


@pytest.fixture
def release(place: Place, chart: Path) -> Iterator[Release]:
    """A release in the namespace, not installed yet."""
    one = Release(place, chart)
    yield one
    one.close()


@pytest.fixture
def node(isolation: None, place: Place, guardian: Guardian) -> Iterator[IsolatedNode]:
    """The namespace's node, running; what its pods have printed is shown when the test fails."""
    one = IsolatedNode(place.control_plane, guardian, place.name).start()
    yield one
    for name, log in one.logs().items():
        print(f"--- pod {name}\n{log[-3000:]}")
    one.stop()
