"""Our own small authorization server (OAuth 2.1): a person signs in with a key, and a program gets tokens for it.

The SDK has routes for this too (`mcp.server.auth.routes.create_auth_routes`), over a provider that stores. These are
ours because there, as our tests show: a client without a secret cannot revoke, since `client_secret` must be in the
form; a registration that names no method gets a secret, which has to be kept in plain text to be compared; of a
parameter that stands twice the last one counts; a `resource` in a request for tokens is read and not compared; and
neither registrations nor failures are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from myria.access.grants import ACCESS_S, SCOPES, Client, Grants, Issued, is_challenge
from myria.access.key_cache import KeyCache
from myria.access.limits import Rates, network_of
from myria.access.principal import ApiName, Principal
from myria.access.secrets import parse_key
from myria.errors import (
    AccessError,
    CredentialInvalid,
    InvalidArgument,
    MyriaError,
    RateLimited,
    UnavailableError,
)
from myria.settings import AuthSettings
from myria_server.http.consent import consent_page, refusal_page
from myria_server.http.failure_limiter import FailureLimiter

OAUTH_PREFIX = "/oauth/"
METADATA_PATH = "/.well-known/oauth-authorization-server"
BODY_BYTES = 16 * 1024
"""Bytes of a form, or of a registration."""

_TENANT_FACTOR = 5
"""All keys of a tenant together may allow programs something this many times as often as one key."""

_MAX_FIELDS = 30
_MEANINGLESS_SCOPES = frozenset({"openid", "profile", "email", "address", "phone", "offline_access"})
"""Scopes of OpenID Connect, which some clients ask of every server.

To refuse them would keep these clients out. RFC 6749, section 3.3, lets a server leave scopes out; its answer says
which were granted.
"""

_KEPT_FIELDS = (
    "response_type",
    "client_id",
    "redirect_uri",
    "code_challenge",
    "code_challenge_method",
    "state",
    "scope",
    "resource",
)
"""Parameters of an authorization request that the consent page sends back; the person's key is not among them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _AuthorizationRequest:
    """An authorization request whose client and redirect address were checked."""

    client: Client
    redirect_uri: str
    fields: Mapping[str, str]


