"""The blocks of docs/llm.md for Ollama, OpenAI and OpenRouter, pasted into a shell against servers as strict."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.docs.test_code import PROGRAMS, block, run
from tests.llm.conftest import Starting
from tests.llm.oracle import Oracle
from tests.llm.provider import Answer, Asked
from tests.support.events import append, conversation
from tests.support.postgres import Database

pytestmark = pytest.mark.processes

MOST_LINES = 5


def refused(status: int, message: str) -> Answer:
    """Return an error in OpenAI's form, which the three share."""
    return Answer(status=status, body=orjson.dumps({"error": {"message": message}}))


def ollama(asked: Asked) -> Answer | None:
    """Serves what was pulled; asks for no key."""
    return None if asked.body["model"] == "qwen3:4b" else refused(404, "model not found")


def openai(asked: Asked) -> Answer | None:
    """Wants its key; its newer models take neither `max_tokens` nor another temperature than theirs."""
    if asked.headers.get("authorization") != "Bearer sk-...":
        return refused(401, "Incorrect API key provided")
    for name in ("max_tokens", "temperature", "top_p"):
        if name in asked.body:
            return refused(400, f"Unsupported parameter: {name}")
    known = {"model", "messages", "tools", "tool_choice", "max_completion_tokens"}
    return None if set(asked.body) <= known else refused(400, f"Unknown parameter: {set(asked.body) - known}")


def openrouter(asked: Asked) -> Answer | None:
    """Wants its key, and the name of a provider before the model's."""
    if asked.headers.get("authorization") != "Bearer sk-or-...":
        return refused(401, "No auth credentials found")
    return None if "/" in asked.body["model"] else refused(400, "is not a valid model ID")


@pytest.mark.parametrize(
    ("words", "address", "judge"),
    [
        ("ollama pull", "http://127.0.0.1:11434/v1", ollama),
        ("OPENAI_API_KEY", "https://api.openai.com/v1", openai),
        ("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", openrouter),
    ],
)
def test_a_copied_block_is_enough(  # noqa: PLR0917 - fixtures
    database: Database, provide: Starting, tmp_path: Path, words: str, address: str, judge: Any
) -> None:
    """With the provider's address exchanged, and a build in place of `myria up`, the model plans every unit."""
    text = block("docs/llm.md", words)
    assert len(text.splitlines()) <= MOST_LINES
    assert text.count(address) == 1
    asyncio.run(append(database.server_dsn, conversation(60)))
    oracle = Oracle()
    provider = provide(lambda asked: judge(asked) or oracle(asked))
    (tmp_path / "ollama").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    (tmp_path / "ollama").chmod(0o755)
    script = re.sub(
        r"^myria up$", f"myria rebuild --here --wait --json --dsn '{database.dsn}'", text, flags=re.MULTILINE
    )
    assert script != text

    path = os.pathsep.join([str(tmp_path), str(PROGRAMS), os.environ["PATH"]])
    build = json.loads(run(script.replace(address, provider.url), tmp_path, PATH=path).splitlines()[-1])

    assert not provider.errors
    assert build["status"] == "succeeded"
    assert build["degraded"] is None, build["degraded"]
    assert build["counts"]["llm_units_planned"] > 0
    assert {asked.path for asked in provider.asked} == {"/v1/chat/completions"}


def test_a_wrong_key_is_told_until_the_topics_are_made_anew(
    database: Database, provide: Starting, tmp_path: Path
) -> None:
    """A build that finds nothing new still says that the active snapshot was planned without the model, and why."""
    asyncio.run(append(database.server_dsn, conversation(60)))
    oracle = Oracle()
    provider = provide(lambda asked: openai(asked) or oracle(asked))
    text = block("docs/llm.md", "OPENAI_API_KEY").replace("https://api.openai.com/v1", provider.url)
    where = f"--json --dsn '{database.dsn}'"
    path = os.pathsep.join([str(PROGRAMS), os.environ["PATH"]])

    def build(key: str, *more: str) -> tuple[Any, Any]:
        commands = f"myria rebuild --here --wait {' '.join(more)} {where}\nmyria status {where}"
        script = re.sub(r"^myria up$", commands, text.replace("sk-...", key), flags=re.MULTILINE)
        made, status = run(script, tmp_path, PATH=path).splitlines()[-2:]
        return json.loads(made), json.loads(status)["last_build"]

    build("sk-wrong")
    for told in build("sk-wrong"):
        assert told["status"] == "nothing_to_do"
        assert "401: Incorrect API key provided" in told["degraded"]["reason"]
    for told in build("sk-...", "--force", "--full"):
        assert (told["status"], told["degraded"]) == ("succeeded", None)
