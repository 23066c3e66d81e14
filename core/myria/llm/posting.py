"""One request, one reply of JSON: endpoints beside chat completions, such as those of vectors and of a second look.

Replies are read up to a bound of bytes, redirects are not followed, an endpoint that fails again and again is left
alone for a while, and no message shows a credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import httpx
import orjson

from myria.access.vault import Secrets
from myria.errors import ConfigurationError, ModelFailed
from myria.llm.breaker import Breaker
from myria.llm.failures import Kind, failed
from myria.llm.saying import said
from myria.llm.template import RequestTemplate
from myria.llm.wire import of_status

T = TypeVar("T")

_REPLY_BYTES: Final = 32 * 1024 * 1024
_FAILURES: Final = 3
_PAUSE_S: Final = 30.0
_LONGEST_S: Final = 3_600.0
"""A bound behind the caller's own, in seconds."""


class PostedEndpoint:
    """One endpoint, shared by all that ask it in a process.

    Args:
        url: of the one thing that is asked for, with its path.
    """

    def __init__(self, template: RequestTemplate, url: str) -> None:
        self.template = template
        self._url = url
        self._breaker = Breaker(_FAILURES, _PAUSE_S)
        self._client: httpx.AsyncClient | None = None

    async def ask(self, fields: Mapping[str, Any], *, within_s: float, parse: Callable[[bytes], T]) -> T:
        """Return what `parse` makes of the reply to a request with these fields in the template's body.

        Raises:
            ModelFailed: timeout, connection, http_*, too_large, provider_resting, and what `parse` raises.
        """
        self._breaker.admit()
        try:
            async with asyncio.timeout(within_s):
                raw = await self._reply(fields)
            parsed = parse(raw)
        except ModelFailed as failure:
            message = self.template.redactor.text(failure.message)
            self._breaker.failed(message)
            raise ModelFailed(message, **failure.details) from None
        except TimeoutError:
            late = failed(Kind.TIMEOUT, f"no reply within {within_s:.1f} s")
            self._breaker.failed(late.message)
            raise late from None
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        return parsed

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _reply(self, fields: Mapping[str, Any]) -> bytes:
        if self._client is None:
            encrypted = self._url.startswith("https://")
            self._client = httpx.AsyncClient(timeout=_LONGEST_S, trust_env=False, verify=encrypted)
        headers = {name: value.reveal() for name, value in self.template.headers.items()}
        headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        content = orjson.dumps(dict(fields))
        body = bytearray()
        try:
            async with self._client.stream("POST", self._url, content=content, headers=headers) as response:
                async for chunk in response.aiter_raw(65_536):
                    body += chunk
                    if len(body) > _REPLY_BYTES:
                        raise failed(Kind.TOO_LARGE, f"the reply is larger than {_REPLY_BYTES} bytes")
                if response.status_code != httpx.codes.OK:
                    words = said(bytes(body), content, self.template.redactor)
                    answered = f"the endpoint answered {response.status_code}"
                    raise failed(of_status(response.status_code), f"{answered}: {words}" if words else answered)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Not `from error`: it holds the request with its headers.
            raise failed(Kind.CONNECTION, f"{type(error).__name__}: {error}") from None
        return bytes(body)


def template_of(section: str, path: str | None, environ: Mapping[str, str], secrets: Secrets) -> RequestTemplate:
    """Return the template that a section of the settings names.

    Raises:
        ConfigurationError: it names none, or one that cannot be used.
    """
    field = f"{section}.template"
    if path is None:
        raise ConfigurationError(
            f"{section}.model endpoint needs {field}: a JSON file that names the model.", field=field
        )
    try:
        return RequestTemplate.load(path, environ, secrets=secrets)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, field=field) from None
