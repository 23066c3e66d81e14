"""Pages that PostgreSQL cannot read: whoever meets one is told what to do, and `verify` goes on past it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from myria_embedded import EmbeddedPostgres, role_dsns
from tests.cli.conftest import Called, call, write_sample
from tests.support.place import throw_away_folder
from tests.support.processes import Guardian

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def data_dir(guardian: Guardian) -> Iterator[Path]:
    """A data folder with two scopes and a snapshot, whose server has stopped."""
    with throw_away_folder(guardian) as folder:
        write_sample(folder / "sample.jsonl")
        for words in (("import", folder / "sample.jsonl"), ("rebuild", "--wait")):
            done = call(*words, "--data-dir", folder / "data")
            assert done.status == 0, done.err
        yield folder / "data"


@contextmanager
def damaged(data_dir: Path, table: str) -> Iterator[None]:
    """Overwrite the pages of a table for the block, as a bad disk may."""

    async def file_of() -> str:
        async with EmbeddedPostgres(data_dir) as server:
            connection = await asyncpg.connect(role_dsns(server).owner)
            try:
                found: str = await connection.fetchval("SELECT pg_relation_filepath($1::text::regclass)", table)
            finally:
                await connection.close()
        return found

    path = data_dir / "postgres" / asyncio.run(file_of())
    whole = path.read_bytes()
    path.write_bytes(b"\x5a" * max(8192, len(whole)))
    yield
    path.write_bytes(whole)


def failed(verified: Called) -> dict[str, Any]:
    """Return the checks that failed, by name."""
    return {check["check"]: check for check in json.loads(verified.out)["checks"] if check["failed"]}


@pytest.mark.parametrize(
    ("table", "checks", "whole"),
    [
        ("myria.events", {"log"}, "lineage"),
        ("myria.renderings", {"renderings"}, "participants"),
        ("myria.snapshots", {"snapshots"}, "leaf_refs"),
    ],
)
def test_verify_goes_on_past_damage(data_dir: Path, table: str, checks: set[str], whole: str) -> None:
    """What cannot be read fails its checks with what to do; the other checks are made all the same."""
    with damaged(data_dir, table):
        verified = call("verify", "--json", "--data-dir", data_dir)
    assert verified.status == 1, verified.err
    assert checks <= set(failed(verified))
    for name in checks:
        assert "restore a backup" in failed(verified)[name]["failures"][0]
    (good,) = [check for check in json.loads(verified.out)["checks"] if check["check"] == whole]
    assert (good["failed"], good["examined"] > 0) == (0, True)


def test_whoever_meets_damage_is_told_what_to_do(data_dir: Path) -> None:
    """A question, a listing and a build answer one coded line, and no trace."""
    asked = ("query", "bread", "--as", "ana", "--as", "ben")
    with damaged(data_dir, "myria.events"):
        told = [call(*words, "--data-dir", data_dir) for words in (("events",), asked, ("rebuild", "--full", "--wait"))]
    for met in told:
        assert "data_corrupted" in met.err, met
        assert "restore a backup" in " ".join(met.err.split())
        assert "Traceback" not in met.err
