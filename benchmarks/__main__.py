"""Measure everything: appends, reads, builds, and what they stand beside.

By default small and quick: 10,000 events, a few rounds, some two minutes. `--full` (or FULL=1) takes every size and
round that docs/benchmarks.md quotes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from benchmarks import (
    appends,
    attacks,
    auth,
    builds,
    erasing,
    hostile,
    many_scopes,
    memories,
    noisy,
    reads,
    remembering,
    sharing,
    turns,
)
from benchmarks.options import common, parser, run
from myria_cli import console

PARTS = (
    appends.PART,
    reads.PART,
    many_scopes.PART,
    builds.PART,
    sharing.PART,
    hostile.PART,
    auth.PART,
    noisy.PART,
    attacks.PART,
    remembering.PART,
    memories.PART,
    erasing.PART,
    turns.PART,
)


def main() -> None:
    """Run the parts one after the other; exit 1 when a promise is broken."""
    options = parser(__doc__)
    options.add_argument("--only", action="append", choices=PARTS, help="this part alone; repeat for several")
    given = options.parse_args()
    shared = common(given)
    chosen = given.only or PARTS
    full = shared.full
    parts: dict[str, Callable[[], Awaitable[int]]] = {
        appends.PART: lambda: appends.measure(
            shared, rounds=5 if full else 3, seconds=10.0 if full else 4.0, pool=appends.CONNECTIONS, sdk=full
        ),
        reads.PART: lambda: reads.measure(
            shared, rounds=5 if full else 2, requests=reads.FEWEST_REQUESTS if full else 500
        ),
        many_scopes.PART: lambda: many_scopes.measure(
            shared,
            scopes=many_scopes.SCOPES if full else many_scopes.SMALL_SCOPES,
            each=many_scopes.EVENTS_EACH,
            rounds=5 if full else 2,
            requests=200 if full else 50,
            seconds=10.0 if full else 3.0,
        ),
        builds.PART: lambda: builds.measure(
            shared, rounds=5 if full else 2, one_scope=builds.ONE_SCOPE if full else builds.SMALL_ONE_SCOPE
        ),
        sharing.PART: lambda: sharing.measure(shared, rounds=3 if full else 1),
        hostile.PART: lambda: hostile.measure(shared, bodies=hostile.BODIES if full else hostile.FEW_BODIES),
        auth.PART: lambda: auth.measure(shared, blocks=300 if full else 40),
        attacks.PART: lambda: attacks.measure(shared, seconds=60.0 if full else 15.0),
        noisy.PART: lambda: noisy.measure(shared, rounds=9 if full else 3, seconds=3.0 if full else 2.0),
        remembering.PART: lambda: remembering.measure(
            shared, rounds=7 if full else 3, calls=2_000 if full else 300, questions=400 if full else 100
        ),
        memories.PART: lambda: memories.measure(
            shared, rounds=7 if full else 3, batches=memories.BATCHES, questions=400 if full else 100
        ),
        erasing.PART: lambda: erasing.measure(shared, events=erasing.EVENTS, blocks=12 if full else 6),
        turns.PART: lambda: turns.measure(shared, rounds=7 if full else 3, calls=2_000 if full else 300),
    }

    async def run_all() -> int:
        status = 0
        for part in PARTS:
            if part in chosen:
                console.say(f"== {part} ==", "bold")
                status |= await parts[part]()
        return status

    raise SystemExit(run(run_all()))


if __name__ == "__main__":
    main()
