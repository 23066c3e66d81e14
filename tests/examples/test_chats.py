"""The chat loops of examples/turns run, and remember: each over its own transport."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp import Client as McpClient

from myria.settings import Settings, TurnsSettings
from myria_client import Client
from tests.server.conftest import memory, patient_looks, served  # noqa: F401 - fixtures
from tests.server.wire import Served
from tests.support.patience import PATIENCE_S

TURNS = Path(__file__).resolve().parents[2] / "examples" / "turns"


@pytest.fixture
def settings() -> Settings:
    """The face is on."""
    return Settings(turns=TurnsSettings(enabled=True))


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", TURNS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_chat_over_plain_http(served: Served) -> None:  # noqa: F811
    """A later run knows what an earlier one was told."""
    example = loaded("chat")

    def run(line: str) -> str:
        with Client(f"http://127.0.0.1:{served.port}", timeout_s=PATIENCE_S) as client:
            (answer,) = example.chat(client.turns.session("chat"), example.echo, [line])
            return str(answer)

    first = await asyncio.to_thread(run, "My name is Ada.")
    assert first == "  system: You are a friendly assistant.\n  user: My name is Ada."
    second = await asyncio.to_thread(run, "Who am I?")
    assert '"value":"ada"' in second
    assert second.endswith("  user: Who am I?")


async def test_the_chat_over_mcp(served: Served) -> None:  # noqa: F811
    """The same by two tools, with the official SDK; the prompt that is handed back is not kept again."""
    example = loaded("chat_mcp")
    answers: list[str] = []

    def told(items: list[dict[str, Any]]) -> str:
        return "I know." if '"value":"ada"' in example.echo(items) else "Hello."

    for line in ("My name is Ada.", "Who am I?", "And?"):
        async with McpClient(f"http://127.0.0.1:{served.port}/mcp/turns") as client:
            answers += [answer async for answer in example.chat(client, "chat", told, [line])]
            prepared = await example.call(client, "memory_before_turn", {"session_id": "chat", "current_input": "x"})
    assert answers == ["Hello.", "I know.", "I know."]
    texts = [item["content"][0]["text"] for item in prepared["input_items"]]
    assert texts[2:] == ["My name is Ada.", "Hello.", "Who am I?", "I know.", "And?", "I know.", "x"]
