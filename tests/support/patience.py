"""How long a test waits for a condition before it fails.

A wait costs nothing when the condition comes, so this is far more than a slow machine with other work needs. A test
that means "within five seconds" counts something else than seconds.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from myria.db.database import PoolOptions, TransactionBounds
from myria.log.group_commit import GroupCommit
from myria.settings import McpSettings, PostgresSettings, TurnsSettings, variable_of
from myria.settings.sections import Section

PATIENCE_S = 240.0


async def until(condition: Callable[[], object], what: str) -> None:
    """Return once `condition()` is true; fail the test when it has not come true within PATIENCE_S seconds.

    Args:
        what: the condition in words, for the failure.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {PATIENCE_S} s") from None


ENDLESS_S = 300.0
"""How long a test that starts no programs may take: 20 times what the slowest of them does on a machine of its own."""


def end_in_time(item: pytest.Item) -> None:
    """Let an asynchronous test fail after ENDLESS_S seconds, with the place in which it waits, instead of hanging."""
    if not isinstance(item, pytest.Function) or not inspect.iscoroutinefunction(item.obj):
        return
    test = item.obj

    @functools.wraps(test)
    async def ending(*arguments: Any, **named: Any) -> None:
        try:
            async with asyncio.timeout(ENDLESS_S) as limit:
                await test(*arguments, **named)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AssertionError(f"what it waits for above has not come within {ENDLESS_S:g} s") from error

    item.obj = ending


OF_MYRIA_S = 120.0
"""How long Myria waits in tests, by default, where a deployment gives up after 5 to 30 seconds: a machine that stands
still for a quarter of a minute is no fault. Half of PATIENCE_S, so that what hangs still ends in Myria's own error."""

_LONGER: dict[type, dict[str, float]] = {
    McpSettings: {"request_deadline_s": OF_MYRIA_S, "append_deadline_s": OF_MYRIA_S},
    PostgresSettings: {
        "connect_timeout_s": OF_MYRIA_S,
        "statement_timeout_s": OF_MYRIA_S,
        "idle_timeout_s": OF_MYRIA_S,
        "lock_timeout_s": OF_MYRIA_S,
    },
    TurnsSettings: {"session_lock_timeout_ms": 60_000},  # the most that it takes
    TransactionBounds: {"statement": OF_MYRIA_S, "idle": OF_MYRIA_S, "lock": OF_MYRIA_S, "total": 4 * OF_MYRIA_S},
    GroupCommit: {"deadline": OF_MYRIA_S},
    PoolOptions: {"connect_timeout": OF_MYRIA_S, "acquire_timeout": OF_MYRIA_S},
}


def be_patient() -> None:
    """Give this process, and the programs that it starts, those longer bounds; a test that sets one itself has its own.
    In this process an erasure does not rest: nobody else uses the memory of a test.

    tests/settings compares the defaults with docs/settings.md, in a process without this.
    """
    from myria.access import grants, key_cache
    from myria.erasure import pace
    from myria_server.http import keysets, oauth_client

    for made, longer in _LONGER.items():
        _let_default(made, longer)
        if issubclass(made, Section):
            for name, value in longer.items():
                os.environ.setdefault(variable_of(f"{made.section_name}.{name}"), str(value))
    _let_default(PoolOptions, {"bounds": TransactionBounds()})
    for module, name, value in (
        (grants, "_STATEMENT_S", OF_MYRIA_S),
        (key_cache, "_STATEMENT_S", OF_MYRIA_S),
        (keysets, "FETCH_S", OF_MYRIA_S),
        (oauth_client, "ANSWER_S", OF_MYRIA_S),
        (pace, "REST_RATIO", 0.0),
    ):
        assert hasattr(module, name)
        setattr(module, name, value)


def _let_default(made: type, longer: Mapping[str, Any]) -> None:
    initialize = made.__init__  # type: ignore[misc]

    @functools.wraps(initialize)
    def patiently(self: object, *arguments: Any, **named: Any) -> None:
        initialize(self, *arguments, **{**longer, **named})

    made.__init__ = patiently  # type: ignore[misc]
