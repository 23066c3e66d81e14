"""When a note ends by itself: the database knows it as the domain does, from the first moment on."""

from __future__ import annotations

from itertools import product

from myria.db.clock import to_datetime, to_microseconds
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.expiry import DAY_US, Lasting
from myria.notes.kinds import policies
from myria.settings import Settings
from tests.support.postgres import Database

_ROUNDING_US = 5
CHANGED = 1_772_000_000_123_456
ASKED = """
    SELECT myria.note_ends_at(kind, importance, anchor, $4, used_at, lasts_days) AS ends_at, importance::float8
    FROM unnest($1::text[], $2::real[], $3::boolean[], $5::timestamptz[], $6::integer[])
        AS given (kind, importance, anchor, used_at, lasts_days)
"""


async def test_the_database_computes_the_same_end(database: Database) -> None:
    """For each kind, importance and use: a policy that changes needs a migration, and this says so."""
    importances = (0.0, 0.05, 0.1, 0.2, 0.49, 0.5, 0.79, 0.8, 1.0)
    uses = (None, CHANGED - DAY_US, CHANGED + 9 * DAY_US)
    cases = list(product([*policies(), "unheard"], importances, (False, True), uses, (None, 3)))
    kinds, importance, anchors, used, days = zip(*cases, strict=True)
    async with Memory(database.server_dsn, Settings()) as memory, memory.database.read("default") as connection:
        used_at = [None if moment is None else to_datetime(moment) for moment in used]
        rows = await connection.fetch(ASKED, kinds, importance, anchors, to_datetime(CHANGED), used_at, days)
    wrong = []
    for case, row in zip(cases, rows, strict=True):
        kind, _, anchor, used_us, lasts = case
        lasting = Lasting(
            kind=kind,
            importance=row["importance"],
            anchor=anchor,
            created_at=CHANGED,
            changed_at=CHANGED,
            used_at=used_us,
            session_ends_at=None if lasts is None else (CHANGED // DAY_US + lasts) * DAY_US,
        )
        said = None if row["ends_at"] is None else to_microseconds(row["ends_at"])
        ends = lasting.expires_at
        if (said is None) is not (ends is None) or abs((said or 0) - (ends or 0)) > _ROUNDING_US:
            wrong.append((case, said, ends))
    assert wrong == []


async def test_a_use_lets_a_note_end_later(database: Database) -> None:
    """The end that is known moves with what was counted, in the same statement."""
    async with Memory(database.server_dsn, Settings()) as memory:
        now = await memory.database.now()
        notes = memory.notes
        kept = await notes.remember(
            "default", ("ana",), Draft(content="The kiln", kind="fact"), contract="memento", now=now
        )
        ends = []
        for used in (None, now + DAY_US, now + 3 * DAY_US):
            if used is not None:
                memory.usage.count("default", [kept.note_id], used)
                await memory.usage.write()
            async with memory.database.read("default") as connection:
                ends.append(await connection.fetchval("SELECT ends_at FROM myria.note_looks"))
    assert [(later - ends[0]).days for later in ends] == [0, 1, 3]
