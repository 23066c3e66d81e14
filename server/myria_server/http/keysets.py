"""The public keys of an authorization server: fetched beside requests, kept for a while when it cannot be reached.

Keys are fetched at the start and again every `refresh_s`. A key id that nobody has seen yet causes one more fetch, a
few seconds apart at most, whatever callers send. What was fetched last is good for `stale_s`, then nobody can tell.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpx
import jwt
from jwt.exceptions import PyJWTError

from myria.access.issuers import Issuer
from myria.errors import CredentialInvalid, IssuerUnavailable
from myria_server.http.issuer_metadata import address_in, fetch_json, metadata_of, trusted_authorities

_log = logging.getLogger(__name__)

MAX_KEYS = 100
"""Keys of one set; those beyond are left out."""

FETCH_S = 5.0
"""Seconds for all requests of one fetch together."""

AGAIN_S = 5.0
"""Seconds between two fetches that callers cause."""

MAX_MEMBER = 1400
"""Characters of one number of a key: room for RSA with 8192 bits."""

_POLL_S = 0.5
_RSA_BITS = range(2048, 8193)
_KINDS: Mapping[str, tuple[str, str | None]] = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
_MEMBERS = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}
"""The public members of each kind of key; nothing else of a key set is used."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One key of a set, with its public members by name."""

    key_id: str | None
    algorithm: str | None
    members: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1024)
def _bind(key: PublicKey, algorithm: str) -> jwt.PyJWK | None:
    """Return a key bound to an algorithm; None where kind, curve or size of the key do not suit it."""
    (kind, curve), members = _KINDS[algorithm], dict(key.members)
    if key.algorithm not in (None, algorithm) or members["kty"] != kind:
        return None
    if curve is not None and members["crv"] != curve:
        return None
    try:
        bound_key = jwt.PyJWK.from_dict(members, algorithm=algorithm)
    except PyJWTError:
        return None
    if kind == "RSA" and bound_key.key.key_size not in _RSA_BITS:
        return None
    return bound_key


class KeySet:
    """The public keys of one issuer.

    Args:
        ticks: a steady clock, in seconds.
    """

    def __init__(self, issuer: Issuer, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._ticks = ticks
        self._keys: tuple[PublicKey, ...] = ()
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._failed = True
        self._fetching: asyncio.Task[None] | None = None
        self.fetches = 0

    @property
    def usable(self) -> bool:
        """Whether the last successful fetch is at most `stale_s` old, so that its keys may be used."""
        return self._ticks() - self._fetched_at <= self._issuer.stale_s

    def holds(self, key: PublicKey) -> bool:
        """Tell whether a key is still in the set."""
        return key in self._keys

    async def key(self, key_id: str | None, algorithm: str) -> tuple[PublicKey, jwt.PyJWK]:
        """Return the key that a token's header names, also bound to its algorithm; fetch again where none matches.

        Raises:
            CredentialInvalid: the issuer has no such key, or several.
            IssuerUnavailable: it cannot be asked now.
        """
        matches = self._matching_keys(key_id, algorithm) if self.usable else []
        is_fetching = self._fetching is not None and not self._fetching.done()
        if not matches and (is_fetching or self._ticks() - self._tried_at >= AGAIN_S):
            await self.fetch()
            matches = self._matching_keys(key_id, algorithm) if self.usable else []
        if len(matches) == 1:
            return matches[0]
        if not self.usable or (not matches and self._failed):
            raise IssuerUnavailable(
                f"the keys of the authorization server {self._issuer.name} cannot be had now; retry",
                issuer=self._issuer.name,
            )
        raise CredentialInvalid("this token is signed with a key that its issuer does not have", reason="key")

    async def fetch(self) -> None:
        """Fetch the keys, or wait for the fetch that is under way. A failure leaves the keys as they are."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch())
        await asyncio.shield(self._fetching)

    async def run(self) -> None:
        """Keep the keys fresh until cancelled."""
        try:
            while True:
                wait = AGAIN_S if self._failed else self._issuer.refresh_s
                if self._ticks() - self._tried_at >= wait:
                    await self.fetch()
                await asyncio.sleep(_POLL_S)
        finally:
            if self._fetching is not None:
                self._fetching.cancel()

    def _matching_keys(self, key_id: str | None, algorithm: str) -> list[tuple[PublicKey, jwt.PyJWK]]:
        """Return the keys for this algorithm with this id, or with any id where the token names none."""
        named_keys = [key for key in self._keys if key_id is None or key.key_id == key_id]
        bound_keys = [(key, _bind(key, algorithm)) for key in named_keys]
        return [(key, bound_key) for key, bound_key in bound_keys if bound_key is not None]

    async def _fetch(self) -> None:
        """Fetch the key set once; log a failure, and keep the keys there were."""
        self.fetches += 1
        self._tried_at = started_at = self._ticks()
        try:
            async with asyncio.timeout(FETCH_S), httpx.AsyncClient(verify=trusted_authorities()) as client:
                uri = self._issuer.jwks_uri
                if uri is None:
                    uri = address_in(await metadata_of(client, self._issuer), "jwks_uri", self._issuer)
                keys = _read_keys(await fetch_json(client, uri))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, OSError) as error:
            self._failed = True
            _log.warning(
                "the keys of the issuer %s cannot be had: %s: %s",
                self._issuer.name,
                type(error).__name__,
                error,
                extra={"action": "issuer_keys_failed", "issuer": self._issuer.name},
            )
            return
        self._failed = False
        self._keys, self._fetched_at = keys, started_at


def _read_keys(document: Mapping[str, Any]) -> tuple[PublicKey, ...]:
    """Return the signature keys of a key set; other entries are ignored (RFC 7517, section 5).

    Raises:
        ValueError: the document is no key set, or has no signature key.
    """
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise ValueError("this is no key set")
    keys = tuple(key for key in map(_read_key, entries[:MAX_KEYS]) if key is not None)
    if not keys:
        raise ValueError("this key set has no key for signatures")
    return keys


def _read_key(entry: Any) -> PublicKey | None:
    """Return the public key that an entry of a key set describes, None where it is no key for signatures."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        return None
    members = {name: entry.get(name) for name in _MEMBERS.get(str(entry.get("kty")), ())}
    texts = {name: value for name, value in members.items() if isinstance(value, str) and len(value) <= MAX_MEMBER}
    if not texts or len(texts) < len(members):
        return None
    return PublicKey(key_id, algorithm, tuple(texts.items()))
