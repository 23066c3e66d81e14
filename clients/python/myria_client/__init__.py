"""A client of Myria, long-term memory for agents.

    from myria_client import Client

    with Client("http://127.0.0.1:8321", key="...") as client:
        chat = client.turns.session("s1")
        turn = chat.openai([{"role": "user", "content": "My name is Ada."}])
        reply = model(turn.messages)
        turn.keep(reply)

`Client` waits, `AsyncClient` is awaited; both do the same. Every error is a `MyriaClientError`.
"""

from myria_client._client import AsyncClient, Client
from myria_client._errors import Busy, MyriaClientError, Refused, Unreachable
from myria_client._retrying import Retry
from myria_client.turns import (
    AsyncSession,
    AsyncTurn,
    AsyncTurns,
    Prepared,
    Session,
    Turn,
    Turns,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncSession",
    "AsyncTurn",
    "AsyncTurns",
    "Busy",
    "Client",
    "MyriaClientError",
    "Prepared",
    "Refused",
    "Retry",
    "Session",
    "Turn",
    "Turns",
    "Unreachable",
]
