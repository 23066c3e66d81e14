"""Whoever tells how relevant texts are to a question: an endpoint that re-ranks, or a chat model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownTo:
    """Who is shown texts by a model: `participants` are whom the masks in force name, `scopes` those of the texts."""

    tenant: str
    participants: tuple[str, ...]
    scopes: tuple[int, ...]


class RelevanceSource(Protocol):
    """Tells how relevant texts are to a question."""

    async def relevance(self, question: str, texts: Sequence[str], *, asker: ShownTo, within_s: float) -> list[float]:
        """Return how relevant each text is to a question, on a scale of its own.

        Raises:
            ModelFailed: by its kind; nothing usable came within the time given.
        """
        ...

    async def close(self) -> None:
        """End what it holds."""
        ...
