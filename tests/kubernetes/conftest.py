"""Fixtures on a real control plane: a namespace per test, a node on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.instant import play_pods
from tests.kubernetes.node import Node
from tests.kubernetes.operating import Installation
from tests.kubernetes.place import Place
from tests.kubernetes.processes import Processes
from tests.support.postgres import Database, Databases
from tests.support.processes import Guardian, Spawner


@pytest.fixture
def place(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Place]:
    """A namespace of its own for one test, with the project's RBAC."""
    one = Place(control_plane, tmp_path)
    yield one
    one.close()


@pytest.fixture
def start_node(place: Place, guardian: Guardian) -> Iterator[Callable[..., Node]]:
    """Start the namespace's node: `start_node(environment={...}, slots=4)`; it stops with the test."""
    started: list[Node] = []

    def start(*, environment: Mapping[str, str] | None = None, slots: int = 16) -> Node:
        one = Node(place.control_plane, guardian, place.name, Processes, environment=environment, slots=slots)
        started.append(one)
        return one.start()

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def node(start_node: Callable[..., Node]) -> Node:
    """The namespace's node, running."""
    return start_node()


@pytest.fixture
def installation(  # noqa: PLR0917 - fixtures
    place: Place,
    databases: Databases,
    database: Database,
    start_node: Callable[..., Node],
    spawn: Spawner,
    tmp_path: Path,
) -> Iterator[Installation]:
    """A namespace, a database, and a node whose pods this process plays (instant.py); no operator yet."""
    one = Installation(
        place=place, databases=databases, database=database, node=start_node(), spawn=spawn, folder=tmp_path
    )
    play_pods(one)
    yield one
    one.tell()  # shown only when the test failed
    one.close()
