"""What faces keep beside the words: no digest of an erased event stays, nor a sample that PostgreSQL took of it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import Any

import asyncpg
import orjson

from myria.db.database import Database as Pool
from myria.erasure.model import Selection
from myria.log import transfer
from myria.log.limits import Limits
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.feedback import Feedback
from myria.notes.folding import event_log
from myria.notes.memories.model import MemoryDraft, dedup_key
from myria.notes.memories.sharing import Keeping
from myria.notes.sessions.reflecting import Reflection, reflect
from myria.notes.turns.items import identity_of, message
from myria.notes.turns.shadow import ClientResult, compare_after
from myria.settings import Settings, TurnsSettings
from tests.erasure.test_erasure import PHRASE, WORDS, erase, erasures, failed, refused, traces
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database, Databases
from tests.turns.hosts import Host

SETTINGS = Settings(turns=TurnsSettings(enabled=True))
SAID = f"My name is {PHRASE}. I like {WORDS[0]}"


async def kept_by_every_face(memory: Memory) -> None:
    """Keep the phrase through each face: a turn with facts and a comparison, notes, a reflection, feedback, a memory,
    an agent and a session; the callers' keys hold it too."""
    host = Host(memory)
    await host.after("t1", SAID, answer=f"Hello {PHRASE}")
    theirs = ClientResult(facts=(("L0", "name", PHRASE),), items=(message("user", SAID),))
    memory.shadows.note(
        TENANT,
        host.session,
        "t1",
        "after",
        lambda: compare_after((), [message("user", SAID)], theirs),
        on_compared=lambda *_: None,
    )
    notes = memory.notes
    draft = Draft(content=f"Note {PHRASE}", session_id="s1", topic="t")
    await notes.remember(TENANT, ("ana",), draft, contract="memento", key=PHRASE, speaker="ana")
    reflection = Reflection(
        summary=PHRASE, decisions=[f"we take the {PHRASE}"], effectiveness={"rating": 0.5}, session_id=None
    )
    await reflect(notes, memory.appending, TENANT, ("ana",), reflection, idle_s=60)
    said = Feedback(tool="recall", relevant=True, sufficient=False, suggestion=PHRASE, session_id="s1")
    await memory.log.append_events(TENANT, [said.event(("ana",), timestamp=5, speaker="ana")])
    keeping = Keeping(own=("ana",), shared="org")
    kept = MemoryDraft(agent_id="a", content=PHRASE, tags=(WORDS[0],))
    await memory.memories.keep(TENANT, keeping, kept, key=PHRASE)
    agent = await memory.registrations.register_agent(
        TENANT, "org", name=WORDS[0], description=PHRASE, config=None, key=PHRASE
    )
    await memory.registrations.open_session(TENANT, "org", agent=agent.entry_id, metadata={"w": PHRASE}, key=PHRASE)
    await memory.shadows.close()


async def digests_of(database: Database) -> set[bytes]:
    """Return what a guess of the phrase can be compared with: digests of every text that says it, and all that the
    database holds of that kind beside the events that say it."""
    rows = await builds.rows(database, "SELECT payload, source_event_key, dedupe_key, occurred_at FROM myria.events")
    found: set[bytes] = set()
    for row in rows:
        if WORDS[0] in row["payload"].lower() or WORDS[0] in (row["source_event_key"] or ""):
            found |= {row["dedupe_key"] or b"", *_hexadecimals(row["source_event_key"] or "")}
    for text in (PHRASE, SAID, WORDS[0], f"Note {PHRASE}", f"Hello {PHRASE}"):
        for name in ("md5", "sha1", "sha256", "blake2b"):
            found.add(hashlib.new(name, text.encode()).digest())
    found.add(bytes.fromhex(identity_of(message("user", SAID)).removeprefix("item-")))
    found.add(bytes.fromhex(dedup_key("a", "observation", PHRASE)))
    for statement in (
        "SELECT v.digest FROM myria.note_versions v JOIN myria.events e USING (tenant_id, event_seq) "
        "WHERE e.payload::text LIKE '%quokka%'",
        "SELECT likeness FROM myria.note_looks WHERE likeness IS NOT NULL",
        "SELECT decode(dedup_key, 'hex') FROM myria.notes WHERE dedup_key IS NOT NULL",
        # Of facts, notes with a key, agents and sessions with a key the id itself follows from what was said.
        "SELECT decode(substr(n.note_id, 6), 'hex') FROM myria.notes n WHERE n.kind LIKE 'fact_%' "
        "OR n.note_id IN (SELECT payload->'note'->>'id' FROM myria.events WHERE source_event_key LIKE 'note:%')",
        "SELECT decode(split_part(id, '_', 2), 'hex') FROM myria.registrations",
    ):
        found |= {value for row in await builds.rows(database, statement) for value in row.values()}
    return {guess[:8] for guess in found if len(guess) >= 8}


