"""Vectors from an OpenAI-compatible endpoint: `POST {base_url}/embeddings`."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson
from pydantic import ValidationError

from myria.access.vault import Secrets
from myria.index.embeddings.model import TEXT_CHARACTERS
from myria.index.vectors import quantised
from myria.llm.failures import Kind, failed
from myria.llm.requests import PostedEndpoint
from myria.llm.template import RequestTemplate, template_of
from myria.llm.wire import Reply
from myria.settings import EmbeddingsSettings


class _Embedding(Reply):
    index: int
    embedding: list[float | int] | str


class _Embeddings(Reply):
    data: list[_Embedding]


class EndpointModel:
    """One endpoint, shared by all that compute vectors in a process."""

    def __init__(self, template: RequestTemplate, base_url: str) -> None:
        self._template = template
        self._endpoint = PostedEndpoint(template, base_url.rstrip("/") + "/embeddings")

    @property
    def name(self) -> str:
        """The model's name in the template, with the dimensions where it asks for some."""
        dimensions = self._template.body.get("dimensions")
        return self._template.model if dimensions is None else f"{self._template.model}/{dimensions}"

    @classmethod
    def configured(cls, settings: EmbeddingsSettings, environ: Mapping[str, str], secrets: Secrets) -> EndpointModel:
        """Return the endpoint of the settings.

        Raises:
            ConfigurationError: the template cannot be used.
        """
        return cls(template_of("embeddings", settings.template, environ, secrets), settings.base_url)

    async def embed(self, texts: Sequence[str], *, within_s: float) -> list[bytes | None]:
        """Return a vector for each text, None where it is empty or the reply's says nothing.

        Raises:
            ModelFailed: timeout, connection, http_*, too_large, malformed_*, provider_resting.
        """
        numbered_texts = [(position, text[:TEXT_CHARACTERS]) for position, text in enumerate(texts) if text.strip()]
        vectors: list[bytes | None] = [None] * len(texts)
        if not numbered_texts:
            return vectors
        fields = {"encoding_format": "float", **self._template.body, "input": [text for _, text in numbered_texts]}
        computed = await self._endpoint.ask(
            fields, within_s=within_s, parse=partial(_parse_vectors, expected=len(numbered_texts))
        )
        for (position, _), vector in zip(numbered_texts, computed, strict=True):
            vectors[position] = vector
        return vectors

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


def _parse_vectors(raw: bytes, expected: int) -> list[bytes | None]:
    """Return the vectors of a reply, in the order of the texts.

    Raises:
        ModelFailed: malformed_json, malformed_reply.
    """
    try:
        reply = _Embeddings.model_validate(orjson.loads(raw))
    except orjson.JSONDecodeError:
        raise failed(Kind.MALFORMED_JSON, "the reply is not JSON") from None
    except ValidationError:
        raise failed(Kind.MALFORMED_REPLY, "the reply is no list of embeddings") from None
    by_index = {entry.index: entry.embedding for entry in reply.data}
    if sorted(by_index) != list(range(expected)) or len(reply.data) != expected:
        raise failed(Kind.MALFORMED_REPLY, f"the reply has {len(reply.data)} embeddings for {expected} texts")
    return [quantised(_numbers(by_index[position])) for position in range(expected)]


def _numbers(embedding: Any) -> Any:
    """Return an embedding's numbers: a list, or base64 of 32-bit floats, which some endpoints always send."""
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    except ValueError:
        raise failed(Kind.MALFORMED_REPLY, "an embedding is neither a list of numbers nor base64 of them") from None
