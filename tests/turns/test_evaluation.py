"""The figures by which contract 002 judges its engine, on scenarios of several sessions, days and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from myria.memory import Memory
from myria.notes.turns.items import estimated_tokens, identity_of, text_of
from myria.settings import Settings, TurnsSettings
from tests.support.postgres import Database
from tests.turns.hosts import DAY, TENANT, Host, facts_of, rows


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a user says in a session, and the facts that are true of them at once, and after two days."""

    session: str
    says: tuple[str, ...]
    facts: frozenset[str]
    durable: frozenset[str]


SCENARIOS = (
    Scenario(
        "potter",
        (
            "Hello! My name is Inês. I prefer stoneware.",
            "Today I need two bags of clay",
            "I like celadon",
            "Which kiln is best? I prefer porcelain, really.",
            "This week I need a new wheel",
            "The weather is fine; do you like it?",
        ),
        frozenset(
            {
                "L0 name=inês",
                "L0 preference=porcelain",
                "L1 today_task=two bags of clay",
                "L2 like=celadon",
                "L2 weekly_task=a new wheel",
            }
        ),
        frozenset({"L0 name=inês", "L0 preference=porcelain", "L2 like=celadon", "L2 weekly_task=a new wheel"}),
    ),
    Scenario(
        "baker",
        (
            "Mein Name ist Jürgen. Ich mag Roggenbrot.",
            "Ja, ich mag Roggenbrot!",
            "Heute muss ich Mehl kaufen",
            "My colleague said: they prefer rye",
        ),
        frozenset({"L0 name=jürgen", "L2 like=roggenbrot", "L1 today_task=mehl kaufen"}),
        frozenset({"L0 name=jürgen", "L2 like=roggenbrot"}),
    ),
    Scenario("nobody", ("What time is it?", "Thanks a lot."), frozenset(), frozenset()),
)


@pytest.fixture
async def memory(database: Database) -> AsyncIterator[Memory]:
    async with Memory(database.server_dsn, Settings(turns=TurnsSettings(enabled=True))) as made:
        yield made


async def talk(memory: Memory, scenario: Scenario) -> Host:
    """Run a scenario as a host does: the prompt goes back as it came, and each turn is kept twice."""
    host = Host(memory, session=scenario.session)
    for number, text in enumerate(scenario.says):
        prepared = await host.before(text)
        for _ in range(2):
            await host.after(f"t{number}", *prepared.items, answer=f"{scenario.session} {number}: I see.")
        host.now += 60 * 10**6
    return host


async def test_the_figures_are_those_of_the_contract(memory: Memory) -> None:
    """Each holds exactly, over all scenarios."""
    hosts = [await talk(memory, scenario) for scenario in SCENARIOS]
    recalled = [set(facts_of(await host.before("Who am I?"))) for host in hosts]

    # fact recall precision and recall: 1.0
    assert recalled == [set(scenario.facts) for scenario in SCENARIOS]
    # session isolation leak: 0
    for scenario, found in zip(SCENARIOS, recalled, strict=True):
        others = {fact for other in SCENARIOS if other is not scenario for fact in other.facts}
        assert not found & others - set(scenario.facts)
    stored = await rows(
        memory,
        "SELECT context_id, type, payload->>'text' AS text FROM myria.events "
        "WHERE type IN ('input_item', 'output_item') ORDER BY event_seq",
    )
    # idempotency and persisted history echo: each turn was sent twice, with the whole prompt, and stands once
    for scenario in SCENARIOS:
        said = [row["text"] for row in stored if row["context_id"] == f"p/{scenario.session}"]
        expected = [
            text
            for number, given in enumerate(scenario.says)
            for text in (given, f"{scenario.session} {number}: I see.")
        ]
        assert said == expected
    # exact dedup: an equal value has one version
    versions = await rows(memory, "SELECT e.payload->>'text' AS text FROM myria.events e WHERE e.type = 'myria.note'")
    assert max(Counter(row["text"] for row in versions).values()) == 1
    # history equivalence: the prompt holds what was said, in order; prompt duplicate rate: 0
    for host, scenario in zip(hosts, SCENARIOS, strict=True):
        prepared = await host.before("And now?")
        texts = [text_of(item) for item in prepared.items if item["role"] in ("user", "assistant")]
        texts = [text for text in texts if not text.startswith("<memory_reference>")]
        assert texts[:-1] == [row["text"] for row in stored if row["context_id"] == f"p/{scenario.session}"]
        identities = [identity_of(item) for item in prepared.items]
        assert len(set(identities)) == len(identities)
    # durable survival and expired suppression, 48 hours and a maintenance later: 1.0
    for host in hosts:
        host.now += 2 * DAY
    await memory.consolidation.run(TENANT, now=hosts[0].now)
    for host, scenario in zip(hosts, SCENARIOS, strict=True):
        assert set(facts_of(await host.before("Who am I?"))) == set(scenario.durable)
    expired = await rows(memory, "SELECT payload FROM myria.events WHERE type = 'myria.withdrawal'")
    assert any("expired" in str(row["payload"]) for row in expired)


async def test_the_guard_of_compaction_holds(memory: Memory) -> None:
    """However small the window, the prompt stays below the threshold where what is said now allows it."""
    host = Host(memory)
    for number in range(20):
        await host.after(f"t{number}", f"{number} " + "clay and glaze " * 30, answer=f"answer {number}", exact=True)
    now = "What did we say of clay?"
    for tokens in (200, 500, 1_000, 3_000, 10_000, 120_000):
        prepared = await host.before(now, tokens=tokens)
        fixed = estimated_tokens([*prepared.items[:2], prepared.items[-1]])
        assert prepared.tokens < max(int(tokens * 0.8), fixed + 4), tokens
        assert text_of(prepared.items[-1]) == now
