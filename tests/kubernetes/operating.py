"""A whole installation in a test: a database, the operator as a process under its own identity, a node for its pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import yaml

from tests.kubernetes import manifests
from tests.kubernetes.api import Json, condition
from tests.kubernetes.node import Node
from tests.kubernetes.place import OPERATOR, Place
from tests.support.events import append, conversation
from tests.support.postgres import Database, Databases
from tests.support.processes import Spawned, Spawner

QUICK: Mapping[str, str] = {
    "MYRIA_OPERATOR_SWEEP_S": "2",
    "MYRIA_OPERATOR_POLL_S": "0.3",
    "MYRIA_BUILDER_INACTIVITY_TIMEOUT_S": "0",
    "MYRIA_BUILDER_MAX_UNINDEXED_EVENTS": "0",
    "MYRIA_BUILDER_MIN_INTERVAL_S": "0",
    "MYRIA_BUILDER_TIME_SHARE": "1",
    "MYRIA_BUILDER_LONG_TAIL_TIME_SHARE": "1",
    "MYRIA_BUILDER_TASK_LEASE_S": "3",
    "MYRIA_SERVICE_LOG_FORMAT": "json",
    "MYRIA_OPERATOR_PROBE_PORT": "0",
    "MYRIA_OPERATOR_METRICS_PORT": "0",
}
"""Settings of an operator that has little patience, and whose triggers are off unless a test says otherwise."""


@dataclass(slots=True)
class Installation:
    """One namespace, one database, and as many operators as a test starts."""

    place: Place
    databases: Databases
    database: Database
    node: Node
    spawn: Spawner
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    template: Path = field(init=False)
    operators: list[Spawned] = field(default_factory=list)
    _connection: asyncpg.Connection | None = field(init=False, default=None)
    _asking: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.template = self.folder / "pod-template.yaml"
        self.write_template()
        self.place.secret("myria-postgres", {"builder-dsn": self.database.tcp.builder})

    def write_template(self, change: Callable[[Json], None] = lambda _template: None) -> None:
        """Write the example's pod template, changed."""
        (template,) = manifests.read(manifests.EXAMPLES / "pod-template.yaml")
        change(template)
        self.template.write_text(yaml.safe_dump(template), encoding="utf-8")

    def start(self, *, ready: bool = True, url: str | None = None, **settings: str) -> Spawned:
        """Start an operator; return once it watches."""
        one = self.spawn.myria(
            "operate",
            "--pod-template",
            self.template,
            env={
                **QUICK,
                **self.environment,
                **{f"MYRIA_{name.upper()}": value for name, value in settings.items()},
                "MYRIA_POSTGRES_DSN": self.database.tcp.operator,
                "KUBECONFIG": str(self.place.kubeconfig(OPERATOR, url=url)),
            },
            cwd=self.folder,
        )
        self.operators.append(one)
        if ready:
            one.wait_for('"action": "operator_ready"')
        return one

    def tell(self) -> None:
        """Print everything, for a test that failed."""
        for one in self.operators:
            print(f"--- operator {one.pid}, status {one.process.poll()}\n{one.output()[-6000:]}")
        for name, log in self.node.logs().items():
            print(f"--- pod {name}\n{log[-2000:]}")
        for resource in self.place.rebuilds():
            print(f"--- {resource['metadata']['name']}: {json.dumps(resource.get('status'))}")

    def stop_postgres(self) -> None:
        """Take PostgreSQL away."""
        self.databases.loop.run(self.databases.server.stop())

    def start_postgres(self) -> None:
        """Bring PostgreSQL back, where it was."""
        self.databases.loop.run(self.databases.server.start())
        self.databases._admin = self.databases.loop.run(asyncpg.connect(self.databases.server.dsn))

    @contextmanager
    def without_postgres(self) -> Iterator[None]:
        """Have no PostgreSQL for the block."""
        self.stop_postgres()
        try:
            yield
        finally:
            self.start_postgres()

    def append(self, size: int = 12, *, tenant: str = "default", seed: int = 1, start: int = 0) -> None:
        """Append a conversation."""
        events = conversation(size, seed=seed, start=start)
        self.databases.loop.run(append(self.database.server_dsn, events, tenant=tenant))

    def query(self, statement: str, *arguments: Any) -> list[dict[str, Any]]:
        """Return rows of the database, of every tenant, over a connection that is kept: tests ask many times."""

        async def read() -> list[dict[str, Any]]:
            async with self._asking:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await asyncpg.connect(self.database.superuser_dsn)
                return [dict(row) for row in await self._connection.fetch(statement, *arguments)]

        return self.databases.loop.run(read())

    def close(self) -> None:
        """Kill the operators, so that none looks after what the test leaves, and close the connection."""
        for one in self.operators:
            one.kill()
        if self._connection is not None:
            self.databases.loop.run(self._connection.close())

    def active(self, tenant: str = "default") -> str | None:
        """Return the tenant's active snapshot."""
        rows = self.query("SELECT snapshot_id FROM myria.active_snapshots WHERE tenant_id = $1", tenant)
        return rows[0]["snapshot_id"] if rows else None

    def builds(self) -> list[dict[str, Any]]:
        """Return every build, oldest first."""
        return self.query("SELECT * FROM myria.builds ORDER BY created_at")


def reason(resource: Json, kind: str = "Succeeded") -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = condition(resource, kind)
    return found.get("status", ""), found.get("reason", "")
