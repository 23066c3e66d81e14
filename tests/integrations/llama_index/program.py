"""The block in a real chat with a small short-term memory, with a scripted model."""

# mypy: ignore-errors
# Checked against nothing: LlamaIndex is in an environment of its own.

import asyncio
import sys
from typing import Any, ClassVar

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.llms import MockLLM

from examples.integrations.llama_index_block import build
from myria_client import AsyncClient
from myria_client.integrations.llama_index import MyriaMemoryBlock

URL = sys.argv[1]


class Scripted(MockLLM):
    """Says that it noted, and notes what it was told."""

    told: ClassVar[list[Any]] = []

    async def achat(self, messages, **_):
        self.told.append("\n".join(str(message.content) for message in messages))
        return ChatResponse(message=ChatMessage(role="assistant", content="Noted."))


async def main():
    async with AsyncClient(URL) as client:
        model = Scripted()
        chat = build(model, client, token_limit=300)
        await chat.achat("My sister is Inês, and she lives in Porto.")
        for number in range(12):
            await chat.achat(f"Line {number}: " + "the weather is fine today, " * 10)
        kept = [memory async for memory in client.memories.each(agent_id="guide")]
        assert any("Inês" in memory.content for memory in kept)
        await chat.achat("Where does my sister live?")
        assert "she lives in Porto" in model.told[-1]
        block = MyriaMemoryBlock(client, agent="guide")
        assert await block.atruncate("one\ntwo\nthree", 2) == "one"
        assert await block.atruncate("one", 100) is None


asyncio.run(main())
print("sound")
