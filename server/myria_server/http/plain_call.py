"""The endpoint of one tool for hosts without an MCP client: a POST of its arguments, answered with its outcome."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from myria.errors import MethodNotAllowed
from myria_server.http.exchange import ServedApi, refuse, respond_held
from myria_server.mcp.answers import Answers
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.server import ADDRESS_KEY, PRINCIPAL_KEY


class PlainCallEndpoint:
    """Answers requests that passed the checks before it, and whose whole body has arrived.

    Args:
        tool: the tool's name.
        bodies: decodes request bodies.
        answers: counts the answers that the process holds.
    """

    def __init__(self, api: ServedApi, tool: str, *, bodies: Bodies, answers: Answers) -> None:
        self._api = api
        self._tool = tool
        self._bodies = bodies
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            error = MethodNotAllowed("only POST is taken here, with the arguments as a JSON object in its body")
            await refuse(send, self._api, error, extra=((b"allow", b"POST"),))
            return
        principal, toolbox = scope[PRINCIPAL_KEY], self._api.toolbox
        try:
            arguments = await self._bodies.decode((await receive())["body"])
        except Refused as refused:
            toolbox.metrics.refused(refused.error.code)
            await refuse(send, self._api, refused.error)
            return
        outcome = await toolbox.call(self._tool, arguments, principal, scope[ADDRESS_KEY])
        await respond_held(send, self._answers, principal.caller, outcome.body, status=outcome.status)
