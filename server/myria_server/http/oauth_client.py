"""This server as a client of somebody else's authorization server: a browser brings a code, and it becomes a token.

The code flow with PKCE (RFC 7636, S256), for one resource (RFC 8707), with the issuer named in the answer (RFC 9207).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from myria.access.issuers import ConsoleClient, Issuer
from myria.errors import CredentialInvalid, IssuerUnavailable
from myria_server.http.issuer_metadata import address_in, metadata_of, post_form, trusted_authorities

ANSWER_S = 5.0
"""Seconds for all requests of one step together."""

AT_ONCE = 8
"""Codes of one issuer that are exchanged at the same time; further ones wait, within `ANSWER_S`."""

AGAIN_S = 5.0
"""Seconds between two attempts to fetch metadata that cannot be had."""

_MOST_ERROR = 500


@dataclass(frozen=True, slots=True)
class SignIn:
    """One sign-in that is under way: its secret is in the browser that began it, and nowhere else.

    What goes to the issuer and back is derived from the secret, so none of it tells the others: who sees the address
    with `state` cannot exchange the code.
    """

    secret: str = field(repr=False)
    place: str
    """The page to go on to."""

    @classmethod
    def begin(cls, place: str) -> SignIn:
        """Return a new one."""
        return cls(secrets.token_urlsafe(32), place)

    @property
    def state(self) -> str:
        """What the issuer must bring back."""
        return self._derived(f"state {self.place}")

    @property
    def nonce(self) -> str:
        """What an ID token must hold."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """What proves at the exchange who asked for the code."""
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """What the issuer is told of the verifier before."""
        return _base64url(hashlib.sha256(self.verifier.encode()).digest())

    def _derived(self, what: str) -> str:
        return _base64url(hmac.digest(self.secret.encode(), b"myria.console.sign_in.v1\n" + what.encode(), "sha256"))


@dataclass(frozen=True, kw_only=True, slots=True)
class IssuedTokens:
    """What an issuer gave for a code."""

    access: str = field(repr=False)
    id_token: str | None = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Endpoints:
    authorization: str
    token: str
    names_itself: bool
    """Whether each answer must say which issuer it is from."""
    posts_secret: bool
    """Whether a client's secret is a field of the form, since the issuer does not take it as a header."""


