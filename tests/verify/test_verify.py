"""Verification: a sound database passes, and every kind of damage is found by the check that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import asyncpg
import pytest

from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.builds.verify import CHECKS, DEEP, Report, verify
from myria.control import ControlLoop
from myria.db.database import Database
from myria.erasure.commands import Erasures
from myria.erasure.model import Selection
from myria.index.embeddings.keeping import VectorKeeper
from myria.log.event import NewEvent
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.evaluations import Evaluation
from myria.notes.feedback import Feedback
from myria.notes.folding import event_log
from myria.notes.links import NoteLinks
from myria.notes.memories.model import MemoryDraft, note_of_memory
from myria.notes.model import note_event
from myria.notes.registrations.model import Entry, registration_event
from myria.notes.turns.model import Session, mark_event
from myria.settings import PlannerSettings, Settings
from tests.support import postgres
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Databases

SETTINGS = Settings(planner=PlannerSettings(subjects=True))


async def build(dsn: str, *, hold: bool = False) -> str:
    """Build once, in this process, and return the snapshot's id."""
    async with Database(dsn) as database:
        registry = Registry(database, SETTINGS)
        asked = await registry.request_build(TENANT, hold=hold)

        async def launch(tenant: str, build_id: str) -> int:
            return (await run_build(SETTINGS, dsn, tenant, build_id)).exit_status

        loop = ControlLoop(database, SETTINGS, launch)
        while True:
            await loop.look(TENANT)
            request = await registry.request(TENANT, asked["request_id"])
            if request["build_id"] is not None:
                done = await registry.build(TENANT, request["build_id"])
                if done["finished_at"] is not None:
                    await loop.close()
                    return str(done["snapshot_id"])


async def checked(dsn: str, *, deep: bool = False, all_snapshots: bool = True) -> Report:
    async with Database(dsn) as database:
        return await verify(database, TENANT, SETTINGS.planner, deep=deep, all_snapshots=all_snapshots)


def failed(report: Report) -> dict[str, list[str]]:
    return {check.name: check.failures for check in report.checks if check.failed}


def memory_event(draft: MemoryDraft, note_id: str, key: str | None, *, at: int, within_s: int) -> NewEvent:
    """Return the event by which a memory is kept over REST."""
    note = note_of_memory(draft, dedup_key=key, shared_with="org", within_s=within_s)
    return note_event(note, ("ana", "org"), note_id=note_id, version=1, timestamp=at, speaker=draft.agent_id)


class Lengths:
    """A model by which texts are alike that are as long."""

    name = "lengths"

    async def embed(self, texts: Sequence[str], *, within_s: float) -> list[bytes | None]:
        assert within_s > 0
        return [bytes([1, len(text) % 100]) for text in texts]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(scope="module")
