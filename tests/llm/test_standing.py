"""Units that were planned without the model go on being told until they are planned anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from myria.settings.planner import PlannerSettings
from tests.cli.conftest import call
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import Oracle
from tests.llm.provider import Answer, Asked
from tests.llm.test_building import with_model
from tests.llm.test_saying import REFUSAL, settings_file
from tests.support import builds
from tests.support.events import append, conversation, event
from tests.support.postgres import Database

PAIRS = (("ana", "ben"), ("ana", "chloé"))
LEAF_MIN = PlannerSettings().leaf_min


async def fallbacks(database: Database) -> int:
    """Return how many units of the active snapshot a model should have planned and did not."""
    snapshot_id = await builds.value(database, "SELECT snapshot_id FROM myria.active_snapshots")
    reached = {one for content in (await builds.contents(database, snapshot_id)).values() for one, _, _ in content[1]}
    units = await builds.rows(
        database,
        "SELECT r.rendering_id, (SELECT bool_or(d.metadata ? 'written_by') FROM myria.renderings d "
        "WHERE d.rendering_id = r.rendering_id OR d.rendering_id = ANY (r.children)) AS is_made "
        "FROM myria.renderings r WHERE r.is_unit AND r.events >= $1",
        LEAF_MIN,
    )
    return sum(unit["rendering_id"] in reached and not unit["is_made"] for unit in units)


async def talk(database: Database, part: int, pairs: Sequence[Sequence[str]] = PAIRS) -> None:
    """Append a conversation of each pair, days after those before."""
    for number, pair in enumerate(pairs):
        await append(
            database.server_dsn, conversation(40, seed=10 * part + number, participants=pair, start=part * 50_000)
        )


async def test_a_build_that_goes_well_tells_of_the_units_that_stand_degraded(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """Each snapshot counts the units that stand without the model, less by those that are planned anew."""
    oracle, refused = Oracle(), [True]
    provider = provide(lambda asked: Answer(status=401, body=REFUSAL) if refused[0] else oracle(asked))
    llm = with_model(configured(provider, retries=0, breaker_failures=1000))
    count = "llm_units_degraded_standing"

    async def built(*, full: bool = False) -> int:
        made = await builds.build(database, configured=llm, full=full)
        assert made.counts.get(count, 0) == await fallbacks(database)
        return made.counts.get(count, 0)

    await talk(database, 0)
    first = await built()
    assert first > len(PAIRS)
    await talk(database, 1, PAIRS[:1])
    both = await built()
    assert both > first
    refused[0] = False
    await talk(database, 2, PAIRS[1:])
    assert 0 < await built() <= both
    # A word that comes late falls into a unit that stands degraded, which is planned anew with it.
    await append(database.server_dsn, [event(30, "A word that came late.", participants=PAIRS[0])])
    assert 0 < await built() < both
    refused[0] = True
    await talk(database, 3)
    assert await built() > 0
    refused[0] = False
    assert await built(full=True) == 0
    await talk(database, 4)
    assert await built() == 0


def test_status_and_rebuild_tell_of_the_units_of_builds_before(
    database: Database, provide: Starting, configured: Configuring, tmp_path: Path
) -> None:
    """After the key was mended a build of new events says what still stands, why, and what makes it good."""
    oracle, refused = Oracle(), [True]

    def script(asked: Asked) -> Answer:
        return Answer(status=401, body=REFUSAL) if refused[0] else oracle(asked)

    config = ("--config", settings_file(tmp_path, configured(provide(script))), "--dsn", database.dsn)
    asyncio.run(talk(database, 0))
    failed = call("rebuild", "--here", "--wait", "--json", *config).json
    asyncio.run(talk(database, 1))
    refused[0] = False

    def told(*more: str) -> tuple[str, dict[str, Any]]:
        made = call("rebuild", "--here", "--wait", *more, *config)
        status = call("status", "--json", *config).json
        standing = [
            one and (one["standing"], one["reason"]) for one in (status["degraded"], status["last_build"]["degraded"])
        ]
        assert standing[0] == standing[1]
        return " ".join((made.err + call("status", *config).out).split()), status["degraded"]

    for _ in range(2):  # the second finds nothing new
        words, degraded = told()
        assert (degraded["units"], degraded["standing"]) == (0, failed["degraded"]["standing"])
        sentence = f"degraded: {degraded['standing']} units of builds before stand planned without the model: http_4xx"
        assert words.count(sentence) == 2
        assert "401: Incorrect API key provided" in words
        assert "a full build asks for them again" in words
    words, degraded = told("--full")
    assert degraded is None
    assert "degraded" not in words
    call("rollback", *config)
    assert call("status", "--json", *config).json["degraded"]["standing"] > 0
