"""Drill: upgrade a memory while the release before goes on serving it, and compare everything.

Usage: drill_upgrade.py [--from COMMIT]

The release before is this repository as it was at git's newest tag v* (or at COMMIT), out of git's history. Before
the first release it is the newest commit, which proves the drill and no upgrade. Its own code makes the schema, a
memory out of the sample, builds, a rollback, and serves. A client appends without a pause. Then `myria migrate` of
this checkout runs, the server of before goes on, a server of this checkout starts beside it, the client changes over,
and the server of before ends. Compared are: every row that was there, every event that was acknowledged, the bytes of
every answer of both releases (where this release ranks anew, of those without words to rank by). Exit status 1 when
anything differs, 3 where the history does not reach so far.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx

from myria_embedded import RoleDsns
from scripts.check_house import released
from scripts.drilling import (
    ROOT,
    Drill,
    Json,
    build,
    environment,
    fetch,
    in_turn,
    myria,
    sample_questions,
    table_columns,
    table_digests,
    throw_away_server,
    without_trace,
)

NO_HISTORY = 3
WRITER = "drill-writer"
"""Who the client appends as: nobody else's answers hold its events."""
PASSAGES = frozenset({"snippet"})
"""Fields that show a part of a text: a release may choose another part."""
WRITTEN = ("events", "scopes", "scope_members", "schema_migrations", "stored_sizes")
"""Tables that are written to meanwhile; events are checked by the answers and by the client's own record."""
RECKONED = "attempted_cutoff"
"""The column of tenants from which triggers count: bookkeeping that a migration may compute again."""
CLIENT = httpx.Client(timeout=30, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
"""Calls each server over a connection of its own each time. A client for each call would read every authority."""


def main(arguments: Sequence[str]) -> int:
    """Do the drill; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--from", dest="commit", help="the release before; default: the newest tag v*, or HEAD")
    options = parser.parse_args(arguments)
    commit = options.commit or released() or "HEAD"
    if not is_in_history(commit):
        print(f"the history does not reach back to {commit} (git fetch --unshallow)", file=sys.stderr)
        return NO_HISTORY
    drill = Drill()
    with (
        tempfile.TemporaryDirectory(prefix="myria-drill-", ignore_cleanup_errors=True) as folder,
        without_trace(RuntimeError),
    ):
        old = take_out(commit, Path(folder) / "before")
        drill.step(f"the release before is {commit[:12]}")
        asyncio.run(upgrade(drill, Path(folder), old))
    return drill.result()


def is_in_history(commit: str) -> bool:
    """Return whether git has a commit."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        git("cat-file", "-e", f"{commit}^{{commit}}")
        return True
    return False


def take_out(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a new folder and return it."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", commit))) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 brought it
        archive.extractall(folder)  # noqa: S202 - made by git from our own commit
    return folder