def built(databases: Databases) -> Iterator[str]:
    """A template with two scopes, three snapshots (one held) and some internal events; the name of its database."""
    database = databases.create()

    async def fill() -> None:
        await append(database.dsn, conversation(300, internal_share=0.05))
        await append(database.dsn, conversation(40, seed=2, participants=("ana", "chloé", "ben")))
        await build(database.dsn)
        await append(database.dsn, conversation(30, seed=3, start=2_000_000))
        await build(database.dsn)
        results = await append(database.dsn, conversation(10, seed=4, start=4_000_000))
        async with Database(database.dsn) as pool:
            withdrawals = Withdrawals(event_log(pool))
            await withdrawals.withdraw(TENANT, [results[3].event_id], "forgotten", may_see=lambda _: True)
            notes = Notes(event_log(pool), content_characters=100)
            draft = Draft(content="The kiln is hot", session_id="s1", anchor=True)
            first = await notes.remember(TENANT, ("ana",), draft, contract="memento", now=10**15)
            draft = Draft(content="The kiln was lit", session_id="s1", anchor=True)
            second = await notes.remember(TENANT, ("ana",), draft, contract="memento", now=10**15)
            links = NoteLinks(event_log(pool))
            await links.link(TENANT, first.note_id, [second.note_id], "caused_by", may_see=lambda _: True)
            feedback = Feedback(tool="recall", relevant=True, sufficient=False)
            await event_log(pool).append_events(TENANT, (feedback.event(("ana",), timestamp=10**15, speaker=None),))
            rating = Evaluation(note_id=first.note_id, version=1, value=1, specificity=0.5, actionability=0)
            await event_log(pool).append_events(TENANT, (rating.event(("ana",), timestamp=10**15, model="m"),))
            session = Session(own=("bot",), participants=("ana", "bot"), project="p", session_id="s")
            mark = mark_event(session, "t", [], [], previous=None, at=10**15)
            await event_log(pool).append_events(TENANT, (mark,))
            memory = MemoryDraft(agent_id="bot", content="The kiln cooled", tags=("kiln",), importance=0.25)
            kept = memory_event(memory, "note_m", "k", at=10**15, within_s=60)
            agent = Entry(kind="agent", entry_id="agent_1", name="bot")
            await event_log(pool).append_events(TENANT, (kept, registration_event(agent, ("org",), at=10**15)))
            erasures = Erasures(pool, Registry(pool, SETTINGS), event_log(pool), TENANT, actor="test")
            erasure = await erasures.start(Selection(events=(results[5].event_id,)), reason="asked")
            await erasures.run(erasure)
        await build(database.dsn, hold=True)
        async with Database(database.dsn) as pool:
            keeper = VectorKeeper(pool, Lengths(), within_s=60)
            while await keeper.run(TENANT, 100):
                pass

    databases.loop.run(fill())
    yield database.name
    databases.drop(database)


@pytest.fixture
def copy(databases: Databases, built: str) -> Iterator[postgres.Database]:
    """A database of one's own with the same content."""
    database = databases.create_empty()
    databases.execute(f"DROP DATABASE {database.name}")
    databases.execute(f"CREATE DATABASE {database.name} OWNER myria_owner TEMPLATE {built} STRATEGY file_copy")
    yield database
    databases.drop(database)


async def test_a_sound_database_passes_every_check(copy: postgres.Database) -> None:
    """Nothing fails, every check has looked at something, and deep planning gives the same trees."""
    report = await checked(copy.dsn, deep=True)
    assert failed(report) == {}
    assert [check.name for check in report.checks] == list(CHECKS)
    assert all(check.examined for check in report.checks)
    assert len(report.snapshots) == 3


async def test_odd_memories_are_written_as_their_events_say(database: postgres.Database) -> None:
    """Quotes, commas, braces, numbers of many digits, names that look like nothing: rows hold what was said."""
    odd = MemoryDraft(agent_id="bot", content='He said "{NULL}",\\ and\nleft\t', importance=1 / 3)
    drafts = [
        odd,
        odd._replace(tags=("b.c", "A-1", "null"), importance=0.5, session_id="p/s"),
        odd._replace(event_type="decision_made", importance=0, metadata={"a": [1, {"b": None}]}),
        odd._replace(memory_type="decision", importance=1, dedup_key='{"k",NULL}\\'),
        odd._replace(memory_type="entity", importance=None, dedup_key="NULL", content="\u2028 \U0001f9fa"),
        odd._replace(importance=0.12345678901234567, tags=("\u00e4",)),
    ]
    kept = [
        memory_event(draft, f"note_{n}", draft.dedup_key, at=10**15 + n, within_s=n % 2)
        for n, draft in enumerate(drafts)
    ]
    async with Database(database.dsn) as pool:
        await event_log(pool).append_events(TENANT, kept)
    report = await checked(database.dsn)
    assert failed(report) == {}
    assert {check.name: check.examined for check in report.checks}["notes"] == len(drafts)


async def test_an_empty_database_passes(database: postgres.Database) -> None:
    """Without events and snapshots there is nothing to fail."""
    report = await checked(database.dsn, deep=True)
    assert failed(report) == {}
    assert report.snapshots == ()


async def test_verification_writes_nothing_and_needs_only_the_serving_role(copy: postgres.Database) -> None:
    """It runs as the serving role, in a transaction that is read-only."""
    report = await checked(copy.server_dsn, deep=True)
    assert failed(report) == {}


