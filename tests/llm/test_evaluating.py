"""Notes are rated by a model that nothing waits for: masks, budgets, audit, back-off, and what ratings move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError
from myria.log.masks import Mask, Masks
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.evaluator import MOST_ATTEMPTS
from myria.notes.memories.model import MemoryChanges, MemoryDraft
from myria.notes.memories.sharing import Keeping
from myria.notes.model import Changes
from myria.notes.questions import RecallQuery
from myria.notes.statistics import statistics
from myria.settings import LlmSettings, NotesSettings, Settings
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import shown
from tests.llm.provider import Answer, Asked, Script, calling
from tests.support import builds
from tests.support.events import TENANT
from tests.support.patience import until
from tests.support.postgres import Database

US = ("ana", "bot")
THEM = ("bot", "zoe")


def now() -> int:
    """Return this moment in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class Keeper:
    """Keeps notes as serving does, and looks at them as the control plane does, with its rights."""

    def __init__(self, database: Database, memory: Memory, loop: ControlLoop) -> None:
        self.database = database
        self.memory = memory
        self.loop = loop

    async def keep(self, content: str, who: tuple[str, ...] = US, **more: Any) -> str:
        notes = self.memory.notes
        draft = Draft(content=content, kind="fact", **more)
        return (await notes.remember(TENANT, who, draft, contract="memento", now=now())).note_id

    async def rate(self) -> int:
        """Let maintenance look at the notes, and the model at what waits."""
        await self.loop.consolidate()
        return await self.loop.evaluate()

    async def worth(self) -> dict[str, float]:
        """Return the ratings that count, by the text of the note."""
        rows = await builds.rows(
            self.database,
            "SELECT e.payload->>'text' AS text, v.worth FROM myria.note_evaluations v"
            " JOIN myria.notes n USING (tenant_id, note_id, scope_id, version)"
            " JOIN myria.events e ON e.event_seq = n.event_seq",
        )
        return {row["text"]: round(row["worth"], 3) for row in rows}

    async def waiting(self) -> list[int]:
        """Return how often each note that waits was tried."""
        rows = await builds.rows(self.database, "SELECT attempts FROM myria.note_evaluations_due ORDER BY note_id")
        return [row["attempts"] for row in rows]

    async def hurry(self) -> None:
        """Let the pauses of the outbox be over."""
        async with self.memory.appending.write(TENANT) as connection:
            await connection.execute("UPDATE myria.note_evaluations_due SET due_at = clock_timestamp()")


@asynccontextmanager
async def keeping(database: Database, llm: LlmSettings, **changes: Any) -> AsyncIterator[Keeper]:
    """Lend a keeper whose notes are rated."""

    async def launch(_tenant: str, _build_id: str) -> int:
        raise AssertionError("no build is due")

    settings = replace(Settings(), llm=llm, notes=NotesSettings(**{"evaluate": True, **changes}))
    async with Memory(database.server_dsn, settings) as memory, Pool(database.operator_dsn) as pool:
        loop = ControlLoop(pool, settings, launch)
        yield Keeper(database, memory, loop)
        await loop.close()


def rating(worth: float = 1.0, **of: float) -> Script:
    """Return a provider that rates each note alike, but those whose text begins with a word of `of`."""

    def script(asked: Asked) -> Answer:
        ratings = []
        for note in shown(asked)["notes"]:
            share = of.get(note["text"].split()[0].casefold(), worth)
            ratings.append({"id": note["id"], "value": share, "specificity": share, "actionability": share})
        return calling(asked, ("rate", {"ratings": ratings}))

    return script


