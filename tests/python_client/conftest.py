"""Both clients of the package against a real server, called alike."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from myria_client import AsyncClient, Client
from tests.server.conftest import memory, patient_looks, served, settings
from tests.server.wire import Served
from tests.support.patience import PATIENCE_S

__all__ = ["memory", "patient_looks", "served", "settings"]


async def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what a method of either client returns; all of it where it yields."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments, **named)

    def run() -> Any:
        result = function(*arguments, **named)
        return list(result) if isinstance(result, Iterator) else result

    result = await asyncio.to_thread(run)
    return [one async for one in result] if isinstance(result, AsyncIterator) else result


@pytest.fixture(params=["waiting", "awaited"])
async def client(request: pytest.FixtureRequest, served: Served) -> AsyncIterator[Any]:
    """Each of the clients in turn."""
    url = f"http://127.0.0.1:{served.port}"
    if request.param == "waiting":
        with Client(url, timeout_s=PATIENCE_S) as waiting:
            yield waiting
    else:
        async with AsyncClient(url, timeout_s=PATIENCE_S) as awaited:
            yield awaited