class _Refused(Exception):
    """A refusal in the form of OAuth: an error code of the standard and a description."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status


class AuthorizationServer:
    """The endpoints of an authorization server whose accounts are keys.

    Args:
        auth: how often programs register from one network, and how often a key and a tenant allow one something.
        public_url: where clients reach it; its name as an issuer too.
        resources: the address of each API.
        key_cache: knows keys.
        limiter: counts refused keys.
        ticks: a steady clock, in seconds.
    """

    def __init__(
        self,
        auth: AuthSettings,
        public_url: str,
        resources: Mapping[ApiName, str],
        *,
        grants: Grants,
        key_cache: KeyCache,
        limiter: FailureLimiter,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = public_url
        self._resources = resources
        self._grants = grants
        self._key_cache = key_cache
        self._limiter = limiter
        self._registrations = Rates(
            auth.registrations_per_minute,
            limit="registrations_per_minute",
            message="too many programs registered from this network; wait",
            ticks=ticks,
        )
        per_key = auth.sign_ins_per_minute
        self._consents_of_keys, self._consents_of_tenants = (
            Rates(
                None if per_key is None else factor * per_key,
                limit="sign_ins_per_minute",
                message=f"Too many programs were allowed something with this {holder} within a minute. Wait a little.",
                ticks=ticks,
            )
            for holder, factor in (("key", 1), ("key's tenant", _TENANT_FACTOR))
        )

    def routes(self) -> list[Route]:
        """Return the routes of the endpoints."""
        return [
            Route(METADATA_PATH, self._metadata),
            Route("/oauth/register", self._register, methods=["POST"]),
            Route("/oauth/authorize", self._authorize, methods=["GET", "POST"]),
            Route("/oauth/token", self._token, methods=["POST"]),
            Route("/oauth/revoke", self._revoke, methods=["POST"]),
        ]

    async def _metadata(self, _request: Request) -> Response:
        """Describe the server (RFC 8414)."""
        scopes = dict.fromkeys(scope for granted in SCOPES.values() for scope in granted)
        return JSONResponse(
            {
                "issuer": self._issuer,
                "authorization_endpoint": f"{self._issuer}/oauth/authorize",
                "token_endpoint": f"{self._issuer}/oauth/token",
                "registration_endpoint": f"{self._issuer}/oauth/register",
                "revocation_endpoint": f"{self._issuer}/oauth/revoke",
                "scopes_supported": [*scopes],
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none"],
                "revocation_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def _register(self, request: Request) -> Response:
        """Register a client (RFC 7591); it gets no secret, whatever it asks for."""
        network = network_of(self._limiter.address(request.scope), site=True)
        try:
            self._registrations.note([network])
            try:
                metadata = orjson.loads(await _body(request))
            except orjson.JSONDecodeError as error:
                raise _Refused("invalid_client_metadata", "the body must be a JSON object") from error
            if not isinstance(metadata, dict):
                raise _Refused("invalid_client_metadata", "the body must be a JSON object")
            name, uris = metadata.get("client_name") or "a program without a name", metadata.get("redirect_uris")
            if not isinstance(name, str):
                raise _Refused("invalid_client_metadata", "client_name must be text")
            if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
                raise _Refused("invalid_redirect_uri", "redirect_uris must be a list of addresses")
            try:
                client = await self._grants.register(name, uris, network=network)
            except InvalidArgument as error:
                about_uris = error.details.get("field") == "redirect_uris"
                code = "invalid_redirect_uri" if about_uris else "invalid_client_metadata"
                raise _Refused(code, error.message) from error
        except (_Refused, UnavailableError, RateLimited) as error:
            if isinstance(error, RateLimited):
                await self._limiter.delay(error)
            return _refusal(error)
        return JSONResponse(
            {
                "client_id": client.client_id,
                "client_name": client.name,
                "redirect_uris": [*client.redirect_uris],
                "token_endpoint_auth_method": "none",
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
            },
            status_code=201,
        )

    async def _authorize(self, request: Request) -> Response:
        """On GET show the consent page; on POST check everything again and take the person's answer."""
        try:
            if request.method == "GET":
                fields = _fields(request.url.query)
            else:
                self._check_origin(request)
                fields = await _form(request)
            authorization = await self._check_client(fields)
        except _Refused as refused:
            return refusal_page(refused.description, status=refused.status)
        except UnavailableError as error:
            return refusal_page(error.message, status=error.http_status)
        try:
            api, scopes = self._check_request(authorization)
            if request.method == "GET":
                return self._page(authorization, api, scopes)
            if fields.get("decision") != "allow":
                raise _Refused("access_denied", "the person said no")
            return await self._grant(request, authorization, api, scopes, key_text=fields.get("key", "").strip())
        except _Refused as refused:
            return self._redirect_back(authorization, error=refused.error, error_description=refused.description)

    def _check_origin(self, request: Request) -> None:
        """Check that a form comes from this server's consent page, or from no page at all.

        Raises:
            _Refused: it comes from another page.
        """
        origin = request.headers.get("origin")
        if origin is None or origin.lower() == self._issuer.lower():
            return
        if urlsplit(origin).netloc != request.headers.get("host"):
            raise _Refused("invalid_request", "This answer comes from another page than that of this server.", 403)

    async def _check_client(self, fields: Mapping[str, str]) -> _AuthorizationRequest:
        """Check the client and the redirect address; only after that may anything, even an error, be sent there.

        Raises:
            _Refused: the client, or the address, is not registered.
        """
        client = await self._grants.client(fields.get("client_id", ""))
        if client is None:
            raise _Refused("invalid_client", "The program that sent you here is not registered, or no longer.")
        uri = fields.get("redirect_uri", "")
        if client.registered(uri) is None:
            raise _Refused("invalid_request", "The program wants its answer at an address that it did not register.")
        return _AuthorizationRequest(
            client=client, redirect_uri=uri, fields={k: fields[k] for k in _KEPT_FIELDS if k in fields}
        )

    def _check_request(self, authorization: _AuthorizationRequest) -> tuple[ApiName, tuple[str, ...]]:
        """Check the other parameters; return the API and the scopes that the client asks for (all if it names none)."""
        fields = authorization.fields
        if fields.get("response_type") != "code":
            raise _Refused("unsupported_response_type", "response_type must be code")
        if fields.get("code_challenge_method") != "S256" or not is_challenge(fields.get("code_challenge", "")):
            raise _Refused("invalid_request", "PKCE with code_challenge_method S256 is needed")
        api = self._api_of(fields.get("resource")) or "core"
        asked_scopes = _scopes(fields.get("scope", ""))
        if not set(asked_scopes) <= set(SCOPES[api]):
            raise _Refused("invalid_scope", f"this resource has the scopes {' '.join(SCOPES[api])}")
        return api, tuple(scope for scope in SCOPES[api] if not asked_scopes or scope in asked_scopes)

    def _api_of(self, resource: str | None) -> ApiName | None:
        """Return the API that a resource parameter (RFC 8707) names; None where the parameter is absent."""
        if resource is None:
            return None
        for api, url in self._resources.items():
            if resource in (url, url + "/"):
                return api
        raise _Refused("invalid_target", f"the resources here are {' and '.join(self._resources.values())}")

    def _page(
        self,
        authorization: _AuthorizationRequest,
        api: ApiName,
        scopes: tuple[str, ...],
        *,
        problem: str | None = None,
        status: int = 200,
    ) -> Response:
        return consent_page(
            authorization.client,
            authorization.fields,
            scopes=scopes,
            resource=self._resources[api],
            problem=problem,
            status=status,
        )

    async def _grant(
        self,
        request: Request,
        authorization: _AuthorizationRequest,
        api: ApiName,
        scopes: tuple[str, ...],
        *,
        key_text: str,
    ) -> Response:
        """Check the person's key and redirect to the client with a code; show the page again where that fails."""
        key = parse_key(key_text)
        try:
            if key is None:
                raise CredentialInvalid("This is no key. It reads myr_<id>_<secret>.")
            principal: Principal = await self._key_cache.principal(key_text)
        except AccessError as error:
            headers = {b"authorization": b"Bearer " + key_text.encode()}
            refusal = self._limiter.count_failure(request.scope, headers, error)
            self._limiter.note(request.scope, headers, api, None, refusal)
            return self._page(authorization, api, scopes, problem=refusal.message, status=refusal.http_status)
        except UnavailableError as error:
            return self._page(authorization, api, scopes, problem=error.message, status=error.http_status)
        granted_scopes = tuple(scope for scope in scopes if scope in principal.roles)
        if not granted_scopes or api not in principal.faces:
            problem = "This key may do nothing of what the program asks for; use another one."
            return self._page(authorization, api, scopes, problem=problem, status=403)
        try:
            self._consents_of_keys.note([key.key_id])
            self._consents_of_tenants.note([principal.tenant])
            code = await self._grants.grant(
                key,
                authorization.client,
                face=api,
                scopes=granted_scopes,
                redirect_uri=authorization.redirect_uri,
                challenge=authorization.fields["code_challenge"],
            )
        except (UnavailableError, RateLimited) as error:
            return self._page(authorization, api, scopes, problem=error.message, status=error.http_status)
        if code is None:
            return self._page(
                authorization, api, scopes, problem="This key was changed meanwhile; try again.", status=403
            )
        return self._redirect_back(authorization, code=code)

    def _redirect_back(self, authorization: _AuthorizationRequest, **answer: str) -> Response:
        """Redirect the browser to the client with `answer`, its `state` and this issuer's name (RFC 9207)."""
        if "state" in authorization.fields:
            answer["state"] = authorization.fields["state"]
        parts = urlsplit(authorization.redirect_uri)
        query = "&".join(part for part in (parts.query, urlencode({**answer, "iss": self._issuer})) if part)
        return RedirectResponse(
            parts._replace(query=query).geturl(), status_code=303, headers={"cache-control": "no-store"}
        )

    async def _token(self, request: Request) -> Response:
        """Issue tokens for a code or a refresh token."""
        try:
            fields = await _form(request)
            client = await self._client(fields)
            api = self._api_of(fields.get("resource"))
            kind = fields.get("grant_type")
            issued: Issued | None
            if kind == "authorization_code":
                issued = await self._grants.exchange_code(
                    _required(fields, "code"),
                    client,
                    redirect_uri=_required(fields, "redirect_uri"),
                    verifier=_required(fields, "code_verifier"),
                    face=api,
                )
            elif kind == "refresh_token":
                scopes = _scopes(fields.get("scope", "")) or None
                issued = await self._grants.refresh(_required(fields, "refresh_token"), client, face=api, scopes=scopes)
            else:
                raise _Refused("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
            if issued is None:
                refusal = self._limiter.count_failure(
                    request.scope, {}, CredentialInvalid("this code or token is not good")
                )
                if not isinstance(refusal, CredentialInvalid):
                    return _refusal(refusal)
                raise _Refused("invalid_grant", "this code or token is not good, was used, or its key has ended")
        except (_Refused, UnavailableError) as error:
            return _refusal(error)
        return JSONResponse(
            {
                "access_token": issued.access,
                "token_type": "Bearer",
                "expires_in": int(ACCESS_S),
                "refresh_token": issued.refresh,
                "scope": " ".join(issued.scopes),
            },
            headers={"cache-control": "no-store"},
        )

    async def _revoke(self, request: Request) -> Response:
        """End the grant of a token (RFC 7009); an unknown token is answered with success, too."""
        try:
            fields = await _form(request)
            await self._grants.revoke(_required(fields, "token"), await self._client(fields))
        except (_Refused, UnavailableError) as error:
            return _refusal(error)
        return Response(status_code=200)

    async def _client(self, fields: Mapping[str, str]) -> Client:
        client = await self._grants.client(_required(fields, "client_id"))
        if client is None:
            raise _Refused("invalid_client", "this client is not registered, or no longer", 401)
        return client


def _scopes(text: str) -> list[str]:
    """Return the scopes of a space-separated list, without `_MEANINGLESS_SCOPES`."""
    return [scope for scope in text.split() if scope not in _MEANINGLESS_SCOPES]


def _required(fields: Mapping[str, str], name: str) -> str:
    if not fields.get(name):
        raise _Refused("invalid_request", f"{name} is needed")
    return fields[name]


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise _Refused("invalid_request", f"a body may have {BODY_BYTES} bytes", 413)
    return body


async def _form(request: Request) -> dict[str, str]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/x-www-form-urlencoded":
        raise _Refused("invalid_request", "send application/x-www-form-urlencoded", 415)
    try:
        text = (await _body(request)).decode("ascii")
    except UnicodeDecodeError as error:
        raise _Refused("invalid_request", "the form is not encoded") from error
    return _fields(text)


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a query or a form, each once (RFC 6749, section 3.1); empty ones are left out."""
    try:
        pairs = parse_qsl(text[:BODY_BYTES], max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise _Refused("invalid_request", "the parameters cannot be read") from error
    fields = dict(pairs)
    if len(fields) < len(pairs) or any("\x00" in name or "\x00" in value for name, value in pairs):
        raise _Refused("invalid_request", "a parameter is there twice, or holds what no text may hold")
    return fields


def _refusal(error: _Refused | MyriaError) -> Response:
    headers = {"cache-control": "no-store"}
    body: dict[str, Any]
    if isinstance(error, _Refused):
        body = {"error": error.error, "error_description": error.description}
        return JSONResponse(body, status_code=error.status, headers=headers)
    body = {"error": "temporarily_unavailable", "error_description": error.message}
    if (wait_s := error.details.get("retry_after_s")) is not None:
        headers["retry-after"] = str(wait_s)
    return JSONResponse(body, status_code=error.http_status, headers=headers)
