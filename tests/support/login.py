"""Somebody else's login: an authorization server on loopback at which people sign in to the console.

It remembers what it was asked, and answers as it should unless a test changes that.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt

from tests.support.issuer import RunningIssuer

FORM = """<!doctype html><title>Login</title><link rel="icon" href="data:,">
<form method="post"><button>It is me</button></form>"""


@dataclass
class Ways:
    """How the login answers, where not as it should. None leaves something out."""

    asks: bool = False
    """Whether it shows a page with a button before it sends the browser back."""
    answer: dict[str, Any] = field(default_factory=dict)
    """Changes of what the browser brings back."""
    access: dict[str, Any] = field(default_factory=dict)
    """Changes of the access token's claims."""
    access_token: str | None = None
    """The access token itself."""
    identity: dict[str, Any] | None = field(default_factory=dict)
    """Changes of the ID token's claims."""
    tokens: dict[str, Any] = field(default_factory=dict)
    """Changes of the answer to a code."""
    status: int = 200
    metadata: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    """The body of the answer to a code."""


class Login(RunningIssuer):
    """An issuer at which somebody is signed in already; `codes` are those that were not exchanged yet."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = Ways()
        self.codes: dict[str, dict[str, str]] = {}
        self.exchanges: list[dict[str, str]] = []
        """The forms that came with codes, with `authorization` from the header."""

    def access_token(self, resource: str, **changes: Any) -> str:
        """Return an access token for a resource, good from now on."""
        now = time.time()
        return self.token(**{"aud": resource, "iat": now - 10, "exp": now + 600, **changes})

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        fields = dict(parse_qsl(query))
        if path == "/.well-known/openid-configuration" and self.mode == "well":
            self.seen.append(path)
            self._send(request, 200, {**self._metadata(), **self.ways.metadata})
        elif path == "/authorize":
            self.seen.append(path)
            if self.ways.asks and request.command == "GET":
                self._send(request, 200, FORM.encode(), "text/html")
            else:
                self._send_back(request, fields)
        elif path == "/token" and self.mode == "well":
            self.seen.append(path)
            body = request.rfile.read(int(request.headers["content-length"])).decode()
            form = dict(parse_qsl(body)) | {"authorization": request.headers.get("authorization", "")}
            self.exchanges.append(form)
            self._send(request, *self._exchanged(form))
        else:
            super()._answer(request)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "authorization_response_iss_parameter_supported": True,
        }

    def _send_back(self, request: BaseHTTPRequestHandler, fields: dict[str, str]) -> None:
        code = secrets.token_hex(8)
        self.codes[code] = fields
        answer = {"code": code, "state": fields["state"], "iss": self.url, **self.ways.answer}
        given = urlencode({name: text for name, text in answer.items() if text is not None})
        request.send_response(302)
        request.send_header("location", f"{fields['redirect_uri']}?{given}")
        request.send_header("content-length", "0")
        request.end_headers()

    def _exchanged(self, form: dict[str, str]) -> tuple[int, Any]:
        asked = self.codes.pop(form.get("code", ""), None)
        if self.ways.raw is not None:
            return self.ways.status, self.ways.raw
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        given = {**form, "code_challenge": challenge, "code_challenge_method": "S256"}
        bound = ("client_id", "redirect_uri", "resource", "code_challenge", "code_challenge_method")
        if asked is None or any(given.get(name) != asked.get(name) for name in bound):
            return 400, {"error": "invalid_grant", "error_description": "<b>this code is not good</b>"}
        answer: dict[str, Any] = {
            "access_token": self.ways.access_token or self.access_token(asked.get("resource", ""), **self.ways.access),
            "token_type": "Bearer",
        }
        if "openid" in asked.get("scope", "").split() and self.ways.identity is not None:
            answer["id_token"] = self._id_token(asked)
        return self.ways.status, {**answer, **self.ways.tokens}

    def _id_token(self, asked: dict[str, str]) -> str:
        now = time.time()
        claims = {
            "iss": self.url,
            "sub": "ada",
            "aud": asked["client_id"],
            "iat": now - 1,
            "exp": now + 60,
            "nonce": asked.get("nonce"),
            **(self.ways.identity or {}),
        }
        return jwt.encode(claims, self.keys["k1"], algorithm="RS256", headers={"kid": "k1"})

    def _send(self, request: BaseHTTPRequestHandler, status: int, body: Any, kind: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request.send_response(status)
        if 300 <= status < 400:
            request.send_header("location", f"{self.url}/elsewhere")
        request.send_header("content-type", kind)
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
