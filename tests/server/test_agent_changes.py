"""Facts that change: context, the hook of a session's beginning and recall show what holds now, and never what it
replaced above it or undated."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.cli.test_hooks import hook, servers
from tests.server.test_agent import ask, raw
from tests.server.wire import Served, call, headers
from tests.support.builds import build
from tests.support.changing_facts import ALL, Change
from tests.support.postgres import Database

DAY_US = 86_400 * 10**6
MINUTE_US = 60 * 10**6
POOL = ("agent", "me")

DATED = re.compile(r"(?:- )?\d{4}-\d\d-\d\d")


async def kept(memory: Memory, changes: Sequence[Change] = ALL) -> None:
    """Keep both statements of each change, by turns months and minutes apart."""
    notes = Notes(memory.log, content_characters=4_000)
    now = await memory.database.now()
    for number, change in enumerate(changes):
        apart = 12 * MINUTE_US if number % 2 else 100 * DAY_US
        for text, ago in ((change.older, apart), (change.newer, 0)):
            draft = Draft(content=text, kind="fact")
            at = now - ago - (60 - number) * MINUTE_US
            await notes.remember("default", POOL, draft, contract="memento", speaker=None, now=at)


def wrong(text: str, change: Change) -> str | None:
    """Return what is wrong with how a text tells of a change; None where nothing is."""
    lines = text.splitlines()
    newer, older = (
        next((at for at, line in enumerate(lines) if said in line), None) for said in (change.newer, change.older)
    )
    if newer is None:
        return f"not shown: {change.newer}"
    if older is not None and older < newer:
        return f"shown above what replaced it: {change.older}"
    undated = [line for line in lines if (change.newer in line or change.older in line) and not DATED.match(line)]
    return f"undated: {undated}" if undated else None


async def test_context_shows_what_holds_now(served: Served, memory: Memory) -> None:
    """All thirty facts of one memory as they are now, in its usual budget; what was before is dated, and below."""
    await kept(memory)
    answer = await ask(served, "context")
    assert [fault for change in ALL if (fault := wrong(answer["injectionText"], change))] == []


@pytest.mark.processes
async def test_the_hook_shows_what_holds_now(served: Served, memory: Memory, tmp_path: Path) -> None:
    """The same where a host is told what the memory holds when a session begins."""
    await kept(memory)
    file = servers(tmp_path, "claude-code", str(served.client.base_url).rstrip("/"))
    out, _ = await hook("claude-code", file, {"session_id": "s1", "hook_event_name": "SessionStart"})
    text = json.loads(out)["hookSpecificOutput"]["additionalContext"]
    assert [fault for change in ALL if (fault := wrong(text, change))] == []


@pytest.mark.parametrize("is_built", [False, True])
async def test_recall_shows_what_holds_now(served: Served, memory: Memory, database: Database, is_built: bool) -> None:
    """Whoever asks is told the newer statement first, and that the other is older, fresh or from a snapshot."""
    await kept(memory)
    if is_built:
        await build(database)
    faults = []
    for change in ALL:
        result = await raw(served, "recall", {"text": change.question})
        text = result["content"][0]["text"]
        faults.append(wrong(text, change))
        (line,) = [line for line in text.splitlines() if change.older in line] or [""]
        if line and "(older)" not in line:
            faults.append(f"not marked: {line}")
    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("is_built", [False, True])
async def test_rest_and_memtrace_put_what_holds_now_first(
    served: Served, memory: Memory, database: Database, is_built: bool
) -> None:
    """The route and the tool order what they find as recall does: no replaced statement above what replaced it."""
    await kept(memory)
    if is_built:
        await build(database)
    wrong = []
    for change in ALL:
        route = await served.client.post(f"{PREFIX}/search", json={"query": change.question})
        tool = await served.post(
            call("memtrace_search", {"query": change.question}),
            headers("memtrace_search"),
            path=PATH_OF["rest"],
        )
        of_tool = tool.json()["result"]["structuredContent"]
        told = [[memory["content"] for memory in answer["results"]] for answer in (route.json(), of_tool)]
        assert told[0] == told[1]
        if change.newer not in told[0] or change.older in told[0][: told[0].index(change.newer)]:
            wrong.append((change.question, told[0]))
    assert wrong == []


async def test_pages_of_what_changed_miss_nothing(served: Served, memory: Memory) -> None:
    """However small the page, each memory is on one of them."""
    await kept(memory)

    async def page(limit: int, offset: int) -> list[str]:
        body = {"query": ALL[0].question, "limit": limit, "offset": offset}
        answer = await served.client.post(f"{PREFIX}/search", json=body)
        return [memory["id"] for memory in answer.json()["results"]]

    whole = await page(50, 0)
    assert sorted([one for at in range(len(whole)) for one in await page(1, at)]) == sorted(whole)
