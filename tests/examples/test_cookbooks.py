"""The cookbooks run with scripted models: what one agent keeps, it or another one is given later."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from myria.settings import Settings, TurnsSettings
from myria_client import Client
from tests.server.conftest import memory, patient_looks, served  # noqa: F401 - fixtures
from tests.server.wire import Served
from tests.support.patience import PATIENCE_S

COOKBOOKS = Path(__file__).resolve().parents[2] / "examples" / "cookbooks"


@pytest.fixture
def settings() -> Settings:
    """Every face that they use is on."""
    return Settings(turns=TurnsSettings(enabled=True))


class Script:
    """Plays a model: says its lines, and notes all that it was told before each."""

    def __init__(self, *lines: Any) -> None:
        self.lines = list(lines)
        self.told: list[str] = []

    def __call__(self, **asked: Any) -> Any:
        self.told.append(json.dumps(asked, ensure_ascii=False))
        line = self.lines.pop(0)
        return line(self.told[-1]) if callable(line) else line


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"cookbook_{name}", COOKBOOKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def with_client(served: Served, work: Callable[[Client], None]) -> None:  # noqa: F811
    def run() -> None:
        with Client(f"http://127.0.0.1:{served.port}", timeout_s=PATIENCE_S) as client:
            work(client)

    await asyncio.to_thread(run)


def says(text: str) -> Any:
    return {"content": [{"type": "text", "text": text}]}


def uses(name: str, **given: Any) -> Any:
    return {"content": [{"type": "tool_use", "id": f"call_{name}", "name": name, "input": given}]}


def message(text: str) -> Any:
    return {"role": "assistant", "content": text}


def calls(name: str, **given: Any) -> Any:
    function = {"name": name, "arguments": json.dumps(given)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{name}", "type": "function", "function": function}],
    }


async def test_one_agent_with_claude_s_messages(served: Served) -> None:  # noqa: F811
    """A later turn is given the facts of an earlier one, and its tool finds what others kept."""
    cookbook = loaded("claude_one")

    def work(client: Client) -> None:
        first = Script(says("Hello Ada."))
        assert cookbook.answer(first, client, "guide", "My name is Ada.") == "Hello Ada."
        client.remember("The museum opens at ten.")
        second = Script(uses("recall", about="When does the museum open?"), says("At ten, Ada."))
        assert cookbook.answer(second, client, "guide", "When does the museum open?") == "At ten, Ada."
        assert "My name is Ada." in second.told[0]
        assert "The museum opens at ten." in second.told[1]
        assert cookbook.answer(Script(*[uses("recall", about="x")] * 5), client, "other", "?").startswith("I could not")

    await with_client(served, work)


async def test_two_agents_with_claude_s_messages(served: Served) -> None:  # noqa: F811
    """The writer is given what the researcher kept, and its report is kept."""
    cookbook = loaded("claude_team")

    def work(client: Client) -> None:
        both = uses("keep_finding", finding="The Rofco holds twelve loaves.", importance=0.9)
        both["content"] += uses("keep_finding", finding="The Miele holds four loaves.")["content"]
        assert cookbook.research(Script(both, says("Done.")), client, "Which oven for a bakery?") == 2
        writer = Script(says("Take the Rofco."))
        assert cookbook.write(writer, client, "Which oven for a bakery?") == "Take the Rofco."
        assert "The Rofco holds twelve loaves. (researcher)" in writer.told[0]
        assert "The Miele holds four loaves. (researcher)" in writer.told[0]
        (report,) = client.recall("Rofco", event_types=["report"])
        assert (report.agent_id, report.memory_type) == ("writer", "decision")

    await with_client(served, work)


async def test_one_agent_with_openai_s_messages(served: Served) -> None:  # noqa: F811
    """It keeps, finds and takes out by its tools; what it does wrong comes back to it."""
    cookbook = loaded("openai_one")

    def work(client: Client) -> None:
        keeping = Script(calls("remember", content="Ada lives in Porto."), message("Noted."))
        assert cookbook.answer(keeping, client, "I moved to Porto.") == "Noted."
        (kept,) = client.recall("Porto")
        finding = Script(
            calls("recall", about="Where does Ada live?"),
            calls("forget", memory_id="note_none"),
            calls("forget", memory_id=kept.id),
            message("In Porto, until now."),
        )
        assert cookbook.answer(finding, client, "Where do I live? Forget it.") == "In Porto, until now."
        assert "Ada lives in Porto." in finding.told[1]
        assert "refused: note_not_found" in finding.told[2]
        assert client.recall("Porto") == []

    await with_client(served, work)


async def test_a_team_with_openai_s_messages(served: Served) -> None:  # noqa: F811
    """An expert is given the session and what another one answered before; the session is closed."""
    cookbook = loaded("openai_team")

    def work(client: Client) -> None:
        for _ in range(2):
            cookbook.register(client)
        first = Script(message("baking"), message("Use less water in the dough."))
        assert cookbook.handle(first, client, "My dough is too wet.") == "Use less water in the dough."
        second = Script(message("Returns "), message("We send a new tin."))
        assert cookbook.handle(second, client, "The tin for my wet dough came broken.") == "We send a new tin."
        assert "returns answers" in second.told[1]
        assert "baking: Use less water in the dough." in second.told[1]
        assert "You handle returns" in second.told[1]
        sessions = list(client.sessions.each("desk"))
        assert [session.status for session in sessions] == ["closed", "closed"]
        assert [one.agent_id for one in client.sessions.memories(sessions[0].id)] == ["returns", "desk"]

    await with_client(served, work)
