"""A memory block for LlamaIndex's `Memory` on Myria: extra `llama-index`.

Messages that leave the short-term memory are kept; what memory holds about the newest question goes into the prompt.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemoryBlock
from pydantic import Field, PrivateAttr

from myria_client import AsyncClient, NewMemory

_BATCH = 100


class MyriaMemoryBlock(BaseMemoryBlock[str]):
    """A block; hand it to `Memory.from_defaults(memory_blocks=[...])`.

    Args:
        client: sends; it is not closed.
        agent: as whom messages are kept.
        limit: memories that go into a prompt at most.
    """

    name: str = "myria"
    description: str | None = "Long-term memory"
    priority: int = 1
    agent: str = Field(default="llama-index", description="As whom messages are kept")
    limit: int = Field(default=10, description="Memories that go into a prompt at most")
    _client: AsyncClient = PrivateAttr()

    def __init__(self, client: AsyncClient, **fields: Any) -> None:
        super().__init__(**fields)
        self._client = client

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:
        about = next((text for message in reversed(messages or []) if (text := _text(message))), None)
        memories = await self._client.recall(about, limit=self.limit)
        return "\n".join(f"{memory.time:%Y-%m-%d} {memory.content}" for memory in memories)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        said = [
            NewMemory(
                agent_id=self.agent,
                content=f"{message.role.value}: {text}",
                event_type="message",
                metadata={"session_id": session} if (session := message.additional_kwargs.get("session_id")) else None,
            )
            for message in messages
            if (text := _text(message)) and message.role.value in ("user", "assistant")
        ]
        for start in range(0, len(said), _BATCH):
            await self._client.memories.keep_many(said[start : start + _BATCH])

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the best lines, without the worst of so many tokens; a token is taken for three bytes."""
        left = len(content.encode()) - 3 * tokens_to_truncate
        lines: list[str] = []
        for line in content.splitlines():
            left -= len(line.encode()) + 1
            if left < 0:
                break
            lines.append(line)
        return "\n".join(lines) or None


def _text(message: ChatMessage) -> str:
    return (message.content or "").strip()