async def test_a_long_scope_is_walked_in_pieces(database: postgres.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree of more events than are read at once is proved all the same."""
    monkeypatch.setattr("myria.builds.verify.trees._SUBTREE_EVENTS", 40)
    await append(database.dsn, conversation(1_500))
    await build(database.dsn)
    report = await checked(database.dsn, deep=True)
    assert failed(report) == {}
    examined = {check.name: check.examined for check in report.checks}
    assert examined["coverage"] == 1_500


SCOPE_1 = "(SELECT min(scope_id) FROM myria.scopes)"
SOME_LEAF = "(SELECT min(node_id) FROM myria.nodes WHERE node_type = 'leaf_topic' AND cardinality(event_seqs) > 3)"
ROOT = "(SELECT root_rendering_id FROM myria.scope_roots WHERE scope_id = " + SCOPE_1 + " ORDER BY number LIMIT 1)"
SNAPSHOT_1 = "(SELECT snapshot_id FROM myria.snapshots WHERE number = 1)"

DAMAGE: dict[str, tuple[str, str]] = {
    "a participant out of order": (
        "UPDATE myria.scopes SET participants = ARRAY['ben', 'ana'] WHERE scope_id = " + SCOPE_1,
        "participants",
    ),
    "a forged scope key": (
        "UPDATE myria.scopes SET scope_key = sha256('x') WHERE scope_id = " + SCOPE_1,
        "participants",
    ),
    "a lost member": (
        "DELETE FROM myria.scope_members WHERE participant = 'ben' AND scope_id = " + SCOPE_1,
        "participants",
    ),
    "a stray member": (
        f"INSERT INTO myria.scope_members VALUES ('default', 'eve', {SCOPE_1})",
        "participants",
    ),
    "an event of no scope": ("UPDATE myria.events SET scope_id = 999 WHERE event_seq = 7", "log"),
    "a forged idempotency key": (
        "UPDATE myria.events SET source_event_key = 'k', dedupe_key = sha256('x') WHERE event_seq = 7",
        "log",
    ),
    "a withdrawal that was not folded": ("DELETE FROM myria.withdrawn", "withdrawals"),
    "a withdrawal that the log does not know": (
        "INSERT INTO myria.withdrawn VALUES ('default', 1, 5, 6, 'forgotten')",
        "withdrawals",
    ),
    "a forged note": ("UPDATE myria.notes SET importance = 0.1", "notes"),
    "a note that was not folded": ("DELETE FROM myria.notes", "notes"),
    "a forged session": ("UPDATE myria.sessions SET idle_s = 1", "sessions"),
    "a session that was not folded": ("DELETE FROM myria.sessions", "sessions"),
    "a link that the log does not know": (
        "INSERT INTO myria.note_relations VALUES ('default', 'note_a', 'note_b', 'related', 1)",
        "links",
    ),
    "a link that was not folded": ("DELETE FROM myria.note_relations", "links"),
    "forged feedback": ("UPDATE myria.tool_feedback SET sufficient = NOT sufficient", "feedback"),
    "feedback that was not folded": ("DELETE FROM myria.tool_feedback", "feedback"),
    "a forged rating": ("UPDATE myria.note_evaluations SET worth = 1", "evaluations"),
    "a rating that was not folded": ("DELETE FROM myria.note_evaluations", "evaluations"),
    "a turn that was not folded": ("DELETE FROM myria.turns", "turns"),
    "a session of turns that is ahead": ("UPDATE myria.turn_sessions SET turns = turns + 1", "turns"),
    "a forged memory": ("UPDATE myria.notes SET agent_id = 'eve' WHERE event_type IS NOT NULL", "notes"),
    "an agent that was not folded": ("DELETE FROM myria.registrations", "registrations"),
    "an agent with another name": ("UPDATE myria.registrations SET name = 'eve'", "registrations"),
    "a receipt of another officer": (
        """UPDATE myria.erasures SET receipt = replace(receipt, '"by":"test"', '"by":"nobody"')""",
        "receipts",
    ),
    "a list of erased events with one more": (
        """INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id)
           SELECT 'default', 1, 1, erasure_id FROM myria.erasures""",
        "receipts",
    ),
    "a forged reason": ("UPDATE myria.withdrawn SET reason = 'restored'", "withdrawals"),
    "a transaction of another server": ("UPDATE myria.events SET xid = '9999999' WHERE event_seq = 7", "log"),
    "a lost event": (
        "DELETE FROM myria.events WHERE event_seq = (SELECT event_seqs[1] FROM myria.nodes WHERE node_id = "
        + SOME_LEAF
        + ")",
        "leaf_refs",
    ),
    "an event turned internal": (
        "UPDATE myria.events SET internal = true WHERE event_seq = "
        "(SELECT event_seqs[1] FROM myria.nodes WHERE node_id = " + SOME_LEAF + ")",
        "leaf_refs",
    ),
    "a leaf that lost a ref": (
        "UPDATE myria.nodes SET event_seqs = event_seqs[2:], weights = weights[2:] WHERE node_id = " + SOME_LEAF,
        "leaf_refs",
    ),
    "refs out of order": (
        "UPDATE myria.nodes SET event_seqs = event_seqs[2:] || event_seqs[1] WHERE node_id = " + SOME_LEAF,
        "leaf_refs",
    ),
    "a changed summary": ("UPDATE myria.renderings SET summary = 'forged' WHERE rendering_id = " + ROOT, "renderings"),
    "a lost leaf": ("DELETE FROM myria.renderings WHERE node_id = " + SOME_LEAF, "renderings"),
    "a lost identity": ("DELETE FROM myria.nodes WHERE node_id = " + SOME_LEAF, "renderings"),
    "a lost topic": (
        "DELETE FROM myria.topics WHERE topic_id = (SELECT topic_id FROM myria.renderings WHERE rendering_id = "
        + ROOT
        + ")",
        "renderings",
    ),
    "a forged anchor": (
        "UPDATE myria.renderings SET anchor_event_id = 'evt_x' WHERE rendering_id = " + ROOT,
        "renderings",
    ),
    "a wrong span": (
        "UPDATE myria.renderings SET last_at = last_at + interval '1 second' WHERE rendering_id = " + ROOT,
        "trees",
    ),
    "a wrong count": ("UPDATE myria.renderings SET events = events + 1 WHERE rendering_id = " + ROOT, "trees"),
    "a wrong leaf id in its parent": (
        "UPDATE myria.renderings SET child_leaves = array_replace(child_leaves, " + SOME_LEAF + ", sha256('x')) "
        "WHERE child_leaves @> ARRAY[" + SOME_LEAF + "]",
        "trees",
    ),
    "a tail bound too late": (
        "UPDATE myria.snapshots SET tail_xid = '9999999' WHERE number = 1",
        "snapshots",
    ),
    "a snapshot of a failed build": (
        "UPDATE myria.builds SET status = 'failed' "
        "WHERE build_id = (SELECT build_id FROM myria.snapshots WHERE number = 1)",
        "snapshots",
    ),
    "a lineage with a gap": (
        "UPDATE myria.snapshots SET lineage = '{[2,3)}' WHERE number = 2",
        "lineage",
    ),
    "a lineage without itself": ("UPDATE myria.snapshots SET lineage = '{[1,2)}' WHERE number = 2", "lineage"),
    "two active snapshots": (
        "UPDATE myria.snapshots SET status = 'active' WHERE number = 1",
        "active_pointer",
    ),
    "a pointer moved by hand": ("UPDATE myria.active_snapshots SET snapshot_id = " + SNAPSHOT_1, "active_pointer"),
    "a history with a hole": ("DELETE FROM myria.pointer_moves WHERE from_snapshot_id IS NULL", "active_pointer"),
    "a published snapshot over a held one": (
        "UPDATE myria.snapshots SET lineage = '{[1,4)}' WHERE number = 2",
        "staging",
    ),
    "a root row under a free number": (
        "UPDATE myria.scope_roots SET number = 77 WHERE number = 3",
        "scope_roots",
    ),
    "a root without its rendering": (
        "UPDATE myria.scope_roots SET root_rendering_id = sha256('x') WHERE number = 1",
        "scope_roots",
    ),
    "a scope that vanished from a snapshot": (
        "DELETE FROM myria.scope_roots WHERE scope_id <> " + SCOPE_1,
        "coverage",
    ),
    "an older tree under the newer snapshot": ("DELETE FROM myria.scope_roots WHERE number = 2", "coverage"),
    "a vector of another scope": ("UPDATE myria.event_vectors SET scope_id = scope_id + 1", "vectors"),
    "a lost vector of a text": ("DELETE FROM myria.text_vectors", "vectors"),
    "a lost vector of an event": (
        "DELETE FROM myria.event_vectors WHERE event_seq = (SELECT max(event_seq) FROM myria.event_vectors v "
        "JOIN myria.vector_progress p USING (tenant_id, model) WHERE event_seq <= p.done_seq)",
        "vectors",
    ),
    "a vector of an erased event": (
        "INSERT INTO myria.event_vectors SELECT tenant_id, 'lengths', event_seq, scope_id FROM myria.erased",
        "vectors",
    ),
    "a vector with other dimensions": (
        "UPDATE myria.text_vectors SET vector = vector || vector "
        "WHERE digest = (SELECT min(digest) FROM myria.text_vectors)",
        "vectors",
    ),
    "a forged summary of a subject": ("UPDATE myria.subject_nodes SET summary = 'forged'", "subjects"),
    "a lost leaf of a subject": (
        "DELETE FROM myria.renderings WHERE node_type = 'leaf_topic' AND rendering_id IN "
        "(SELECT unnest(children) FROM myria.subject_nodes)",
        "subjects",
    ),
    "records under a free number": ("UPDATE myria.subject_holders SET number = 77 WHERE number = 3", "subjects"),
    "a record of a leaf that is none": (
        "UPDATE myria.subject_holders SET holders = decode(repeat('00', 50), 'hex')",
        "subject_trees",
    ),
    "a torn record of who holds a key": (
        "UPDATE myria.subject_holders SET holders = substr(holders, 1, 30)",
        "subject_trees",
    ),
    "a lost search block": ("DELETE FROM myria.search_blocks", "search_blocks"),
    "a torn search block": ("UPDATE myria.search_blocks SET block = substr(block, 1, 100)", "search_blocks"),
    "a search block with other leaves": ("UPDATE myria.search_blocks SET leaf_ids = sha256('x')", "search_blocks"),
    "a search block of another part": (
        "UPDATE myria.scope_roots SET blocks = (SELECT array_agg(rendering_id) FROM "
        "(SELECT rendering_id FROM myria.search_blocks LIMIT 1) one) ",
        "search_blocks",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found_by_its_check(copy: postgres.Database, damage: str) -> None:
    """Each kind of damage makes the check fail that is there for it."""
    statement, check = DAMAGE[damage]
    connection = await asyncpg.connect(copy.superuser_dsn)
    await connection.execute("SET session_replication_role = replica")
    assert not re.fullmatch(r"\w+ 0", await connection.execute(statement))
    await connection.close()
    report = await checked(copy.dsn)
    assert check in failed(report), failed(report)
    assert failed(report)[check][0]


async def test_deep_finds_text_that_changed_under_a_block(copy: postgres.Database) -> None:
    """Another text under the same event_id is in no hash of a leaf; the deep checks find it."""
    connection = await asyncpg.connect(copy.superuser_dsn)
    await connection.execute(
        'UPDATE myria.events SET payload = \'{"text": "zebra quagga okapi"}\' WHERE event_seq BETWEEN 20 AND 40'
    )
    await connection.close()
    assert failed(await checked(copy.dsn)) == {}
    found = failed(await checked(copy.dsn, deep=True))
    assert set(found) == set(DEEP)


async def test_deep_finds_the_vector_of_another_text(copy: postgres.Database) -> None:
    """A digest that is not its event's text's is found, though a text has it."""
    connection = await asyncpg.connect(copy.superuser_dsn)
    await connection.execute(
        "UPDATE myria.event_vectors SET digest = (SELECT max(digest) FROM myria.event_vectors) "
        "WHERE digest = (SELECT min(digest) FROM myria.event_vectors)"
    )
    await connection.execute(
        "DELETE FROM myria.text_vectors WHERE digest = (SELECT min(digest) FROM myria.text_vectors)"
    )
    await connection.close()
    assert failed(await checked(copy.dsn)) == {}
    assert "vector_digests" in failed(await checked(copy.dsn, deep=True))


async def test_vectors_from_before_captions_were_read_are_sound(copy: postgres.Database) -> None:
    """A vector of the text alone is its event's own, though a picture is described beside the text."""
    connection = await asyncpg.connect(copy.superuser_dsn)
    changed = "UPDATE myria.events SET payload = payload || '{\"alt\": \"zebra\"}' WHERE payload ? 'text'"
    assert not re.fullmatch(r"\w+ 0", await connection.execute(changed))
    await connection.close()
    assert "vector_digests" not in failed(await checked(copy.dsn, deep=True))


