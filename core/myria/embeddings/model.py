"""What computes vectors: one interface for a local model and for an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

TEXT_CHARACTERS: Final = 4_000
"""How much of a text is embedded; small models read no more than some 256 words."""


class EmbeddingModel(Protocol):
    """Computes vectors, quantised as `myria.index.vectors` does; the same text always gives the same bytes."""

    @property
    def name(self) -> str:
        """What vectors are stored under: those of another name are never compared with these."""
        ...

    async def embed(self, texts: Sequence[str], *, within_s: float) -> list[bytes | None]:
        """Return a vector for each text, None where it has none.

        Raises:
            ModelFailed: by its kind; nothing came within the time given.
        """
        ...

    async def close(self) -> None:
        """End threads and connections."""
        ...
