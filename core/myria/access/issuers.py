"""The authorization servers whose tokens are accepted, as `auth.issuers_file` lists them.

Nothing of a token is believed by default: each claim that counts is named here, with what its values stand for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from myria.access.principal import MAX_PATTERNS, ApiName, Role, checked_pattern
from myria.access.tenants import checked_tenant
from myria.access.vault import Secrets
from myria.errors import ConfigurationError, MyriaError
from myria.log.scopes import canonical_participants
from myria.settings.yaml_files import read_yaml

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a public key. `none` and those with a shared secret (HS*) cannot be configured."""

ClaimPath = str | tuple[str, ...]
"""A claim's name, or the names on the way to a nested one, such as `[realm_access, roles]`."""

Name = TypeVar("Name", bound=str)

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_Text = Annotated[str, Field(min_length=1, max_length=500)]
_Values = Annotated[tuple[_Text, ...], Field(max_length=MAX_PATTERNS)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _OfClaim(_Strict):
    claim: ClaimPath | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The names on the way to the claim; none where there is no claim."""
        if self.claim is None:
            return ()
        return (self.claim,) if isinstance(self.claim, str) else self.claim


class Mapped(_OfClaim):
    """How names are taken from a token: those in `always`, and those of a claim.

    The claim holds a text, or a list of texts. `values` says which names each text stands for; without it, the texts
    are the names, with `prefix` before each.
    """

    always: _Values = ()
    prefix: Annotated[str, Field(max_length=100)] = ""
    values: Annotated[Mapping[str, tuple[_Text, ...]], Field(max_length=1000)] | None = None

    @field_validator("claim")
    @classmethod
    def _is_named(cls, claim: ClaimPath | None) -> ClaimPath | None:
        names = (claim,) if isinstance(claim, str) else claim
        if names is not None and (not names or not all(names)):
            raise ValueError("name a claim, or leave it out")
        return claim

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if self.claim is None and (self.values is not None or self.prefix):
            raise ValueError("values and prefix need a claim")
        if self.values is not None and self.prefix:
            raise ValueError("give values or a prefix, not both")
        if self.claim is None and not self.always:
            raise ValueError("name always, or a claim")
        return self

    @property
    def configured(self) -> tuple[str, ...]:
        """Every name that is written in the configuration itself."""
        return (*self.always, *(name for names in (self.values or {}).values() for name in names))


class Granted(_OfClaim, Generic[Name]):
    """How roles or faces are taken from a token: those in `always`, and those that values of a claim grant.

    The claim holds a list of texts, or one text whose words are the values, as `scope` does. Values that are not listed
    grant nothing.
    """

    always: tuple[Name, ...] = ()
    values: Annotated[Mapping[str, tuple[Name, ...]], Field(max_length=1000)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if (self.claim is None) != (not self.values):
            raise ValueError("a claim and values go together: only what is listed is granted")
        if self.claim is not None and not all(self.path):
            raise ValueError("name a claim")
        return self


class ConsoleClient(_Strict):
    """The console as a client of an authorization server, so that people sign in there (code flow with PKCE).

    `client_secret` says where a confidential client's secret is: `${NAME}` a variable, `${file:/path}` a file, or
    `${secret:NAME}` one that is kept sealed. Both addresses come from the server's metadata, unless they are here.
    `resource` is what tokens are asked for (RFC 8707); left out, the console's address; empty where the server takes no
    such parameter, which then needs `audiences`.
    """

    client_id: _Text
    client_secret: Annotated[str, Field(max_length=500)] | None = None
    scopes: Annotated[tuple[Annotated[str, Field(pattern=r"^[!#-\[\]-~]{1,200}$")], ...], Field(max_length=50)] = ()
    resource: Annotated[str, Field(pattern=r"^[!-~]*$", max_length=500)] | None = None
    authorization_endpoint: Annotated[str, Field(max_length=2000)] | None = None
    token_endpoint: Annotated[str, Field(max_length=2000)] | None = None

    @field_validator("authorization_endpoint", "token_endpoint")
    @classmethod
    def _is_safe(cls, url: str | None) -> str | None:
        return _checked_url(url)

    @field_validator("client_secret")
    @classmethod
    def _is_elsewhere(cls, reference: str | None) -> str | None:
        if reference is not None and not re.fullmatch(r"\$\{(file:|secret:)?[^{}]+\}", reference):
            raise ValueError("must say where it is: ${NAME}, ${file:/path} or ${secret:NAME}")
        return reference

    @property
    def is_openid(self) -> bool:
        """Whether it asks who signs in (OpenID Connect), so that an ID token must come and name this sign-in."""
        return "openid" in self.scopes

    def secret(self, environ: Mapping[str, str], kept: Secrets) -> str | None:
        """Return the secret; None for a public client.

        Raises:
            ConfigurationError: it is not where `client_secret` says.
        """
        if self.client_secret is None:
            return None
        reference = self.client_secret[2:-1]
        found: str | None = None
        if reference.startswith("file:"):
            with suppress(OSError, UnicodeDecodeError):
                found = Path(reference.removeprefix("file:")).read_text(encoding="utf-8").strip()
        elif reference.startswith("secret:"):
            found = kept.get(reference.removeprefix("secret:"))
        else:
            found = environ.get(reference)
        if not found:
            raise ConfigurationError(
                f"auth.issuers_file: no secret of the client {self.client_id} is at {self.client_secret}.",
                field="auth.issuers_file",
            )
        return found


class Issuer(_Strict):
    """One authorization server, and what its tokens stand for.

    Histories and limits use `name`; `issuer` is the exact value of `iss`. Its keys are at `jwks_uri`, or where its
    metadata (RFC 8414, OpenID Connect Discovery) says. `audiences` are values of `aud` that every API accepts; without
    them, a token must be issued for the address of the API at which it is used. `console` lets people sign in to the
    console there.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
    issuer: Annotated[str, Field(max_length=500)]
    audiences: _Values = ()
    jwks_uri: Annotated[str, Field(max_length=2000)] | None = None
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    types: Annotated[tuple[_Text, ...], Field(min_length=1)] = ("at+jwt", "JWT")
    leeway_s: Annotated[float, Field(ge=0, le=300)] = 30.0
    refresh_s: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    stale_s: Annotated[float, Field(ge=10, le=7 * 86_400)] = 3600.0
    tenant: Mapped
    participants: Mapped
    may_ask: Mapped | None = None
    channels: Mapped | None = None
    roles: Granted[Role]
    faces: Granted[ApiName] = Granted[ApiName](always=("core",))
    requests_per_s: Annotated[float, Field(gt=0)] | None = None
    concurrency: Annotated[int, Field(gt=0)] | None = None
    console: ConsoleClient | None = None

    @field_validator("issuer", "jwks_uri")
    @classmethod
    def _is_safe(cls, url: str | None) -> str | None:
        return _checked_url(url)

    @field_validator("tenant")
    @classmethod
    def _names_tenants(cls, tenant: Mapped) -> Mapped:
        if (tenant.claim is None) != (len(tenant.always) == 1) or (tenant.always and tenant.claim is not None):
            raise ValueError("name one tenant always, or the claim that says which")
        if any(len(names) != 1 for names in (tenant.values or {}).values()):
            raise ValueError("each value stands for one tenant")
        return _with_checked_names(tenant, checked_tenant)

    @field_validator("participants")
    @classmethod
    def _names_participants(cls, participants: Mapped) -> Mapped:
        return _with_checked_names(participants, lambda name: canonical_participants([name])[0])

    @field_validator("may_ask", "channels")
    @classmethod
    def _are_patterns(cls, patterns: Mapped | None) -> Mapped | None:
        return (
            None if patterns is None else _with_checked_names(patterns, lambda name: checked_pattern(name, "pattern"))
        )

    def scopes_granting(self, roles: frozenset[Role]) -> tuple[str, ...]:
        """Return the OAuth scopes that grant one of the roles; none if roles come from a claim other than the scope."""
        if self.roles.path not in (("scope",), ("scp",)):
            return ()
        return tuple(scope for scope, granted in self.roles.values.items() if not roles.isdisjoint(granted))


class _Document(_Strict):
    issuers: Annotated[tuple[Issuer, ...], Field(min_length=1, max_length=20)]

    @field_validator("issuers")
    @classmethod
    def _are_apart(cls, issuers: tuple[Issuer, ...]) -> tuple[Issuer, ...]:
        for values in ([issuer.name for issuer in issuers], [issuer.issuer for issuer in issuers]):
            if len(set(values)) < len(values):
                raise ValueError("each name and each issuer may be there once")
        return issuers


def load_issuers(path: str | Path) -> tuple[Issuer, ...]:
    """Return the issuers that a file lists.

    Raises:
        ConfigurationError: the file cannot be read, or something in it is wrong; the message names the place.
    """
    document = read_yaml(Path(path), "auth.issuers_file")
    try:
        return _Document.model_validate(document).issuers
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
        text = problem["msg"].removeprefix("Value error, ")
        raise ConfigurationError(
            f"auth.issuers_file {path}: {where or 'the document'}: {text}.", field="auth.issuers_file", at=where
        ) from None


def _checked_url(url: str | None) -> str | None:
    if url is not None and not is_safe_url(url):
        raise ValueError("must be an https:// address without user, query or fragment; http:// on loopback alone")
    return url


def is_safe_url(url: str) -> bool:
    """Tell whether keys may be fetched from an address: https, or http on this machine; no user, query or fragment."""
    if not re.fullmatch(r"[\x21-\x7e]+", url):
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # `port` raises ValueError where it is no number
    except ValueError:
        return False
    if not host or parts.username is not None or parts.query or parts.fragment or "?" in url or "#" in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)


def _with_checked_names(mapped: Mapped, check: Any) -> Mapped:
    """Check each name that the configuration writes, and return the mapping unchanged."""
    for name in mapped.configured:
        try:
            canonical = check(name)
        except MyriaError as error:
            raise ValueError(error.message) from error
        if canonical != name:
            raise ValueError(f"write {canonical!r}, its canonical form")
    return mapped