def git(*arguments: str) -> bytes:
    """Return what git says of this repository."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


async def upgrade(drill: Drill, folder: Path, old: Path) -> None:
    """Do the drill as the module describes it."""
    async with throw_away_server(folder / "server") as (_, dsns):
        drill.step("the release before makes a memory, and serves it; a client appends without a pause")
        live_through(dsns, old)
        with serving(dsns.server, old) as old_url, Writer(old_url) as writer:
            writer.wait_for(10)
            answered = answers(old_url)

            drill.step("migrate, while it serves")
            columns = await table_columns(dsns.owner)
            columns["tenants"].remove(RECKONED)
            rows = await table_digests(dsns.owner, columns=columns, without=WRITTEN)
            began, acknowledged = time.monotonic(), len(writer.acknowledged)
            applied = json.loads(myria("migrate", "--grant", "--json", "--dsn", dsns.owner))["applied"]
            writer.wait_for(10)
            took = f"{time.monotonic() - began:.1f} s, {len(writer.acknowledged) - acknowledged} appends meanwhile"
            drill.holds(f"applied {', '.join(applied) or 'nothing'} in {took}", True)
            after = await table_digests(dsns.owner, columns=columns, without=WRITTEN)
            drill.same("content of every table that the release before had", rows, after)
            drill.same("answers of the release before, to the byte", answered, answers(old_url))
            refused = myria("status", "--json", "--dsn", dsns.server, tree=old, status=6 if applied else 0)
            starts = "refuses (schema_too_new)" if applied else "starts, as before"
            drill.holds(
                f"a process of the release before that starts now {starts}", bool(refused.strip()) != bool(applied)
            )

            drill.step("a server of this release starts beside it, the client changes over, the old one ends")
            with serving(dsns.server, None) as new_url:
                alike = versions(old) == versions(None)
                wordless = "" if alike else "without words: this release ranks anew, "
                before = {asked: answer for asked, answer in answered.items() if alike or "'query'" not in asked}
                new: set[str] = set()
                after = {asked: known(before.get(asked), answer, new) for asked, answer in answers(new_url).items()}
                added = f", but for new fields: {', '.join(sorted(new))}" if new else ""
                drill.same(
                    f"answers of this release, {wordless}to the byte{added}",
                    before,
                    {asked: answer for asked, answer in after.items() if asked in before},
                )
                writer.url = new_url
                writer.wait_for(10)
                writer.stop()
                drill.same("appends that failed", [], writer.failed)
                drill.same("every acknowledged event, once", *await both(dsns, writer))

                drill.step("this release builds")
                drill.holds("a build succeeds", await build(dsns) == "succeeded")
        if versions(old)[:2] == versions(None)[:2]:
            drill.verifies(dsns)
        else:  # another planner's plans cannot be recomputed; the build has replaced all of them
            drill.verifies(dsns, "--deep")
            drill.verifies(dsns, "--all-snapshots")


def known(before: Any, after: Any, new: set[str]) -> Any:
    """Return an answer without the fields that the release before did not answer there; their names go into `new`.

    Of what shows a part of a text (`PASSAGES`) only the presence is compared.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        new.update(after.keys() - before.keys())
        return {
            name: before[name] if name in PASSAGES else known(before[name], value, new)
            for name, value in after.items()
            if name in before
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [known(one, other, new) for one, other in zip(before, after, strict=True)]
    return after


@functools.cache
def versions(tree: Path | None) -> tuple[str, int, int]:
    """Return the versions of a release's trees, of its search blocks, and of its ranking."""
    told = json.loads(myria("version", "--json", tree=tree))
    return told["planner"], told.get("search", 1), told.get("ranking", 1)


def live_through(dsns: RoleDsns, old: Path) -> None:
    """Make what a memory contains after a while of use, all of it by the release before."""
    lines = (ROOT / "examples/workshop.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    commands: list[tuple[str | Path, ...]] = [("migrate", "--grant")]
    for number, piece in enumerate((lines[:80], lines[80:140])):
        file = old / f"piece-{number}.jsonl"
        file.write_text("".join(piece), encoding="utf-8")
        commands += [("import", file), ("rebuild", "--here", "--wait")]
    commands += [("rollback", "--reason", "drill")]
    in_turn(*((*command, "--dsn", dsns.owner) for command in commands), tree=old)


async def both(dsns: RoleDsns, writer: Writer) -> tuple[list[str], list[str]]:
    """Return the events that the client saw acknowledged, and those that the log holds."""
    rows = await fetch(dsns.owner, "SELECT event_id FROM myria.events WHERE channel = $1 ORDER BY event_id", WRITER)
    return sorted(writer.acknowledged), [row["event_id"] for row in rows]


@contextmanager
def serving(dsn: str, tree: Path | None) -> Iterator[str]:
    """Run a server of a release for the block; it is asked to end after it, and must end well.

    Raises:
        RuntimeError: it did not start, ended before it was asked to, or did not end well; with what it wrote last.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "myria_cli.main", "serve", "--dsn", dsn, "--port", str(port)],
            env={**os.environ, **environment(tree)},
            stdout=log,
            stderr=log,
        )

        def ended(how: str) -> RuntimeError:
            log.seek(0)
            told = log.read().decode("utf-8", "replace")[-2000:]
            return RuntimeError(f"a server {how} (exit status {process.returncode}): {told}")

        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(1200):
                with contextlib.suppress(httpx.HTTPError):
                    if CLIENT.get(f"{url}/readyz", timeout=5).status_code == 200:
                        break
                if process.poll() is not None:
                    raise ended("did not start")
                time.sleep(0.1)
            else:
                raise RuntimeError("a server does not become ready")
            yield url
            if process.poll() is not None:
                raise ended("ended before it was asked to")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        if process.returncode:
            raise ended("did not end well")


def call(url: str, tool: str, arguments: Json) -> Json:
    """Call a tool over MCP, as README.md does with curl."""
    answer = CLIENT.post(
        f"{url}/mcp",
        headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"},
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    )
    result: Json = answer.raise_for_status().json()["result"]
    if result.get("isError"):
        raise RuntimeError(f"{tool}: {result}")
    content: Json = result["structuredContent"]
    return content


def answers(url: str) -> dict[str, Json]:
    """Ask questions of the sample both ways; return the answers, without cursors, which are signed."""
    answered: dict[str, Json] = {}
    for question in sample_questions():
        for tool in ("myria_query_references", "myria_query_event_nodes"):
            answer = call(url, tool, {name: value for name, value in question.items() if value})
            answer.pop("next_cursor", None)
            answered[f"{tool} {question}"] = answer
    return answered


class Writer:
    """A client that appends one event after another, from a thread of its own, each with a key of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End after the append under way: only then can the acknowledged events be compared with the log."""
        self._stop.set()
        self._thread.join(60)

    def wait_for(self, more: int) -> None:
        """Return once so many more events have been acknowledged."""
        wanted, deadline = len(self.acknowledged) + more, time.monotonic() + 60
        while len(self.acknowledged) < wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the client gets nothing acknowledged: {self.failed[-1:]}")
            time.sleep(0.02)

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(0.05):
            number, url = number + 1, self.url
            event = {
                "timestamp": "2026-04-30T08:00:00Z",
                "channel": WRITER,
                "participants": [WRITER],
                "payload": {"text": f"event {number} of the drill"},
                "source_event_key": f"{WRITER}:{number}",
            }
            try:
                self.acknowledged.append(call(url, "myria_append_event", event)["event_id"])
            except (httpx.HTTPError, RuntimeError) as problem:
                self.failed.append(f"event {number} to {url}: {problem!r}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
