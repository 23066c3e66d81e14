"""The passwords of one data directory: generated once, kept beside the database in a file only its owner reads."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from myria.errors import EmbeddedPostgresFailed
from myria.settings.files import written_whole

SUPERUSER = "postgres"
ITERATIONS = 4096
"""PostgreSQL's default. 256 random bits need no stretching, but some clients refuse a smaller number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One role's password, and the SCRAM-SHA-256 verifier that PostgreSQL stores for it (RFC 5802, RFC 7677)."""

    role: str
    password: str
    verifier: str


class Credentials:
    """The file of passwords. A new role's password is written here first, and set in PostgreSQL afterwards."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, *roles: str) -> list[Credential]:
        """Return the credentials of `roles` in that order, making the missing ones.

        Raises:
            EmbeddedPostgresFailed: the file is damaged.
            OSError: it cannot be read or written.
        """
        stored = self._read()
        missing = [role for role in roles if role not in stored]
        if missing:
            stored |= {role: _generate(role) for role in missing}
            self._write(stored)
        return [stored[role] for role in roles]

    def _read(self) -> dict[str, Credential]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        try:
            return {
                role: Credential(role=role, password=entry["password"], verifier=entry["verifier"])
                for role, entry in json.loads(text).items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise EmbeddedPostgresFailed(
                f"{self._path} is damaged; restore it: it holds the database's passwords"
            ) from problem

    def _write(self, credentials: dict[str, Credential]) -> None:
        document = {
            role: {"password": credential.password, "verifier": credential.verifier}
            for role, credential in sorted(credentials.items())
        }
        with written_whole(self._path) as file:
            file.write(json.dumps(document, indent=1).encode())


def _generate(role: str) -> Credential:
    password = secrets.token_urlsafe(32)
    return Credential(role=role, password=password, verifier=scram_verifier(password, secrets.token_bytes(16)))


def scram_verifier(password: str, salt: bytes) -> str:
    """Return what PostgreSQL stores for an ASCII `password`, so that the password itself never reaches its log."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    texts = [base64.b64encode(part).decode("ascii") for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${ITERATIONS}:{texts[0]}${texts[1]}:{texts[2]}"
