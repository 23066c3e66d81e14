"""An agent of the OpenAI Agents SDK whose conversations are kept by Myria.

pip install 'myria-client[openai-agents]'
python examples/integrations/openai_session.py ada "My name is Ada."
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from agents import Agent, Runner

from myria_client import AsyncClient
from myria_client.integrations.openai_agents import MyriaSession


async def ask(model: Any, client: AsyncClient, conversation: str, text: str) -> str:
    """Return the agent's answer; the conversation goes on in a later run, on any machine."""
    agent = Agent(name="guide", instructions="You are brief.", model=model)
    session = MyriaSession(conversation, client, limit=50)
    result = await Runner.run(agent, text, session=session)
    return str(result.final_output)


async def main() -> None:
    """Ask what the command line says."""
    url = os.environ.get("MYRIA_URL", "http://127.0.0.1:8321")
    async with AsyncClient(url, key=os.environ.get("MYRIA_KEY")) as client:
        print(await ask(os.environ.get("MODEL", "gpt-5-mini"), client, *sys.argv[1:3]))


if __name__ == "__main__":
    asyncio.run(main())
