"""Who makes a request, whether they may use this API, and how much of it; those who may not are turned away."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.access.limits import CredentialLimits, CredentialUsage, retry_headers
from myria.access.principal import Principal
from myria.errors import (
    AccessError,
    BodyTooLarge,
    DeadlineExceeded,
    MyriaError,
    Overloaded,
    RateLimited,
    UnavailableError,
)
from myria_server.http.authentication import Authentication
from myria_server.http.body import BodyReader
from myria_server.http.exchange import Header, ServedApi, headers_of, respond
from myria_server.http.failure_limiter import FailureLimiter
from myria_server.mcp import requestlog
from myria_server.mcp.bodies import Refused
from myria_server.mcp.calls import MODERN, VERSION_HEADER
from myria_server.mcp.messages import MAX_BATCH_MESSAGES, called_tool, id_of
from myria_server.mcp.server import ADDRESS_KEY, PRINCIPAL_KEY

USAGE_KEY = "myria.usage"
"""Where the ASGI scope holds the `CredentialUsage` of a request, None where nothing bounds it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Who may use a process, and what becomes of those who may not.

    `authentication` returns the principal from the headers; `limits` says what credentials may use; `limiter` judges
    those who failed to prove who they are.
    """

    authentication: Authentication
    limits: CredentialLimits
    limiter: FailureLimiter

    def note(self, scope: Scope, api: ServedApi, error: MyriaError, message: Any = None) -> None:
        """Note in the journal that an authenticated caller was refused, and which known tool `message` calls."""
        name = called_tool(message)
        tool = name if name is not None and api.toolbox.knows(name) else None
        self.limiter.note(scope, headers_of(scope), api.toolbox.api, scope[PRINCIPAL_KEY], error, tool=tool)

    async def refuse(
        self,
        send: Send,
        api: ServedApi,
        error: MyriaError,
        *,
        request_id: int | str | None = None,
        usage: CredentialUsage | None = None,
        body: bytes | None = None,
    ) -> None:
        """Refuse a request: its caller may not make it, or cannot be identified now.

        Args:
            usage: what the credential used; adds its headers, for a `send` that does not do so already.
            body: the whole answer; None: the error as the API writes it.
        """
        api.toolbox.metrics.refused(error.code)
        await self.limiter.delay(error, usage)
        body = body or api.refusal(error, request_id)
        status = api.status_of(error)
        extra: tuple[Header, ...] = ()
        if isinstance(error, AccessError) and status == error.http_status:
            extra = self.authentication.challenge(error, api.toolbox.api)
        if isinstance(error, RateLimited):
            extra += retry_headers(error)
        if usage is not None:
            extra += usage.headers()
        await respond(send, status, body, extra=extra)


@dataclass(frozen=True, slots=True)
class Admission:
    """Hands on requests of callers who may make them, with their principal in the scope."""

    app: ASGIApp
    api: ServedApi
    access: Access
    reader: BodyReader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        headers, api_name, access = headers_of(scope), self.api.toolbox.api, self.access
        usage: CredentialUsage | None = None
        principal: Principal | None = None
        try:
            principal = await access.authentication.principal(headers, api_name)
            principal.need_api(api_name)
            if (usage := access.limits.of(principal)) is not None:
                usage.begin()
        except (AccessError, UnavailableError) as error:
            # Only a bad credential is counted, so a good one is never refused for the failures of others.
            refusal = access.limiter.count_failure(scope, headers, error)
            access.limiter.note(scope, headers, api_name, principal, refusal)
            body = None
            if isinstance(refusal, UnavailableError) and self.api.refuses == "mcp" and scope["method"] == "POST":
                body = await self._unavailable_answers(scope, receive, refusal)
            await access.refuse(send, self.api, refusal, usage=usage, body=body)
            return
        if (noted := requestlog.current()) is not None:
            noted.tenant = principal.tenant
        scope[PRINCIPAL_KEY], scope[USAGE_KEY] = principal, usage
        scope[ADDRESS_KEY] = partial(access.limiter.address, scope)
        if usage is None:  # the local principal, whom nothing limits
            await self.app(scope, receive, send)
            return
        if self.api.is_stream:
            usage.end()  # a stream takes no slot of the concurrency limit: its messages are requests of their own
        try:
            await self.app(scope, receive, _with_usage_headers(send, usage) if usage.has_rate else send)
        finally:
            if not self.api.is_stream:
                usage.end()

    async def _unavailable_answers(self, scope: Scope, receive: Receive, error: MyriaError) -> bytes | None:
        """Return the refusal of each message in a request whose caller cannot be identified; None if none wants one.

        JSON-RPC answers each message by its id, so the body is read here, within the usual bounds.
        """
        caller = ("", self.access.limiter.address(scope))
        try:
            async with self.reader.read(scope, receive, self.api.body_bytes, caller) as body:
                if body is None:
                    return None
                message = await self.reader.bodies.decode(body)
        except Refused as refused:
            message = refused.outline
        except (BodyTooLarge, DeadlineExceeded, Overloaded):
            return None
        is_batch = type(message) is list and headers_of(scope).get(VERSION_HEADER) != MODERN
        request_ids = [id_of(item) for item in message[:MAX_BATCH_MESSAGES]] if is_batch else [id_of(message)]
        answers = [self.api.refusal(error, item) for item in request_ids if item is not None]
        if not answers:
            return None
        return b"[" + b",".join(answers) + b"]" if is_batch else answers[0]


def _with_usage_headers(send: Send, usage: CredentialUsage) -> Send:
    """Return a `send` that adds headers with what the credential has left of its rate limits."""

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start" and (limit_headers := usage.headers()):
            message = {**message, "headers": [*message.get("headers", ()), *limit_headers]}
        await send(message)

    return send_with