async def test_ratings_are_events_that_move_ranking_and_utility(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """Of two notes that say nearly the same the one that is rated higher comes first, whichever came first before."""
    async with keeping(database, configured(provide(rating(alpha=0.0, beta=0.9)))) as keeper:
        await keeper.keep("beta kiln fires at nine")
        await keeper.keep("alpha kiln fires at nine")
        query = RecallQuery(masks=Masks.containing(US), now=now(), text="kiln fires")
        before = [fragment.text.split()[0] for fragment in await keeper.memory.recall.find(TENANT, query)]
        useful = (await statistics(keeper.memory.database, TENANT, query.masks, now=query.now)).utility
        assert await keeper.rate() == 2
        after = [fragment.text.split()[0] for fragment in await keeper.memory.recall.find(TENANT, query)]
        assert (before, after) == (["alpha", "beta"], ["beta", "alpha"])
        assert await keeper.worth() == {"beta kiln fires at nine": 0.9, "alpha kiln fires at nine": 0.0}
        rated = (await statistics(keeper.memory.database, TENANT, query.masks, now=query.now)).utility
        assert rated == pytest.approx(useful * (0.5 + 1.4) / 2, rel=0.001)
        events = await builds.rows(
            database, "SELECT internal, payload FROM myria.events WHERE type = 'myria.evaluation'"
        )
        assert len(events) == 2
        assert all(row["internal"] and "kiln" not in row["payload"] for row in events)
        assert await keeper.rate() == 0


async def test_what_is_kept_over_rest_is_rated_and_needs_no_other_maintenance(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """It waits for its rating from its commit on, each version anew, and stands in no queue beside."""
    async with keeping(database, configured(provide(rating(beta=0.9, gamma=0.2)))) as keeper:
        memories = keeper.memory.memories
        own = Keeping(own=("ana",), shared="org")
        kept = await memories.keep(TENANT, own, MemoryDraft(agent_id="bot", content="beta kiln"))
        assert kept.memory is not None
        assert await keeper.waiting() == [0]
        assert await builds.rows(database, "SELECT note_id FROM myria.note_looks") == []
        assert await keeper.rate() == 1
        assert await keeper.worth() == {"beta kiln": 0.9}
        changes = MemoryChanges(content="gamma kiln")
        await memories.amend(TENANT, kept.memory.memory_id, changes, may_see=lambda _: True)
        assert await keeper.rate() == 1
        assert await keeper.worth() == {"gamma kiln": 0.2}
        assert await builds.rows(database, "SELECT note_id FROM myria.note_looks") == []


async def test_no_prompt_mixes_scopes_and_the_audit_says_whose_each_is(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """Each request holds notes of one exact participant set, and its row of the audit names that set and no other."""
    provider = provide(rating())
    async with keeping(database, configured(provider, audit="full")) as keeper:
        for number in range(3):
            await keeper.keep(f"ours {number} about clay")
            await keeper.keep(f"theirs {number} about glaze", THEM)
        assert await keeper.rate() == 6
        prompts = [{note["text"].split()[0] for note in shown(asked)["notes"]} for asked in provider.asked]
        assert sorted(prompts, key=str) == [{"ours"}, {"theirs"}]
        calls = await builds.rows(
            database, "SELECT workflow, mask, cardinality(mask_scopes) AS scopes, prompt FROM myria.llm_calls"
        )
        assert {(row["workflow"], tuple(row["mask"]), row["scopes"], "clay" in row["prompt"]) for row in calls} == {
            ("evaluate", US, 1, True),
            ("evaluate", THEM, 1, False),
        }


async def test_what_is_off_or_not_to_be_rated_asks_nobody(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """By default nothing waits for a rating; notes of a session and forgotten ones are never shown."""
    provider = provide(rating())
    async with keeping(database, configured(provider), evaluate=False) as keeper:
        await keeper.keep("kept while it is off")
        assert await keeper.rate() == 0
        assert await keeper.waiting() == []
    async with keeping(database, configured(provider)) as keeper:
        await keeper.keep("of a session", lifetime="session", session_id="s1")
        forgotten = await keeper.keep("soon forgotten")
        await keeper.loop.consolidate()
        notes = keeper.memory.notes
        await notes.forget(TENANT, forgotten, may_see=Mask(US).sees, force=True)
        assert await keeper.loop.evaluate() == 0
        assert await keeper.waiting() == []
        assert provider.asked == []


async def test_a_failure_is_tried_again_later_and_given_up_at_last(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A failed note waits, longer each time, then alone; a good reply ends the wait, and so does the last attempt."""
    failing = True

    def script(asked: Asked) -> Answer:
        hopeless = any(note["text"].startswith("hopeless") for note in shown(asked)["notes"])
        return Answer(status=500) if failing or hopeless else rating()(asked)

    provider = provide(script)
    async with keeping(database, configured(provider, retries=0, breaker_failures=1000)) as keeper:
        await keeper.keep("the kiln is hot")
        await keeper.keep("hopeless case")
        assert await keeper.rate() == 0
        assert await keeper.waiting() == [1, 1]
        asked = len(provider.asked)
        assert await keeper.rate() == 0
        assert len(provider.asked) == asked
        pauses = await builds.rows(
            database,
            "SELECT due_at > clock_timestamp() + interval '30 seconds' AS is_later FROM myria.note_evaluations_due",
        )
        assert all(row["is_later"] for row in pauses)
        failing = False
        await keeper.hurry()
        assert await keeper.rate() == 1
        assert await keeper.worth() == {"the kiln is hot": 1.0}
        for attempt in range(3, MOST_ATTEMPTS + 1):
            assert await keeper.waiting() == [attempt - 1]
            await keeper.hurry()
            assert await keeper.rate() == 0
        assert await keeper.waiting() == []


async def test_replies_that_cannot_be_used_are_told_and_mended(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A missing, an unknown and a doubled note are refused with the reason; the mended reply counts."""
    bad = [["n1"], ["n1", "n2", "n9"], ["n1", "n1", "n2"]]

    def script(asked: Asked) -> Answer:
        if len(bad) == 0:
            return rating(0.5)(asked)
        ratings = [{"id": name, "value": 1, "specificity": 1, "actionability": 1} for name in bad.pop(0)]
        return calling(asked, ("rate", {"ratings": ratings}))

    provider = provide(script)
    async with keeping(database, configured(provider, repairs=3)) as keeper:
        await keeper.keep("clay is wet")
        await keeper.keep("glaze is dry")
        assert await keeper.rate() == 2
        assert set((await keeper.worth()).values()) == {0.5}
        told = "".join(provider.asked[-1].texts)
        assert all(words in told for words in ("are missing", "no note", "rated twice"))


async def test_a_run_keeps_its_bounds_and_an_amended_note_is_rated_anew(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """No run takes more notes than it may; ratings of old versions count no longer; without tokens nobody is asked."""
    provider = provide(rating(0.5, firmly=1.0))
    llm = configured(provider)
    async with keeping(database, llm, evaluate_notes=2) as keeper:
        ids = [await keeper.keep(f"note {number}") for number in range(3)]
        assert [await keeper.rate() for _ in range(3)] == [2, 1, 0]
        notes = keeper.memory.notes
        await notes.amend(TENANT, ids[0], Changes(content="firmly said"), contract="memento", may_see=Mask(US).sees)
        assert set(await keeper.worth()) == {"note 1", "note 2"}
        assert await keeper.rate() == 1
        assert (await keeper.worth())["firmly said"] == 1.0
    asked = len(provider.asked)
    async with keeping(database, replace(llm, tenant_tokens_per_day=0)) as keeper:
        await keeper.keep("one more")
        assert await keeper.rate() == 0
        assert await keeper.waiting() == [0]
    assert len(provider.asked) == asked


async def test_remembering_and_recalling_wait_for_no_rating(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """While the provider says nothing, notes are kept and found; the run that waits is ended, and its notes wait on."""
    provider = provide(lambda _: Answer(hang=True))
    async with keeping(database, configured(provider)) as keeper:
        await keeper.keep("the kiln is hot")
        await keeper.loop.consolidate()
        run = asyncio.create_task(keeper.loop.evaluate())
        await until(lambda: provider.asked, "the provider being asked")
        await keeper.keep("the kiln is cold")
        query = RecallQuery(masks=Masks.containing(US), now=now(), text="kiln")
        assert len(await keeper.memory.recall.find(TENANT, query)) == 2
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert await keeper.waiting() == [1]


async def test_without_a_model_the_setting_is_refused(database: Database) -> None:
    """Who switches ratings on without a request template is told so when the control plane starts."""
    settings = replace(Settings(), notes=NotesSettings(evaluate=True))
    async with Pool(database.operator_dsn) as pool:
        with pytest.raises(ConfigurationError, match=r"llm\.template"):
            ControlLoop(pool, settings, lambda *_: asyncio.sleep(0, 0))


async def test_status_tells_that_ratings_wait_for_the_provider(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A wrong key stands in `status` until a note is rated; a reply that cannot be used does not."""
    replies = [Answer(status=401, body=b'{"error": "no such key"}'), Answer(status=401, body=b"{}")]
    scripted = rating()
    llm = configured(provide(lambda asked: replies.pop(0) if replies else scripted(asked)), retries=0)
    async with keeping(database, llm) as keeper:
        await keeper.keep("the kiln fires at nine")
        registry = Registry(keeper.memory.database, Settings())
        assert await keeper.rate() == 0
        first = (await registry.status(TENANT))["waits"]["ratings"]
        assert first["reason"].endswith("401: no such key")
        await keeper.hurry()
        assert await keeper.rate() == 0
        assert (await registry.status(TENANT))["waits"]["ratings"]["since"] == first["since"]
        await keeper.hurry()
        assert await keeper.rate() == 1
        assert (await registry.status(TENANT))["waits"] == {}
