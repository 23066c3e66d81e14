"""What the drills have in common: throw-away servers, a memory's portrait, and comparisons that are printed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from myria.builds.run import run_build
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.event import NewEvent, parse_event
from myria.log.ids import new_id
from myria.log.limits import Limits
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import Settings
from myria_embedded import EmbeddedPostgres, RoleDsns, ensure_roles
from myria_embedded.account import server_account
from myria_embedded.find import find_binaries

ROOT = Path(__file__).resolve().parent.parent
TENANT = "default"
NOT_COMPARED = ("xid", "tail_xid", "revision", "cursor_secret")
"""Columns that belong to a server and not to the memory: transaction numbers, and the key that signs cursors."""

SETTINGS = Settings(embeddings=Settings.load().embeddings)
"""Of this environment's settings only those of vectors: others may name a model that costs money."""

Json = dict[str, Any]


class Drill:
    """Prints what is done and what is compared; remembers whether anything differed."""

    def __init__(self) -> None:
        self.differences = 0
        self._began = time.monotonic()

    def step(self, text: str) -> None:
        """Print the next step."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def same(self, what: str, before: object, after: object) -> None:
        """Compare, and print the result."""
        if before == after:
            size = f" ({len(before)})" if isinstance(before, dict | list) else ""
            print(f"          same     {what}{size}", flush=True)
        else:
            self.differences += 1
            print(f"          DIFFERS  {what}: {_first_difference(before, after)}", flush=True)

    def holds(self, what: str, is_true: object) -> None:
        """Print whether something is as it must be."""
        if is_true:
            print(f"          holds    {what}", flush=True)
        else:
            self.differences += 1
            print(f"          FAILS    {what}", flush=True)

    def verifies(self, dsns: RoleDsns, *options: str) -> None:
        """Prove the invariants: without options in every snapshot, with every scope planned anew."""
        options = options or ("--deep", "--all-snapshots")
        command = ("verify", *options, "--json", "--dsn", dsns.operator)
        done = subprocess.run(
            [sys.executable, "-m", "myria_cli.main", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout.strip():
            raise RuntimeError(f"myria verify ended with {done.returncode}: {done.stderr[-2000:]}")
        checks = json.loads(done.stdout)["checks"]
        failed = {check["check"]: check["failures"][:3] for check in checks if check["failed"]}
        self.holds(f"`myria verify {' '.join(options)}`: {len(checks)} checks {failed or ''}", not failed)

    def result(self) -> int:
        """Print the result, and return the exit status."""
        self.step("nothing was lost, nothing differs" if not self.differences else f"{self.differences} differences")
        return 1 if self.differences else 0


def _first_difference(before: object, after: object) -> str:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}, key=str):
            if before.get(key) != after.get(key):
                return f"{key}: {before.get(key)!r:.300} became {after.get(key)!r:.300}"
    return f"{before!r:.300} became {after!r:.300}"


@asynccontextmanager
async def throw_away_server(folder: Path) -> AsyncIterator[tuple[EmbeddedPostgres, RoleDsns]]:
    """Run a separate PostgreSQL for the block, with the planes' roles and an empty database."""
    quick = {"fsync": "off", "full_page_writes": "off"}
    async with EmbeddedPostgres(folder, exclusive=True, settings=quick) as server:
        yield server, await ensure_roles(server)


def postgres_program(name: str) -> str:
    """Return the path of one of PostgreSQL's own programs, of the version that the server has."""
    return find_binaries(server_account(Path("/nonexistent")))[name]


def run(*command: str | Path, env: Mapping[str, str] | None = None, status: int = 0) -> str:
    """Run a program to its end; return its standard output.

    Raises:
        RuntimeError: it did not end with `status`.
    """
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != status:
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def myria(*arguments: str | Path, tree: Path | None = None, status: int = 0) -> str:
    """Run the command line, of this checkout or of another tree."""
    return run(sys.executable, "-m", "myria_cli.main", *arguments, env=environment(tree), status=status)


_IN_TURN = """
import json, sys
from myria_cli.app import app
for words in json.loads(sys.argv[1]):
    try:
        app(words, prog_name="myria")
    except SystemExit as end:
        if end.code:
            raise
"""


