"""This server as an OAuth 2.1 protected resource: what tokens are issued for, and its description (RFC 9728)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from myria.access.grants import SCOPES
from myria.access.issuers import Issuer
from myria.access.principal import ROLES, Face, Role
from myria_server.api.tools import PATH_OF

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ProtectedResource:
    """The faces of this server as resources.

    Args:
        public_url: where clients reach it, without a path.
        issuers: whose tokens are accepted.
        own: whether this server issues tokens too, whose scopes are roles.
        faces: those that are served.
    """

    def __init__(
        self, public_url: str, issuers: Sequence[Issuer], *, own: bool = False, faces: Sequence[Face] = tuple(PATH_OF)
    ) -> None:
        self._public_url = public_url
        self._issuers = issuers
        self._own = own
        self.urls: Mapping[Face, str] = {face: public_url + PATH_OF[face] for face in faces}

    def metadata_url(self, face: Face) -> str:
        """Return where a face is described: the well-known part stands before its path (RFC 9728, section 3.1)."""
        return f"{self._public_url}{WELL_KNOWN}{PATH_OF[face]}"

    def scopes_granting(self, roles: frozenset[Role]) -> list[str]:
        """Return the scopes, of this server and of every issuer, that grant one of the roles."""
        own = [role for role in ROLES if self._own and role in roles]
        return own + [scope for issuer in self._issuers for scope in issuer.scopes_granting(roles) if scope not in own]

    def describe(self, face: Face) -> dict[str, object]:
        """Return the metadata of a face."""
        roles: frozenset[Role] = frozenset(("append", "read", "admin", "erase"))
        if face != "admin":
            roles -= {"admin"}
        own = [*SCOPES[face]] if self._own else []
        foreign = [scope for issuer in self._issuers for scope in issuer.scopes_granting(roles)]
        scopes = list(dict.fromkeys([*own, *foreign]))
        servers = [self._public_url] if self._own else []
        return {
            "resource": self.urls[face],
            "resource_name": "Myria",
            "authorization_servers": servers + [issuer.issuer for issuer in self._issuers],
            "bearer_methods_supported": ["header"],
            **({"scopes_supported": scopes} if scopes else {}),
        }

    def routes(self) -> list[Route]:
        """Return a document for each face, open to everybody; without a path, that of the core face."""
        paths = {face: PATH_OF[face] for face in self.urls}
        at_paths = [_document(WELL_KNOWN + path, orjson.dumps(self.describe(face))) for face, path in paths.items()]
        return [*at_paths, _document(WELL_KNOWN, orjson.dumps(self.describe("core")))]


def _document(path: str, body: bytes) -> Route:
    async def show(_request: Request) -> Response:
        return Response(body, media_type="application/json")

    return Route(path, show)
