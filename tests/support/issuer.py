"""Somebody else's authorization server: an HTTP server on loopback with keys of its own, which signs tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NOW = 1_800_000_000.0
"""The moment of the tests, in seconds since 1970."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return the RSA key of a number, the same in one process."""
    del number
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def public_pem(key: PrivateKey) -> bytes:
    """Return the public half as everybody can have it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def public_jwk(key: PrivateKey, **members: Any) -> dict[str, Any]:
    """Return the public half as an entry of a key set."""
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    algorithm = next(algorithm for kind, algorithm in kinds.items() if isinstance(key, kind))
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "use": "sig", **members}


def encoded(value: Any) -> str:
    """Return base64url of JSON, or of bytes as they are."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hmac_token(header: Mapping[str, Any], claims: Mapping[str, Any], secret: bytes) -> str:
    """Return a token that is signed with a shared secret, which libraries refuse to make of a public key."""
    signed = f"{encoded(header)}.{encoded(claims)}"
    return f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


class RunningIssuer:
    """An authorization server that runs in a thread.

    `keys` is what its key set holds now, by key id; `mode` is how it answers: as it should, by closing the connection,
    with an error, or with something too large. `seen` are the paths that were asked for.
    """

    def __init__(self) -> None:
        self.keys: dict[str, PrivateKey] = {"k1": rsa_key(1)}
        self.extra: list[Any] = []
        self.mode: Literal["well", "closing", "failing", "endless", "another"] = "well"
        self.seen: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def fetches(self) -> int:
        """How often its keys were asked for."""
        return self.seen.count("/keys")

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a good token, with changes; None leaves a claim out."""
        claims = {
            "iss": self.url,
            "sub": "ada",
            "aud": "https://memory.example.com/mcp",
            "iat": NOW - 10,
            "exp": NOW + 600,
            "scope": "memory:read memory:write",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self, *, kid: str | None = "k1", algorithm: str = "RS256", key: PrivateKey | None = None, **changes: Any
    ) -> str:
        """Return a signed token.

        Args:
            key: instead of the key of that id.
        """
        headers = {"typ": "at+jwt"} | ({} if kid is None else {"kid": kid})
        signing = self.keys[kid or "k1"] if key is None else key
        return jwt.encode(self.claims(**changes), signing, algorithm=algorithm, headers=headers)

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.seen.append(request.path)
        if self.mode == "closing":
            request.close_connection = True
            return
        status = 200
        document: Any = None
        if request.path == "/keys":
            document = {"keys": [public_jwk(key, kid=kid) for kid, key in self.keys.items()] + self.extra}
        elif request.path == "/.well-known/openid-configuration":
            document = {"issuer": "http://127.0.0.1:9" if self.mode == "another" else self.url}
            document["jwks_uri"] = f"{self.url}/keys"
        else:
            status = 404
        if self.mode == "failing":
            status = 500
        body = b" " * 1_000_000 if self.mode == "endless" else json.dumps(document).encode()
        request.send_response(status)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
