"""An installation worth a picture, for docs/monitoring.md: two servers, the operator, builds, load, and a few mishaps.

Usage: python -m tests.monitoring.scene [--minutes 15] [--into docs]

Everything is real but the node (tests/kubernetes plays it): API server, operator, `myria serve`, Jobs, PostgreSQL,
Prometheus. There are two tenants under a load that rises and falls; builds and some of the queries ask a scripted
model. On the way somebody rolls back and resumes, callers send nonsense, the model is away for a while, and the
database goes away for some seconds. At the end scripts/draw_dashboards.py draws what Prometheus has seen. Needs
scripts/build_control_plane.py and scripts/get_prometheus.py to have run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts.draw_dashboards import Window, write_picture
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.node import Node
from tests.kubernetes.operating import Installation
from tests.kubernetes.place import Place
from tests.kubernetes.processes import Processes
from tests.llm.oracle import Oracle
from tests.llm.provider import Answer, Asked, Provider
from tests.monitoring.rules import ROOT
from tests.monitoring.scraping import Scraper, Target
from tests.soak.wire import Client, HungUp
from tests.support.postgres import Databases
from tests.support.processes import Guardian, Spawner, free_port

TENANTS = ("acme", "zeta")
EVERY_S = 5
MODEL_S = 0.3
"""How long the model thinks."""
OUTAGE_S = 12
SUBJECTS = (
    "the sourdough needs another fold and a longer rest",
    "train tickets to the harbour are cheaper on Tuesday",
    "the invoice of the tax office is due next month",
    "espresso tastes sour since the grinder was cleaned",
    "the kitten goes to the vet for its second vaccine",
    "the database backup takes too long since the migration",
    "the trail to the mountain hut is closed after rain",
)
PEOPLE = ("ana", "ben", "chloe", "dario")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What runs: the installation, its servers' ports by tenant, and Prometheus."""

    installation: Installation
    ports: dict[str, int]
    scraper: Scraper
    model: Provider


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Start everything; end it with the block."""
    found = subprocess.run(
        [sys.executable, ROOT / "scripts/get_prometheus.py"], capture_output=True, text=True, check=True
    )
    with contextlib.ExitStack() as stack:
        guardian = Guardian()
        stack.callback(guardian.close)
        databases = Databases(guardian)
        stack.callback(databases.close)
        database = stack.enter_context(databases.fresh())
        control_plane = ControlPlane(guardian)
        stack.callback(control_plane.close)
        place = Place(control_plane, folder)
        stack.callback(place.close)
        oracle = Oracle()
        model = Provider(lambda asked: thinking(oracle, asked))
        stack.callback(model.close)
        template = folder / "template.json"
        template.write_text('{"model": "scripted/model"}', encoding="utf-8")
        ask_it = {
            "MYRIA_LLM_TEMPLATE": str(template),
            "MYRIA_LLM_BASE_URL": model.url,
            "MYRIA_LLM_RETRIES": "0",
            "MYRIA_LLM_INPUT_USD_PER_MILLION": "0.2",
            "MYRIA_LLM_OUTPUT_USD_PER_MILLION": "0.8",
        }
        node = Node(control_plane, guardian, place.name, Processes, environment=ask_it).start()
        stack.callback(node.stop)
        spawn = Spawner(guardian)
        stack.callback(spawn.end_all)
        installation = Installation(
            place=place, databases=databases, database=database, node=node, spawn=spawn, folder=folder
        )
        metrics = free_port()
        installation.start(
            operator_metrics_port=str(metrics),
            operator_sweep_s="10",
            metrics_tenant_label="true",
            builder_inactivity_timeout_s="20",
            builder_max_unindexed_events="300",
        )
        targets = [Target(port=metrics, job="myria-operator", pod="operator-7c9d")]
        ports = {}
        for number, tenant in enumerate(TENANTS):
            ports[tenant] = free_port()
            server = spawn.python(
                *("-m", "myria_cli.main", "serve", "--port", str(ports[tenant]), "--tenant", tenant),
                env={"MYRIA_POSTGRES_DSN": database.tcp.server, "MYRIA_TURNS_ENABLED": "true", **ask_it},
            )
            server.wait_for("serving MCP")
            targets.append(Target(port=ports[tenant], job="myria", pod=f"server-{number}"))
        scraper = Scraper(Path(found.stdout.strip()), folder / "prometheus", spawn, targets, every=f"{EVERY_S}s")
        yield Scene(installation=installation, ports=ports, scraper=scraper, model=model)


def thinking(oracle: Oracle, asked: Asked) -> Answer:
    """Answer well, after a while."""
    return replace(oracle(asked), after_s=MODEL_S)


async def play(one: Scene, seconds: float) -> None:
    """Have people use the memory for so long, with the mishaps at their times."""
    end = time.monotonic() + seconds
    users = [
        asyncio.create_task(use(port, tenant, end, seconds, seed))
        for tenant, port in one.ports.items()
        for seed in range(4)
    ]
    mishaps = asyncio.create_task(mishap(one, seconds))
    await asyncio.gather(*users, mishaps)


async def use(port: int, tenant: str, end: float, seconds: float, seed: int) -> None:
    """Append, and ask, as one agent; now and then wrongly."""
    chosen = random.Random(f"{tenant}{seed}")
    client = Client(port)
    number = 0
    while (left := end - time.monotonic()) > 0:
        number += 1
        busy = 1.2 + math.sin((1 - left / seconds) * 9 + (tenant == "zeta"))
        roll = chosen.random()
        people = chosen.sample(PEOPLE, 2 if seed % 2 else 3)
        arguments: dict[str, Any]
        if roll < 0.4:
            tool, arguments = "append_event", message(chosen, people, f"{seed}-{number}")
        elif roll < 0.55:
            tool, arguments = turn(chosen, people[0], f"{seed}-{number - number % 7 % 2}", keeps=roll < 0.48)
        elif roll < 0.85:
            tool, arguments = "query_event_nodes", {"participants": people[:1], "query": chosen.choice(SUBJECTS)}
        elif roll < 0.96:
            asked = {"participants": people[:1], "query": chosen.choice(SUBJECTS)}
            tool, arguments = "query_references", {**asked, "mode": "llm" if roll < 0.88 else "deterministic"}
        elif roll < 0.98:
            tool, arguments = "get_event", {"participants": people, "event_id": "evt_" + "0" * 32}
        else:
            tool, arguments = "append_event", {"channel": "chat"}
        with contextlib.suppress(HungUp, OSError):
            await client.call(tool, arguments)
        await asyncio.sleep(chosen.expovariate(0.9 * busy))
    client.hang_up()


def message(chosen: random.Random, people: Sequence[str], key: str) -> dict[str, Any]:
    """Return one event as an agent appends it."""
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "channel": "chat",
        "participants": sorted(people),
        "source_event_key": key,
        "payload": {"text": chosen.choice(SUBJECTS), "speaker": people[0]},
    }


def turn(chosen: random.Random, who: str, turn_id: str, *, keeps: bool) -> tuple[str, dict[str, Any]]:
    """Return the call before a turn of a host, or after it; some say facts, and some come twice."""
    begin = chosen.choice(("I like espresso.", "Today I need milk.", "My name is Ana.", ""))
    said = f"{begin} {chosen.choice(SUBJECTS)}"
    named = {"session_id": who, "turn_id": turn_id}
    if not keeps:
        return "memory_before_turn", {**named, "current_input": said, "max_input_tok": chosen.choice((400, 120_000))}
    return "memory_after_turn", {**named, "input_items": [said], "output_items": [chosen.choice(SUBJECTS)]}


async def mishap(one: Scene, seconds: float) -> None:
    """Take the model away for a while, roll back and build again, and take the database away for some seconds."""
    await asyncio.sleep(seconds * 0.2)
    answering, one.model.script = one.model.script, lambda _asked: Answer(status=503)
    await asyncio.sleep(seconds * 0.15)
    one.model.script = answering
    await say(one.ports["acme"], "rollback", {"reason": "a bad import"})
    await asyncio.sleep(seconds * 0.15)
    await say(one.ports["acme"], "trigger_build", {"reason": "mended"})
    await asyncio.sleep(seconds * 0.2)
    await asyncio.to_thread(one.installation.stop_postgres)
    await asyncio.sleep(OUTAGE_S)
    await asyncio.to_thread(one.installation.start_postgres)


async def say(port: int, tool: str, arguments: dict[str, Any]) -> None:
    """Call a tool on a connection of its own."""
    client = Client(port)
    await client.call_until_answered(tool, arguments)
    client.hang_up()


def main() -> int:
    """Play the scene and draw it; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--into", type=Path, default=ROOT / "docs")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as one:
        start = time.time()
        asyncio.run(play(one, asked.minutes * 60))
        window = Window(start=start, end=time.time())
        for name in ("serving", "builds"):
            print(write_picture(one.scraper.url, window, name, asked.into, f"{4 * EVERY_S}s"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
