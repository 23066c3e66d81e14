"""The endpoints without MCP: REST, with its routes, and a tool that is called by a plain POST of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from myria.errors import AccessError, InvalidArgument, MethodNotAllowed, MyriaError
from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.memtrace.handlers import match, rest_call
from myria_server.api.memtrace.routing import Route, read_key, read_query
from myria_server.http.admission import Access
from myria_server.http.exchange import ServedApi, headers_of, refuse, respond, respond_held
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.server import ADDRESS_KEY, PRINCIPAL_KEY

NO_CONTENT = 204


@dataclass(frozen=True, kw_only=True, slots=True)
class RestEndpoint:
    """Answers requests that passed the checks before it, and whose whole body has arrived."""

    api: ServedApi
    memory: Memory
    settings: Settings
    access: Access
    bodies: Bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        principal, toolbox = scope[PRINCIPAL_KEY], self.api.toolbox
        body = (await receive())["body"]
        try:
            route, entry_id = match(scope["method"], scope.get("raw_path") or scope["path"].encode())
            principal.need(route.roles, what=route.name)
            parameters, fields = read_query(scope["query_string"]), await self._decode_body(route, body)
            key = read_key(headers_of(scope).get(b"idempotency-key")) if route.keyed else None
        except AccessError as error:
            toolbox.metrics.request_done("rest", route.name, error.code, 0.0)
            self.access.note(scope, self.api, error)
            await self.access.refuse(send, self.api, error)
            return
        except MyriaError as error:
            toolbox.metrics.refused(error.code)
            allow = error.details.get("allow") if isinstance(error, MethodNotAllowed) else None
            await refuse(send, self.api, error, extra=() if allow is None else ((b"allow", allow.encode()),))
            return

        async def work() -> dict[str, Any]:
            request = route.read(entry_id, parameters, fields)
            call = rest_call(self.memory, self.settings, principal, entry_id=entry_id, key=key)
            answer: dict[str, Any] = await route.handler(call, request)
            return answer

        noted_arguments = parameters if fields is None else fields
        if "session" in route.name and entry_id and isinstance(noted_arguments, dict):
            noted_arguments = {"session_id": entry_id, **noted_arguments}
        outcome = await toolbox.call_route(route, work, principal, noted_arguments, scope[ADDRESS_KEY])
        if outcome.is_error:
            await respond(send, outcome.status, outcome.body)
        elif route.status == NO_CONTENT:
            await respond(send, route.status, b"", content_type=None)
        else:
            await respond_held(send, toolbox.answers, principal.caller, outcome.body, status=route.status)

    async def _decode_body(self, route: Route, body: bytes) -> Any:
        """Return the body of a request to a route, None where there is none.

        Raises:
            MalformedJson, InvalidText, BodyTooLarge, InvalidArgument: it is not what the route takes.
        """
        if not route.body:
            return None
        if not body.strip():
            if route.needs_body:
                raise InvalidArgument("invalid request body: it is empty; send a JSON object", field="")
            return None
        try:
            return await self.bodies.decode(body)
        except Refused as refused:
            raise refused.error from refused


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainCallEndpoint:
    """Answers the tool of a name, for requests as of `RestEndpoint`."""

    api: ServedApi
    tool: str
    bodies: Bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            error = MethodNotAllowed("only POST is taken here, with the arguments as a JSON object in its body")
            await refuse(send, self.api, error, extra=((b"allow", b"POST"),))
            return
        principal, toolbox = scope[PRINCIPAL_KEY], self.api.toolbox
        try:
            arguments = await self.bodies.decode((await receive())["body"])
        except Refused as refused:
            toolbox.metrics.refused(refused.error.code)
            await refuse(send, self.api, refused.error)
            return
        outcome = await toolbox.call(self.tool, arguments, principal, scope[ADDRESS_KEY])
        await respond_held(send, toolbox.answers, principal.caller, outcome.body, status=outcome.status)
