"""Links are folded from the log: in any order, with any repeats, whatever is withdrawn; their types add up."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myria.db.database import Database as Pool
from myria.log.event import NewEvent
from myria.log.ids import new_id
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.folding import event_log
from myria.notes.links import RELATIONS, Relation, link_event
from tests.support.counts import examples
from tests.support.postgres import Database

SCOPES = (("ana", "ben"), ("ana",))
NOTES = ("note_a", "note_b", "note_c")

_LINKS = st.tuples(
    st.sampled_from(NOTES),
    st.sampled_from(NOTES),
    st.sampled_from(RELATIONS),
    st.sampled_from(SCOPES),
    st.sampled_from((False, False, False, True)),
).filter(lambda link: link[0] != link[1])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("together"), st.lists(_LINKS, min_size=1, max_size=4)),
        st.tuples(st.just("at once"), st.lists(_LINKS, min_size=2, max_size=4)),
        st.tuples(st.just("again"), st.integers(0, 20)),
        st.tuples(st.just("withdraw"), st.integers(0, 20)),
        st.tuples(st.just("restore"), st.integers(0, 20)),
    ),
    max_size=8,
)
_tenants = itertools.count()


def event(
    from_id: str, to_id: str, relation: Relation, participants: tuple[str, ...], replaces: bool = False
) -> NewEvent:
    made = link_event(participants, from_id, to_id, relation, replaces=replaces)
    return made._replace(event_id=new_id("evt"))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS)
def test_of_each_type_the_newest_link_stands_that_none_replaced(
    database: Database, steps: Sequence[tuple[str, object]]
) -> None:
    """The table is what the log gives, and what its events say one after the other; withdrawing one changes nothing."""
    tenant = f"t{next(_tenants)}"

    async def run() -> None:
        async with Pool(database.server_dsn) as pool:
            ingest = event_log(pool)
            withdrawals = Withdrawals(ingest)
            known: list[NewEvent] = []
            for what, given_with in steps:
                if isinstance(given_with, list):
                    events = [event(*link) for link in given_with]
                    if what == "together":
                        await ingest.append_events(tenant, events)
                    else:
                        await asyncio.gather(*(ingest.append_events(tenant, [one]) for one in events))
                    known += events
                elif known and isinstance(given_with, int):
                    chosen = known[given_with % len(known)]
                    assert chosen.event_id is not None
                    if what == "again":
                        (repeated,) = await ingest.append_events(tenant, [chosen])
                        assert repeated.event_id == chosen.event_id
                    elif what == "withdraw":
                        await withdrawals.withdraw(tenant, [chosen.event_id], "forgotten", may_see=lambda _: True)
                    else:
                        await withdrawals.restore(tenant, [chosen.event_id], may_see=lambda _: True)
            async with pool.read(tenant) as connection:
                kept = set(await connection.fetch("SELECT * FROM myria.note_relations"))
                folded = set(await connection.fetch("SELECT * FROM myria.note_relations_of_log"))
                stands = await connection.fetch("SELECT * FROM myria.standing_links")
                log = await connection.fetch(
                    "SELECT event_seq, payload->'link'->>'from' AS from_id, payload->'link'->>'to' AS to_id,"
                    " payload->'link'->>'relation' AS relation, payload->'link'->'replaces' = 'true' AS replaces"
                    " FROM myria.events WHERE type = 'myria.link' ORDER BY event_seq"
                )
            expected: dict[tuple[str, str], dict[str, int]] = {}
            for row in log:
                pair = (row["from_id"], row["to_id"])
                before = {} if row["replaces"] else expected.get(pair, {})
                expected[pair] = {**before, row["relation"]: row["event_seq"]}
            assert len(log) == len(known)
            assert kept == folded
            assert {(row["from_id"], row["to_id"], row["relation"], row["event_seq"]) for row in stands} == {
                (*pair, relation, number) for pair, types in expected.items() for relation, number in types.items()
            }
            await ingest.close()

    asyncio.run(run())
