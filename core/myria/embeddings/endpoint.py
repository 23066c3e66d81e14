"""Vectors from an OpenAI-compatible endpoint: `POST {base_url}/embeddings`.

Replies are read up to a bound of bytes, redirects are not followed, an endpoint that fails again and again is left
alone for a while, and no message shows a credential.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx
import numpy as np
import orjson
from pydantic import ValidationError

from myria.embeddings.model import TEXT_CHARACTERS
from myria.errors import ConfigurationError, ModelFailed
from myria.index.vectors import quantised
from myria.llm.breaker import Breaker
from myria.llm.failures import Kind, failed
from myria.llm.template import RequestTemplate
from myria.llm.wire import Reply, of_status
from myria.settings import EmbeddingSettings
from myria.vault import Secrets

_REPLY_BYTES: Final = 32 * 1024 * 1024
_FAILURES: Final = 3
_PAUSE_S: Final = 30.0
_LONGEST_S: Final = 3_600.0
"""A bound behind the caller's own, in seconds."""


class _Embedding(Reply):
    index: int
    embedding: list[float | int] | str


class _Embeddings(Reply):
    data: list[_Embedding]


class EndpointModel:
    """One endpoint, shared by all that compute vectors in a process."""

    def __init__(self, template: RequestTemplate, base_url: str) -> None:
        self._template = template
        self._base_url = base_url
        self._breaker = Breaker(_FAILURES, _PAUSE_S)
        self._client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """The model's name in the template, with the dimensions where it asks for some."""
        dimensions = self._template.body.get("dimensions")
        return self._template.model if dimensions is None else f"{self._template.model}/{dimensions}"

    @classmethod
    def configured(cls, settings: EmbeddingSettings, environ: Mapping[str, str], secrets: Secrets) -> EndpointModel:
        """Return the endpoint of the settings.

        Raises:
            ConfigurationError: the template cannot be used.
        """
        if settings.template is None:
            raise ConfigurationError(
                "embeddings.model endpoint needs embeddings.template: a JSON file that names the model.",
                field="embeddings.template",
            )
        try:
            template = RequestTemplate.load(settings.template, environ, secrets=secrets)
        except ConfigurationError as error:
            raise ConfigurationError(error.message, field="embeddings.template") from None
        return cls(template, settings.base_url)

    async def embed(self, texts: Sequence[str], *, within_s: float) -> list[bytes | None]:
        """Return a vector for each text, None where it is empty or the reply's says nothing.

        Raises:
            ModelFailed: timeout, connection, http_*, too_large, malformed_*, provider_resting.
        """
        asked = [(at, text[:TEXT_CHARACTERS]) for at, text in enumerate(texts) if text.strip()]
        vectors: list[bytes | None] = [None] * len(texts)
        if not asked:
            return vectors
        self._breaker.admit()
        try:
            async with asyncio.timeout(within_s):
                raw = await self._reply([text for _, text in asked])
            found = _parsed(raw, len(asked))
        except ModelFailed as failure:
            self._breaker.failed()
            raise ModelFailed(self._template.redactor.text(failure.message), **failure.details) from None
        except TimeoutError:
            self._breaker.failed()
            raise failed(Kind.TIMEOUT, f"no vectors within {within_s:.1f} s") from None
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        for (at, _), vector in zip(asked, found, strict=True):
            vectors[at] = vector
        return vectors

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _reply(self, texts: Sequence[str]) -> bytes:
        if self._client is None:
            encrypted = self._base_url.startswith("https://")
            self._client = httpx.AsyncClient(timeout=_LONGEST_S, trust_env=False, verify=encrypted)
        headers = {name: value.reveal() for name, value in self._template.headers.items()}
        headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        content = orjson.dumps({"encoding_format": "float", **self._template.body, "input": list(texts)})
        url = self._base_url.rstrip("/") + "/embeddings"
        body = bytearray()
        try:
            async with self._client.stream("POST", url, content=content, headers=headers) as response:
                if response.status_code != httpx.codes.OK:
                    raise failed(of_status(response.status_code), f"the endpoint answered {response.status_code}")
                async for chunk in response.aiter_raw(65_536):
                    body += chunk
                    if len(body) > _REPLY_BYTES:
                        raise failed(Kind.TOO_LARGE, f"the reply is larger than {_REPLY_BYTES} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Not `from error`: it holds the request with its headers.
            raise failed(Kind.CONNECTION, f"{type(error).__name__}: {error}") from None
        return bytes(body)


def _parsed(raw: bytes, expected: int) -> list[bytes | None]:
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
    return [quantised(_numbers(by_index[at])) for at in range(expected)]


def _numbers(embedding: Any) -> Any:
    """Return an embedding's numbers: a list, or base64 of 32-bit floats, which some endpoints always send."""
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    except ValueError:
        raise failed(Kind.MALFORMED_REPLY, "an embedding is neither a list of numbers nor base64 of them") from None
