"""Nobody gets a byte of what the rule does not give: random operations of twenty-five credentials, and an oracle."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.erasure import forgetting
from myria.memory import Memory
from myria.notes import usage
from tests.isolation import faces
from tests.isolation.world import (
    REACHING,
    SETTINGS,
    TENANTS,
    Operation,
    Statements,
    World,
    make_credentials,
    operate,
    perform,
)
from tests.server.wire import serving
from tests.support.builds import rows
from tests.support.counts import CHECK, SOAK
from tests.support.postgres import Database

WORLDS = 25 if SOAK else 1
OPERATIONS = 2_000 if SOAK else 200 if CHECK else 400
"""Operations in each of these worlds."""

ALONE = 10_000 if SOAK else 100 if CHECK else 200
"""Operations with row-level security alone."""

BUILDS = 10

_TENANT_FILTER = re.compile(r"\b(?:\w+\.)?tenant_id = \$\d+")


@pytest.fixture(autouse=True)
def uses_are_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses of notes are written beside requests: statements that would count as those of whoever asks just then. And
    a server forgets by itself what it keeps of a tenant with erasures: who asks then needs statements more."""
    monkeypatch.setattr(usage, "WRITTEN_EVERY_S", 3_600.0)
    monkeypatch.setattr(forgetting, "POLL_S", 3_600.0)


@asynccontextmanager
async def world_of(database: Database, seed: int) -> AsyncIterator[World]:
    """Lend a served memory with five tenants and twenty-five keys."""
    credentials = await make_credentials(database)
    async with Memory(database.server_dsn, SETTINGS) as memory, Pool(database.operator_dsn) as control:
        statements = Statements(memory.database)
        async with serving(memory, SETTINGS) as served:
            yield World(
                served=served,
                statements=statements,
                database=database,
                control=control,
                forget=memory.forgetting.look,
                rng=random.Random(seed),
                credentials=credentials,
            )


async def check_what_was_erased(world: World) -> None:
    """Check that no row of the log says a word of what was erased, once the control plane has carried it out."""
    await world.build(TENANTS[0])
    words = [world.numbered[number].word for number in world.gone]
    for tenant in TENANTS:
        unfinished = "SELECT e::text AS erasure FROM myria.erasures e WHERE state <> 'done'"
        assert await rows(world.database, unfinished, tenant=tenant) == []
        log = await rows(world.database, "SELECT e::text AS said FROM myria.events e", tenant=tenant)
        said = " ".join(row["said"] for row in log)
        assert [word for word in words if word in said] == []


REACHED = (
    "found",
    "forbidden",
    "compared",
    "foreign snapshots",
    "withdrawals refused",
    "notes",
    "words recalled",
    "notes refused",
    "notes changed",
    "words seen",
    "words seen under several masks",
    "cursor as it is",
    "builds",
)
"""What operations must reach: an oracle that is never asked proves nothing."""

ALSO_REACHED = (
    "words of context",
    "reflections",
    "consolidations",
    "notes linked",
    "notes looked at",
    "looks refused",
    "notes together",
    "feedback",
    "words of resources",
    *faces.REACHING,
)

BESIDE: Mapping[Operation, int] = {
    faces.take_a_turn: 15,
    faces.use_rest: 15,
    faces.erase_something: 4,
    faces.look_at_erasures: 2,
}
"""Operations at further faces, each with its weight."""

AIMED: Mapping[str, Operation] = {**REACHING, **faces.REACHING}
"""Which operation may reach what; builds come by themselves."""

OFTEN = ("found", "forbidden", "compared", "notes", "words seen", "builds")
"""What the few operations of `make check` reach as well."""


async def run(world: World, operations: int, reaching: Sequence[str]) -> None:
    """Do random things, with builds in between: first each tenant's, then any. Go on until all is reached; in
    `make check`, what is reached often.

    Some things happen once in thousands of operations. So every other operation that is done for them is one that may
    reach them; the rest makes what those need. The end is so far off that it is met where something cannot be reached.
    """
    for credential in world.credentials:
        await world.append(credential)
    reaching = OFTEN if CHECK else reaching
    between = max(1, operations // BUILDS)
    for number in range(operations + max(20_000, 9 * operations)):
        missing = [what for what in reaching if not world.done[what]]
        if number >= operations and not missing:
            break
        if number % between == between // 4:
            turn = number // between
            await world.build(TENANTS[turn] if turn < len(TENANTS) else world.rng.choice(TENANTS))
        if number >= operations and number % 2 and (by := [AIMED[what] for what in missing if what in AIMED]):
            await perform(world, world.rng.choice(by))
        else:
            await operate(world, BESIDE)
    assert [what for what in reaching if not world.done[what]] == [], world.done
    await check_what_was_erased(world)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(WORLDS))
