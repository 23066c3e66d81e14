"""A session of the OpenAI Agents SDK on Myria: extra `openai-agents`.

The conversation survives the process and is shared by all that name the same session; its words are found by searches,
too, so that another agent can recall what was said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.memory import SessionABC, SessionSettings

from myria_client import AsyncClient
from myria_client._shelves import said_of
from myria_client._transcripts import Transcript

if TYPE_CHECKING:
    from agents.items import TResponseInputItem


class MyriaSession(SessionABC):
    """A session; hand it to `Runner.run(..., session=...)`.

    Args:
        session_id: any text; sessions of one agent and id are one.
        client: sends; it is not closed.
        agent: as whom items are kept.
        limit: the newest items that a run is given; None for all.
    """

    def __init__(
        self, session_id: str, client: AsyncClient, *, agent: str = "openai-agents", limit: int | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings = SessionSettings(limit=limit)
        self._client = client
        self._transcript = Transcript(agent, session_id, lambda item: said_of(_words(item)))

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest items, in the order in which they came."""
        chosen = limit if limit is not None else self.session_settings.limit if self.session_settings else None
        if chosen is not None and chosen <= 0:
            return []
        items: list[Any] = await self._client.run(self._transcript.last(chosen))
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Keep items behind those that are there."""
        given: list[Any] = list(items)
        await self._client.run(self._transcript.add(given))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item away, and return it."""
        item: Any = await self._client.run(self._transcript.pop())
        return item

    async def clear_session(self) -> None:
        """Take all items away."""
        await self._client.run(self._transcript.clear())


def _words(item: Any) -> list[Any]:
    """Return what is said in an item, without its names and ids."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if hasattr(part, "get")]
    return [*texts, item.get("arguments"), item.get("output")]
