"""The code that the client's pages print, run as printed against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from myria.settings import Settings, TurnsSettings
from myria_client import AsyncClient
from tests.server.wire import Served

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def settings() -> Settings:
    """Every face that the client calls is on."""
    return Settings(turns=TurnsSettings(enabled=True))


def printed(page: str, port: int) -> tuple[dict[str, Any], str]:
    """Run the Python of a page; return its names, and what it printed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(code.replace("127.0.0.1:8321", f"127.0.0.1:{port}"), page, "exec"), names)  # noqa: S102
    return names, said.getvalue()


async def test_the_package_s_own_page(served: Served) -> None:
    """What is remembered is found; both loops hold what was said, with models that say what they were given."""

    def run() -> tuple[Any, Any]:
        names, _ = printed("clients/python/README.md", served.port)
        assert names["found"] == ["Ada prefers tea."]
        names["ask"](lambda messages: messages[-1], "My name is Ada.")
        plain = names["ask"](str, "Who am I?")
        return plain, names["ask_claude"](lambda system, messages: f"{system} {messages}", "Who am I?")

    for told in await asyncio.to_thread(run):
        assert "You are brief." in told
        assert '"value":"ada"' in told.replace("\\", "")


async def test_the_page_of_clients(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembers, recalls, buffers and imports."""
    monkeypatch.chdir(tmp_path)
    _, said = await asyncio.to_thread(printed, "docs/clients.md", served.port)
    assert said.splitlines() == ["['Ada prefers tea.']"]
    async with AsyncClient(f"http://127.0.0.1:{served.port}") as client:
        kept = [memory.content async for memory in client.memories.each(agent_id="guide", order="asc")]
    assert sorted(kept) == sorted(["The kiln is at 900 degrees.", *(f"Line {number}" for number in range(250))])
