"""A chat of LlamaIndex whose older messages stay in Myria.

pip install 'myria-client[llama-index]' llama-index-llms-openai
python examples/integrations/llama_index_block.py "My sister is Inês."
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import Memory

from myria_client import AsyncClient
from myria_client.integrations.llama_index import MyriaMemoryBlock


def build(model: Any, client: AsyncClient, *, token_limit: int = 4_000) -> Any:
    """Return a chat: what no longer fits is kept, and what memory holds about the newest question is shown."""
    block = MyriaMemoryBlock(client, agent="guide", limit=5)
    memory = Memory.from_defaults(token_limit=token_limit, memory_blocks=[block])
    return SimpleChatEngine.from_defaults(llm=model, memory=memory)


async def main() -> None:
    """Ask what the command line says."""
    from llama_index.llms.openai import OpenAI  # noqa: PLC0415 - a package of its own

    url = os.environ.get("MYRIA_URL", "http://127.0.0.1:8321")
    async with AsyncClient(url, key=os.environ.get("MYRIA_KEY")) as client:
        print(await build(OpenAI(os.environ.get("MODEL", "gpt-5-mini")), client).achat(sys.argv[1]))


if __name__ == "__main__":
    asyncio.run(main())
