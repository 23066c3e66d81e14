"""The operator inside a test's own process, where it can be stopped at any line, or made slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from myria.db.database import Database as Pool
from myria.errors import ClusterUnavailable
from myria.settings import Settings
from myria_operator.app import Operator
from myria_operator.observed import MANAGER
from myria_operator.reconcile import AT_ONCE, Reconciler
from myria_rebuilds.connection import Connection, configuration
from tests.kubernetes.operating import Installation
from tests.kubernetes.place import OPERATOR
from tests.support import builds
from tests.support.patience import PATIENCE_S

QUICK = builds.settings(
    builder={"inactivity_timeout_s": 0, "max_unindexed_events": 0, "poll_s": 0.1, "task_lease_s": 3.0},
    operator={"sweep_s": 0.5, "poll_s": 0.1, "keep_succeeded": 0},
)


class Stopped(BaseException):
    """The operator ends here, as if killed."""


@asynccontextmanager
async def parts(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, settings: Settings = QUICK
) -> AsyncIterator[Operator]:
    """An operator of this process, without watches, whose parts the test drives."""
    monkeypatch.setenv("KUBECONFIG", str(installation.place.kubeconfig(OPERATOR)))
    configured, namespace = await configuration()
    async with Connection(configured, namespace, MANAGER) as api, Pool(installation.database.operator_dsn) as pool:
        yield Operator(api, pool, settings, installation.template)


@asynccontextmanager
async def operator(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, settings: Settings = QUICK
) -> AsyncIterator[asyncio.Task[None]]:
    """An operator of this process, without watches: its sweep, twice a second, finds what there is to do."""
    async with parts(installation, monkeypatch, settings) as one:
        task = asyncio.create_task(one.run())
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup, Stopped):
                await task


async def settle(reconciler: Reconciler, name: str) -> float | None:
    """Reconcile a resource until nothing is to be done at once, as the queue would; return when to look again."""
    while True:
        try:
            if (again := await reconciler.reconcile(name)) != AT_ONCE:
                return again
        except ClusterUnavailable as conflict:
            if conflict.details.get("status") != 409:
                raise


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition, looking at it in a thread: it may ask the API server, over a connection that breaks."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if await asyncio.to_thread(condition):
                    return
            await asyncio.sleep(0.1)
