"""Builds back to back by processes of their own, which are killed at random."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import Any

import asyncpg

from myria.log.ids import new_id
from tests.support.postgres import Database
from tests.support.processes import Spawner


class Builds:
    """Builds back to back, each by a process of its own, which is killed at random until that was done often enough."""

    def __init__(self, spawn: Spawner, database: Database, kills: int, rng: random.Random) -> None:
        self._spawn = spawn
        self._database = database
        self._wanted_kills = kills
        self._rng = rng
        self.kills = 0
        self.finished = 0

    async def run(self, writing: list[asyncio.Task[None]]) -> None:
        """Build until the writers are done and the builders were killed often enough."""
        while self.kills < self._wanted_kills or not all(task.done() for task in writing):
            await self.build_once(self._rng, may_kill=True)

    async def build_once(self, rng: random.Random, *, may_kill: bool) -> None:
        """Queue a build, and start builders until it has ended."""
        build_id = new_id("bld")
        connection = await asyncpg.connect(self._database.dsn)
        try:
            await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
            await connection.execute(
                "INSERT INTO myria.builds (tenant_id, build_id, trigger, is_full) VALUES ('default', $1, 'manual', $2)",
                build_id,
                rng.random() < 0.2,
            )
            status = "queued"
            while status in ("queued", "running"):
                await self._run_builder(connection, build_id, kill=may_kill and rng.random() < 0.6, rng=rng)
                status = await connection.fetchval("SELECT status FROM myria.builds WHERE build_id = $1", build_id)
        finally:
            await connection.close()
        self.finished += 1
        assert status in ("succeeded", "nothing_to_do")

    async def _run_builder(self, connection: Any, build_id: str, *, kill: bool, rng: random.Random) -> None:
        environment = {"MYRIA_POSTGRES_DSN": self._database.builder_dsn, "MYRIA_SERVICE_LOG_LEVEL": "warning"}
        builder = self._spawn.myria("build", "--build", build_id, env=environment)
        if kill and self.kills < self._wanted_kills:
            # In a soak run most of its life is starting Python: begin to count once it is at work.
            while builder.process.poll() is None and not await connection.fetchval(
                "SELECT lease_until IS NOT NULL FROM myria.builds WHERE build_id = $1", build_id
            ):
                await asyncio.sleep(0.01)
            await asyncio.sleep(rng.choice((0.0, 0.02, 0.1, 0.3)) * rng.random())
            if builder.process.poll() is None:
                builder.signal(signal.SIGKILL)
                self.kills += 1
        await asyncio.to_thread(builder.wait)