def in_turn(*commands: Sequence[str | Path], tree: Path | None = None) -> str:
    """Run several command lines in one process, which saves the time that each start takes."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    return run(sys.executable, "-c", _IN_TURN, words, env=environment(tree))


def environment(tree: Path | None) -> dict[str, str]:
    """Return the variables by which Python takes the code of `tree`."""
    if tree is None:
        return {}
    planes = {str(package.parent.parent) for package in tree.glob("*/myria*/__init__.py")}
    return {"PYTHONPATH": os.pathsep.join(sorted(planes))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """Everything that can be compared of a memory."""

    tables: dict[str, tuple[int, str]]
    """Rows and a digest of the content, by table."""
    pointer: list[Json]
    """The history of the pointer, oldest first."""
    answers: dict[str, str]
    """The bytes of every answer, by question."""


async def portrait(dsns: RoleDsns, questions: Sequence[Json]) -> Portrait:
    """Return the portrait of a memory."""
    return Portrait(
        tables=await table_digests(dsns.owner),
        pointer=await fetch(
            dsns.owner,
            "SELECT kind, from_snapshot_id, to_snapshot_id, actor, reason, moved_at FROM myria.pointer_moves "
            "ORDER BY move_id",
        ),
        answers=await answers(dsns.server, questions),
    )


async def table_digests(
    dsn: str, *, without: Collection[str] = (), columns: Mapping[str, Sequence[str]] | None = None
) -> dict[str, tuple[int, str]]:
    """Return rows and a digest of the content of each table, as the owner sees them.

    Args:
        without: tables to leave out.
        columns: which columns of which tables to look at; default: all.
    """
    digests: dict[str, tuple[int, str]] = {}
    for name, names in (columns or await table_columns(dsn)).items():
        if name not in without:
            [row] = await fetch(
                dsn,
                "SELECT count(*), md5(string_agg(x.line, '' ORDER BY x.line)) AS digest FROM (SELECT md5(("  # noqa: S608 - names from the catalogue
                "SELECT jsonb_object_agg(c, to_jsonb(t) -> c) FROM unnest($1::text[]) c)::text) AS line "
                f"FROM myria.{name} t) x",
                list(names),
            )
            digests[name] = (row["count"], row["digest"])
    return digests


async def table_columns(dsn: str) -> dict[str, list[str]]:
    """Return the columns of each table that belong to the memory and not to its server."""
    rows = await fetch(
        dsn,
        "SELECT c.relname, array_agg(a.attname::text ORDER BY a.attname) AS names FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL ($1) "
        "WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind = 'r' GROUP BY 1 ORDER BY 1",
        list(NOT_COMPARED),
    )
    return {row["relname"]: row["names"] for row in rows}


async def tree(dsn: str) -> list[Json]:
    """Return every topic of the active snapshot: whose it is, its identity, its rendering, its label."""
    return await fetch(
        dsn,
        "SELECT t.participants, t.node_id, t.rendering_id, t.label FROM myria.active_snapshots a, "
        "myria.snapshot_tree(a.tenant_id, a.snapshot_id) t WHERE a.tenant_id = $1 ORDER BY 1, 2",
        TENANT,
    )


async def fetch(dsn: str, query: str, *arguments: object) -> list[Json]:
    """Return rows, of all tenants."""
    connection = await asyncpg.connect(dsn, server_settings={"myria.tenant": "*"})
    try:
        return [dict(row) for row in await connection.fetch(query, *arguments)]
    finally:
        await connection.close()


def sample_questions() -> list[Json]:
    """Return half of the sample's questions, and for each of their askers a question for the newest events."""
    lines = (ROOT / "examples/questions.jsonl").read_text(encoding="utf-8").splitlines()[::2]
    questions = [
        {"query": question["question"], "participants": question["participants"]}
        for question in (json.loads(line) for line in lines)
    ]
    return questions + [
        {"participants": names} for names in sorted({tuple(question["participants"]) for question in questions})
    ]


def sample_events() -> list[NewEvent]:
    """Return half of the sample's events."""
    lines = (ROOT / "examples/workshop.jsonl").read_text(encoding="utf-8").splitlines()[::2]
    return [parse_event(json.loads(line), Limits()) for line in lines]


async def answers(dsn: str, questions: Sequence[Json]) -> dict[str, str]:
    """Ask everything, both ways and page by page; return a digest of the bytes of each answer.

    Cursors are left out: they are signed by their server.
    """
    digests: dict[str, str] = {}
    async with Memory(dsn, SETTINGS) as memory:
        for question in questions:
            name = f"{question.get('query') or 'the newest'} as {','.join(question['participants'])}"
            names, text = tuple(question["participants"]), question.get("query")
            topics = ReferencesQuery(participants=names, query=text, max_nodes=60)
            pages = [await memory.retrieval.query_references(TENANT, topics)]
            cursor: str | None = None
            for _ in range(3):
                query = EventNodesQuery(participants=names, query=text, limit=20, cursor=cursor)
                pages.append(await memory.retrieval.query_event_nodes(TENANT, query))
                cursor = pages[-1]["next_cursor"]
                if cursor is None:
                    break
            for page in pages:
                page.pop("next_cursor", None)
            digests[name] = hashlib.sha256(json.dumps(pages).encode()).hexdigest()
    return digests


async def build(dsns: RoleDsns, *, full: bool = False, hold: bool = False) -> str:
    """Queue a build and work on it until it ends; return how it ended."""
    async with Database(dsns.operator) as database, database.write(TENANT) as connection:
        await connection.execute(sql("builds.ensure_tenant"), TENANT)
        build_id = await connection.fetchval(
            sql("builds.enqueue"), TENANT, new_id("bld"), "manual", full, hold, None, None
        )
    return str((await run_build(SETTINGS, dsns.builder, TENANT, build_id)).value)


@contextlib.contextmanager
def without_trace(problem: type[Exception]) -> Iterator[None]:
    """Exit with a message instead of a traceback when the block raises `problem`."""
    try:
        yield
    except problem as error:
        raise SystemExit(f"the drill could not be done: {error}") from error
