"""The sample conversation of `myria demo`, sent over MCP as any client would send it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from mcp import Client
from rich.rule import Rule
from rich.text import Text

from myria.errors import ConfigurationError, DeadlineExceeded
from myria_cli import console
from myria_cli.draw import answer_tree
from myria_cli.mcp_client import admin_url, call, connected, refuse_failed, unwrapped
from myria_cli.options import Options

READER = "ines"
"""Whose memory of the sample the console shows first."""

BATCH = 100
POLL_S = 0.2
LONGEST_BUILD_S = 600.0
ANSWER_NODES = 22
"""Nodes of a drawn answer: a tree that fits on a screen."""

CONVERSATION, QUESTIONS = "workshop.jsonl", "questions.jsonl"


def folder() -> Path:
    """Return the folder of the sample: beside the sources, or what a wheel put under the environment's `share`.

    Raises:
        ConfigurationError: this installation has none.
    """
    sources = Path(__file__).resolve().parents[2] / "examples"
    for place in (sources, Path(sys.prefix) / "share" / "myria" / "examples"):
        if (place / CONVERSATION).is_file():
            return place
    raise ConfigurationError(f"the sample {CONVERSATION} is not part of this installation; run the demo from a clone")


async def tell(url: str, *, as_json: bool) -> None:
    """Load the sample into the memory at `url`, wait for its topics, ask the demo's questions, draw the answers.

    Raises:
        BuildInvalid: the build failed.
        DeadlineExceeded: it took more than ten minutes.
        InternalError: a tool refused what the sample asks.
    """
    # A loopback address must not go through a proxy named by the environment.
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost,::1"
    sample_folder = folder()
    events = _json_lines(sample_folder / CONVERSATION)
    questions = [question for question in _json_lines(sample_folder / QUESTIONS) if question.get("demo")]
    answers = []
    with unwrapped():
        async with connected(url) as client, connected(admin_url(url)) as admin:
            new = await _load(client, events)
            already_there = len(events) - new
            console.say(
                f"appended {new} events over MCP" + (f", {already_there} were already there" if already_there else "")
                if new
                else f"the sample's {already_there} events are already there"
            )
            await _wait_for_topics(admin, len(events))
            for question in questions:
                answer = await _ask(client, question)
                answers.append({**question, "answer_tree": answer})
                if not as_json:
                    _draw(question, answer)
    if as_json:
        console.write_json({"appended": new, "already_there": already_there, "questions": answers})


def what_next(options: Options, url: str) -> str:
    """Return suggestions of what a person may try next."""
    where = " --dsn …" if options.dsn else f" --data-dir {options.folder}" if options.folder else ""
    return (
        "Try in another terminal:\n"
        f'  myria query "soak test heater" --as jonas{where}\n'
        f"  myria show --as mika --summaries{where}\n"
        f"  myria status{where}\n"
        f"  myria verify --deep{where}\n"
        f"or connect an MCP host: {url} asks about this sample, {url}/agent begins an agent's own memory"
    )


async def _load(client: Client, events: Sequence[Mapping[str, Any]]) -> int:
    """Append all events in batches; return how many were new."""
    new = 0
    with console.meter("appending events over MCP", len(events)) as progress:
        for start in range(0, len(events), BATCH):
            answer = await call(client, "myria_append_events", {"events": list(events[start : start + BATCH])})
            new += sum(not result["deduplicated"] for result in answer["results"])
            progress.advance(min(start + BATCH, len(events)))
    return new


async def _wait_for_topics(admin: Client, total: int) -> None:
    """Return once the active snapshot covers the tail; ask for a build if none is coming."""
    build_requested = False
    with console.meter("building topics", total) as progress:
        for _ in range(round(LONGEST_BUILD_S / POLL_S)):
            status = await call(admin, "myria_get_snapshot_status", {})
            tail, busy = status["tail_events"], status["building"] or status["queued"]
            if status["active_snapshot_id"] and not tail and not busy:
                return
            last = status["last_build"]
            if not busy and build_requested and last:
                refuse_failed(last)
            if not busy:
                await call(admin, "myria_trigger_build", {"reason": "demo"})
                build_requested = True
            progress.advance(max(0, total - tail))
            await asyncio.sleep(POLL_S)
    raise DeadlineExceeded(f"the topics were not built within {LONGEST_BUILD_S:.0f} seconds")


async def _ask(client: Client, question: Mapping[str, Any]) -> dict[str, Any]:
    return await call(
        client,
        "myria_query_references",
        {"participants": question["participants"], "query": question["question"], "max_nodes": ANSWER_NODES},
    )


def _draw(question: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    who = ", ".join(question["participants"])
    console.write("")
    console.write(Rule(Text(f"{who} asks: {question['question']}", style="bold"), align="left"))
    console.write(answer_tree(answer, marked=frozenset(question.get("evidence") or ())))
    console.write(Text(f"A person would say: {question['answer']}  (★ the events it rests on)", style="italic"))
    sys.stdout.flush()


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
