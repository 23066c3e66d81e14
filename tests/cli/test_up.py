"""`myria up` and `myria demo` as people run them: real processes, real PostgreSQL, real kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client as Agent

from myria.log.ids import new_id
from tests.cli.conftest import call
from tests.metrics.scraping import Samples, samples
from tests.server import wire
from tests.soak.wire import Client
from tests.support.counts import in_soak_runs
from tests.support.patience import PATIENCE_S
from tests.support.place import throw_away_folder
from tests.support.postgres import Database
from tests.support.processes import Guardian, Spawned, Spawner, wait_until

pytestmark = pytest.mark.processes

KILLS = 50
SEED = 20_261_121


@pytest.fixture(scope="module")
def data_dir(guardian: Guardian) -> Iterator[Path]:
    """A data folder whose database was made once; the tests of this module use it one after the other."""
    with throw_away_folder(guardian) as folder:
        assert call("migrate", "--data-dir", folder / "data").status == 0
        yield folder / "data"


@dataclass(frozen=True, slots=True)
class Up:
    """A running `myria up`, and what it told about itself."""

    program: Spawned
    told: dict[str, Any]

    @property
    def port(self) -> int:
        """The port of its server."""
        return int(self.told["url"].split(":")[2].split("/")[0])

    @property
    def postgres_pid(self) -> int:
        """Its PostgreSQL's process id now."""
        return int((Path(self.told["data_dir"]) / "postgres" / "postmaster.pid").read_text().split()[0])

    def child(self, command: str) -> int | None:
        """The process id of its child that runs `myria <command>`, if there is one."""
        return next((pid for pid in children(self.program.pid) if f" {command} " in title(pid)), None)


def children(parent: int) -> list[int]:
    """Return the living children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(ppid) == parent and state != "Z":
                found.append(int(entry.name))
    return found


def title(pid: int) -> str:
    """Return a process's command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def start(spawn: Spawner, *arguments: str | Path, env: dict[str, str] | None = None) -> Up:
    program = spawn.myria("up", "--port", "0", "--json", *arguments, env=env)
    told = json.loads(program.wait_for(r'^\{"url".*\}$')[0])
    return Up(program, told)


@pytest.fixture
def up(spawn: Spawner, data_dir: Path) -> Iterator[Up]:
    """Everything running on the data folder."""
    one = start(spawn, "--data-dir", data_dir)
    yield one
    one.program.end()


@pytest.fixture(scope="module")
def lasting_up(guardian: Guardian) -> Iterator[Up]:
    """Everything running on a folder of its own, for the tests that leave it running."""
    spawner = Spawner(guardian)
    with throw_away_folder(guardian) as folder:
        try:
            yield start(spawner, "--data-dir", folder / "data", "--as", "ana, b", "--as", "helper")
        finally:
            spawner.end_all()


def event(key: str, text: str = "sourdough bread") -> dict[str, Any]:
    return {
        "timestamp": "2026-03-01T10:00:00Z",
        "channel": "up",
        "participants": ["ana"],
        "source_event_key": key,
        "payload": {"text": text},
    }


def test_one_scrape_tells_of_all_planes(lasting_up: Up) -> None:
    """Serving from the server's process, memory and builds of all tenants from the control plane's, in one text."""
    seen = Samples({})

    def tells_all() -> bool:
        nonlocal seen
        # A look at the memory that is slower than the scrape is left out of it, and what is appended is soon built.
        asyncio.run(append(lasting_up.port, [event(new_id("k"))]))
        seen = samples(httpx.get(f"http://127.0.0.1:{lasting_up.port}/metrics", timeout=PATIENCE_S, verify=False).text)
        return ("myria_tail_events",) in seen and seen["myria_tail_events"] >= 1

    wait_until(tells_all, 120.0, "a scrape with the memory in it")
    assert seen["myria_requests_total", "face=core", "outcome=ok", "tool=append_events"] >= 1
    assert seen["myria_tail_events"] >= 1
    assert seen["myria_tenants"] == 1
    assert seen["myria_builds_finished_total", "outcome=failed", "trigger=manual"] == 0