async def test_nobody_gets_a_byte_outside_the_rule(database: Database, number: int) -> None:
    """Answers hold only what the asker may see and nobody erased; forbidden, absent and erased are alike in text, code
    and statements."""
    async with world_of(database, 20_261_122 + number) as world:
        await run(world, OPERATIONS, (*REACHED, *ALSO_REACHED))


@pytest.fixture
def unfiltered() -> Iterator[int]:
    """Take the tenant out of every statement for the test: `tenant_id = $1` is always true. Yield how often."""
    count = 0

    def always(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"({match[0]} OR true)"

    subjects = (
        "retrieval",
        "events",
        "snapshots",
        "scopes",
        "trees",
        "subjects",
        "triggers",
        "builds",
        "browse",
        "llm",
        "verify",
        "notes",
        "links",
        "feedback",
        "withdrawal",
        "sessions",
        "consolidation",
        "evaluations",
        "turns",
        "erasure",
        "erasures",
        "memories",
        "registrations",
    )
    before = {name: sql.subject(name) for name in subjects}
    for name in subjects:
        sql._read[name] = {key: _TENANT_FILTER.sub(always, text) for key, text in before[name].items()}
    try:
        yield count
    finally:
        sql._read.update({name: dict(statements) for name, statements in before.items()})


@pytest.mark.soak
async def test_row_level_security_alone_keeps_tenants_apart(database: Database, unfiltered: int) -> None:
    """The same with the tenant taken out of every query: the database's own policies hold, for every plane's role."""
    assert unfiltered > 100
    async with world_of(database, 7) as world:
        await run(world, ALONE, (*REACHED, *ALSO_REACHED) if SOAK else REACHED)
        await check_that_it_bites(world)


async def check_that_it_bites(world: World) -> None:
    """Check that the filter is gone: who is above row-level security sees other tenants' rows by those statements."""
    foreign = next(told for told in world.events.values() if told.tenant == "north")
    seen = {}
    for who, dsn in (("server", world.database.server_dsn), ("superuser", world.database.superuser_dsn)):
        async with Pool(dsn) as pool, pool.read("south") as connection:
            try:
                seen[who] = await connection.fetchrow(sql("events.by_id"), "south", foreign.event_id) is not None
            except asyncpg.CardinalityViolationError:
                seen[who] = True  # rows of several tenants, where one was meant
    assert seen == {"server": False, "superuser": True}


async def test_no_role_is_above_row_level_security(database: Database) -> None:
    """Every table with a tenant forces it, also on its owner; no plane's role can go around it."""
    async with Pool(database.superuser_dsn) as pool, pool.connection() as connection:
        weak = await connection.fetch(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
            "WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind IN ('r', 'p') "
            "AND NOT (c.relrowsecurity AND c.relforcerowsecurity)"
        )
        assert [row["relname"] for row in weak] == []
        above = await connection.fetch(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'myria%' AND (rolsuper OR rolbypassrls)"
        )
        assert [row["rolname"] for row in above] == []
        open_to_two = await connection.fetch(
            "SELECT c.relname, r.rolname FROM pg_class c "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
            "CROSS JOIN (VALUES ('myria_server'), ('myria_builder')) r (rolname) "
            "WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind IN ('r', 'p') AND NOT EXISTS ("
            "SELECT FROM pg_policies p WHERE p.schemaname = 'myria' AND p.tablename = c.relname "
            "AND p.permissive = 'RESTRICTIVE' AND r.rolname = ANY (p.roles))"
        )
        assert [tuple(row) for row in open_to_two] == []


@pytest.mark.parametrize("named_tenant", ["", "*", "south", None])
async def test_the_roles_of_serving_and_building_see_one_tenant(database: Database, named_tenant: str | None) -> None:
    """Whatever tenant a transaction names, or none: not all of them, and not another."""
    async with world_of(database, 1) as world:
        await world.append(next(one for one in world.credentials if one.tenant == "north"))
    for dsn in (database.server_dsn, database.builder_dsn):
        async with Pool(dsn) as pool, pool.connection() as connection, connection.transaction():
            if named_tenant is not None:
                await connection.execute("SELECT set_config('myria.tenant', $1, true)", named_tenant)
            for table in ("events", "scopes", "scope_members", "tenants"):
                foreign = f"SELECT count(*) FROM myria.{table} WHERE tenant_id = 'north'"
                assert await connection.fetchval(foreign) == 0, table