async def test_deep_finds_subjects_of_other_leaves(copy: postgres.Database) -> None:
    """A scope that was made to have no subjects has no node that is wrong; planning anew finds it."""
    connection = await asyncpg.connect(copy.superuser_dsn)
    await connection.execute("UPDATE myria.subject_roots SET root_rendering_id = NULL")
    await connection.execute(
        "UPDATE myria.subject_holders SET holders = '' WHERE key = (SELECT min(key) FROM myria.subject_holders)"
    )
    await connection.close()
    assert failed(await checked(copy.dsn)) == {}
    found = failed(await checked(copy.dsn, deep=True))
    assert list(found) == ["subjects_anew"]
    assert any("the root of its subjects" in failure for failure in found["subjects_anew"])
    assert any("the record of key" in failure for failure in found["subjects_anew"])


async def test_deep_says_when_the_settings_are_other_ones(copy: postgres.Database) -> None:
    """A snapshot planned with other settings cannot be replanned; that is told, not passed over."""
    async with Database(copy.dsn) as database:
        report = await verify(database, TENANT, PlannerSettings(leaf_target=7), deep=True)
    assert list(failed(report)) == ["replan", "subjects_anew"]
    assert "other settings" in failed(report)["replan"][0]


async def test_snapshots_of_an_older_planner_are_history(copy: postgres.Database) -> None:
    """An archived snapshot that another planner made is not replanned, and is no failure after an upgrade."""
    connection = await asyncpg.connect(copy.superuser_dsn)
    other = "UPDATE myria.snapshots SET planner_settings = 'another planner' WHERE status = $1"
    assert await connection.execute(other, "archived") != "UPDATE 0"
    assert failed(await checked(copy.dsn, deep=True)) == {}

    await connection.execute(other, "active")
    assert list(failed(await checked(copy.dsn, deep=True))) == ["replan"]
    await connection.close()