def test_an_erasure_that_a_tool_begins_is_carried_out(lasting_up: Up) -> None:
    """The control plane beside the server does it, and its receipt is there to fetch, with the key."""
    erased = asyncio.run(append(lasting_up.port, [event("of eva", "what eva said")]))
    chosen = {"source_keys": [{"channel": "up", "source_event_key": "of eva"}]}
    assert tool(lasting_up, "preview_erasure", **chosen)["counts"]["events"] == 1, erased
    begun = tool(lasting_up, "erase", **chosen, expected_events=1, reason="request 17")
    asked = {"erasure_id": begun["erasure_id"]}
    wait_until(lambda: tool(lasting_up, "get_erasures", **asked)["erasures"][0]["state"] == "done", 60.0, "the end")
    receipt = tool(lasting_up, "get_erasure_receipt", **asked)
    assert (receipt["receipt"]["rows"]["events"], len(receipt["key"])) == (1, 44)


def tool(up: Up, name: str, **arguments: Any) -> Any:
    """Return what a tool at the endpoint of administrators answers."""
    message = wire.call(f"myria_{name}", arguments)
    url = f"http://127.0.0.1:{up.port}/mcp/admin"
    answer = httpx.post(url, json=message, headers=wire.headers(f"myria_{name}"), timeout=PATIENCE_S, verify=False)
    return answer.json()["result"]["structuredContent"]


def test_a_second_up_on_the_same_folder_is_refused(lasting_up: Up, spawn: Spawner) -> None:
    """It says who uses the folder and ends; the first one goes on."""
    second = spawn.myria("up", "--port", "0", "--data-dir", lasting_up.told["data_dir"])
    assert second.wait() == 6
    assert f"error[data_dir_in_use]: Another `myria up` (process {lasting_up.program.pid})" in second.output()
    assert httpx.get(f"http://127.0.0.1:{lasting_up.port}/readyz", timeout=PATIENCE_S, verify=False).status_code == 200


