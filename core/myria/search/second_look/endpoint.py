"""Relevance from an endpoint that re-ranks: `POST {base_url}/rerank`.

Two forms are in use. Cohere, Jina, vLLM, llama.cpp and others take `{"query", "documents"}` and answer
`{"results": [{"index", "relevance_score"}]}`; Text Embeddings Inference takes `{"query", "texts"}` and answers
`[{"index", "score"}]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite

import orjson
from pydantic import AliasChoices, Field, TypeAdapter, ValidationError

from myria.access.vault import Secrets
from myria.llm.failures import Kind, failed
from myria.llm.requests import PostedEndpoint
from myria.llm.template import RequestTemplate, template_of
from myria.llm.wire import Reply
from myria.search.second_look.source import ShownTo
from myria.settings import SecondLookSettings


class _Relevance(Reply):
    index: int
    relevance: float | int = Field(validation_alias=AliasChoices("relevance_score", "score"))


class _Relevances(Reply):
    results: list[_Relevance]


_EITHER: TypeAdapter[_Relevances | list[_Relevance]] = TypeAdapter(_Relevances | list[_Relevance])


class RerankEndpoint:
    """One endpoint, shared by all questions of a process."""

    def __init__(self, template: RequestTemplate, settings: SecondLookSettings) -> None:
        self._template = template
        self._form = settings.form
        self._endpoint = PostedEndpoint(template, settings.base_url.rstrip("/") + "/rerank")

    @classmethod
    def configured(cls, settings: SecondLookSettings, environ: Mapping[str, str], secrets: Secrets) -> RerankEndpoint:
        """Return the endpoint of the settings.

        Raises:
            ConfigurationError: the template cannot be used.
        """
        return cls(template_of("second_look", settings.template, environ, secrets), settings)

    async def relevance(
        self, question: str, texts: Sequence[str], *, within_s: float, asker: ShownTo | None = None
    ) -> list[float]:
        """Return how relevant each text is to a question, on the model's own scale.

        Args:
            asker: makes no difference here.

        Raises:
            ModelFailed: timeout, connection, http_*, too_large, malformed_*, provider_resting.
        """
        fields = {**self._template.body, "query": question, self._form: list(texts)}
        return await self._endpoint.ask(fields, within_s=within_s, parse=partial(_parsed, expected=len(texts)))

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


def _parsed(raw: bytes, expected: int) -> list[float]:
    """Return the relevance of each text, in the order of the texts.

    Raises:
        ModelFailed: malformed_json, malformed_reply.
    """
    try:
        reply = _EITHER.validate_python(orjson.loads(raw))
    except orjson.JSONDecodeError:
        raise failed(Kind.MALFORMED_JSON, "the reply is not JSON") from None
    except ValidationError:
        raise failed(Kind.MALFORMED_REPLY, "the reply is no list of relevances") from None
    results = reply if isinstance(reply, list) else reply.results
    by_index = {result.index: float(result.relevance) for result in results}
    if sorted(by_index) != list(range(expected)) or len(results) != expected:
        raise failed(Kind.MALFORMED_REPLY, f"the reply has {len(results)} relevances for {expected} texts")
    if not all(map(isfinite, by_index.values())):
        raise failed(Kind.MALFORMED_REPLY, "a relevance is no finite number")
    return [by_index[at] for at in range(expected)]
