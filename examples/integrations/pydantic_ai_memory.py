"""An agent of Pydantic AI that remembers, recalls and forgets.

pip install 'myria-client[pydantic-ai]' 'pydantic-ai-slim[openai]'
python examples/integrations/pydantic_ai_memory.py "I prefer tea."
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from pydantic_ai import Agent

from myria_client import AsyncClient
from myria_client.integrations.pydantic_ai import memory_toolset, recalling


async def ask(model: Any, client: AsyncClient, text: str) -> str:
    """Return the agent's answer; it is told what memory holds about the text, and may keep more."""
    agent = Agent(
        model,
        instructions=["Keep what a person tells about themselves.", recalling(client)],
        toolsets=[memory_toolset(client, agent="guide")],
    )
    result = await agent.run(text)
    return str(result.output)


async def main() -> None:
    """Ask what the command line says."""
    url = os.environ.get("MYRIA_URL", "http://127.0.0.1:8321")
    async with AsyncClient(url, key=os.environ.get("MYRIA_KEY")) as client:
        print(await ask(os.environ.get("MODEL", "openai:gpt-5-mini"), client, sys.argv[1]))


if __name__ == "__main__":
    asyncio.run(main())