def test_a_busy_port_is_told_before_anything_is_started(tmp_path: Path, spawn: Spawner) -> None:
    """No data folder is made, no server started: the port is asked for first."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        for command in ("up", "demo", "serve"):
            program = spawn.myria(command, "--port", str(port), "--data-dir", tmp_path / "new")
            assert program.wait() == 6
            assert f"error[port_in_use]: port {port} on 127.0.0.1 is in use" in program.output()
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_told_clearly(tmp_path: Path, spawn: Spawner) -> None:
    """Where no folder can be made, one line says so."""
    (tmp_path / "file").write_text("")
    program = spawn.myria("up", "--port", "0", "--data-dir", tmp_path / "file" / "data")
    assert program.wait() == 6
    assert "error[data_dir_unusable]: " in program.output()
    assert "Traceback" not in program.output()


def test_an_address_that_others_reach_needs_insecure(tmp_path: Path, spawn: Spawner) -> None:
    """Without authentication only loopback is served."""
    program = spawn.myria("up", "--host", "0.0.0.0", "--port", "0", "--data-dir", tmp_path / "new")
    assert program.wait() == 6
    assert "--insecure" in program.output()


def test_agents_keep_for_whom_it_was_started(lasting_up: Up) -> None:
    """It prints where agents keep and REST is, and --as says for whom: also where a name holds a comma."""

    async def keep() -> Any:
        async with Agent(lasting_up.told["agent_url"]) as agent:
            return (await agent.call_tool("remember", {"content": "The kiln opens on Friday"})).structured_content

    assert httpx.get(lasting_up.told["rest_url"] + "/health", timeout=PATIENCE_S, verify=False).status_code == 200
    assert asyncio.run(keep())["created"]
    (told,) = [
        line for line in call("events", "--json", "--data-dir", lasting_up.told["data_dir"]).lines if line["type"]
    ]
    assert (told["type"], told["participants"]) == ("myria.note", ["ana, b", "helper"])


def test_it_says_which_address_is_for_whom(database: Database, spawn: Spawner) -> None:
    """Each face that is on has a line with its address and who it is for; hosts are given the one for agents."""
    told = spawn.myria(
        "up",
        "--port",
        "0",
        "--dsn",
        database.dsn,
        env={"COLUMNS": "120", "MYRIA_REST_ENABLED": "no"},
    )
    text = told.wait_for(r"(?s)Myria is up.*Ctrl-C stops everything")[0]
    for name, path, whom in (
        ("agents", "/mcp/agent", "a model's own memory"),
        ("programs", "/mcp", "events and topics"),
        ("admin", "/mcp/admin", "builds and snapshots"),
    ):
        assert re.search(rf"{name} +http://127.0.0.1:\d+{path}  {whom}", text), text
    assert "REST" not in text
    assert "turns" not in text
    assert re.search(r'"url": "http://127.0.0.1:\d+/mcp/agent"', text)


def test_other_commands_use_the_running_server(lasting_up: Up) -> None:
    """Status, events and rebuild join the running database, and leave it running."""
    asyncio.run(append(lasting_up.port, [event(new_id("k"))]))
    assert call("events", "--json", "--data-dir", lasting_up.told["data_dir"]).lines[-1]["channel"] == "up"
    built = call("rebuild", "--force", "--wait", "--json", "--data-dir", lasting_up.told["data_dir"])
    assert built.status == 0, built.err
    assert built.json["status"] == "succeeded"
    status = call("status", "--json", "--data-dir", lasting_up.told["data_dir"])
    assert status.json["active_snapshot_id"] == built.json["snapshot_id"]
    assert is_alive(lasting_up.postgres_pid)


def test_the_log_can_be_followed(lasting_up: Up, spawn: Spawner) -> None:
    """`events --follow` prints what is appended while it runs, until Ctrl-C."""
    follower = spawn.myria(
        *("events", "--follow", "--json", "--limit", "1"),
        *("--data-dir", lasting_up.told["data_dir"]),
    )
    for number in range(3):
        key = new_id("k")
        asyncio.run(append(lasting_up.port, [event(key, f"followed {number}")]))
        follower.wait_for(key)
    follower.signal(signal.SIGINT)
    assert follower.wait() == 130


@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.6, 1.0, 2.0])
def test_ctrl_c_at_any_moment_of_the_start_leaves_nothing(tmp_path: Path, spawn: Spawner, after_s: float) -> None:
    """Interrupted while it imports, creates the database or starts: exit 130, no process and no half database."""
    begin = "from myria_cli.main import main; print('begun', flush=True); main()"
    program = spawn.python("-c", begin, "up", "--port", "0", "--data-dir", tmp_path / "data")
    program.wait_for("^begun")
    time.sleep(after_s)
    started = children(program.pid)
    program.signal(signal.SIGINT)
    assert program.wait() == 130
    assert "Traceback" not in program.output()
    assert not [pid for pid in started if is_alive(pid)]
    assert not list((tmp_path / "data").glob(".creating-*"))


async def append(port: int, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    reply = await Client(port).call_until_answered("append_events", {"events": events})
    assert not reply.is_error, reply
    results: list[dict[str, Any]] = reply.content["results"]
    return results


async def test_a_killed_server_comes_back_on_its_port(lasting_up: Up) -> None:
    """After kill -9 the same URL answers again; nobody's connection is refused meanwhile."""
    pid = lasting_up.child("serve")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    # The listening socket is the parent's: a request that comes in between waits instead of failing.
    async with httpx.AsyncClient(timeout=PATIENCE_S, verify=False) as client:
        assert (await client.get(f"http://127.0.0.1:{lasting_up.port}/healthz")).status_code == 200
    assert lasting_up.child("serve") not in {None, pid}


async def test_a_killed_postgres_comes_back_with_every_event(up: Up) -> None:
    """After kill -9 of the postmaster, appends go on, and what was acknowledged is there; SIGTERM leaves nothing."""
    key = new_id("k")
    before = await append(up.port, [event(key)])
    os.kill(up.postgres_pid, signal.SIGKILL)
    again = await append(up.port, [event(key), event(new_id("k"))])
    assert again[0]["event_id"] == before[0]["event_id"]
    assert again[0]["deduplicated"] is True
    assert again[1]["deduplicated"] is False
    started = [up.told["server_pid"], up.postgres_pid]
    up.program.signal(signal.SIGTERM)
    assert await asyncio.to_thread(up.program.wait) == 143
    assert not [pid for pid in started if is_alive(pid)]


def test_nothing_outlives_a_killed_parent_but_postgres(spawn: Spawner, data_dir: Path) -> None:
    """kill -9 of `up` takes the server with it; the next `up` adopts what PostgreSQL left, and Ctrl-C stops it all."""
    first = start(spawn, "--data-dir", data_dir)
    os.kill(first.program.pid, signal.SIGKILL)
    first.program.wait()
    wait_until(lambda: not is_alive(first.told["server_pid"]), 60.0, "the server's end")
    second = start(spawn, "--data-dir", data_dir)
    assert httpx.get(f"http://127.0.0.1:{second.port}/readyz", timeout=PATIENCE_S, verify=False).status_code == 200
    running = [second.told["server_pid"], second.postgres_pid, *children(second.program.pid)]
    second.program.signal(signal.SIGINT)
    assert second.program.wait() == 130
    assert not [pid for pid in running if is_alive(pid)]
    assert "Traceback" not in second.program.output()


