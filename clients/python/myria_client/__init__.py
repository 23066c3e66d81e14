"""A client of Myria, long-term memory for agents.

    from myria_client import Client

    with Client("http://127.0.0.1:8321", key="...") as memory:
        kept = memory.remember("Ada prefers tea.")
        print([found.content for found in memory.recall("What does Ada drink?")])
        memory.forget(kept.id)

`Client` waits, `AsyncClient` is awaited; both do the same. Every error is a `MyriaClientError`. `turns` puts memory
into the message lists of models.
"""

from myria_client._client import AsyncClient, Client
from myria_client._errors import (
    Busy,
    Conflict,
    Duplicate,
    Invalid,
    MyriaClientError,
    NotAllowed,
    NotFound,
    Refused,
    Unreachable,
    Unreadable,
)
from myria_client._outbox import RefusedMemory
from myria_client._retrying import Retry
from myria_client.buffer import AsyncBuffer, Buffer
from myria_client.records import (
    Agent,
    AgentSession,
    AgentStatistics,
    Health,
    KeptMemories,
    Memory,
    MemoryPage,
    NewMemory,
    Outcome,
    SessionContext,
)
from myria_client.turns import AsyncSession, AsyncTurn, AsyncTurns, Prepared, Session, Turn, Turns

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentSession",
    "AgentStatistics",
    "AsyncBuffer",
    "AsyncClient",
    "AsyncSession",
    "AsyncTurn",
    "AsyncTurns",
    "Buffer",
    "Busy",
    "Client",
    "Conflict",
    "Duplicate",
    "Health",
    "Invalid",
    "KeptMemories",
    "Memory",
    "MemoryPage",
    "MyriaClientError",
    "NewMemory",
    "NotAllowed",
    "NotFound",
    "Outcome",
    "Prepared",
    "Refused",
    "RefusedMemory",
    "Retry",
    "Session",
    "SessionContext",
    "Turn",
    "Turns",
    "Unreachable",
    "Unreadable",
]
