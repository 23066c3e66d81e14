"""What is answered where nothing is served: the methods that are taken there, or the setting that would serve it."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from myria.errors import MethodNotAllowed, MyriaError, PathNotFound
from myria.settings import Settings, variable_of
from myria_server.api.memtrace.schemas import PREFIX as REST_PREFIX
from myria_server.api.tools import PATH_OF, SWITCH_OF, TURNS_OVER_HTTP, served_apis

_SWITCHES: Mapping[str, tuple[str, ...]] = {
    SWITCH_OF["agent"]: (PATH_OF["agent"],),
    SWITCH_OF["turns"]: (PATH_OF["turns"], *TURNS_OVER_HTTP),
    SWITCH_OF["rest"]: (PATH_OF["rest"], REST_PREFIX),
    "auth.server": ("/oauth", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"),
}
"""Settings that are true or false, each with the paths that it serves, and all below them."""


def _switch_of(path: str) -> str | None:
    """Return the setting that serves a path, None where none would; what it serves now answers by itself."""
    for setting, prefixes in _SWITCHES.items():
        if any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes):
            return setting
    return None


async def refuse_unserved(request: Request, refused: Exception) -> Response:
    """Answer a request that nothing takes, in the form of every refusal; for Starlette's `exception_handlers`."""
    settings: Settings = request.app.state.settings
    status = refused.status_code if isinstance(refused, HTTPException) else 500
    headers = dict(refused.headers or {}) if isinstance(refused, HTTPException) else {}
    error: MyriaError
    if status == MethodNotAllowed.http_status:
        error = MethodNotAllowed(f"{request.url.path[:200]} takes {headers.get('Allow', 'GET')} alone")
    elif (switch := _switch_of(request.url.path)) is not None and not settings.get(switch):
        error = PathNotFound(
            f"{switch} is false here, so nothing is served at this path; set it in the settings file, or "
            f"{variable_of(switch)}=true, and start the server again",
            setting=switch,
        )
    else:
        served = ", ".join(PATH_OF[api] for api in served_apis(settings))
        error = PathNotFound(f"nothing is served here; MCP is at {served}")
    body = orjson.dumps({"error": error.to_json()}, default=str)
    return Response(body, status_code=error.http_status, media_type="application/json", headers=headers)
