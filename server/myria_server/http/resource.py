"""This server as an OAuth 2.1 protected resource: what tokens are issued for, and its description (RFC 9728)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from myria.access.grants import SCOPES
from myria.access.issuers import Issuer
from myria.access.principal import ROLES, ApiName, Role
from myria_server.paths import PATH_OF

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ProtectedResource:
    """The APIs of this server as OAuth resources.

    Args:
        public_url: where clients reach it, without a path.
        issuers: whose tokens are accepted.
        own: whether this server issues tokens too, whose scopes are roles.
        apis: the APIs that are served.
    """

    def __init__(
        self, public_url: str, issuers: Sequence[Issuer], *, own: bool = False, apis: Sequence[ApiName] = tuple(PATH_OF)
    ) -> None:
        self._public_url = public_url
        self._issuers = issuers
        self._issues_tokens = own
        self.urls: Mapping[ApiName, str] = {api: public_url + PATH_OF[api] for api in apis}

    def metadata_url(self, api: ApiName) -> str:
        """Return the address of an API's metadata, with the well-known part before its path (RFC 9728, 3.1)."""
        return f"{self._public_url}{WELL_KNOWN}{PATH_OF[api]}"

    def scopes_granting(self, roles: frozenset[Role]) -> list[str]:
        """Return the scopes, of this server and of every issuer, that grant one of the roles."""
        own_scopes = [role for role in ROLES if self._issues_tokens and role in roles]
        return own_scopes + [
            scope for issuer in self._issuers for scope in issuer.scopes_granting(roles) if scope not in own_scopes
        ]

    def describe(self, api: ApiName) -> dict[str, object]:
        """Return the metadata of an API."""
        roles: frozenset[Role] = frozenset(("append", "read", "admin", "erase"))
        if api != "admin":
            roles -= {"admin"}
        own_scopes = [*SCOPES[api]] if self._issues_tokens else []
        issuer_scopes = [scope for issuer in self._issuers for scope in issuer.scopes_granting(roles)]
        scopes = list(dict.fromkeys([*own_scopes, *issuer_scopes]))
        servers = [self._public_url] if self._issues_tokens else []
        return {
            "resource": self.urls[api],
            "resource_name": "Myria",
            "authorization_servers": servers + [issuer.issuer for issuer in self._issuers],
            "bearer_methods_supported": ["header"],
            **({"scopes_supported": scopes} if scopes else {}),
        }

    def routes(self) -> list[Route]:
        """Return open routes for the metadata of each API; the address without a path has that of the core API."""
        paths = {api: PATH_OF[api] for api in self.urls}
        at_paths = [_document(WELL_KNOWN + path, orjson.dumps(self.describe(api))) for api, path in paths.items()]
        return [*at_paths, _document(WELL_KNOWN, orjson.dumps(self.describe("core")))]


def _document(path: str, body: bytes) -> Route:
    async def show(_request: Request) -> Response:
        return Response(body, media_type="application/json")

    return Route(path, show)
