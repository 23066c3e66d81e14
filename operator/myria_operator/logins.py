"""Makes the Secrets with which database roles log in, inside the cluster, so that no manifest holds a password.

A Secret that exists is left unchanged, whoever made it: running this again changes nothing, and a reinstallation uses
the passwords of the one before.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from myria_operator.secret_objects import SecretMaker
from myria_rebuilds.connection import configuration
from myria_rebuilds.resource import Json

PASSWORD_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """A role that gets a Secret: `username`, `password`, and `dsn`, the connection string with both."""

    secret: str
    role: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseAddress:
    """Where the roles log in."""

    host: str
    port: int
    database: str


def secret_of(login: Login, address: DatabaseAddress, labels: Mapping[str, str], password: str) -> Json:
    """Return the manifest of a login's Secret, of the type that CloudNativePG reads too."""
    who = f"{quote(login.role, safe='')}:{quote(password, safe='')}"
    where = f"{address.host}:{address.port}/{quote(address.database, safe='')}"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": login.secret, "labels": dict(labels)},
        "type": "kubernetes.io/basic-auth",
        "stringData": {"username": login.role, "password": password, "dsn": f"postgresql://{who}@{where}"},
    }


async def make_logins(
    logins: list[Login], address: DatabaseAddress, labels: Mapping[str, str], namespace: str = ""
) -> list[str]:
    """Make the Secrets that are missing in `namespace` (empty: the pod's); return their names.

    Raises:
        ConfigurationError: there is no way to the API server.
        ClusterUnavailable, ClusterRefused: it did not answer, or may not.
    """
    configured, own_namespace = await configuration()
    api = SecretMaker(configured, namespace or own_namespace)
    async with api:
        return [
            login.secret
            for login in logins
            if await api.make(secret_of(login, address, labels, secrets.token_urlsafe(PASSWORD_BYTES)))
        ]
