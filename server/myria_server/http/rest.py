"""The endpoint of REST: it finds the route of a request, reads what that takes, and runs it."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from myria.errors import AccessError, InvalidArgument, MethodNotAllowed, MyriaError
from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.memtrace.handlers import Route, match, read_key, read_query, rest_call
from myria_server.http.admission import Access
from myria_server.http.exchange import ServedApi, headers_of, refuse, respond, respond_held
from myria_server.mcp.answers import Answers
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.server import ADDRESS_KEY, PRINCIPAL_KEY

NO_CONTENT = 204


class RestEndpoint:
    """Answers requests that passed the checks before it, and whose whole body has arrived.

    Args:
        bodies: decodes request bodies.
        answers: counts the answers that the process holds.
    """

    def __init__(
        self,
        api: ServedApi,
        memory: Memory,
        settings: Settings,
        *,
        access: Access,
        bodies: Bodies,
        answers: Answers,
    ) -> None:
        self._api = api
        self._memory = memory
        self._settings = settings
        self._access = access
        self._bodies = bodies
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        principal, toolbox = scope[PRINCIPAL_KEY], self._api.toolbox
        body = (await receive())["body"]
        try:
            route, entry_id = match(scope["method"], scope.get("raw_path") or scope["path"].encode())
            principal.need(route.roles, what=route.name)
            parameters, fields = read_query(scope["query_string"]), await self._decode_body(route, body)
            key = read_key(headers_of(scope).get(b"idempotency-key")) if route.keyed else None
        except AccessError as error:
            toolbox.metrics.request_done("rest", route.name, error.code, 0.0)
            self._access.note(scope, self._api, error)
            await self._access.turn_away(send, self._api, error)
            return
        except MyriaError as error:
            toolbox.metrics.refused(error.code)
            allow = error.details.get("allow") if isinstance(error, MethodNotAllowed) else None
            await refuse(send, self._api, error, extra=() if allow is None else ((b"allow", allow.encode()),))
            return

        async def work() -> dict[str, Any]:
            request = route.read(entry_id, parameters, fields)
            call = rest_call(self._memory, self._settings, principal, entry_id=entry_id, key=key)
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
            await respond_held(send, self._answers, principal.caller, outcome.body, status=route.status)

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
            return await self._bodies.decode(body)
        except Refused as refused:
            raise refused.error from refused
