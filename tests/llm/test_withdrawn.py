"""What was withdrawn, and language models: in no prompt from then on, in no audit of calls that may have held it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from myria.db.queries import sql
from myria.log.masks import Mask
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import Oracle, shown
from tests.llm.provider import Answer, Asked, calling
from tests.llm.test_walking import remembering
from tests.support import builds
from tests.support.events import TENANT, append, event
from tests.support.postgres import Database

ANA_BEN = ("ana", "ben")
WORD = "zq00001qz"
QUERY = ReferencesQuery(participants=ANA_BEN, query="garden tomato", max_nodes=24, mode="llm")


async def audited(memory: Memory) -> str:
    """Return all that the audit of models shows."""
    assert memory.retrieval.walker is not None
    await memory.retrieval.walker.settle()
    async with memory.database.read(TENANT) as connection:
        return str([dict(row) for row in await connection.fetch(sql("llm.calls"), TENANT, None, None, False, 100)])


async def test_a_withdrawal_during_a_walk_is_known_to_the_audit(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A prompt that held what was forgotten before its call was written down is not shown; later ones lack it."""
    said = [event(number * 60, f"the garden has tomato bed {number}", participants=ANA_BEN) for number in range(30)]
    said.append(event(2_000, f"the garden tomato {WORD}", participants=ANA_BEN))
    ids = [result.event_id for result in await append(database.server_dsn, said)]
    await builds.build(database)
    loop = asyncio.get_running_loop()
    prompts: list[str] = []
    memories: list[Memory] = []

    def script(asked: Asked) -> Answer:
        prompts.append(str(asked.body))
        if len(prompts) == 1:
            see = Mask(ANA_BEN).sees
            forgetting = memories[0].withdrawals.withdraw(TENANT, [ids[-1]], "forgotten", may_see=see)
            asyncio.run_coroutine_threadsafe(forgetting, loop).result()
        return calling(asked, ("choose", {"add": [one["id"] for one in shown(asked)["further"]][:2], "stop": True}))

    async with remembering(database, configured(provide(script), audit="full")) as memory:
        memories.append(memory)
        await memory.retrieval.query_references(TENANT, QUERY)
        assert WORD in prompts[0]
        assert WORD not in await audited(memory)
        again = await memory.retrieval.query_references(TENANT, QUERY)
        assert len(prompts) > 1
        assert WORD not in str(again["root"]) + "".join(prompts[1:]) + await audited(memory)
        rows = await builds.rows(database, "SELECT prompt FROM myria.llm_calls")
        assert len(rows) == len(prompts)


async def test_a_withdrawal_during_a_build_is_known_to_the_audit(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A build's prompts hold what was there at its cutoff; what was forgotten since is not shown of them."""
    said = [
        event(number * 60, f"the garden has tomato bed {number} {WORD}", participants=ANA_BEN) for number in range(15)
    ]
    ids = [result.event_id for result in await append(database.server_dsn, said)]
    loop = asyncio.get_running_loop()
    oracle = Oracle()
    asked_for: list[str] = []

    async with remembering(database, None) as memory:

        def script(asked: Asked) -> Answer:
            asked_for.append(str(asked.body))
            if len(asked_for) == 1:
                see = Mask(ANA_BEN).sees
                forgetting = memory.withdrawals.withdraw(TENANT, ids, "forgotten", may_see=see)
                asyncio.run_coroutine_threadsafe(forgetting, loop).result()
            return oracle(asked)

        llm = replace(configured(provide(script), audit="full"), build=True)
        await builds.build(database, configured=replace(builds.DEFAULTS, llm=llm))
        assert WORD in "".join(asked_for)
        async with memory.database.read(TENANT) as connection:
            rows = await connection.fetch(sql("llm.calls"), TENANT, None, None, False, 100)
        assert len(rows) == len(asked_for)
        assert WORD not in str([dict(row) for row in rows])
