"""Erasing one participant of very many scopes: others keep what is their own, and the receipt says of the rest."""

from __future__ import annotations

import orjson

from myria.erasure.model import Selection
from myria.log.event import NewEvent
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from tests.erasure.test_erasure import SETTINGS, erase, failed
from tests.support import builds
from tests.support.counts import share
from tests.support.events import TENANT, append, event
from tests.support.postgres import Database

SCOPES = share(500, least=20)
EACH = 2
"""Events of each scope."""


def people(number: int) -> tuple[tuple[str, ...], ...]:
    """Return the scopes of one other participant: alone, with eva, and with eva and a third."""
    other = f"p{number}"
    return (other,), tuple(sorted(("eva", other))), tuple(sorted(("eva", "zoe", other)))


def world() -> list[NewEvent]:
    """Return what everybody was told, eva a few things alone."""
    told = [event(number, f"Only eva knows bird {number}", participants=("eva",)) for number in range(5)]
    for number in range(SCOPES):
        for scope in people(number):
            at = 100 * number + 10 * len(scope)
            told += [event(at + turn, f"{scope[0]} saw bird {turn} at place {number}", participants=scope)
                     for turn in range(EACH)]  # fmt: skip
    return told


async def of(memory: Memory, *participants: str) -> bytes:
    """Return what these participants are answered, as bytes."""
    query = EventNodesQuery(participants=participants, query="which bird at which place", limit=200)
    return orjson.dumps((await memory.retrieval.query_event_nodes(TENANT, query))["root"])


async def left(database: Database) -> dict[str, int]:
    """Return how many events have words, by who is in their scope: eva alone, others alone, both."""
    rows = await builds.rows(
        database,
        "SELECT CASE WHEN s.participants = '{eva}' THEN 'hers' WHEN 'eva' = ANY (s.participants) THEN 'shared' "
        "ELSE 'theirs' END AS whose, count(*) AS events FROM myria.events e JOIN myria.scopes s USING (scope_id) "
        "WHERE e.payload ? 'text' GROUP BY 1",
    )
    return {row["whose"]: row["events"] for row in rows}


async def test_what_others_have_of_their_own_stays(database: Database) -> None:
    """With `keep` what eva shares stays with all of it, with `remove` it goes for everybody; what others were told
    without her answers byte for byte as before; each receipt says how many shared events were kept or removed."""
    await append(database.dsn, world())
    await builds.build(database)
    shared, theirs = 2 * EACH * SCOPES, EACH * SCOPES
    async with Memory(database.server_dsn, SETTINGS) as memory:
        own = {number: await of(memory, f"p{number}") for number in (0, SCOPES // 2, SCOPES - 1)}
        alone = [await builds.rows(database, "SELECT * FROM myria.events e JOIN myria.scopes s USING (scope_id) "
                                   "WHERE NOT 'eva' = ANY (s.participants) ORDER BY event_seq")]  # fmt: skip

        kept = await erase(database.dsn, Selection(participants=("eva",)), at_once=500)
        assert await left(database) == {"shared": shared, "theirs": theirs}
        assert kept.content["rows"]["events"] == 5
        assert kept.content["selected"] == {"participants": 1, "shared": "keep", "shared_events": {"kept": shared}}
        for number, before in own.items():
            assert await of(memory, f"p{number}") == before

        removed = await erase(database.dsn, Selection(participants=("eva",), shared="remove"), at_once=500)
        assert await left(database) == {"theirs": theirs}
        assert removed.content["rows"]["events"] == shared
        assert removed.content["selected"]["shared_events"] == {"removed": shared}
        for number in own:
            answer = await of(memory, f"p{number}")
            assert answer.count(b'"event"') == EACH
            assert b"eva" not in answer
        alone.append(await builds.rows(database, "SELECT * FROM myria.events e JOIN myria.scopes s USING (scope_id) "
                                       "WHERE NOT 'eva' = ANY (s.participants) ORDER BY event_seq"))  # fmt: skip
    assert alone[0] == alone[1]
    assert await failed(database.dsn) == {}
