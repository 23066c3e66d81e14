"""Signing in to the console through an issuer: a link leads there, and a code leads back.

What belongs to one sign-in is in a cookie of the browser that began it, for ten minutes, and is taken from it when the
issuer's answer comes: nobody can be signed in with somebody else's answer (login CSRF), and no answer counts twice.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from myria.access.console_sessions import ConsoleSessions
from myria.access.limits import Rates, network_of
from myria.access.principal import Principal
from myria.errors import AccessError, CredentialInvalid, PathNotFound, RoleRequired
from myria_server.http.failure_limiter import FailureLimiter
from myria_server.http.jwt_tokens import Tokens, looks_like_token
from myria_server.http.oauth_client import IssuerClient, SignIn

CALLBACK = "/signed-in/{name}"
"""The address below `/console` to which an issuer sends browsers back. Each has its own, so that no issuer gets a code
that another one gave (RFC 9700, section 4.4.2), also where that one does not name itself in its answers."""

COOKIE = "myria_signing_in"

COOKIE_S = 600
"""Seconds within which the issuer's answer must come."""

_MOST_ANSWER = 16 * 1024
_MOST_FIELDS = 30
_MOST_PLACE = 1_500


class IssuerSignIn:
    """Signs visitors in with tokens of issuers.

    Args:
        clients: by the issuer's name.
        answers: how often answers may come from one network: each makes this server ask the issuer.
        sign_ins: how often one subject may sign in.
        is_secure: whether browsers reach this server over TLS.
    """

    def __init__(
        self,
        clients: Mapping[str, IssuerClient],
        *,
        tokens: Tokens,
        sessions: ConsoleSessions,
        limiter: FailureLimiter,
        answers: Rates,
        sign_ins: Rates,
        is_secure: bool,
    ) -> None:
        self._clients = clients
        self._tokens = tokens
        self._sessions = sessions
        self._limiter = limiter
        self._answers = answers
        self._sign_ins = sign_ins
        self._is_secure = is_secure
        # A subdomain cannot plant a cookie with this prefix (RFC 6265bis, section 4.1.3.2).
        self._cookie = f"__Host-{COOKIE}" if is_secure else COOKIE

    @property
    def names(self) -> list[str]:
        """The issuers at which one can sign in."""
        return [*self._clients]

    async def begin(self, name: str, place: str) -> tuple[str, str]:
        """Return where a browser signs in, and the cookie that it needs when it comes back.

        Args:
            place: the page to go on to.

        Raises:
            PathNotFound: there is no such issuer.
            IssuerUnavailable: it cannot be asked now.
        """
        client = self._clients.get(name)
        if client is None:
            raise PathNotFound("One cannot sign in there. Choose another way.")
        sign_in = SignIn.begin(place if len(place) <= _MOST_PLACE else "")
        kept_place = base64.urlsafe_b64encode(sign_in.place.encode()).rstrip(b"=").decode()
        return await client.authorization_address(sign_in), f"{name}.{sign_in.secret}.{kept_place}"

    async def finish(self, request: Request) -> tuple[str, str]:
        """Begin a session for whom an issuer's answer names; return its secret, and the page to go on to.

        Raises:
            AccessError: this browser began no sign-in, or the answer is none to it; the issuer refused; or its token is
                not good here.
            RateLimited: too many answers came, or the subject signed in too often.
            UnavailableError: nobody can tell now.
        """
        principal: Principal | None = None
        try:
            client, sign_in = self._under_way(request)
            address = self._limiter.address(request.scope)
            self._answers.note([network_of(address)])
            code = await client.code_in(_fields(request.url.query), sign_in)
            issued = await client.exchange(code, sign_in)
            principal, left_s = await self._principal_of(issued.access, client)
            if client.console.is_openid:
                await self._tokens.check_id_token(
                    issued.id_token or "",
                    client.issuer,
                    client_id=client.console.client_id,
                    nonce=sign_in.nonce,
                    principal=principal,
                )
            subject = principal.credential or ""
            self._sign_ins.note([subject])
            session = await self._sessions.keep_token(
                issued.access, tenant=principal.tenant, subject=subject, lifetime_s=left_s, address=address
            )
            if session is None:
                raise CredentialInvalid("the tenant of this token is not known here, or suspended")
        except AccessError as error:
            refusal = self._limiter.count_failure(request.scope, {}, error)
            self._limiter.note(request.scope, {}, "core", principal, refusal)
            raise refusal from error
        return session, sign_in.place

    def set_cookie(self, response: Response, value: str) -> None:
        """Let a browser keep what belongs to its sign-in until it comes back."""
        response.set_cookie(
            self._cookie, value, max_age=COOKIE_S, path="/", secure=self._is_secure, httponly=True, samesite="lax"
        )

    def drop_cookie(self, response: Response) -> None:
        """Take it from the browser: an answer counts once."""
        response.delete_cookie(self._cookie, path="/", secure=self._is_secure, httponly=True, samesite="lax")

    def _under_way(self, request: Request) -> tuple[IssuerClient, SignIn]:
        """Return the sign-in that a browser began, and where."""
        name, _, rest = request.cookies.get(self._cookie, "").partition(".")
        secret, _, kept_place = rest.partition(".")
        client = self._clients.get(name)
        if client is None or not secret:
            raise CredentialInvalid(
                "No sign-in is under way in this browser: it is done, or took longer than ten minutes. Begin again."
            )
        if request.path_params["name"] != name:
            raise CredentialInvalid("This answer came to the address of another issuer. Begin again.")
        try:
            place = base64.urlsafe_b64decode(kept_place + "=" * (-len(kept_place) % 4)).decode()
        except (binascii.Error, ValueError):
            place = ""
        return client, SignIn(secret, place)

    async def _principal_of(self, token: str, client: IssuerClient) -> tuple[Principal, float]:
        """Return whom a token names, and in how many seconds it ends: what counts for it at the APIs counts here."""
        issuer = client.issuer
        if not looks_like_token(token):
            raise CredentialInvalid(f"{issuer.name} gave a token that is no signed token (JWT), as the APIs need it.")
        principal, left_s = await self._tokens.principal_until(token, "console")
        if not (principal.credential or "").startswith(f"{issuer.name}:"):
            raise CredentialInvalid("this token is another issuer's", reason="issuer")
        if not principal.roles or not principal.faces:
            raise RoleRequired(f"{issuer.name} knows you, but gives you no role here.", roles=[])
        return principal, left_s


def _fields(query: str) -> dict[str, str]:
    """Return the parameters of an issuer's answer, each of which may be there once (RFC 6749, section 3.1).

    Raises:
        CredentialInvalid: they cannot be read.
    """
    try:
        pairs = parse_qsl(query, max_num_fields=_MOST_FIELDS, errors="strict") if len(query) <= _MOST_ANSWER else None
    except ValueError:
        pairs = None
    if pairs is None or len(dict(pairs)) < len(pairs) or any("\0" in text for pair in pairs for text in pair):
        raise CredentialInvalid("The issuer's answer cannot be read. Begin again.")
    return dict(pairs)
