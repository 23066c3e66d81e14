"""The same log gives the same trees: shape, labels and summaries, whatever ids the events were given."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from myria.builds.verify import verify
from myria.db.clock import to_rfc3339
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.log import transfer
from myria.log.event import NewEvent
from myria.log.limits import Limits
from myria.notes.folding import event_log
from myria.settings import Settings
from tests.support import builds
from tests.support.counts import some
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database, Databases

PAIRS = (("ana", "ben"), ("agent_1", "ana"))
DENSE = builds.settings(planner={"gap_s": 86_400})
"""No silence parts the conversations below: where they are cut, a hash decided it."""


def talks() -> list[NewEvent]:
    """Two conversations in which no two events have one time, half of the events with source keys."""
    return sorted(
        (
            said._replace(
                timestamp=said.timestamp + number,
                channel=f"talk {number}",
                source_event_key=f"{position}" if position % 2 else None,
            )
            for number, pair in enumerate(PAIRS)
            for position, said in enumerate(conversation(150, seed=number, participants=pair))
        ),
        key=lambda said: said.timestamp,
    )


async def grown(
    database: Database, events: Sequence[NewEvent], *, parts: int, configured: Settings = DENSE
) -> dict[tuple[str, ...], Any]:
    """Append the events in so many parts with a build after each; return every scope's tree without ids."""
    for part in range(parts):
        await append(database.server_dsn, events[part * len(events) // parts : (part + 1) * len(events) // parts])
        await builds.build(database, configured=configured)
    async with Pool(database.dsn) as pool:
        report = await verify(pool, TENANT, configured.planner, deep=True)
        assert report.failed == 0, [check.failures for check in report.checks if check.failed]
        trees = {}
        for participants, root in (await builds.roots(database)).items():
            trees[participants] = await _told(pool, bytes.fromhex(root))
    return trees


async def _told(pool: Pool, rendering: bytes) -> Any:
    """A tree as a reader sees it: level, label, summary, metadata, and below it children, or what was said when."""
    async with pool.read(TENANT) as connection:
        (row,) = await connection.fetch(sql("trees.renderings"), TENANT, [rendering])
        said = await connection.fetch(
            "SELECT e.occurred_at, e.payload FROM unnest($1::bigint[]) WITH ORDINALITY AS ref (event_seq, position) "
            "JOIN myria.events e USING (event_seq) ORDER BY position",
            row["event_seqs"],
        )
    below = [await _told(pool, child) for child in row["children"]]
    refs = [(item["occurred_at"], item["payload"], weight) for item, weight in zip(said, row["weights"], strict=True)]
    return (row["level"], row["label"], row["summary"], row["metadata"], below, refs)


async def test_two_memories_of_one_log_hold_the_same_trees(databases: Databases) -> None:
    """In one build or many, appended in order or shuffled: the same shape, labels and summaries."""
    events = talks()
    shuffled = random.Random(7).sample(events, len(events))
    with databases.fresh() as once, databases.fresh() as often, databases.fresh() as anyhow:
        trees = await grown(once, events, parts=1)
        assert len(trees) == len(PAIRS)
        assert trees == await grown(often, events, parts=4)
        assert trees == await grown(anyhow, shuffled, parts=3)


async def test_a_file_imported_into_two_memories_gives_the_same_trees(databases: Databases) -> None:
    """Its lines name no event ids, half of them no key either; shape, labels and summaries are the same."""
    text = b"".join(
        orjson.dumps(
            {
                "timestamp": to_rfc3339(said.timestamp),
                "channel": said.channel,
                "participants": list(said.participants),
                "payload": orjson.loads(said.payload_json),
                **({"source_event_key": said.source_event_key} if said.source_event_key else {}),
            }
        )
        + b"\n"
        for said in talks()
    )
    trees = []
    refused: list[transfer.RefusedLine] = []
    for _ in range(2):
        with databases.fresh() as database:
            async with Pool(database.server_dsn) as pool:
                ingest = event_log(pool)
                limits = Limits()
                file = transfer.read_lines(io.BytesIO(text).readline, transfer.longest_line(limits))
                count = await transfer.import_lines(ingest, TENANT, file, limits, on_refused=refused.append)
                await ingest.close()
            assert (count.imported, refused) == (len(talks()), [])
            trees.append(await grown(database, [], parts=1))
    assert len(trees[0]) == len(PAIRS)
    assert trees[0] == trees[1]


@pytest.mark.parametrize("parts", some([1, 7, 3]))
async def test_equal_events_of_one_moment_are_told_apart_by_their_place(databases: Databases, parts: int) -> None:
    """Hundreds of equal events of one microsecond make bounded units, the same in every memory and split."""
    equal = [event(60, "ok", type=("topic_marker", None)[number % 3 == 0]) for number in range(210)]
    events = [event(0, "before all"), *equal, event(9_000, "after all")]
    with databases.fresh() as one, databases.fresh() as other:
        trees = await grown(one, events, parts=1)
        assert trees == await grown(other, events, parts=parts)
    ((_, _, _, metadata, _, _),) = trees.values()
    assert '"units": 1,' not in metadata


async def test_a_late_event_of_a_crowded_moment_changes_no_key(database: Database) -> None:
    """New events of a microsecond that has many follow the old ones: an increment equals a full plan."""
    crowd = [event(60, f"tick {number % 9}") for number in range(300)]
    await append(database.server_dsn, crowd)
    await builds.build(database, configured=DENSE)
    await append(database.server_dsn, [event(60, "tick 4"), event(59, "just before")])
    built = await builds.build(database, configured=DENSE)

    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.roots(database) == await builds.planned(database, cutoff, configured=DENSE)
    assert built.counts["units_planned"] < 20
