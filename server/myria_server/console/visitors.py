"""Who looks at a page: signing in and out, and proof that a form comes from a page of ours.

A browser holds the secret of its session in a cookie that no script can read. Forms carry a
token derived from that secret (OWASP, "signed double-submit"), and their Origin must be this server's.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from myria.access.console_sessions import ConsoleSessions, SealedToken
from myria.access.key_cache import KeyCache
from myria.access.limits import Rates
from myria.access.principal import Principal
from myria.access.secrets import parse_key, parse_session
from myria.errors import AccessError, CredentialInvalid, CredentialMissing
from myria_server.http.authentication import Authentication
from myria_server.http.exchange import headers_of
from myria_server.http.failure_limiter import FailureLimiter
from myria_server.http.jwt_tokens import Tokens
from myria_server.paths import CONSOLE_PREFIX as PREFIX

COOKIE = "myria_console"
_SALT_BYTES = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Visitor:
    """Whoever looks at a page: the principal, and the secret of the browser's session."""

    principal: Principal
    secret: str
    can_sign_out: bool

    def form_token(self) -> str:
        """Return a token for a form. Each is another text, so that compressed pages do not give it away (BREACH)."""
        salt = secrets.token_hex(_SALT_BYTES)
        return salt + self._signature(salt)

    def sent(self, token: str) -> bool:
        """Tell whether a form's token was made for this session."""
        salt, signature = token[: 2 * _SALT_BYTES], token[2 * _SALT_BYTES :]
        return hmac.compare_digest(self._signature(salt).encode(), signature.encode())

    @staticmethod
    def form_id(token: str) -> str:
        """Return what tells a form whose token was checked from every other form."""
        return token[: 2 * _SALT_BYTES]

    def _signature(self, salt: str) -> str:
        return hmac.new(self.secret.encode(), b"myria.console.form.v1\n" + salt.encode(), hashlib.sha256).hexdigest()


class Visitors:
    """Finds the visitor of a request, and signs visitors in and out.

    Args:
        local: tells who calls where no credentials are asked for; None where they are.
        key_cache: knows keys and sessions; None where no credentials are asked for.
        session_s: seconds for which a browser keeps its session.
        sign_ins: how often one key may sign in.
        tokens: verifies the tokens of issuers that sessions keep; None where there are no issuers.
        is_secure: whether browsers reach this server over TLS, so that the cookie must never travel without it.
    """

    def __init__(
        self,
        *,
        local: Authentication | None,
        key_cache: KeyCache | None,
        sessions: ConsoleSessions,
        limiter: FailureLimiter,
        session_s: float,
        sign_ins: Rates,
        tokens: Tokens | None,
        is_secure: bool,
    ) -> None:
        self._local = local
        self._key_cache = key_cache
        self._sessions = sessions
        self._limiter = limiter
        self._session_s = session_s
        self._sign_ins = sign_ins
        self._tokens = tokens
        self._cookie = f"__Secure-{COOKIE}" if is_secure else COOKIE
        self._is_secure = is_secure

    async def visitor(self, request: Request) -> Visitor:
        """Return who sends a request.

        Raises:
            CredentialMissing: nobody is signed in.
            CredentialInvalid, TenantSuspended: the session has ended, or what it stands for.
            UnavailableError: nobody can tell now.
        """
        secret = request.cookies.get(self._cookie, "")
        if self._key_cache is None:
            assert self._local is not None  # noqa: S101 - one of both is there
            principal = await self._local.principal(headers_of(request.scope), "core")
            return Visitor(principal=principal, secret=secret or secrets.token_urlsafe(24), can_sign_out=False)
        if not secret:
            raise CredentialMissing("sign in first")
        session = parse_session(secret)
        if session is None:
            raise CredentialInvalid("this is no session of the console; sign in again")
        found = await self._key_cache.signed_in(session)
        principal = await self._verified(found.opened(session)) if isinstance(found, SealedToken) else found
        return Visitor(principal=principal, secret=secret, can_sign_out=True)

    async def _verified(self, token: str) -> Principal:
        """Return the principal of the token that a session keeps: at each request it must be good, as at the APIs."""
        if self._tokens is None:
            raise CredentialInvalid("the issuer of this session is not known here any more; sign in again")
        return await self._tokens.principal(token, "console")

    def keep(self, response: Response, visitor: Visitor, request: Request) -> None:
        """Let the browser of a visitor without credentials keep the secret that its forms need."""
        if not visitor.can_sign_out and request.cookies.get(self._cookie) != visitor.secret:
            self._set_cookie(response, visitor.secret)

    async def sign_in(self, request: Request, text: str) -> str:
        """Check a key and begin a session; return its secret.

        Raises:
            AccessError: the key is refused, or too many were.
            RateLimited: it signed in too often.
            UnavailableError: nobody can tell now.
        """
        assert self._key_cache is not None  # noqa: S101 - there is no page to sign in at otherwise
        key = parse_key(text)
        headers = {b"authorization": b"Bearer " + text.encode()}
        principal: Principal | None = None
        try:
            if key is None:
                raise CredentialInvalid("This is no key. It reads myr_<id>_<secret>.")
            principal = await self._key_cache.principal(text)
            self._sign_ins.note([key.key_id])
            session = await self._sessions.sign_in(key, address=self._limiter.address(request.scope))
            if session is None:
                raise CredentialInvalid("This key was changed meanwhile; try again.")
            # At once: a page that says of a key how many browsers it signed in also says when it was last used.
            await self._key_cache.note_uses()
        except AccessError as error:
            refusal = self._limiter.count_failure(request.scope, headers, error)
            self._limiter.note(request.scope, headers, "core", principal, refusal)
            raise refusal from error
        return session

    async def sign_out(self, visitor: Visitor, request: Request) -> None:
        """End a visitor's session."""
        await self._sessions.sign_out(visitor.secret, address=self._limiter.address(request.scope))

    async def end_former(self, request: Request) -> None:
        """End the session that a browser still has when it begins another: its cookie is lost, and nobody else's."""
        await self._sessions.sign_out(
            request.cookies.get(self._cookie, ""), address=self._limiter.address(request.scope)
        )

    def set_session(self, response: Response, session: str) -> None:
        """Give a browser its session. It is a new secret for each time somebody signs in, so none can be planted."""
        self._set_cookie(response, session)

    def drop_session(self, response: Response) -> None:
        """Take the session from a browser."""
        response.delete_cookie(self._cookie, path=PREFIX, secure=self._is_secure, httponly=True, samesite="lax")

    def _set_cookie(self, response: Response, secret: str) -> None:
        response.set_cookie(
            self._cookie,
            secret,
            max_age=int(self._session_s),
            path=PREFIX,
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )


def is_same_origin(request: Request) -> bool:
    """Tell whether a form comes from a page of this server, as its browser says."""
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == request.headers.get("host")


def asked_as(names: Sequence[str]) -> list[str]:
    """Return the names that an address holds as `as=`, one name each; each once, and without empty ones."""
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))