async def test_failures_are_bounded_in_words_and_counted_in_full(copy: postgres.Database) -> None:
    """A thousand failures print twenty and count a thousand."""
    connection = await asyncpg.connect(copy.superuser_dsn)
    await connection.execute("UPDATE myria.events SET xid = '9999999'")
    await connection.close()
    report = await checked(copy.dsn)
    log = next(check for check in report.checks if check.name == "log")
    assert log.failed == log.examined > 380
    assert len(log.failures) == 20
    assert report.to_json()["ok"] is False


def test_this_file_names_every_check() -> None:
    """Each check of the contract has damage that proves it."""
    assert {check for _, check in DAMAGE.values()} | DEEP == set(CHECKS)


async def test_blocks_of_another_version_are_no_damage(copy: postgres.Database) -> None:
    """So it is after an upgrade, in part after its first build; a block that is there in no version is missed."""
    connection = await asyncpg.connect(copy.superuser_dsn)
    try:
        await connection.execute("UPDATE myria.search_blocks SET analyzer_version = analyzer_version - 1")
        assert not failed(await checked(copy.dsn, deep=True))
        await connection.execute("DELETE FROM myria.search_blocks")
    finally:
        await connection.close()
    assert set(failed(await checked(copy.dsn))) == {"search_blocks"}
