"""Places at which a test may stop the operator: before and after each of its writes to the outside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import pytest

from myria_operator.ledger import Ledger
from myria_rebuilds.connection import Connection

API_WRITES: Final = frozenset(
    {
        "patch myriarebuilds/status",
        "create myriarebuilds",
        "delete myriarebuilds",
        "create jobs",
        "patch jobs",
        "delete jobs",
        "create events",
    }
)
"""The operator's writes to the API server, by verb and resource."""
LEDGER_WRITES: Final = frozenset(
    {
        "ask",
        "adopt",
        "suspend_request",
        "suspend_build",
        "close_request",
        "give_up",
        "take_up",
        "note_job",
        "end_build",
        "abort",
        "publish",
        "roll_back",
        "name_resource",
    }
)
"""The methods of its ledger that write."""
LEDGER_READS: Final = frozenset(
    {
        "installation",
        "look",
        "target",
        "scopes_to_build",
        "changed",
        "waiting",
        "unfinished",
        "is_ending",
        "of_name",
        "made",
        "next_to_make",
        "has_waiting",
    }
)


def arm(monkeypatch: pytest.MonkeyPatch, passed: Callable[[str], None]) -> None:
    """Call `passed` with `before:WRITE` and `after:WRITE` around each write; what it raises stops the operator."""
    for name in LEDGER_WRITES:
        write = getattr(Ledger, name)

        def of_ledger(name: str = name, write: Callable[..., Any] = write) -> Callable[..., Any]:
            @functools.wraps(write)
            async def surrounded(*arguments: Any, **options: Any) -> Any:
                passed(f"before:{name}")
                written = await write(*arguments, **options)
                passed(f"after:{name}")
                return written

            return surrounded

        monkeypatch.setattr(Ledger, name, of_ledger())
    ask = Connection._ask

    async def asked(api: Connection, verb: str, resource: str, *arguments: Any, **options: Any) -> Any:
        name = f"{verb} {resource}"
        if name not in API_WRITES:
            return await ask(api, verb, resource, *arguments, **options)
        passed(f"before:{name}")
        answer = await ask(api, verb, resource, *arguments, **options)
        passed(f"after:{name}")
        return answer

    monkeypatch.setattr(Connection, "_ask", asked)
