"""The tools and the instructions in a real agent, with a scripted model."""

# mypy: ignore-errors
# Checked against nothing: Pydantic AI is in an environment of its own.

import asyncio
import sys

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from examples.integrations.pydantic_ai_memory import ask
from myria_client import AsyncClient

URL = sys.argv[1]


class Script:
    """Plays a model: what it says next, and what it was told each time."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.told = []

    def __call__(self, messages, info):
        self.told.append((str(messages), info.instructions or ""))
        step = self.steps.pop(0)
        return ModelResponse(parts=[step(str(messages)) if callable(step) else step])


async def main():
    async with AsyncClient(URL) as client:
        first = Script(ToolCallPart("remember", {"content": "Ada prefers tea."}), TextPart("Noted."))
        assert await ask(FunctionModel(first), client, "I prefer tea.") == "Noted."
        assert "<memory>" not in first.told[0][1]
        (kept,) = await client.recall("tea", limit=1)
        assert (kept.content, kept.agent_id) == ("Ada prefers tea.", "guide")
        second = Script(
            ToolCallPart("recall", {"about": "What does Ada drink?"}),
            ToolCallPart("forget", {"memory_id": "note_none"}),
            ToolCallPart("forget", {"memory_id": kept.id}),
            TextPart("Tea, and now it is forgotten."),
        )
        assert await ask(FunctionModel(second), client, "What do I drink? Then forget it.")
        assert "guide: Ada prefers tea." in second.told[0][1]
        assert kept.id in second.told[1][0]
        assert "is no memory" in second.told[2][0]
        assert await client.recall("tea") == []


asyncio.run(main())
print("sound")
