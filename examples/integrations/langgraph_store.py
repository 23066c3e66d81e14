"""An agent of LangGraph with LangMem's tools, whose long-term memory is Myria.

pip install 'myria-client[langgraph]' langmem langchain-openai
python examples/integrations/langgraph_store.py "I moved to Porto."
"""

from __future__ import annotations

import os
import sys
from typing import Any

from langchain.agents import create_agent
from langmem import create_manage_memory_tool, create_search_memory_tool

from myria_client import Client
from myria_client.integrations.langgraph import MyriaStore


def build(model: Any, client: Client) -> Any:
    """Return an agent that keeps what matters about a user, and looks it up."""
    store = MyriaStore(client)
    namespace = ("people", "{user}")
    tools = [create_manage_memory_tool(namespace, store=store), create_search_memory_tool(namespace, store=store)]
    return create_agent(model, tools=tools, store=store)


def ask(agent: Any, user: str, text: str) -> str:
    """Return the agent's answer to a user."""
    config = {"configurable": {"user": user}}
    answer = agent.invoke({"messages": [{"role": "user", "content": text}]}, config)
    return str(answer["messages"][-1].content)


if __name__ == "__main__":
    with Client(os.environ.get("MYRIA_URL", "http://127.0.0.1:8321"), key=os.environ.get("MYRIA_KEY")) as memory:
        print(ask(build(os.environ.get("MODEL", "openai:gpt-5-mini"), memory), "ada", sys.argv[1]))