class IssuerClient:
    """A client of one issuer.

    Args:
        issuer: with the section `console`.
        secret: of a confidential client; None for a public one.
        redirect_uri: where the issuer sends browsers back.
        resource: for what tokens are asked, where the issuer's entry does not say.
        ticks: a steady clock, in seconds.
    """

    def __init__(
        self,
        issuer: Issuer,
        secret: str | None,
        *,
        redirect_uri: str,
        resource: str,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        assert issuer.console is not None  # noqa: S101 - the caller chose those
        self.issuer = issuer
        self.console: ConsoleClient = issuer.console
        self._secret = secret
        self._redirect_uri = redirect_uri
        self._resource = resource if self.console.resource is None else self.console.resource
        self._ticks = ticks
        self._exchanging = asyncio.Semaphore(AT_ONCE)
        self._fetching = asyncio.Lock()
        self._endpoints: _Endpoints | None = None
        self._fetched_at = self._tried_at = float("-inf")

    async def authorization_address(self, sign_in: SignIn) -> str:
        """Return where a browser signs in.

        Raises:
            IssuerUnavailable: the issuer's metadata cannot be had.
        """
        fields = {
            "response_type": "code",
            "client_id": self.console.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self.console.scopes),
            "state": sign_in.state,
            "nonce": sign_in.nonce if self.console.is_openid else "",
            "code_challenge": sign_in.challenge,
            "code_challenge_method": "S256",
            "resource": self._resource,
        }
        endpoints = await self._found()
        given = urlencode({name: text for name, text in fields.items() if text}, quote_via=quote)
        return f"{endpoints.authorization}?{given}"

    async def code_in(self, answer: dict[str, str], sign_in: SignIn) -> str:
        """Return the code that a browser brought back.

        Args:
            answer: the parameters of the address, each once.

        Raises:
            CredentialInvalid: it is no answer to this sign-in, or of another issuer; or the issuer refused.
            IssuerUnavailable: as `authorization_address`.
        """
        if not hmac.compare_digest(answer.get("state", "").encode(), sign_in.state.encode()):
            raise CredentialInvalid("This is no answer to the sign-in that this browser began. Begin again.")
        endpoints = await self._found()
        named = answer.get("iss")
        if named != self.issuer.issuer and (named is not None or endpoints.names_itself):
            raise CredentialInvalid("This answer is not from the issuer that was asked. Begin again.")
        if "error" in answer:
            raise CredentialInvalid(f"{self.issuer.name} did not sign you in: {_refusal_of(answer)}")
        if not answer.get("code"):
            raise CredentialInvalid(f"{self.issuer.name} brought no code. Begin again.")
        return answer["code"]

    async def exchange(self, code: str, sign_in: SignIn) -> IssuedTokens:
        """Return the tokens for a code.

        Raises:
            CredentialInvalid: the issuer refuses it, or its answer holds no token that can be used here.
            IssuerUnavailable: it cannot be asked now.
        """
        endpoints = await self._found()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "client_id": self.console.client_id,
            "code_verifier": sign_in.verifier,
        }
        if self._resource:
            fields["resource"] = self._resource
        auth: httpx.BasicAuth | None = None
        if self._secret is not None and endpoints.posts_secret:
            fields["client_secret"] = self._secret
        elif self._secret is not None:
            # Both are encoded as in a form (RFC 6749, section 2.3.1).
            auth = httpx.BasicAuth(quote(self.console.client_id, safe=""), quote(self._secret, safe=""))
        try:
            async with asyncio.timeout(ANSWER_S), self._exchanging, _client() as client:
                status, answer = await post_form(client, endpoints.token, fields, auth)
        except (httpx.HTTPError, TimeoutError, ValueError, OSError) as error:
            raise self._unavailable() from error
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise self._unavailable()
        if status != httpx.codes.OK:
            raise CredentialInvalid(f"{self.issuer.name} gave no token: {_refusal_of(answer)}")
        access, id_token = answer.get("access_token"), answer.get("id_token")
        if str(answer.get("token_type")).lower() != "bearer" or not isinstance(access, str):
            raise CredentialInvalid(f"{self.issuer.name} gave no bearer token.")
        if id_token is not None and not isinstance(id_token, str):
            raise CredentialInvalid(f"{self.issuer.name} gave an ID token that is none.")
        if self.console.is_openid and id_token is None:
            raise CredentialInvalid(f"{self.issuer.name} gave no ID token, although the scope openid was asked for.")
        return IssuedTokens(access=access, id_token=id_token)

    async def _found(self) -> _Endpoints:
        """Return the issuer's endpoints: fetched once, and again after `refresh_s`; old ones are good meanwhile."""
        async with self._fetching:
            is_old = self._ticks() - self._fetched_at > self.issuer.refresh_s
            if is_old and self._ticks() - self._tried_at >= AGAIN_S:
                self._tried_at = self._ticks()
                try:
                    async with asyncio.timeout(ANSWER_S), _client() as client:
                        self._endpoints = await self._fetch(client)
                    self._fetched_at = self._tried_at
                except (httpx.HTTPError, TimeoutError, ValueError, OSError) as error:
                    if self._endpoints is None:
                        raise self._unavailable() from error
            if self._endpoints is None:
                raise self._unavailable()
            return self._endpoints

    async def _fetch(self, client: httpx.AsyncClient) -> _Endpoints:
        authorization, token = self.console.authorization_endpoint, self.console.token_endpoint
        document: dict[str, Any] = {}
        if authorization is None or token is None:
            document = await metadata_of(client, self.issuer)
        methods = document.get("token_endpoint_auth_methods_supported")
        methods = methods if isinstance(methods, list) else ["client_secret_basic"]
        return _Endpoints(
            authorization=authorization or address_in(document, "authorization_endpoint", self.issuer),
            token=token or address_in(document, "token_endpoint", self.issuer),
            names_itself=document.get("authorization_response_iss_parameter_supported") is True,
            posts_secret="client_secret_basic" not in methods and "client_secret_post" in methods,
        )

    def _unavailable(self) -> IssuerUnavailable:
        message = f"{self.issuer.name} cannot be asked now; try again, or sign in with a key"
        return IssuerUnavailable(message, issuer=self.issuer.name)


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=trusted_authorities(), follow_redirects=False, timeout=ANSWER_S)


def _refusal_of(answer: dict[str, Any]) -> str:
    """Return what an issuer says of its refusal: its own text, cut, and without what is not printed."""
    texts = (answer.get(name) for name in ("error", "error_description"))
    said = ": ".join(text for text in texts if isinstance(text, str) and text) or "it did not say why"
    return "".join(character if character.isprintable() else " " for character in said[:_MOST_ERROR])


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
