"""CrewAI's memory in Myria: no embeddings, and shared by all crews of the organisation.

pip install 'myria-client[crewai]'
python examples/integrations/crewai_storage.py "Which oven do we use?"
"""

from __future__ import annotations

import os
import sys
from typing import Any

from crewai import Memory

from myria_client import Client
from myria_client.integrations.crewai import MyriaStorage


def build(model: Any, client: Client, *, crew: str = "/kitchen") -> Any:
    """Return a memory for `Crew(memory=...)`, or to use by itself."""
    storage = MyriaStorage(client)
    return Memory(storage=storage, embedder=storage.embedder, llm=model, root_scope=crew)


if __name__ == "__main__":
    with Client(os.environ.get("MYRIA_URL", "http://127.0.0.1:8321"), key=os.environ.get("MYRIA_KEY")) as client:
        memory = build(os.environ.get("MODEL", "gpt-5-mini"), client)
        for match in memory.recall(sys.argv[1], depth="shallow"):
            print(f"{match.score:.2f} {match.record.content}")
