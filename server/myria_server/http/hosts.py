"""Under which names this server may be addressed, and whose pages may call it, against DNS rebinding."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from myria.errors import AccessError, HostNotAllowed, OriginNotAllowed
from myria_server.http.answer_headers import CrossOrigins
from myria_server.http.authorization import OAUTH_PREFIX
from myria_server.http.exchange import JSON, ServedApi, headers_of, refuse, respond
from myria_server.http.health import METRICS_PATH

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:/\[\]@?#\s]+)(:[0-9]+)?")
_SHOWN_CHARACTERS = 200


class HostList:
    """The host names under which this server may be addressed.

    Args:
        names: beside loopback: `name` (any port), `name:port`, `*.domain`, or `*` for every host.
        origins: whose pages may call although they are none of these hosts.
    """

    def __init__(self, names: Sequence[str], origins: CrossOrigins | None = None) -> None:
        self._origins = origins or CrossOrigins(())
        self._names = frozenset(name.lower().removesuffix(":*") for name in (*_LOOPBACK_NAMES, *names))
        self._suffixes = tuple(name[1:] for name in self._names if name.startswith("*."))

    def refusal(self, host: bytes, origin: bytes | None) -> str | None:
        """Return which header names a foreign host, or None."""
        if not self._allows(host.decode("latin-1")):
            return "host"
        if origin and not self._origins.allows(origin):
            scheme, _, authority = origin.decode("latin-1").partition("://")
            if scheme not in ("http", "https") or not self._allows(authority):
                return "origin"
        return None

    def _allows(self, authority: str) -> bool:
        authority = authority.lower()
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            return False
        name = match[1]
        return "*" in self._names or name in self._names or authority in self._names or name.endswith(self._suffixes)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Lets requests pass that name this server, and come from no page or from one that may call."""

    app: ASGIApp
    api: ServedApi
    hosts: HostList

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        headers = headers_of(scope)
        reason = self.hosts.refusal(headers.get(b"host", b""), headers.get(b"origin"))
        if reason is None and self.api.refuses == "contract" and _is_page_form(scope["method"], headers):
            reason = "form"
        if reason is None:
            await self.app(scope, receive, send)
            return
        self.api.toolbox.metrics.refused(f"foreign_{reason}")
        await refuse(send, self.api, foreign_refusal(reason, headers.get(reason.encode(), b"").decode("latin-1")))


@dataclass(frozen=True, slots=True)
class HostCheckBeside:
    """Refuses requests for figures, and for tokens, that name another host.

    Probes answer under every name: what they say is no secret, and who probes knows only an address. Prometheus knows
    only an address too, and no page can rebind that.
    """

    app: ASGIApp
    hosts: HostList

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or what is none."""
        if scope["type"] == "http" and (host := self._foreign(scope)) is not None:
            error = foreign_refusal("host", host.decode("latin-1"))
            await respond(send, error.http_status, orjson.dumps({"error": error.to_json()}))
            return
        await self.app(scope, receive, send)

    def _foreign(self, scope: Scope) -> bytes | None:
        path: str = scope["path"]
        if path != METRICS_PATH and not path.startswith(OAUTH_PREFIX):
            return None
        host = headers_of(scope).get(b"host", b"")
        is_allowed = self.hosts.refusal(host, None) is None or (path == METRICS_PATH and _is_address(host))
        return None if is_allowed else host


def _is_page_form(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a page sends a body not declared JSON. Browsers send such a body without asking the server first,
    so a page of any port of this machine could write into a memory that asks for no key."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return method == "POST" and b"origin" in headers and kind != JSON


def _is_address(host: bytes) -> bool:
    """Tell whether a Host header is an IP address, with any port: unlike a name, nobody can point it here."""
    try:
        ip_address(re.sub(r":[0-9]+$", "", host.decode("latin-1")).strip("[]"))
    except ValueError:
        return False
    return True


def foreign_refusal(header: str, value: str) -> AccessError:
    """Return the refusal of a request whose Host or Origin names somebody else, or of a form that a page sends."""
    name = value[:_SHOWN_CHARACTERS]
    if header == "form":
        return OriginNotAllowed("a page may send JSON alone: set the header Content-Type to application/json")
    if header == "host":
        return HostNotAllowed(
            f"this server does not answer under the name {name!r}; add it to mcp.allowed_hosts "
            "(MYRIA_MCP_ALLOWED_HOSTS). From a container, `host.docker.internal` must be in that list; in Kubernetes, "
            "the Service's names (`myria`, `myria.NAMESPACE.svc`, `myria.NAMESPACE.svc.cluster.local`) and the "
            "Ingress's host",
            host=name,
        )
    return OriginNotAllowed(
        f"pages of {name!r} may not call this server; add the origin to mcp.cors_origins (MYRIA_MCP_CORS_ORIGINS)",
        origin=name,
    )
