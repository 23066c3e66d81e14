"""The page for hosts without a framework, run as printed against a server with keys."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from myria.memory import Memory
from myria.settings import AuthSettings, Settings, TurnsSettings
from tests.docs.test_pages import blocks, text_of
from tests.server.conftest import memory, patient_looks, settings  # noqa: F401 - fixtures
from tests.server.wire import serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database
from tests.support.skips import missing


async def test_its_requests_do_what_it_says(memory: Memory, database: Database, tmp_path: Path) -> None:  # noqa: F811
    """A repeat answers the same id, search finds it, the session's context and the next turn know what was said."""
    if shutil.which("curl") is None:
        missing("curl")
    kept, forgotten, session, turns = (
        "\n".join(found)
        for found in _split(
            blocks(text_of("docs/integrations/http.md"), "sh"), ("/api/v1/search", "DELETE", "SESSION=")
        )
    )
    guarded = Settings(auth=AuthSettings(mode="keys"), turns=TurnsSettings(enabled=True))
    async with access_store(database) as store, serving(memory, guarded) as served:
        key = await make_key(store, "ada", faces=("rest", "turns"))
        own = {"PATH": os.environ["PATH"], "MYRIA_URL": f"http://127.0.0.1:{served.port}", "MYRIA_KEY": key}
        first, again, found = _answers(await _run(kept, tmp_path, own))
        assert first == again
        assert [memory["content"] for memory in found["results"]] == ["Ada prefers tea with lemon."]
        define = kept.partition("\n}\n")[0] + "\n}\n"
        assert await _run(define + forgotten, tmp_path, {**own, "ID": first["id"]}) == ""
        *_, context = _answers(await _run(define + session, tmp_path, own))
        assert "We meet at nine." in context["context"]
        before, _, after = _answers(await _run(define + turns, tmp_path, own))
    assert len(before["input_items"]) == 1
    assert '"value":"ada"' in json.dumps(after["input_items"]).replace("\\", "")


def _split(found: Iterable[str], words: tuple[str, ...]) -> list[list[str]]:
    """Return the blocks in parts: each ends with the block that holds its word, and the last is what is left."""
    parts: list[list[str]] = [[]]
    for text in found:
        parts[-1].append(text)
        if len(parts) <= len(words) and words[len(parts) - 1] in text:
            parts.append([])
    return parts


def _answers(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line]


async def _run(script: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a script as a person would who pastes it into a shell; return what it prints."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-euc",
        script,
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()
