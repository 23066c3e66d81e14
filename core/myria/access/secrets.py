"""Keys as text: `myr_<id>_<secret>`.

A secret has 160 random bits, too many to guess, so a fast digest of it is as safe as a slow one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

PREFIX = "myr"
# Without l, o, 0 and 1, which people confuse.
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_ID_CHARACTERS = 12
_SECRET_CHARACTERS = 32
_IN_TEXT = re.compile(r"(myr_[a-z0-9]{6,32}_|my[acfs]_)[A-Za-z0-9]{6,}")
_TOKEN_CHARACTERS = 40
_ACCESS = re.compile(r"mya_[a-z0-9]{40}")
_SESSION = re.compile(r"mys_[a-z0-9]{40}")

ACCESS_PREFIX = "mya_"
REFRESH_PREFIX = "myf_"
CODE_PREFIX = "myc_"
SESSION_PREFIX = "mys_"

_KEY = re.compile(r"myr_([a-z0-9]{6,32})_([A-Za-z0-9]{24,128})")


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A key as it is shown once: its public id, and its whole text."""

    key_id: str
    text: str

    @property
    def digest(self) -> bytes:
        """What is stored in place of the secret."""
        return digest_of(self.text.rpartition("_")[2])

    def __repr__(self) -> str:
        return f"MadeKey({self.key_id!r})"


def make_key(key_id: str | None = None) -> MadeKey:
    """Return a new key with a random secret and this id, or a random one."""
    key_id = key_id or _random(_ID_CHARACTERS)
    return MadeKey(key_id, f"{PREFIX}_{key_id}_{_random(_SECRET_CHARACTERS)}")


def key_id_of(text: str) -> str:
    """Return the key id that a text stands for: always the same, and as unlike others as a random one."""
    digest = hashlib.sha256(b"myria.key_id.v1\n" + text.encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_ID_CHARACTERS])


def parse_key(text: str) -> MadeKey | None:
    """Return the key that a text is; None if it is not a key."""
    match = _KEY.fullmatch(text)
    return None if match is None else MadeKey(match[1], text)


def hide_keys(text: str) -> str:
    """Hide the secrets in a text: of a key only its id stays, of a code or a token only the prefix."""
    return _IN_TEXT.sub(r"\1***", text) if "my" in text else text


def parse_credential(text: str) -> MadeKey | None:
    """Return the key or access token (of our own server, with the id "") that a text is; None if it is neither."""
    return MadeKey("", text) if _ACCESS.fullmatch(text) is not None else parse_key(text)


class MadeSession(MadeKey):
    """A session of the console, as its browser shows it.

    It is no credential of the APIs: its digest is made in another way, so no token can be forged of it.
    """

    @property
    def digest(self) -> bytes:
        """What is stored in place of the secret."""
        return hashlib.sha256(b"myria.session.v1\n" + self.text.encode()).digest()


def parse_session(text: str) -> MadeSession | None:
    """Return the session of the console (with the id "") that a text is; None if it is none."""
    return MadeSession("", text) if _SESSION.fullmatch(text) is not None else None


def make_secret(prefix: str) -> str:
    """Return a new random secret that begins with a prefix, such as an access token."""
    return prefix + _random(_TOKEN_CHARACTERS)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def token_digest(text: str) -> bytes:
    """Return the digest under which a code or a token of our own authorization server is stored."""
    return digest_of(text.rpartition("_")[2])


def digest_of(secret: str) -> bytes:
    """Return the digest under which a secret is stored."""
    return hashlib.sha256(b"myria.key.v1\n" + secret.encode()).digest()