def _hexadecimals(text: str) -> set[bytes]:
    return {bytes.fromhex(run[: len(run) // 2 * 2]) for run in re.findall(r"[0-9a-f]{16,}", text)}


async def holders(dsn: str, digests: set[bytes]) -> list[str]:
    """Return the columns that hold one of some digests, as bytes or in hexadecimals."""
    found = set()
    connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
    try:
        await connection.execute("SELECT set_config('myria.tenant', '*', false)")
        columns = await connection.fetch(
            "SELECT c.table_name, c.column_name FROM information_schema.columns c "
            "JOIN information_schema.tables t USING (table_schema, table_name) "
            "WHERE c.table_schema = 'myria' AND t.table_type = 'BASE TABLE'"
        )
        for table, name in columns:
            for row in await connection.fetch(f'SELECT "{name}" AS raw, "{name}"::text AS text FROM myria."{table}"'):
                text = row["raw"].hex() if isinstance(row["raw"], bytes) else row["text"] or ""
                if any(guess.hex() in text for guess in digests):
                    found.add(f"{table}.{name}")
    finally:
        await connection.close()
    return sorted(found)


async def sampled(superuser_dsn: str) -> set[str]:
    """Return the columns of which PostgreSQL's statistics hold a word of the phrase."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(superuser_dsn)
    try:
        rows = await connection.fetch(
            "SELECT tablename || '.' || attname AS name, "
            "concat_ws(' ', most_common_vals::text, histogram_bounds::text, most_common_elems::text) AS text "
            "FROM pg_stats WHERE schemaname = 'myria'"
        )
    finally:
        await connection.close()
    return {row["name"] for row in rows if any(word in row["text"].lower() for word in WORDS)}


async def test_no_digest_and_no_sample_of_what_faces_kept_stays(database: Database) -> None:
    """Everything that the faces kept with the phrase is erased by asking for its words, and by what else was kept with
    them: no column holds a word of it, nor any digest by which a guess of it could be proved; neither do the samples
    that PostgreSQL takes of columns. What is folded from the log is still what the log says."""
    await append(database.dsn, conversation(20))
    async with Memory(database.server_dsn, SETTINGS) as memory:
        await kept_by_every_face(memory)
    connection: asyncpg.Connection[Any] = await asyncpg.connect(database.superuser_dsn)
    try:
        await connection.execute("ANALYZE")
    finally:
        await connection.close()
    assert "events.payload" in await sampled(database.superuser_dsn)
    digests = await digests_of(database)
    assert {"events.dedupe_key", "notes.digest", "notes.dedup_key", "registrations.id"} <= {
        *await holders(database.dsn, digests)
    }

    await erase(database.operator_dsn, Selection(query=WORDS[0]), at_once=500)

    assert await traces(database.dsn) == []
    assert await holders(database.dsn, digests) == []
    assert await sampled(database.superuser_dsn) == set()
    assert await failed(database.dsn) == {}


def line(number: int, text: str) -> bytes:
    """Return a line of an import that has neither an id nor a key."""
    at = f"2026-01-01T00:00:0{number}Z"
    return orjson.dumps({"timestamp": at, "channel": "c", "participants": ["ana"], "payload": {"text": text}}) + b"\n"


async def imported(database: Database, *lines: bytes) -> tuple[transfer.ImportCount, list[str]]:
    """Import some lines; return what became of them, and the codes of those that were refused."""
    codes: list[str] = []
    async with Pool(database.dsn) as pool:
        ingest = event_log(pool)
        count = await transfer.import_lines(
            ingest, TENANT, lines, Limits(), on_refused=lambda line: codes.append(line.code)
        )
        await ingest.close()
    return count, codes


async def test_no_id_that_was_made_of_content_proves_a_guess(database: Database, databases: Databases) -> None:
    """An event without id and key gets one under a key that no plane can read: the same file adds nothing twice, and
    once it is erased it is refused, also an export of it. By its id it is chosen in a copy from before."""
    lines = [line(1, f"the {PHRASE} once"), line(2, "something else")]
    unkeyed = transfer._with_content_id(transfer._parse(lines[0], Limits(), ()), Counter()).event_id
    assert unkeyed is not None
    assert (await imported(database, *lines))[0].imported == 2
    keyed = str(await builds.value(database, "SELECT event_id FROM myria.events ORDER BY event_seq LIMIT 1"))
    exported = lines[0].replace(b"{", f'{{"event_id":"{keyed}",'.encode(), 1)
    assert (await imported(database, *lines, exported))[0].already_there == 3
    await builds.build(database)
    backup = databases.copy(database)

    receipt = await erase(database.operator_dsn, Selection(query=WORDS[0]))

    assert receipt.content["rows"]["events"] == 1
    assert await holders(database.dsn, {bytes.fromhex(unkeyed[-20:])}) == []
    assert await failed(database.dsn) == {}
    async with Pool(database.dsn) as pool:
        assert await erasures(pool).event_ids(receipt.content["erasure_id"]) == [keyed]
        assert (await erasures(pool).verify(receipt)).problems == ()
    count, codes = await imported(database, *lines)
    assert (count.already_there, codes) == (1, ["event_erased"])
    assert (await imported(database, exported))[1] == ["event_id_conflict"]
    try:
        again = await erase(backup.dsn, Selection(events=(keyed,)))
        assert again.content["rows"]["events"] == 1
        assert await traces(backup.dsn) == []
    finally:
        databases.drop(backup)
    await builds.build(database)
    assert await failed(database.dsn) == {}


async def test_no_plane_can_read_the_key_of_imported_ids(database: Database) -> None:
    """Neither serving, nor building, nor the control plane; building has no ids made under it either."""
    await imported(database, line(1, "one"))
    for role in ("myria_server", "myria_builder", "myria_operator"):
        await refused(database.superuser_dsn, role, "SELECT secret FROM myria.import_secrets")
    await refused(database.superuser_dsn, "myria_builder", "SELECT myria.keyed_event_ids('default', '{}')")