def test_a_database_of_ones_own_is_migrated_and_used(databases: Any, spawn: Spawner) -> None:
    """With --dsn no server is started: the named database is migrated and served."""
    database = databases.create_empty()
    try:
        up = start(spawn, "--dsn", database.dsn)
        assert up.told["data_dir"] is None
        assert httpx.get(f"http://127.0.0.1:{up.port}/readyz", timeout=PATIENCE_S, verify=False).status_code == 200
        up.program.signal(signal.SIGINT)
        assert up.program.wait() == 130
    finally:
        databases.drop(database)


def test_the_demo_answers_and_ends_and_finds_its_sample_again(database: Database, spawn: Spawner) -> None:
    """`demo --once` loads the sample over MCP, draws three answers with their evidence, and exits 0; twice."""
    outputs = []
    for _ in range(2):
        program = spawn.myria("demo", "--once", "--port", "0", "--dsn", database.dsn, env={"COLUMNS": "200"})
        assert program.wait(300) == 0, program.output()
        outputs.append(program.output())
    assert "embeddings are off, because embeddings.model is off" in outputs[0]
    assert "events over MCP" in outputs[0]
    assert "events are already there" in outputs[1]
    for output in outputs:
        assert output.count(" asks: ") == 3
        for answer in output.split(" asks: ")[1:]:
            assert "score" not in answer
            assert "A person would say: " in answer
        assert sum("★ 2026" in answer for answer in output.split(" asks: ")) >= 2


@in_soak_runs
async def test_everything_may_be_killed_at_random_under_load(up: Up, data_dir: Path) -> None:
    """kill -9 of PostgreSQL, server and builder, again and again: each acknowledged event is there exactly once."""
    chosen = random.Random(SEED)
    acknowledged: dict[str, str] = {}
    stop = asyncio.Event()

    async def load(number: int) -> None:
        client = Client(up.port)
        count = 0
        while not stop.is_set():
            count += 1
            key = f"{number}-{count}-{new_id('k')}"
            reply = await client.call_until_answered("append_event", event(key, f"bread {count}"))
            assert not reply.is_error, reply
            acknowledged[key] = reply.content["event_id"]

    loads = [asyncio.create_task(load(number)) for number in range(4)]
    killed = {"serve": 0, "build": 0, "postgres": 0}
    for _ in range(KILLS):
        await asyncio.sleep(chosen.uniform(0.3, 1.5))
        victim = chosen.choice(["serve", "build", "postgres"])
        if victim == "build":
            await Client(up.port).call_until_answered("trigger_build", {"full": True})
        pid = await process_of(up, victim)
        if victim == "build":
            await asyncio.sleep(chosen.uniform(0.0, 1.5))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed[victim] += 1
    await asyncio.sleep(1.0)
    stop.set()
    await asyncio.gather(*loads)
    assert sum(killed.values()) >= KILLS // 2, killed
    rebuilt = await asyncio.to_thread(run, "rebuild", "--wait", "--data-dir", data_dir)
    assert rebuilt.returncode == 0, rebuilt.stderr
    stored = await asyncio.to_thread(stored_events, data_dir)
    for key, event_id in acknowledged.items():
        assert stored.get(key) == [event_id], key
    verified = await asyncio.to_thread(run, "verify", "--data-dir", data_dir)
    assert verified.returncode == 0, verified.stdout


async def process_of(up: Up, victim: str) -> int:
    """Return the process id of a victim once it runs: it may just have been killed, or not be needed yet."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(OSError, ValueError, IndexError):  # PostgreSQL is being started
                pid = up.postgres_pid if victim == "postgres" else up.child(victim)
                if pid is not None and is_alive(pid):
                    return pid
            await asyncio.sleep(0.02)


def stored_events(data_dir: Path) -> dict[str, list[str]]:
    """Return the event_ids in the log by their key."""
    found: dict[str, list[str]] = {}
    for line in run("export", "--data-dir", data_dir).stdout.splitlines():
        one = json.loads(line)
        found.setdefault(one["source_event_key"], []).append(one["event_id"])
    return found


def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a program and return what it printed."""
    command = [sys.executable, "-m", "myria_cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=120.0)
